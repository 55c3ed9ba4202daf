"""Does a reply say the opposite of a reference, or of itself? Read from negations, opposites, and yes or no.

There are three readings: whether both open with yes or no, and differ; what each asserts and what it denies ("A, not B"
against "B, not A"); and whether sentences about the same thing are negated in one and not in the other.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations

from groupwise.rewards.rules.components import SENTENCE, listed, words_of
from groupwise.rewards.rules.english import FUNCTION_WORDS, NEGATIONS, is_generic
from groupwise.stems import stem

ALIKE = 0.5  # share of subjects in common that makes two sentences about the same thing
SAME = 0.75  # the same within one reply, where neighbouring sentences have much in common
OPPOSITES = tuple(
    frozenset(map(stem, pair.split("/")))
    for pair in listed(
        "yes/no, enable/disable, increase/decrease, before/after, more/less, always/never, true/false, "
        "allow/forbid, open/close, start/stop, higher/lower, rise/fall, include/exclude, safe/unsafe, "
        "valid/invalid, hot/cold, up/down, faster/slower, cheaper/expensive, accept/reject, first/last, "
        "can/cannot, same/different, larger/smaller, early/late, win/lose, required/optional, permit/prohibit, "
        "full/empty, inside/outside, possible/impossible, legal/illegal"
    )
)
PREFIX = re.compile(r"^(?:un|in|im|ir|il|non|dis)(?=\w{4})")
AUXILIARY = r"(?:is|are|was|were|am|does|do|did|can|could|will|would|should|shall|may|might|must|has|have|had)"
ASKED = re.compile(rf"(?:^|[.!?,;:\n]\s*|\b(?:and|but|so|or|hey|hi)\s+){AUXILIARY}\s+[^.!?]+(?:\?|$)", re.IGNORECASE)
YES = re.compile(
    r"^\W*(?:yes|sure|of course|certainly|absolutely|definitely|correct|indeed|right|"
    r"(?:that|this|it)(?:'s|\s+is)\s+(?:true|right|correct))\b(?!\s+not)",
    re.IGNORECASE,
)
NO = re.compile(
    r"^\W*(?:no\b(?!\s+(?:problem|worries|doubt|matter))|never\b|not\b(?!\s+only)|"
    r"(?:certainly|of\s+course|unfortunately|absolutely|definitely)\s+not\b|"
    r"(?:that|this|it)(?:'s|\s+is)\s+(?:a\s+myth|false|wrong|untrue|not\s+(?:true|right|correct)))",
    re.IGNORECASE,
)
# The verb alone, without what the question says: "It is;", "They aren't:", "You don't have to."
ELLIPTIC = re.compile(
    rf"^\W*(?:(?:normally|usually|by\s+default|generally|strictly)\W+)?(?:i|you|he|she|it|we|they|there|that)\s*"
    rf"(?:(?:{AUXILIARY}|'s|'re)(n't|\s+not)?|can(not|'t)|won('t))(?:\s+(?:have\s+to|need\s+to|to|one|any))?\s*(?:[.,;:!]|$)",
    re.IGNORECASE,
)
OPENING = re.compile(r"^\W*(?:yes|no)\s*[,.:;!-]", re.IGNORECASE)
CLAUSE = re.compile(r"[^,;:.!?()\n]+")
TURNS = re.compile(r"\b(?:but|so|because|unless|except)\b", re.IGNORECASE)
DENIAL = re.compile(r"\b(?:rather\s+than|instead\s+of)\b", re.IGNORECASE)


def contradicts(reply: str, reference: str, question: str = "") -> bool:
    """Whether a reply says the opposite of a reference."""
    plainly = [stance(text) if ASKED.search(question) else None for text in (reply, reference)]
    said, right = (
        found if found is not None else restated(text, question)
        for found, text in zip(plainly, (reply, reference), strict=True)
    )
    settled = any(found is not None for found in plainly) and None not in (said, right)
    if settled and said != right:
        return True
    agreed = settled
    return _denies(reply, reference, question) or (not agreed and _sentences_oppose(reply, reference))


def contradicts_itself(reply: str) -> bool:
    """Whether a later sentence denies an earlier one that is about the same thing."""
    sentences = [_sentence(found) for found in SENTENCE.findall(reply)]
    return any(_alike(one[0], two[0], SAME) and _opposed(two, one) for one, two in combinations(sentences, 2))


@lru_cache(4096)
def stance(text: str) -> bool | None:
    """Whether a text opens with yes or with no, also as "it is" and "they can't"; None if it does neither."""
    first = next((found.strip() for found in SENTENCE.findall(text)), "")
    if NO.search(first):
        return False
    if YES.search(first):
        return True
    short = ELLIPTIC.search(first)
    return None if short is None else not any(short.groups())


RESTATED = 0.5  # share of the question's specific words in a sentence that says it again as a statement


def restated(text: str, question: str) -> bool | None:
    """Whether a text opens by asserting or by denying what the question asks; None if it says something else."""
    asked = {stem(word) for word in words_of(question) if not is_generic(word)}
    about, negated = _sentence(next(iter(SENTENCE.findall(text)), ""))
    return not negated if asked and len(asked & about) >= RESTATED * len(asked) else None


def _denies(reply: str, reference: str, question: str) -> bool:
    """Whether most of what the two have in common beyond the question is asserted by one and denied by the other."""
    asked = {stem(word) for word in words_of(question)}
    (said, denied), (right, wrong) = assertions(reply), assertions(reference)
    opposed = ((said & wrong) | (denied & right)) - asked | _prefixed(said, right) | _prefixed(right, said)
    agreed = ((said & right) | (denied & wrong)) - asked
    return len(opposed) > len(agreed)


def _prefixed(one: set[str], other: set[str]) -> set[str]:
    """What one says with a prefix that denies it: irrational, unsafe."""
    return {PREFIX.sub("", word) for word in one if PREFIX.search(word)} & other


@lru_cache(4096)
def assertions(text: str) -> tuple[set[str], set[str]]:
    """The stems of what a text says, of what it asserts and of what it denies: what follows "not" in a clause."""
    sides: tuple[set[str], set[str]] = set(), set()
    for clause in CLAUSE.findall(TURNS.sub(",", DENIAL.sub("not", text))):
        denied = False
        for word in words_of(clause):
            if word in NEGATIONS:
                denied = not denied
            elif not is_generic(word):
                sides[denied].add(stem(word))
    both = sides[0] & sides[1]
    return sides[0] - both, sides[1] - both


def _sentences_oppose(reply: str, reference: str) -> bool:
    """Whether a sentence of the reply is about the same as one of the reference, but negated or the opposite."""
    for right in map(_sentence, SENTENCE.findall(reference)):
        about = [said for said in map(_sentence, SENTENCE.findall(reply)) if _alike(said[0], right[0], ALIKE)]
        if about and all(_opposed(said, right) for said in about):
            return True
    return False


def _sentence(text: str) -> tuple[set[str], bool]:
    """What a sentence is about, and whether it is negated: an odd number of negations."""
    words = words_of(DENIAL.sub("not", OPENING.sub("", text)))
    return {stem(w) for w in words if w not in NEGATIONS} - {"", "s"}, sum(w in NEGATIONS for w in words) % 2 == 1


def _alike(first: Iterable[str], second: Iterable[str], share: float) -> bool:
    one, other = ({word for word in words if word not in FUNCTION_WORDS} for words in (first, second))
    smaller = min(len(one), len(other))
    return smaller >= 2 and len(one & other) / smaller >= share


def _opposed(said: tuple[set[str], bool], right: tuple[set[str], bool]) -> bool:
    only_said, only_right = said[0] - right[0], right[0] - said[0]
    swapped = any(pair & only_said and pair & only_right for pair in OPPOSITES)
    return (said[1] != right[1]) != swapped
