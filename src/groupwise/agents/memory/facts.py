"""What a user says about themselves, as subject and value: "My dog is called Rex" is (dog name, Rex).

Facts are found by the form of English sentences, or by a model. Two facts with the same subject contradict each other,
and the newer one holds. `forget_request` recognises that a user wants something forgotten.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.agents.memory import statements
from groupwise.agents.memory.vocabulary import STOP_WORDS, words
from groupwise.stems import stem

LONGEST = 200  # characters of a fact
# Words of a subject that do not distinguish it: "my new address" corrects "my address".
VAGUE = frozenset(words("new old current present actual real own main full now still other correct latest"))


@dataclass(frozen=True, slots=True)
class Fact:
    """What is said (`value`) about what (`subject`), and the sentence that says it."""

    subject: str
    value: str
    text: str

    @property
    def key(self) -> str:
        """What two facts that contradict each other have in common: the subject's words as stems, in any order."""
        found = [stem(word) for word in words(self.subject) if word not in VAGUE]
        return " ".join(sorted({word for word in found if word not in STOP_WORDS} or found))


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What a user wants forgotten: everything, the last thing said, or what is about `subject`."""

    everything: bool
    subject: str


# How facts are said: a pattern with the groups `s` (subject) and `v` (value), and the subject. Tried in this order.
V = r"(?P<v>.+?)(?=[.!?;]*$|,? (?:and|but|so|because|which) |,? not (?:\w+ )?\S+\W*$|;)"
NOUN = r"(?P<s>(?:[\w'-]+ ){0,4}?[\w'-]+)"
IS = r"(?: is| are| was| will be|:| has changed to| changed to| has become)"
LEAD = (
    r"(?:(?:actually|sorry|no|oh|well|correction|also|and|but|so|by the way|fyi|"
    r"(?:please )?(?:note|remember|keep in mind|don't forget)(?: that)?)[,:]? )*"
)
NUMBERS = r"(?:an?|one|two|three|four|five|six|\d+)"
MOVED = r"(?:live|living|lived|moved|relocated|reside|moving)"
STATE = r"vegetarian|vegan|diabetic|married|single|divorced|left-handed|colou?r-?blind|pregnant|deaf|blind"
LIKE = r"(?:like|love|enjoy|hate|dislike|avoid|need|use|speak|drive|own|play|take|eat|drink|want)"
TAKE = r"(?:go|going|take|stick|choose|use|book|pick)(?: with| for)?"
RULES: tuple[tuple[str, str], ...] = (
    (rf"my {NOUN} (?:is|was) (?:called|named) {V}", "{s} name"),
    (rf"(?:i have|i've got|we have) an? {NOUN} (?:called|named) {V}", "{s} name"),
    (rf"(?:my|our) {NOUN}{IS} (?:now |still |actually )?{V}", "{s}"),
    (rf"(?:my|our) {NOUN}'s (?:now |still |actually )?{V}", "{s}"),
    (rf"(?P<v>[A-Z]\w*(?: [A-Z]\w*)?) is (?:my|our) {NOUN}\W*$", "{s}"),
    (rf"(?:you can |please |just |everyone )?calls? me {V}", "name"),
    (r"(?:i am|i'm|this is) (?P<v>[A-Z][a-zà-ÿ]+(?: [A-Z][\w-]+)?)(?=[.!,]|$| (?:and|from|here|by the way)\b)", "name"),
    (r"i(?:'m| am) (?P<v>\d{1,3}) (?:years old|now)\W*$", "age"),
    (rf"i(?:'ve| have|'m| am)?(?: just| recently| now)? {MOVED} (?:at|on) {V}", "address"),
    (rf"i(?:'ve| have|'m| am)?(?: just| recently| now)? {MOVED}(?: now)? (?:in|to|near) {V}", "home"),
    (rf"i(?:'m| am|'ve been| have been)?(?: now| currently)? work(?:ing|ed)? (?:at|for) {V}", "employer"),
    (rf"i(?:'m| am)?(?: now| currently)? work(?:ing)? as an? {V}", "job"),
    (rf"i(?:'m| am|'ve become| have become) an? {V}", "who you are {v}"),
    (rf"i was born (?:on|in|at) {V}", "birthday"),
    (rf"i(?:'m| am) (?:\w+ )?(?:allergic|intolerant) to {V}", "allergy {v}"),
    (rf"i(?:'m| am) (?P<v>{STATE})\b", "who you are {v}"),
    (rf"i(?: really| also| still| now)? prefer {V}", "preferred {last}"),
    (rf"i(?: really| also| still| no longer| always)? {LIKE} {V}", "taste {v}"),
    (rf"i (?:don't|do not|can't|cannot|never|won't)(?: really)? (?:{LIKE}|fly|stand) {V}", "taste {v}"),
    (rf"i(?:'d| would) (?:prefer|rather|like) {V}", "preferred {last}"),
    (rf"i(?:'ve| have)(?: got)? {NUMBERS} {V}", "has {v}"),
    (rf"(?:let's|we'll|i'll|we will|i will|(?:i|we)(?:'ve| have)? decided to) {TAKE} {V}", "decision {v}"),
    (rf"(?:i|we)(?:'ve| have)? (?:decided on|settled on|opted for|chose|picked|agreed on) {V}", "decision {v}"),
    (rf"(?:the|this|that|his|her|their) {NOUN}{IS} (?:now |still |actually )?{V}", "{s}"),
)
PATTERNS = tuple((re.compile(rf"^{LEAD}{pattern}", re.IGNORECASE), subject) for pattern, subject in RULES)
PART = re.compile(r",? (?:and|but) (?=(?:i|i'm|my|our|we|call me)\b)|, (?=(?:my|our|i'm|i am)\b)", re.IGNORECASE)
EXPLICIT = re.compile(
    r"^(?:please )?(?:remember|note|keep in mind|don't forget)(?: that|:|,)? (?P<v>.{4,})$", re.IGNORECASE
)
OTHERS = ("the ", "this ", "that ", "his ", "her ", "their ")
TRAILING = re.compile(
    r"(?:,? (?:now|instead|any ?more|too|as well|please|very much|a lot|last \w+|these days))+\W*$", re.I
)
# "It is Y, not X", "I meant Y", "make that Y": a new value for what was said last.
BARE = re.compile(
    rf"^{LEAD}(?:no,? )?(?:it's|it is|it was|that's|that is|i meant|i mean|make (?:it|that)|(?:it )?should be) {V}",
    re.IGNORECASE,
)
NOT_A_VALUE = re.compile(
    r"^(?:not sure|unsure|unknown|a (?:question|bit|problem)|that|it|this|what|how|why|very|so|too|ok|okay|fine|good|"
    r"great|right|wrong|here|there|happy|glad|sorry|sure|afraid|wondering|looking|trying|going|interested|curious|"
    r"thinking|just|only (?:asking|wondering)|broken|not working|to (?:know|be honest|see|ask|get)|some help|help|more|"
    r"your|you|late|ready|confused|lost|back|done|really|quite|still|not)\b",
    re.IGNORECASE,
)
FORGET = re.compile(
    r"^(?:(?:please|kindly|ok(?:ay)?|now|and|also|actually|then),? )*"
    r"(?:(?:can|could|would|will) you |i (?:want|would like|'d like) you to |you (?:can|should|must) )?(?:please )?"
    r"(?:forget|erase|delete|remove|wipe|clear|scrap|purge|stop remembering|(?:don't|do not) (?:remember|store|keep))\b"
    r"(?P<what>[^.!?\n]*)",
    re.IGNORECASE,
)
# "I'd like my address deleted", "I want to be forgotten".
WISHED = re.compile(
    r"^(?:i want|i wish|i would like|i'd like) (?:for )?(?P<what>(?:my|our|everything|all)\b[^.!?\n]*? )?"
    r"(?:to be )?(?:forgotten|erased|deleted|removed|wiped)\b",
    re.IGNORECASE,
)
ALL = re.compile(
    r"^\W*(?:about )?(?:me|(?:everything|all|anything|all of it)"
    r"(?:\b.*\b(?:me|i|my|us|know|told|said|data|remember|stored)\b.*|\W*)|"
    r"(?:all )?(?:of )?my (?:personal |private )?(?:data|information|details|memory|facts)|"
    r"(?:all (?:of )?)?your memor(?:y|ies)(?: (?:of|about) me)?|"
    r"what(?:ever)? you know(?: about me)?|who i am)(?:,? please\b|,? now\b| \([^)]*\))*\W*$",
    re.IGNORECASE,
)
LAST = re.compile(
    r"^\W*(?:about )?(?:that|this|what i (?:just )?said|the last (?:thing|message|one))\W*$", re.IGNORECASE
)
FILLERS = re.compile(
    r"\b(?:what i (?:told you|said to you|said|told|mentioned) about|what you know about|"
    r"everything (?:i said |you know )?about|about|that|"
    r"the fact that|from your memory|my|our|the|i|again|please|now|anything)\b"
    r"|,\s+(?:he|she|it|they|we|i|since|because|as)\b.*",
    re.IGNORECASE,
)


def read_facts(text: str, before: Sequence[Fact] = ()) -> list[Fact]:
    """The facts in a user's message, in their order.

    Args:
      before: what the user said earlier, newest last; "Actually, it is the 14th" is about the last of it.
    """
    known, found = list(before), []
    for sentence in statements.sentences(text.replace("’", "'")):
        if sentence.endswith("?") or FORGET.match(sentence) or WISHED.match(sentence):
            continue
        for fact in _of_sentence(sentence, known):
            known.append(fact)
            found.append(fact)
    # Of facts that contradict each other, the later one.
    return list({fact.key: fact for fact in found}.values())


def _of_sentence(sentence: str, known: Sequence[Fact]) -> Iterator[Fact]:
    # "I live in Porto and my dog is called Rex": each part is a sentence of its own if it begins like one.
    found = [fact for part in PART.split(sentence) if (fact := _read(part.strip())) is not None]
    yield from found
    correction = BARE.match(sentence)
    if found or not correction or not known:
        return
    value, last = _value(correction["v"]), None
    if statements.read(sentence).corrects or statements.values(sentence):
        last = _corrected(known, value)
    if last is not None and value and not NOT_A_VALUE.match(value):
        yield Fact(last.subject, value, f"{last.subject}: {value}"[:LONGEST])


def _corrected(known: Sequence[Fact], value: str) -> Fact | None:
    """The newest fact whose value is of the same sort as a new one: with or without a number."""
    numbers = any(letter.isdigit() for letter in value)
    same = [fact for fact in known[-3:] if any(letter.isdigit() for letter in fact.value) == numbers]
    return same[-1] if same else None


def _value(text: str) -> str:
    return TRAILING.sub("", re.split(r",? not (?=(?:\w+ )?\S+$)", text)[0]).strip(" ,\"'")[:LONGEST]


def _read(part: str) -> Fact | None:
    for pattern, subject in PATTERNS:
        match = pattern.match(part)
        if match is None:
            continue
        value, named = _value(match["v"]), match.groupdict().get("s") or ""
        if _is_fact(part, subject, named, value):
            last = value.split()[-1]
            return Fact(subject.format(s=named, v=value, last=last), value, part.rstrip(" ,")[:LONGEST])
    explicit = EXPLICIT.match(part)
    return Fact(explicit["v"], explicit["v"][:LONGEST], explicit["v"][:LONGEST]) if explicit else None


def _is_fact(part: str, subject: str, named: str, value: str) -> bool:
    """Whether a match is worth keeping: "I'm happy" and "The weather is nice" are not."""
    if not value or NOT_A_VALUE.match(value) or (named and {*words(named)} <= STOP_WORDS):
        return False
    # The rules ignore case, but a name has a capital.
    if (subject == "name" or part.startswith(value)) and not value[0].isupper():
        return False
    return not part.lower().startswith(OTHERS) or bool(statements.values(value))


def forget_request(text: str) -> ForgetRequest | None:
    """What a user's message asks to forget; None if it asks for nothing of the kind.

    Only an instruction counts: "I forgot my password" and "don't forget my birthday" are none.
    """
    for sentence in statements.sentences(text.replace("’", "'")):
        match = FORGET.match(sentence) or WISHED.match(sentence)
        if match is None:
            continue
        what = (match["what"] or "me").strip()
        if ALL.match(what):
            return ForgetRequest(True, "")
        if LAST.match(what):
            return ForgetRequest(False, "")
        subject = " ".join(FILLERS.sub(" ", what).split())
        # "Delete the second paragraph" is about something else: only what is the user's can be forgotten.
        if subject and re.search(r"\b(?:my|our|me|i|i'm|i've)\b", what, re.IGNORECASE):
            return ForgetRequest(False, subject)
    return None


def facts_in_lines(written: str, said: str) -> list[Fact]:
    """The facts in a model's list of `subject: value`, of which only those count whose value was said."""
    found, heard = [], " ".join(words(said))
    for line in written.splitlines():
        subject, colon, value = line.strip(" -*").partition(":")
        plain = " ".join(words(value))
        if colon and plain and subject.strip() and plain in heard:
            found.append(
                Fact(subject.strip()[:LONGEST], value.strip(" .")[:LONGEST], f"{subject.strip()}: {value.strip()}")
            )
    return found
