"""Components for teaching (correctness, method, engagement) and creative writing (creativity, coherence, style)."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import ClassVar

from groupwise.rewards.rules import components
from groupwise.rewards.rules.components import Component, Ideas, Referenced, ReplyText, listed, named, words_of
from groupwise.rewards.rules.english import NEGATIONS


class CorrectnessRewardComponent(Referenced):
    """1 if the last reply states a right answer word for word, otherwise half its likeness to the nearest one.

    An answer that the reply negates ("certainly not Canberra"), takes back or names among others ("Sydney or Canberra")
    is not stated, and earns nothing. Likeness is that of
    `SimilarityRewardComponent`. Without a right answer: 0.5 and the flag `no_reference`.
    """

    label = "correctness"

    def compare(self, said: Sequence[ReplyText], reference: str) -> float:
        last = said[-1]
        phrase = components.phrase_of(reference).rstrip("*")
        if last.says(phrase):
            return float(stated(last, phrase) and not hedged(last.text.translate(components.QUOTES), reference))
        return components.likeness(last.words, words_of(reference)) / 2


NEGATING_WORDS = 3  # words before an answer in which "not" refers to it
TURNING = frozenset(listed("but, instead, rather, it's, its, is"))
PART = re.compile(r"[^,;:()\u2013\u2014]+")
# What comes before an answer that somebody else gives, that once was right, or that is doubted
DOUBTED = re.compile(
    r"\b(?:(?:anything|everything|all)\s+(?:but|except)|far\s+from|other\s+than|rather\s+than|instead\s+of|apart\s+from|"
    r"unlike|doubt\w*|den(?:y|ies|ied)|rule[sd]?\s+out|exclud\w+|unlikely|impossible|"
    r"(?:some|many|most|few|they|people|others|you|students|tourists)\s+(?:\w+\s+)?(?:say|think|believe|guess|assume|"
    r"claim|might\s+(?:say|think|guess)|may\s+(?:say|think))|contrary\s+to|mistak\w+|confus\w+|myth|false|wrong|untrue|"
    r"not\s+(?:true|right|correct|the\s+case)|isn't\s+(?:true|right|correct)|used\s+to\s+be|formerly|previously|"
    r"no\s+longer|if\s+it\s+(?:was|were))\b[^.]*$"
)
REFUTED = re.compile(
    r"^\s*(?:(?:is|was|would\s+be|seems|sounds)\s+(?:\w+\s+)?(?:not|wrong|incorrect|false|mistaken|untrue|out|an?\s+(?:\w+\s+)?"
    r"(?:mistake|myth|error|misconception|guess|trap))\b|(?:isn't|wasn't|can't\s+be|cannot\s+be|won't\s+do|is\s+no\s+longer|"
    r"used\s+to\s+be|was\s+once)\b)"
)


def stated(reply: ReplyText, phrase: str) -> bool:
    """Whether a reply says the phrase somewhere without asking it, negating it, doubting it or taking it back."""
    parts = {one: [f" {' '.join(words_of(part))} " for part in PART.findall(one)] for one in reply.sentences}
    said = [part for sentence, within in parts.items() if not sentence.endswith("?") for part in within]
    texts = [part for part in said if f" {phrase} " in part] or [_joined(said)]
    # A right answer of several sentences may have questions of its own.
    if not any(f" {phrase} " in _joined(within) for within in parts.values()):
        texts.append(_joined(part for within in parts.values() for part in within))
    found = [text.partition(f" {phrase} ") for text in texts if f" {phrase} " in text]
    return any(not _negated(before, after) for before, _, after in found)


def _joined(parts: Iterable[str]) -> str:
    return f" {' '.join(map(str.strip, parts))} "


def _negated(before: str, after: str) -> bool:
    words = before.split()[-NEGATING_WORDS:]
    turned = max((n for n, word in enumerate(words) if word in TURNING), default=-1)
    denied = any(word in NEGATIONS for word in words[turned + 1 :])
    return denied or bool(DOUBTED.search(before) or REFUTED.search(after))


TAKEN_BACK = re.compile(
    r"\b(?:just\s+kidding|only\s+joking|scratch\s+that|no,?\s+wait|wait,?\s+no|said\s+(?:nobody|no\s+one)|"
    r"(?:that|this|it)(?:\s+(?:is|was)|'s)\s+(?:all\s+)?(?:a\s+lie|a\s+joke|not\s+true|not\s+right|false|wrong|untrue|nonsense))\b",
    re.IGNORECASE,
)
MANY = 4  # names in a row, one of them the answer, that are no answer
ITEM = re.compile(r"\n\s*(?:[-*]|\d+[.)])?\s*|[,;/]\s*(?:(?:and|or)\s+)?|\s+(?:and|or)\s+")
NAMED = re.compile(r"(?<=[\w,] )(?:[A-Z][\w'-]+|\d[\d.,]*)")


def hedged(text: str, right: str) -> bool:
    """Whether a text that states the right answer takes it back, or names others with it as if to hit one.

    It names others in "Sydney or Canberra", in a bare list of four names, and in sentences that differ by a name only.
    """
    answer = re.compile(rf"(?<!\w){re.escape(right.strip(' .'))}(?!\w)", re.IGNORECASE)
    found = answer.search(text)
    if not found:
        return False
    if TAKEN_BACK.search(text, found.end()):
        return True
    name = re.escape(found[0])
    # "Canberra or Sydney", but not "Canberra, or rather its outskirts" nor "whether you like it or not".
    either = rf"(?:\bor\s+{name}(?!\w)|(?<!\w){name},?\s+or\s+(?!rather\b|more\b|in\b|so\b|not\b|to\b|as\b)\w)"
    return bool(re.search(either, text, re.IGNORECASE)) or _listed(text, answer) or _rivals(text, answer)


def _listed(text: str, answer: re.Pattern[str]) -> bool:
    """Whether the answer stands in a bare list of names."""
    run, holds = 0, False
    for item in ITEM.split(text):
        # "It is Sydney" begins a list; "Perth, because it rains" ends one.
        words = words_of(item)
        short = bool(words) and (len(words) <= NAMING or (not run and len(words) <= 2 * NAMING))
        run, holds = (run + 1, holds or bool(answer.search(item))) if short else (0, False)
        if run >= MANY and holds:
            return True
    return False


NAMING = 2  # words of a name


def _rivals(text: str, answer: re.Pattern[str]) -> bool:
    """Whether two sentences differ only by the name or number that they give, and one gives the answer."""
    frames: dict[str, set[str]] = {}
    for sentence in components.SENTENCE.findall(text):
        for name in NAMED.findall(f"It {sentence}"):
            frame = " ".join(words_of(sentence.replace(name, " ", 1)))
            if len(frame.split()) > 1:
                frames.setdefault(frame, set()).add(name.strip(".,"))
    return any(len(names) > 1 and any(map(answer.fullmatch, names)) for names in frames.values())


class PedagogicalApproachRewardComponent(Ideas):
    """min(1, n / 3), where n counts: an example, a comparison, reasons, building up, a check, and a summary.

    A question to the learner counts as a check.
    """

    label = "pedagogical_approach"
    enough = 3
    ideas: ClassVar = named("""
        example: for example, for instance, example, suppose, imagine, say we, consider;
        comparison: think of it, like a, similar to, just as, analogy, is like, picture;
        reasons: because, since, therefore, so that, the reason, which means, why;
        building up: first, next, then, step, start with, let's start, build on, remember that, recall;
        check: does that make sense, can you, what do you think, try, your turn, what would;
        summary: in short, to sum up, in summary, to summarise, to summarize, key point, remember, overall
    """)

    def found(self, reply: ReplyText) -> int:
        asked = bool(reply.questions) and not reply.says_any(self.ideas["check"])
        return super().found(reply) + asked


class EngagementRewardComponent(Ideas):
    """min(1, n / 3), where n counts: a question, addressing the reader, praise, doing it together, and wonder."""

    label = "engagement"
    enough = 3
    ideas: ClassVar = named("""
        you: you, your, you're, you'll, yourself;
        praise: great, well done, good question, excellent, nice, you're right, exactly, good job, proud;
        together: let's, let us, together, we can, we'll, shall we;
        wonder: imagine, interesting*, fascinat*, curious, surpris*, fun, amazing, guess, discover*, what if
    """)

    def found(self, reply: ReplyText) -> int:
        return super().found(reply) + bool(reply.questions)


VARIETY_WINDOW = 50  # words
KEY_WORD = 4  # letters of a word that can link two sentences


class CreativityRewardComponent(Component):
    """min(1, n / 20) · (0.6 · variety + 0.4 · min(1, figures / 2)) · (1 − 0.25 · clichés), the last at least 0.

    n is the number of words. Variety is the share of distinct words, averaged over windows of 50 words (the
    moving-average type–token ratio), so that long texts are not at a disadvantage. Figures counts different figures of
    speech (like a, as if, as though …), clichés different worn phrases.
    """

    label = "creativity"
    figures: ClassVar = listed("like a, like an, like the, as if, as though, as a, whisper*, danc*, echo*, shimmer*")
    cliches: ClassVar = listed(
        "once upon a time, happily ever after, dark and stormy night, at the end of the day, think outside the box, "
        "little did they know, in the nick of time, calm before the storm, only time will tell, tapestry"
    )

    def rate(self, reply: ReplyText) -> float:
        figures = min(1.0, sum(map(reply.says, self.figures)) / 2)
        worn = max(0.0, 1 - 0.25 * sum(map(reply.says, self.cliches)))
        return min(1.0, len(reply.words) / 20) * (0.6 * variety(reply.words) + 0.4 * figures) * worn


class CoherenceRewardComponent(Component):
    """Linked pairs / max(2, pairs of neighbouring sentences), times the share of distinct sentences.

    Two sentences are linked if they share a word of four letters or more, or if the second opens with a word that
    points back (but, so, then, it, they, this …). It takes at least three linked sentences to score 1.
    """

    label = "coherence"
    pointers: ClassVar = frozenset(
        listed(
            "and, but, so, then, thus, yet, still, also, or, nor, because, therefore, however, meanwhile, moreover, "
            "instead, finally, next, after, before, when, while, once, if, though, although, it, its, he, she, they, "
            "his, her, their, this, that, these, those, such, there, here, who, which"
        )
    )

    def rate(self, reply: ReplyText) -> float:
        sentences = [words_of(sentence) for sentence in reply.sentences]
        linked = sum(self._linked(before, after) for before, after in pairwise(sentences))
        different = len(set(map(tuple, sentences)))
        return linked / max(2, len(sentences) - 1) * different / len(sentences) if sentences else 0.0

    def _linked(self, before: list[str], after: list[str]) -> bool:
        shared = {word for word in before if len(word) >= KEY_WORD} & set(after)
        return bool(shared) or after[0] in self.pointers


class StyleRewardComponent(Component):
    """0.5 · rhythm + 0.5 · economy.

    rhythm = min(1, 2 · std / mean of the sentences' lengths in words), 0 for a single sentence. economy =
    1 − min(1, 10 · f), where f is the share of filler words (very, really, just …).
    """

    label = "style"
    fillers: ClassVar = frozenset(
        listed(
            "very, really, just, quite, actually, basically, literally, simply, totally, absolutely, definitely, "
            "stuff, things, rather"
        )
    )

    def rate(self, reply: ReplyText) -> float:
        if not reply.words:
            return 0.0
        lengths = [len(words_of(sentence)) for sentence in reply.sentences]
        rhythm = min(1.0, 2 * pstdev(lengths) / fmean(lengths)) if len(lengths) > 1 else 0.0
        filler = sum(word in self.fillers for word in reply.words) / len(reply.words)
        return 0.5 * rhythm + 0.5 * (1 - min(1.0, 10 * filler))


def variety(words: list[str]) -> float:
    """The share of distinct words, averaged over every window of 50 words; over all words, if there are fewer."""
    if len(words) <= VARIETY_WINDOW:
        return len(set(words)) / len(words) if words else 0.0
    counts: dict[str, int] = {}  # of the words in the window that slides over the text: linear time
    total = 0
    for n, word in enumerate(words):
        counts[word] = counts.get(word, 0) + 1
        if n >= VARIETY_WINDOW:
            left = words[n - VARIETY_WINDOW]
            counts[left] -= 1
            if not counts[left]:
                del counts[left]
        if n >= VARIETY_WINDOW - 1:
            total += len(counts)
    return total / VARIETY_WINDOW / (len(words) - VARIETY_WINDOW + 1)
