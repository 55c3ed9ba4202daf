"""Can rewards be fooled? Presets on 500 pairs, constants found by search, repeated answers, and alarms during runs.

    python benchmarks/rewards.py --json
    python benchmarks/rewards.py --parts pairs alarms

pairs: those of reward_pairs/, written before the presets were rebuilt and without a look at their words, half of them
hostile. `preset_with_reference` and `preset_without` are the shares ranked right (a tie is wrong), with intervals from
resampling prompts. `length_shorter` is what "the shorter reply wins" would get. constants: for every preset, the best
of 2,000 constant replies that a hill climb over the preset's own words and the answers finds on 12 prompts, judged on
others; `constant_gap` is the smallest lead of good answers over it. repeats: whether a good answer said three times or
the question said back ever wins. alarms: 100 simulated runs that drift to one text, repetition, parroting or padding,
and 100 that do not (they learn, stand still, learn to answer longer, or share a format).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from record import kept, print_result

from groupwise.rewards.answer_drift import answer_metrics
from groupwise.rewards.attacks import POLITE, Example, constant_search, own_words, parroted, repeated
from groupwise.rewards.function import attempt_of
from groupwise.rewards.registry import make_reward
from groupwise.rewards.scoring import RewardScorer
from groupwise.training.hints import HintEngine
from groupwise.types import Group, Reward, Score, ScoredGroup, Task

PAIRS = Path(__file__).parent / "reward_pairs"
DOMAINS = ("customer_service", "technical_support", "sales", "educational", "creative")
TRIES, SEARCHED, SEED = 2000, 12, 20261118
RUNS, STEPS, GROUPS, SIZE = 100, 60, 6, 4
Row = dict[str, Any]


def pairs(domain: str) -> list[Row]:
    return [json.loads(line) for line in (PAIRS / f"{domain}.jsonl").read_text().splitlines()]


def totals(
    scorer: RewardScorer, reward: Reward, prompt: str, reference: str | None, replies: Sequence[str]
) -> list[float]:
    asked = {"role": "user", "content": prompt}
    members = tuple(attempt_of([asked, {"role": "assistant", "content": reply}]) for reply in replies)
    payload = {"answer": reference} if reference else {}
    (found,) = scorer.score(reward, [Group("g", Task("t", payload), members)])
    return [score.total if isinstance(score, Score) else -1.0 for score in found.scores]


def ranked(scorer: RewardScorer) -> dict[str, Any]:
    """Every pair: was the good reply ranked above the bad one?"""
    right: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    wins = 0
    for domain in DOMAINS:
        reward = make_reward(domain)
        rng = random.Random(SEED)
        for row in pairs(domain):
            example = Example(row["prompt"], row["good"], row["bad"], row["reference"])
            tricks = [repeated(example, rng, ()), parroted(example, rng, ())]
            good, bad, *tricked = totals(
                scorer, reward, example.prompt, example.reference, [row["good"], row["bad"], *tricks]
            )
            half = "with_reference" if row["reference"] else "without"
            for name in (half, f"{half}/{domain}", f"{half}/{row['kind']}", f"{half}/hostile={row['hostile']}"):
                right[name].append((row["prompt"], good > bad))
            right["length_shorter"].append((row["prompt"], len(row["good"]) < len(row["bad"])))
            wins += max(tricked) > good
    return {"right": right, "repeat_wins": wins}


def interval(outcomes: Sequence[tuple[str, bool]]) -> list[float]:
    """95% by resampling prompts, since pairs of one prompt are not independent."""
    by_prompt: dict[str, list[bool]] = defaultdict(list)
    for prompt, outcome in outcomes:
        by_prompt[prompt].append(outcome)
    sums = np.array([[sum(found), len(found)] for found in by_prompt.values()])
    rng = np.random.default_rng(SEED)
    drawn = sums[rng.integers(len(sums), size=(2000, len(sums)))].sum(1)
    return [round(float(x), 3) for x in np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])]


def constant(scorer: RewardScorer, domain: str, with_reference: bool) -> dict[str, Any]:
    """The best constant found on some prompts against the good answers on the others."""
    rng = random.Random(SEED)
    rows = [row for row in pairs(domain) if (row["reference"] is not None) == with_reference]
    rng.shuffle(rows)
    reward, searched, judged = make_reward(domain), rows[:SEARCHED], rows[SEARCHED:]

    def mean(replies: Sequence[str], on: Sequence[Row]) -> list[float]:
        table = [totals(scorer, reward, row["prompt"], row["reference"], replies) for row in on]
        return [fmean(column) for column in zip(*table, strict=True)]

    examples = [Example(row["prompt"], row["good"]) for row in searched]
    text, found, _ = constant_search(own_words(reward, examples), lambda replies: mean(replies, searched), TRIES, rng)
    good = fmean(totals(scorer, reward, row["prompt"], row["reference"], [row["good"]])[0] for row in judged)
    return {"good": good, "constant": mean([text], judged)[0], "where_it_was_found": found, "text": text[:300]}


# Simulated runs: what a step's answers are, at a share of the way from the first step to the last.
Answers = Callable[[random.Random, Sequence[Example], float], Iterator[tuple[Example, str]]]


def drawn(rng: random.Random, examples: Sequence[Example]) -> Iterator[Example]:
    return iter(rng.choices(examples, k=GROUPS))


def towards(change: Callable[[Example, random.Random], str]) -> Answers:
    """Answers that more and more often are the changed ones."""

    def answers(rng: random.Random, examples: Sequence[Example], share: float) -> Iterator[tuple[Example, str]]:
        for example in drawn(rng, examples):
            for _ in range(SIZE):
                yield example, change(example, rng) if rng.random() < share else _varied(example.good, rng)

    return answers


def _varied(text: str, rng: random.Random) -> str:
    """The text with a few words left out, as samples differ."""
    return " ".join(word for word in text.split() if rng.random() > 0.15)


DRIFTS: dict[str, Callable[[Example, random.Random], str]] = {
    "one text": lambda example, rng: POLITE,
    "repetition": lambda example, rng: " ".join([_varied(example.good, rng)] * rng.randint(3, 5)),
    "parroting": lambda example, rng: f"{example.prompt} {example.prompt.split('.')[0]}",
    "padding": lambda example, rng: f"{_varied(example.good, rng)} {_filler(example, rng)}",
}
HONEST: dict[str, tuple[Callable[[Example, random.Random], str], bool]] = {
    # What answers become, and whether the held-out checks rise.
    "learns": (lambda example, rng: _varied(example.good, rng), True),
    "stands still": (lambda example, rng: _varied(example.good, rng), False),
    "learns to answer longer": (
        lambda example, rng: f"{example.good} {_varied(example.bad or '', rng)} {example.good[::-1]}",
        True,
    ),
    "learns a format": (
        lambda example, rng: f"Answer: {_varied(example.good, rng)} I hope that this is what you asked for.",
        True,
    ),
}
SENTENCES = (
    "As always it depends", "There is much to say here", "Let me add a word", "One may see it so", "It is all fine",
    "It bears repeating", "Some would differ", "Much more could follow", "Time will show", "That is worth a thought",
    "Opinions vary on it", "Nobody can be sure", "History has its lessons", "Every case differs", "The details matter",
    "It takes some patience", "Others have asked too", "It is well known", "Many factors play in", "We could go on",
)  # fmt: skip


def _filler(example: Example, rng: random.Random) -> str:
    """Sentences that mean nothing, about three times as long as the answer, in another order every time."""
    wanted, said = 3 * len(example.good.split()), list[str]()
    while sum(len(sentence.split()) for sentence in said) < wanted:
        said.append(rng.choice(SENTENCES) + f" in point {rng.randint(2, 999)}.")
    return " ".join(said)


def simulated(answers: Answers, checks_rise: bool, seed: int, moves: bool) -> list[str]:
    """The hints of one simulated run."""
    rng = random.Random(seed)
    domain = rng.choice(DOMAINS)
    examples = [Example(row["prompt"], row["good"], row["bad"], row["reference"]) for row in pairs(domain)]
    engine, hints = HintEngine(total_steps=STEPS), list[str]()
    speed, start = rng.uniform(0.6, 1.0), rng.uniform(0.2, 0.4)
    for step in range(STEPS):
        share = min(1.0, speed * 1.3 * step / STEPS) if moves else 0.0
        told = list(answers(rng, examples, share))
        groups = _groups(told)
        reward = start + (0.4 * share if moves or checks_rise else 0.0) + rng.gauss(0, 0.02)
        metrics: dict[str, float | None] = {
            "reward/mean": reward, "reward/min": reward - 0.3, "reward/max": reward + 0.3,
            "groups/zero_spread_share": 0.1, "groups/failed_share": 0.0, **answer_metrics(groups),
        }  # fmt: skip
        hints += [hint.code for hint in engine.step(metrics)]
        if step % 10 == 0:
            check = 0.4 + (0.4 * step / STEPS if checks_rise else -0.1 * share) + rng.gauss(0, 0.01)
            hints += [hint.code for hint in engine.evaluation({"eval/check_mean": check})]
    return [code for code in hints if code.startswith("answers_")]


def _groups(told: Sequence[tuple[Example, str]]) -> list[ScoredGroup]:
    found = []
    for start in range(0, len(told), SIZE):
        members = tuple(
            attempt_of([{"role": "user", "content": e.prompt}, {"role": "assistant", "content": text}])
            for e, text in told[start : start + SIZE]
        )
        found.append(ScoredGroup(Group("g", Task("t"), members), (Score(0.0),) * len(members)))
    return found


def alarms() -> dict[str, Any]:
    found: dict[str, list[bool]] = defaultdict(list)
    for run in range(RUNS):
        kinds = list(DRIFTS)
        name = kinds[run % len(kinds)]
        found[f"drift: {name}"].append(bool(simulated(towards(DRIFTS[name]), False, SEED + run, moves=True)))
        honest = list(HONEST)[run % len(HONEST)]
        change, rises = HONEST[honest]
        moves = honest != "stands still"
        found[f"honest: {honest}"].append(bool(simulated(towards(change), rises, SEED - 1 - run, moves)))
    return {name: {"runs": len(alarmed), "with_an_alarm": sum(alarmed)} for name, alarmed in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["pairs", "constants", "alarms"])
    parser.add_argument("--kept", metavar="FOLDER", help="where constants that were found are kept")
    parser.add_argument("--json", action="store_true", help="for the sake of one form: the result is JSON anyway")
    asked = parser.parse_args()
    claims: dict[str, Any] = {}
    intervals: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    with RewardScorer() as scorer:
        if "pairs" in asked.parts:
            found = ranked(scorer)
            for half, name in (("with_reference", "preset_with_reference"), ("without", "preset_without")):
                claims[name] = round(fmean(ok for _, ok in found["right"][half]), 3)
                intervals[name] = interval(found["right"][half])
            claims["length_shorter"] = round(fmean(ok for _, ok in found["right"]["length_shorter"]), 3)
            claims["repeat_wins"] = found["repeat_wins"]
            raw["ranked"] = {
                name: f"{sum(ok for _, ok in outcomes)}/{len(outcomes)}"
                for name, outcomes in sorted(found["right"].items())
            }
        if "constants" in asked.parts:
            raw["constants"] = {
                (name := f"{domain}{' with reference' if known else ''}"): kept(
                    asked.kept, name, partial(constant, scorer, domain, known)
                )
                for domain in DOMAINS
                for known in (False, True)
            }
            claims["constant_gap"] = round(min(one["good"] - one["constant"] for one in raw["constants"].values()), 3)
    if "alarms" in asked.parts:
        raw["alarms"] = alarms()
        for claim, kind in (("alarms_found", "drift"), ("false_alarms", "honest")):
            claims[claim] = sum(one["with_an_alarm"] for name, one in raw["alarms"].items() if name.startswith(kind))
    print_result("rewards", claims, intervals=intervals, seeds=[SEED], raw=raw)


if __name__ == "__main__":
    main()
