"""Whether a dialogue met the user's need: by what words and numbers tell, or by the rules of `reading`.

Where the user has the last word, a logistic regression decides: on the stems and pairs of stems of that turn, the stems
of the turns before it, and a few counts. `benchmarks/train_resolution.py` fits its weights in `resolution.json`. Where
the assistant has the last word, rules decide. Both decide about a turn after which the talk goes on.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from groupwise.agents.strategies.phrases import HANDED_ON, PROMISED
from groupwise.agents.strategies.polarity import NEGATION
from groupwise.agents.strategies.reading import Verdict, is_plain, last_turn, resolved_by_rules, verdict
from groupwise.agents.strategies.registry import sentences, words_of
from groupwise.agents.strategies.valence import balance, valences
from groupwise.stems import stem
from groupwise.types import Message

Clues = dict[str, float]
TOKEN = re.compile(r"[a-z']+")
# How sure the weights must be to overrule the rules about a turn, after which the talk goes on.
SURE = 0.75
FUTURE = re.compile(
    r"\b(?:tomorrow|tonight|(?:mon|tues|wednes|thurs|fri|satur|sun)day|next (?:week|month|time)|soon|shortly|"
    r"on (?:its|the|their|his|her) way|in the post|\w+'ll|will|going to|in an? (?:hour|day|week|minute|month)|"
    r"(?:\w+|\d+) (?:hours|days|weeks|months))\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def is_resolved(dialogue: Sequence[Message]) -> bool:
    """Whether the user's need was met by the end of a dialogue."""
    turns = Ending.of(dialogue)
    return resolved_by_rules(dialogue) if turns is None else _chance(turns) > 0.5


def heard(asked: str, before: str, said: str) -> Verdict:
    """Whether somebody considers their matter settled in what they say now, or "" if they do not say.

    What the rules say, unless the turn is one to weigh and the weights are sure of something else.
    """
    ruled = verdict(said, last_turn(before))
    if not before or is_plain(said, last_turn(before)):
        return ruled
    chance = _chance(Ending(asked, "", before, said))
    if chance >= SURE:
        return "settled"
    return "open" if ruled == "settled" and chance <= 1 - SURE else ruled


def _chance(turns: "Ending") -> float:
    weights = _weights()
    told = sum(weights.get(name, 0.0) * value for name, value in clues_of(turns).items())
    total = weights["bias"] + told
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


@cache
def _weights() -> Mapping[str, float]:
    read: dict[str, float] = json.loads((files(__package__) / "resolution.json").read_text("utf8"))
    return read


class Ending(NamedTuple):
    """What tells how a dialogue ended: what was asked, what the user said since, the last answer and the last words."""

    asked: str
    since: str
    before: str
    said: str

    @classmethod
    def of(cls, dialogue: Sequence[Message]) -> "Ending | None":
        """The turns of a dialogue in which the user spoke after an answer and had the last word, else None."""
        turns = [message for message in dialogue if message["role"] in ("user", "assistant")]
        roles = [message["role"] for message in turns]
        if not roles or roles[-1] != "user" or "assistant" not in roles[roles.index("user") :]:
            return None
        said = [words_of(message) for message in turns[roles.index("user") :] if message["role"] == "user"]
        answers = [words_of(message) for message in turns[roles.index("user") :] if message["role"] == "assistant"]
        return cls(said[0], " ".join(said[1:-1]), answers[-1], said[-1])


def clues_of(turns: Ending) -> Clues:
    """What the words, their order, their tone and the numbers of the turns tell."""
    said = _stems(turns.said)
    pairs = [f"{a} {b}" for a, b in zip(["^", *said], [*said, "$"], strict=True)]
    found = {f"said {word}": 1.0 for word in (*said, *pairs)}
    found |= {f"since {word}": 1.0 for word in _stems(turns.since)}
    found |= {f"before {word}": 1.0 for word in _stems(turns.before)}
    # Thanks after a promise are not those after a report.
    kind = last_turn(turns.before) or "nothing"
    found |= {f"phrases say {verdict(turns.said, last_turn(turns.before)) or 'nothing'}": 1.0}
    found |= {f"follows {kind}": 1.0, f"tone follows {kind}": balance(valences(turns.said))}
    return found | _tone(turns) | _shape(turns, said) | _answer(turns)


def _stems(text: str) -> list[str]:
    return [stem(word) for word in TOKEN.findall(text.lower())]


def _tone(turns: Ending) -> Clues:
    parts = sentences(turns.said) or [""]
    found = valences(turns.said)
    praise, blame = sum(v for v in found if v > 0), -sum(v for v in found if v < 0)
    balances = {
        "said": found, "first": valences(parts[0]), "last": valences(parts[-1]), "before": valences(turns.before),
        "asked": valences(turns.asked),
    }  # fmt: skip
    tone = {f"#tone of {name}": balance(value) for name, value in balances.items()}
    return tone | {"#praise": praise / (praise + 2), "#blame": blame / (blame + 2)}


def _shape(turns: Ending, said: Sequence[str]) -> Clues:
    """The counts that tell a report from a question, an echo from something new, a number from its correction."""
    before, asked = set(_stems(turns.before)), set(_stems(turns.asked))
    mine, theirs, first = (set(NUMBER.findall(text)) for text in (turns.said, turns.before, turns.asked))
    size = max(1, len(said))
    return {
        "#length": math.log1p(len(said)),
        "#sentences": float(len(sentences(turns.said))),
        "#asks": float("?" in turns.said),
        "#ends asking": float(turns.said.rstrip().endswith("?")),
        "#exclaims": float("!" in turns.said),
        "#trails off": float(".." in turns.said),
        "#denies": float(bool(NEGATION.search(turns.said))),
        "#of oneself": float(bool({"i", "we", "my", "our"} & set(said))),
        "#of the other": float(bool({"you", "your"} & set(said))),
        "#echoes the answer": sum(word in before for word in said) / size,
        "#echoes the question": sum(word in asked for word in said) / size,
        "#asked for the result": float("?" in turns.before),
        "#same number": float(bool(mine & theirs)),
        "#other number": float(bool(theirs and mine - theirs - first)),
        "#number of the question": float(bool(mine & first - theirs)),
        "#new number": float(bool(mine and not theirs)),
    }


def _answer(turns: Ending) -> Clues:
    """What tells an answer from a phrase, and a deed from a promise."""
    closing = " ".join(sentences(turns.before)[-2:])
    future = bool(FUTURE.search(closing)) or PROMISED.within(closing) or HANDED_ON.within(turns.before)
    answered, asked = set(_stems(turns.before)), set(_stems(turns.asked))
    return {
        "#numbers before": float(bool(NUMBER.search(turns.before))),
        "#length before": math.log1p(len(turns.before.split())),
        "#about the question": len(answered & asked) / max(1, min(len(answered), len(asked))),
        "#question asks": float("?" in turns.asked),
        "#denied since": float(bool(NEGATION.search(turns.since))),
        "#future": float(future),
        "#praised future": future * max(0.0, balance(valences(turns.said))),
    }
