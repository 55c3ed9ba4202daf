"""Random work to learn from: graphs of four shapes on machines of different speeds, each from its seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from groupwise.workflows.evaluation.schedule import TaskGraph

Random = np.random.Generator
Edges = set[tuple[int, int]]


def random_work(seed: int, least: int = 10, most: int = 80) -> TaskGraph:
    """Work of `least` to about `most` tasks."""
    rng = np.random.default_rng([seed, 0])
    names = list(SHAPES)
    count, edges = SHAPES[names[rng.integers(len(names))]](rng, int(rng.integers(least, most + 1)))
    kinds = rng.integers(0, max(2, count // int(rng.integers(3, 12))), count)
    size = rng.lognormal(0.0, rng.uniform(0.2, 1.5), int(kinds.max()) + 1)[kinds]  # tasks of a kind take alike
    runtimes = 10 * size * rng.lognormal(0.0, rng.uniform(0.02, 0.4), count)
    handing = rng.choice([0.0, 0.05, 0.3, 1.0]) * runtimes.mean()
    after = {edge: float(handing * rng.exponential()) for edge in sorted(edges)}
    return TaskGraph(tuple(f"t{task}" for task in range(count)), _on_machines(runtimes, rng), after)


def _on_machines(runtimes: np.ndarray, rng: Random) -> tuple[tuple[float, ...], ...]:
    """On two to six machines, of speeds that are the same for all tasks or nearly so."""
    speeds = rng.choice([1.0, 1.0, 1.5, 2.0, 3.0], int(rng.integers(2, 7)))
    times = runtimes[:, None] / speeds
    if rng.random() < 0.3:
        times = times * rng.lognormal(0.0, 0.3, times.shape)
    return tuple(tuple(float(time) for time in row) for row in times)


def varied(work: TaskGraph, rng: Random) -> TaskGraph:
    """The same graph with other durations: a factor for every task, and one for all that is handed on."""
    factors = rng.lognormal(0.0, 0.2, len(work.names))
    times = tuple(
        tuple(float(time * factor) for time in row) for row, factor in zip(work.durations, factors, strict=True)
    )
    handing = float(rng.lognormal(0.0, 0.3))
    return replace(work, durations=times, after={edge: hand * handing for edge, hand in work.after.items()})


def _fork_join(rng: Random, count: int) -> tuple[int, Edges]:
    """Blocks one after the other, each of a task, several side by side, and a task again."""
    edges: Edges = set()
    last, number = 0, 1
    while number + 2 < count:
        wide = min(int(rng.integers(2, 25)), count - number - 1)
        edges |= {(last, number + n) for n in range(wide)}
        edges |= {(number + n, number + wide) for n in range(wide)}
        last, number = number + wide, number + wide + 1
    return number, edges


def _pipelines(rng: Random, count: int) -> tuple[int, Edges]:
    """Chains of like lengths side by side, sometimes begun by one task and ended by one or two."""
    lanes = int(rng.integers(3, max(4, count // 3)))
    length = max(2, (count - 2) // lanes)
    edges: Edges = set()
    for lane in range(lanes):
        first = 1 + lane * length
        edges |= {(first + n, first + n + 1) for n in range(length - 1)}
        edges |= {(0, first)} if rng.random() < 0.9 else set()
        edges.add((first + length - 1, 1 + lanes * length))
    return lanes * length + 2, edges


def _mosaic(rng: Random, count: int) -> tuple[int, Edges]:
    """Like Montage: pictures, their overlaps in pairs, one fit, corrections of the pictures, and a few to end with."""
    wide = max(3, count // 4)
    pairs = [tuple(rng.choice(wide, 2, replace=False)) for _ in range(int(wide * rng.uniform(1, 2.5)))]
    overlaps = list(range(wide, wide + len(pairs)))
    fit = wide + len(pairs)
    edges: Edges = {(int(side), overlap) for pair, overlap in zip(pairs, overlaps, strict=True) for side in pair}
    edges |= {(overlap, fit) for overlap in overlaps}
    fixes = range(fit + 1, fit + 1 + wide)
    edges |= {(fit, fix) for fix in fixes} | {(n, fix) for n, fix in enumerate(fixes)}
    last = fit + 1 + wide
    edges |= {(fix, last) for fix in fixes} | {(last, last + 1)}
    return last + 2, edges


def _layers(rng: Random, count: int) -> tuple[int, Edges]:
    """Random layers; every task needs one to four of the layer before, and now and then one further up."""
    edges: Edges = set()
    before: list[int] = []
    number = 0
    while number < count:
        here = list(range(number, min(count, number + int(rng.integers(1, 16)))))
        for task in here if before else ():
            needs = rng.choice(before, min(len(before), int(rng.integers(1, 5))), replace=False)
            edges |= {(int(need), task) for need in needs}
            if number > len(before) and rng.random() < 0.1:
                edges.add((int(rng.integers(number - len(before))), task))
        before, number = here, here[-1] + 1
    return count, edges


SHAPES: dict[str, Callable[[Random, int], tuple[int, Edges]]] = {
    "fork_join": _fork_join,
    "pipelines": _pipelines,
    "mosaic": _mosaic,
    "layers": _layers,
}
