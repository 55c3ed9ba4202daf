"""Whether a dialogue met the user's need: what the rules of `reading` find, weighed with what words and numbers tell.

Rules read what they have phrases for. Beside them stands a logistic regression on the stems and pairs of stems of the
user's last turn, the stems of the turns around it, and a few counts; what the rules found is one more clue, of a weight
that was measured on dialogues they were not made for. It overrules the rules only where it is sure, and never where
the assistant has the last word. `benchmarks/train_resolution.py` fits the weights in `resolution.json`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from groupwise.agents.strategies.polarity import NEGATION
from groupwise.agents.strategies.reading import Verdict, is_plain, last_turn, resolved_by_rules, verdict
from groupwise.agents.strategies.registry import sentences, words_of
from groupwise.agents.strategies.valence import balance, valences
from groupwise.stems import stem
from groupwise.types import Message

Clues = dict[str, float]
TOKEN = re.compile(r"[a-z']+")
# How sure the weights must be to overrule the rules.
SURE = 0.75
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def is_resolved(dialogue: Sequence[Message]) -> bool:
    """Whether the user's need was met by the end of a dialogue."""
    turns, ruled = Ending.of(dialogue), resolved_by_rules(dialogue)
    if turns is None or turns.after:
        return ruled
    return weighed(turns, "settled" if ruled else "open") == "settled"


def heard(asked: str, before: str, said: str) -> Verdict:
    """Whether somebody considers their matter settled in what they say now, or "" if they do not say."""
    ruled = verdict(said, last_turn(before))
    return weighed(Ending(asked, before, said, ""), ruled) if before else ruled


def weighed(turns: "Ending", ruled: Verdict) -> Verdict:
    """What the rules say, unless the turn is one to weigh and the weights are sure of something else."""
    if is_plain(turns.said, last_turn(turns.before)):
        return ruled
    chance = _chance(turns, ruled == "settled")
    if chance >= SURE:
        return "settled"
    return "open" if ruled == "settled" and chance <= 1 - SURE else ruled


def _chance(turns: "Ending", ruled: bool) -> float:
    weights = _weights()
    told = sum(weights.get(name, 0.0) * value for name, value in word_clues(turns).items())
    total = weights["bias"] + weights["rules"] * (1 if ruled else -1) + told
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


@cache
def _weights() -> Mapping[str, float]:
    read: dict[str, float] = json.loads((files(__package__) / "resolution.json").read_text("utf8"))
    return read


class Ending:
    """The turns of a dialogue that tell how it ended: what was asked, and the user's last words with those around."""

    def __init__(self, asked: str, before: str, said: str, after: str) -> None:
        self.asked, self.before, self.said, self.after = asked, before, said, after

    @classmethod
    def of(cls, dialogue: Sequence[Message]) -> "Ending | None":
        """The turns of a dialogue in which somebody was answered, else None."""
        turns = [message for message in dialogue if message["role"] in ("user", "assistant")]
        roles = [message["role"] for message in turns]
        if "user" not in roles or "assistant" not in roles[roles.index("user") :]:
            return None
        asked, last = roles.index("user"), len(roles) - 1 - roles[::-1].index("user")
        after = " ".join(words_of(message) for message in turns[last + 1 :])
        answers = [words_of(message) for message in turns[asked:last] if message["role"] == "assistant"]
        if not answers:
            return cls(words_of(turns[asked]), "", "", after)
        return cls(words_of(turns[asked]), answers[-1], words_of(turns[last]), after)


def word_clues(turns: Ending) -> Clues:
    """What the words, their order, their tone and the numbers of the turns tell."""
    said = _stems(turns.said)
    pairs = [f"{a} {b}" for a, b in zip(["^", *said], [*said, "$"], strict=True)]
    found = {f"said {word}": 1.0 for word in (*said, *pairs)}
    found |= {f"before {word}": 1.0 for word in _stems(turns.before)}
    found |= {f"after {word}": 1.0 for word in _stems(turns.after)}
    # Thanks after a promise are not those after a report.
    kind = last_turn(turns.before) or "nothing"
    found |= {f"follows {kind}": 1.0, f"tone follows {kind}": balance(valences(turns.said))}
    return found | _tone(turns) | _shape(turns, said)


def _stems(text: str) -> list[str]:
    return [stem(word) for word in TOKEN.findall(text.lower())]


def _tone(turns: Ending) -> Clues:
    parts = sentences(turns.said) or [""]
    found = valences(turns.said)
    praise, blame = sum(v for v in found if v > 0), -sum(v for v in found if v < 0)
    balances = {
        "said": found, "first": valences(parts[0]), "last": valences(parts[-1]), "before": valences(turns.before),
        "asked": valences(turns.asked), "after": valences(turns.after),
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
        "#answered": float(bool(turns.after)),
    }
