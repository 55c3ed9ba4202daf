"""Pairs of designs of which one is better, with the reason: what a score of designs should agree with.

    read_pairs("tune")         pairs for calibrating a score
    read_pairs("report")       pairs for reporting its agreement; never used for calibration
    plain_figures(design, requirements)

Which design is better was decided from the redesign literature and the figures below, without any score. The figures
are textbook formulas, independent of `groupwise.workflows.evaluation`: Erlang C with the Allen–Cunneen correction for
waiting (Cobham's formulas for one server that serves by class), gamma distributions for the slower of parallel parts.
A pool that no activity uses needs only `least` servers. There are no figures where a pool has working hours, or where
cases do not keep arriving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import groupwise.workflows.blocks as blocks
from groupwise.readers import load_yaml
from groupwise.workflows.files.json_file import parsed
from groupwise.workflows.requirements import Requirements, parse_requirements

FOLDER = Path(__file__).parent / "design_pairs"
Half: TypeAlias = Literal["tune", "report"]
Letter: TypeAlias = Literal["a", "b"]
Moments: TypeAlias = tuple[float, float]  # mean and variance, in seconds


@dataclass(frozen=True, slots=True)
class DesignPair:
    """Two designs for the same requirements; `better` names one of them, `source` the literature behind the reason."""

    name: str
    kind: str
    half: Half
    requirements: Requirements
    a: blocks.Design
    b: blocks.Design
    better: Letter
    reason: str
    source: str
    figures: dict[Letter, dict[str, float]]


def read_pairs(half: Half | None = None, folder: Path = FOLDER) -> list[DesignPair]:
    """All pairs, or those of one half, in the order of their file names."""
    pairs = [read_pair(path) for path in sorted(folder.glob("*.yaml"))]
    return [pair for pair in pairs if half in (None, pair.half)]


def read_pair(path: Path) -> DesignPair:
    value: Any = load_yaml(path.read_bytes())
    requirements = parse_requirements(value["requirements"])
    designs = {letter: parsed(blocks.Design, value[letter], letter) for letter in ("a", "b")}
    told = {key: value[key] for key in ("kind", "half", "better", "reason", "source")}
    # YAML here has no infinity: a design without a time has a queue that grows for ever.
    figures = {letter: {"time": math.inf, **own} for letter, own in value.get("figures", {}).items()}
    return DesignPair(path.stem, requirements=requirements, **designs, **told, figures=figures)


def plain_figures(design: blocks.Design, requirements: Requirements) -> dict[str, float] | None:
    """Mean seconds and cost per case, the share of cases that are completed, and the load of the busiest pool."""
    rate = requirements.demand.arrivals_per_second
    if rate is None or any(pool.calendar for pool in requirements.pools.values()):
        return None
    return _Plain(design, requirements, rate).figures()


@dataclass(frozen=True, slots=True)
class _Tries:
    """The tries of one activity: how many, how long each and all pauses take, and how often one of them works."""

    count: float
    seconds: float
    scv: float
    pauses: float
    success: float


class _Plain:
    def __init__(self, design: blocks.Design, requirements: Requirements, rate: float) -> None:
        self.design, self.requirements, self.rate = design, requirements, rate
        self.visits: dict[str, float] = {}
        self.handling = {one.name: one.handling for one in blocks.activities(design.root)}
        self.tries = {name: self._tried(name) for name in self.handling}
        self._visit(design.root, 1.0)
        by_pool: dict[str, list[str]] = {}
        for name in self.handling:
            if (pool := self._pool(name)) is not None:
                by_pool.setdefault(pool, []).append(name)
        self.servers = {name: pool.least for name, pool in requirements.pools.items()}
        self.servers |= {name: max(1, self.servers[name]) for name in by_pool} | dict(design.servers)
        self.loads = {pool: sum(map(self._work, names)) / self.servers[pool] for pool, names in by_pool.items()}
        self.waits = {name: wait for names in by_pool.values() for name, wait in self._queue(names).items()}

    def figures(self) -> dict[str, float]:
        requirements, load = self.requirements, max(self.loads.values(), default=0.0)
        wages = sum(count * requirements.pools[pool].wage for pool, count in self.servers.items())
        spent = sum(
            self.visits[name] * self.tries[name].count * requirements.activities[name].cost for name in self.visits
        )
        # An overloaded pool holds up all cases, so fewer are finished for the same wages.
        time = math.inf if load >= 1 else self._time(self.design.root)[0]
        cost = wages / self.rate * max(1.0, load) + spent
        return {"time": time, "cost": cost, "completed": self._goes_on(self.design.root), "load": load}

    def _pool(self, name: str) -> str | None:
        return self.handling[name].pool or next(iter(self.requirements.activities[name].pools), None)

    def _work(self, name: str) -> float:
        """How many servers the activity keeps busy."""
        return self.rate * self.visits[name] * self.tries[name].count * self.tries[name].seconds

    def _tried(self, name: str) -> _Tries:
        asked, handling = self.requirements.activities[name], self.handling[name]
        pool = self._pool(name)
        mean = asked.duration.mean / (self.requirements.pools[pool].speed if pool else 1.0)
        late, seconds = 0.0, mean
        if handling.timeout is not None:
            assert asked.duration.kind == "exponential", f"no formula for a timeout of {name!r}"
            late = math.exp(-handling.timeout / mean)
            seconds = mean * (1 - late)
        fails, most = 1 - (1 - asked.failure) * (1 - late), handling.retry.most
        pauses = sum(fails**n * handling.retry.pause * handling.retry.growth ** (n - 1) for n in range(1, most + 1))
        count = (1 - fails ** (most + 1)) / (1 - fails)
        return _Tries(count, seconds, asked.duration.scv, handling.delay + pauses, 1 - fails ** (most + 1))

    def _goes_on(self, block: blocks.Block) -> float:
        """The share of cases that go on after a block they have reached."""
        match block:
            case blocks.Activity(name):
                return (1 - self.requirements.activities[name].knock_out) * self.tries[name].success
            case blocks.Sequence(parts) | blocks.Parallel(parts):
                return math.prod(map(self._goes_on, parts))
            case blocks.Choice(parts, probabilities):
                return sum(share * self._goes_on(part) for part, share in zip(parts, probabilities, strict=True))
            case blocks.Loop(body, again):
                return self._rounds(block) * self._goes_on(body) * (1 - again)
            case blocks.Skip():
                return 1.0
        raise TypeError(f"no formula for a {type(block).__name__}")

    def _rounds(self, loop: blocks.Loop) -> float:
        return 1 / (1 - loop.again * self._goes_on(loop.body) * self._goes_on(loop.redo))

    def _visit(self, block: blocks.Block, reach: float) -> None:
        """Note how often each activity is done per case."""
        match block:
            case blocks.Activity(name):
                self.visits[name] = reach
            case blocks.Sequence(parts):
                for part in parts:
                    self._visit(part, reach)
                    reach *= self._goes_on(part)
            case blocks.Parallel(parts):
                for part in parts:
                    self._visit(part, reach)
            case blocks.Choice(parts, probabilities):
                for part, share in zip(parts, probabilities, strict=True):
                    self._visit(part, reach * share)
            case blocks.Loop(body, again, redo):
                self._visit(body, reach * self._rounds(block))
                self._visit(redo, reach * self._rounds(block) * self._goes_on(body) * again)

    def _queue(self, names: Sequence[str]) -> dict[str, float]:
        """Mean waiting before each try at one pool."""
        pool = self._pool(names[0])
        assert pool is not None
        servers, load = self.servers[pool], self.loads[pool]
        if load >= 1:
            return dict.fromkeys(names, math.inf)
        rates = {name: self.rate * self.visits[name] * self.tries[name].count for name in names}
        total = sum(rates.values())
        mean = load * servers / total
        second = sum(rates[n] * self.tries[n].seconds ** 2 * (1 + self.tries[n].scv) for n in names) / total
        order = {self.handling[name].scheduling for name in names} - {"fifo"}
        if order and servers == 1:
            return self._by_class(names, rates, total * second / 2, order.pop())
        wait = _erlang_c(servers, load * servers) * mean / (servers * (1 - load)) * second / mean**2 / 2
        return dict.fromkeys(names, wait)

    def _by_class(self, names: Sequence[str], rates: dict[str, float], residual: float, order: str) -> dict[str, float]:
        """Non-preemptive classes at one server (Cobham 1954)."""
        key = {n: self.tries[n].seconds if order == "shortest" else -self.handling[n].priority for n in names}
        found = {}
        for name in names:
            ahead = sum(rates[n] * self.tries[n].seconds for n in names if key[n] < key[name])
            level = sum(rates[n] * self.tries[n].seconds for n in names if key[n] <= key[name])
            found[name] = residual / (1 - ahead) / (1 - level)
        return found

    def _time(self, block: blocks.Block) -> Moments:
        match block:
            case blocks.Activity(name):
                tries, wait = self.tries[name], self.waits.get(name, 0.0)
                mean = tries.pauses + tries.count * (wait + tries.seconds)
                return mean, tries.count * (wait**2 + tries.scv * tries.seconds**2)
            case blocks.Sequence(parts):
                left, mean, variance = 1.0, 0.0, 0.0
                for part in parts:
                    own = self._time(part)
                    mean, variance = mean + left * own[0], variance + left * own[1]
                    left *= self._goes_on(part)
                return mean, variance
            case blocks.Parallel(parts):
                return _slowest([self._time(part) for part in parts])
            case blocks.Choice(parts, probabilities):
                moments = [(share, *self._time(part)) for part, share in zip(parts, probabilities, strict=True)]
                mean = sum(share * own for share, own, _ in moments)
                return mean, sum(share * (spread + own**2) for share, own, spread in moments) - mean**2
            case blocks.Loop(body, again, redo):
                once, between = self._time(body), self._time(redo)
                mean = self._rounds(block) * (once[0] + self._goes_on(body) * again * between[0])
                # As for a geometric number of rounds, most of which are short of the mean.
                return mean, mean**2
        return 0.0, 0.0


def _erlang_c(servers: int, offered: float) -> float:
    """The probability that all servers are busy (M/M/c)."""
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    full = offered**servers / math.factorial(servers) / (1 - offered / servers)
    return full / (sum(terms) + full)


def _slowest(parts: Sequence[Moments]) -> Moments:
    """The moments of the maximum of independent gamma distributions, by integrating 1 − ΠF(t)."""
    longest = max(mean + 12 * math.sqrt(variance) for mean, variance in parts)
    step = longest / 20_000
    times = (np.arange(20_000) + 0.5) * step
    below = np.ones_like(times)
    for mean, variance in parts:
        if not variance:
            below *= times >= mean
            continue
        # The distribution function is the sum of the density, of which the constant factor does not matter.
        logs = (mean**2 / variance - 1) * np.log(times) - times * mean / variance
        density = np.exp(logs - logs.max())
        below *= np.cumsum(density) / density.sum()
    mean = float((1 - below).sum() * step)
    return mean, max(0.0, float((2 * times * (1 - below)).sum() * step) - mean**2)
