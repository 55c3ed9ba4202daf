"""A reward on trial: what wins that should not, and how much a policy would gain by it.

examples ─► attacks on each ─► the reward scores good, bad and attacks of a question as one group ─► Trial
        └─► a search for one reply that scores well on all questions ─┘
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

from groupwise.errors import ConfigError
from groupwise.readers import data_limits, json_lines
from groupwise.rewards.attacks import ATTACKS, Example, constant_search, own_words
from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import RewardScorer
from groupwise.types import Failed, Group, Reward, Score, Task

BETTER = 1e-6  # more than a rounding error
MOST_EXAMPLES = 60  # questions that are tried, of a longer file
SECONDS = 600.0  # that the search for a constant may take
SEARCHED = 12  # questions that the search for a constant is scored on
HELD_AGAINST = 0.1  # share of the questions on which a trick may win before the reward counts as fooled by it
GOOD, BAD, PROMPT = ("good", "chosen", "answer", "reference"), ("bad", "rejected"), ("prompt", "question")


@dataclass(frozen=True)
class TrickResult:
    """How one trick fared against good answers to the same questions."""

    trick: str
    questions: int
    wins: int
    mean: float
    good_mean: float
    example: str

    @property
    def fooled(self) -> bool:
        return self.wins > HELD_AGAINST * self.questions or self.mean > self.good_mean + BETTER

    @property
    def unseen(self) -> bool:
        """Whether the trick scores what good answers do: it gains nothing, but the reward cannot tell it either."""
        return not self.fooled and abs(self.mean - self.good_mean) <= BETTER


@dataclass(frozen=True)
class Trial:
    """What was found about a reward. `gain` is how much a policy would win over good answers by the best trick.

    `failed` good answers could not be scored, the first of them for the `reason`. The search for a constant made
    `tries`.
    """

    questions: int
    failed: int
    reason: str
    tries: int
    alike: bool
    good_mean: float
    constant_reply: str
    constant_mean: float
    pairs: int
    pairs_right: int
    with_reference: bool
    findings: tuple[TrickResult, ...]

    @property
    def fooled(self) -> list[str]:
        found = [finding.trick for finding in self.findings if finding.fooled]
        found += ["any reply"] if self.alike else []
        return [*found, *(["constant"] if self.constant_mean > self.good_mean + BETTER else [])]

    @property
    def gain(self) -> float:
        return max([0.0, self.constant_mean - self.good_mean, *(f.mean - f.good_mean for f in self.findings)])

    def as_dict(self) -> dict[str, Any]:
        findings = [
            {**asdict(finding), "fooled": finding.fooled, "unseen": finding.unseen} for finding in self.findings
        ]
        return {**asdict(self), "findings": findings, "fooled": self.fooled, "gain": self.gain}


def on_trial(
    reward: Reward, examples: Sequence[Example], tries: int = 2000, seed: int = 0, seconds: float = SECONDS
) -> Trial:
    """Try a reward on examples, on attacks made from them, and on the best constant reply that `tries` find.

    The search for a constant ends early after so many seconds.
    """
    rng, chosen = random.Random(seed), list(examples)
    if len(chosen) > MOST_EXAMPLES:
        chosen = rng.sample(chosen, MOST_EXAMPLES)
    with RewardScorer() as scorer:
        tried = [_tried(scorer, reward, example, chosen, rng) for example in chosen]
        scored = [row for row in tried if not isinstance(row, Failed)]
        reason = next((row.failure.message for row in tried if isinstance(row, Failed)), "")
        if not scored:
            hint = "If it needs a column that the examples do not have, use --pairs."
            raise ConfigError(f"the reward scored none of the good answers: {reason}", hint=hint)
        searched = chosen if len(chosen) <= SEARCHED else rng.sample(chosen, SEARCHED)

        def mean(replies: Sequence[str]) -> list[float]:
            return _means(scorer, reward, searched, replies)

        end = monotonic() + seconds
        constant, _, made = (
            constant_search(own_words(reward, chosen), mean, tries, rng, stopped=lambda: monotonic() > end)
            if tries
            else ("", 0.0, 0)
        )
        # What the search found is judged on all questions, not on those it was found with.
        (level,) = _means(scorer, reward, chosen, [constant])
    totals = [total for row in scored for total, _ in row.values()]
    with_bad = [row for row in scored if "bad" in row]
    return Trial(
        len(chosen),
        len(chosen) - len(scored),
        reason,
        made,
        max(totals) - min(totals) <= BETTER,
        fmean(row["good"][0] for row in scored),
        constant,
        level,
        len(with_bad),
        sum(row["good"][0] > row["bad"][0] + BETTER for row in with_bad),
        any(example.reference for example in chosen),
        tuple(_finding(trick, scored) for trick in ATTACKS if any(trick in row for row in scored)),
    )


def _tried(
    scorer: RewardScorer, reward: Reward, example: Example, others: Sequence[Example], rng: random.Random
) -> dict[str, tuple[float, str]] | Failed:
    """Scores and texts by trick, with `good` and perhaps `bad`; the failure if the good answer could not be scored."""
    replies = {"good": example.good} | ({} if example.bad is None else {"bad": example.bad})
    replies |= {trick: attack(example, rng, others) for trick, attack in ATTACKS.items()}
    scores = dict(zip(replies, _scored(scorer, reward, example, list(replies.values())), strict=True))
    if isinstance(scores["good"], Failed):
        return scores["good"]
    return {name: (score.total, replies[name]) for name, score in scores.items() if isinstance(score, Score)}


def _scored(scorer: RewardScorer, reward: Reward, example: Example, replies: Sequence[str]) -> Sequence[Score | Failed]:
    asked = {"role": "user", "content": example.prompt}
    members = tuple(attempt_of([asked, {"role": "assistant", "content": reply}]) for reply in replies)
    known = {"prompt": example.prompt} | ({"answer": example.reference} if example.reference else {})
    (found,) = scorer.score(reward, [Group("trial", Task("trial", known), members)])
    return found.scores


def _means(scorer: RewardScorer, reward: Reward, examples: Sequence[Example], replies: Sequence[str]) -> list[float]:
    """The mean of each reply over all questions; a reply that cannot be scored earns 0."""
    table = [_scored(scorer, reward, example, replies) for example in examples]
    return [
        fmean(score.total if isinstance(score, Score) else 0.0 for score in column)
        for column in zip(*table, strict=True)
    ]


def _finding(trick: str, rows: Sequence[Mapping[str, tuple[float, str]]]) -> TrickResult:
    both = [(row["good"][0], *row[trick]) for row in rows if trick in row]
    won = [(score - good, text) for good, score, text in both if score > good + BETTER]
    return TrickResult(
        trick,
        len(both),
        len(won),
        fmean(score for _, score, _ in both),
        fmean(good for good, _, _ in both),
        max(won)[1] if won else "",
    )


def read_examples(path: Path) -> list[Example]:
    """Examples from JSON lines: a prompt, a good answer, and perhaps a bad one and a reference.

    The good answer is the column good, chosen, answer or reference, the bad one bad or rejected.
    """
    try:
        return [_example(path, number, row) for number, row in json_lines(path, data_limits())]
    except ConfigError as error:
        told = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise ConfigError(told, hint=error.hint, field=error.field) from None


def _example(path: Path, number: int, row: Any) -> Example:
    columns = row if isinstance(row, Mapping) else {}
    prompt, good, bad = (_first(columns, names) for names in (PROMPT, GOOD, BAD))
    if prompt is None or good is None:
        message = f"line {number} of {path} has no {'prompt' if prompt is None else 'good answer'}"
        raise ConfigError(message, hint='Each line: {"prompt": …, "good": …, "bad": …, "reference": …}.')
    return Example(prompt, good, bad, _first(columns, ("reference",)) or _first(columns, ("answer",)))


def _first(columns: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((columns[name] for name in names if isinstance(columns.get(name), str) and columns[name].strip()), None)


def shipped_examples() -> list[Example]:
    """Fifteen questions of five domains, for a reward whose own data are not at hand."""
    with_files = files("groupwise.rewards").joinpath("trial_examples.jsonl")
    return read_examples(Path(str(with_files)))
