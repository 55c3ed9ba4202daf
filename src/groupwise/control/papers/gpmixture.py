"""An infinite mixture of processes: tasks that change unannounced are told apart and recognised. "Task-Agnostic Online
Reinforcement Learning with an Infinite Mixture of Gaussian Processes" (arXiv 2006.11441).

A cart with a pole is pushed at random while its world changes without notice: usual, with left and right swapped, and
with a longer pole and twice the force; then all three again. A model of the world must say before every step how the
two speeds will change. Arms: one Gaussian process of everything seen, one of the last steps alone, the mixture, and a
process for each task by someone who is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.papers.finding import PaperFinding, Progress, cell, mean_of, ratio, told
from groupwise.control.papers.gaussian_processes import Kernel, ProcessMixture, predict
from groupwise.core.grouping.kmeans import Floats, Ints

WORLDS: tuple[Mapping[str, float], ...] = ({"force": 10.0}, {"force": -10.0}, {"force": 20.0, "half_length": 1.0})
VISITS, STAY = 2, 40
KERNEL = Kernel(length=3.0, signal=2.0, noise=0.15)
SEEN_SCALE = np.array([1.0, 1.0, 0.1, 1.0])
CHANGE_SCALE = np.array([0.2, 0.3])
MEMORY, RECENT = 200, 20


@dataclass(frozen=True, slots=True)
class Stream:
    """What was seen and done [T, 5], how the speeds changed [T, 2], and which world it was [T]."""

    points: Floats
    answers: Floats
    worlds: Ints


def stream(seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    points, answers = [], []
    worlds = [world for _ in range(VISITS) for world in range(len(WORLDS))]
    for world in worlds:
        cart, ended = CartPole(**WORLDS[world]), True  # type: ignore[arg-type]
        for _ in range(STAY):
            if ended:
                before = cart.reset([int(rng.integers(2**31))])[0]
            push = int(rng.integers(2))
            after, _, over, cut = cart.step(np.array([push]))
            points.append([*(before / SEEN_SCALE), 2 * push - 1])
            answers.append((after[0, [1, 3]] - before[[1, 3]]) / CHANGE_SCALE + 0.05 * rng.normal(size=2))
            before, ended = after[0], bool(over[0] or cut[0])
    return Stream(np.array(points), np.array(answers), np.repeat(worlds, STAY).astype(np.int64))


def mixture_errors(seen: Stream) -> tuple[Floats, Ints, int]:
    """Squared errors made before each step was seen [T], the mixture's names for the worlds [T], and how many."""
    mixture = ProcessMixture(KERNEL)
    errors, labels = [], []
    for point, answer in zip(seen.points, seen.answers, strict=True):
        errors.append(np.square(mixture.expect(point) - answer).mean())
        labels.append(mixture.see(point, answer))
    return np.array(errors), np.array(labels, np.int64), len(mixture)


def process_errors(seen: Stream, *, memory: int, told_worlds: bool = False) -> Floats:
    """The same of one process that remembers `memory` steps, of the present world alone where it is told."""
    errors = []
    for now in range(len(seen.points)):
        past = np.flatnonzero(seen.worlds[:now] == seen.worlds[now]) if told_worlds else np.arange(now)
        past = past[-memory:]
        mean, _ = predict(KERNEL, seen.points[past], seen.answers[past], seen.points[now : now + 1])
        errors.append(np.square(mean[0] - seen.answers[now]).mean())
    return np.array(errors)


def agreement(labels: Ints, worlds: Ints) -> float:
    """The share of steps whose world has the name that most steps of that world have, where no two worlds share it."""
    names = [int(np.bincount(labels[worlds == world]).argmax()) for world in np.unique(worlds)]
    right = sum(int((labels[worlds == world] == name).sum()) for world, name in enumerate(names))
    return right / len(labels) if len(set(names)) == len(names) else 0.0


def experiment(seeds: Sequence[int], progress: Progress) -> PaperFinding:
    known = slice(len(WORLDS) * STAY, None)
    errors: dict[str, list[float]] = {}
    agreed, found = [], []
    for done, seed in enumerate(seeds):
        progress(done, len(seeds))
        seen = stream(seed)
        mixed, labels, count = mixture_errors(seen)
        arms = {
            "one process of everything": process_errors(seen, memory=MEMORY),
            f"one of the last {RECENT} steps": process_errors(seen, memory=RECENT),
            "the mixture": mixed,
            "told the task": process_errors(seen, memory=MEMORY, told_worlds=True),
        }
        for name, made in arms.items():
            errors.setdefault(name, []).append(float(made[known].mean()))
        agreed.append(agreement(labels, seen.worlds))
        found.append(count)
    one, recent, mixed_errors, oracle = errors.values()
    effects = {
        "error_vs_one_process": ratio(mixed_errors, one),
        "error_vs_recent": ratio(mixed_errors, recent),
        "error_vs_told": ratio(mixed_errors, oracle),
        "agreement": mean_of(agreed),
        "tasks_found": mean_of(found),
    }
    return PaperFinding(
        "gpmixture",
        "Infinite Mixture of Gaussian Processes (arXiv 2006.11441)",
        "A mixture that grows finds how many worlds there are and recognises one that returns, so it predicts better "
        "than one model of all",
        effects["error_vs_one_process"].high < 1 and effects["agreement"].value > 0.9,
        f"with {told(effects['error_vs_one_process'], 3)} times its error when worlds return, and "
        f"{told(effects['tasks_found'], 1)} of {len(WORLDS)} worlds found",
        'The same kind of mixture over whole trajectories is grouping.group_strategy = "dirichlet".',
        ("model of the world", "squared error"),
        tuple((name, cell(made, 3)) for name, made in errors.items()),
        effects,
        tuple(seeds),
        {"errors": errors, "agreement": agreed, "found": found},
    )
