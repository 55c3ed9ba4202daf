"""The rivals of the trained policy: all search over the same keys, with the same decoder and the same budget.

    found = ARMS["ga"](meter, seed, **SETTINGS["ga"])

A `Meter` decodes keys and scores the designs. An *evaluation* is a design scored that was not scored before: what
somebody proposes again is known and costs nothing, for whoever it is. A search that proposes `PATIENCE` times what it
may evaluate has nothing new to say and is over. `SETTINGS` are the best of a grid of six each (`GRIDS`), by the gap at
1,024 evaluations on requirements and seeds of their own; `python benchmarks/workflow_design.py --tune` chose them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.designer.heuristics import HEURISTICS, PORTFOLIO, Heuristic, by_rank, genes_of, heuristic_keys, plans_of
from groupwise.designer.plans import Plans
from groupwise.designer.problem import ACTIONS, HEADS, DesignProblem
from groupwise.designer.tasks import Drafter
from groupwise.workflows import Design, DesignScore, DesignScorer, Requirements, evaluate
from groupwise.workflows.scoring.measures import MEASURES

Keys = NDArray[np.float64]
PATIENCE = 4
CONTROL_FLOW = next(n for n, measure in enumerate(MEASURES) if measure.name == "control-flow complexity")
NOTHING = (math.inf, math.inf, math.inf)
FAR = 1e12
BATCH = 64


class KeyDecoder:
    """Decodes keys to designs for one set of requirements."""

    def __init__(self, requirements: Requirements) -> None:
        self.problem = DesignProblem(requirements)
        self.drafter = Drafter(self.problem)

    @property
    def genes(self) -> int:
        return genes_of(self.problem)

    def plans(self, keys: Keys) -> Plans:
        return plans_of(self.problem, keys)

    def decode(self, keys: Keys) -> list[Design]:
        """One design for each row of keys."""
        return self.drafter(self.plans(keys))


@dataclass(frozen=True, slots=True)
class Judged:
    """A design's score, and what NSGA-II makes small: mean time and cost of a case, and control-flow complexity."""

    score: float
    objectives: tuple[float, float, float]


class Meter:
    """Scores designs for one set of requirements until the budget is spent, and keeps every one in its order."""

    def __init__(self, requirements: Requirements, budget: int) -> None:
        self.requirements, self.budget = requirements, budget
        self.construction = KeyDecoder(requirements)
        self.scorer = DesignScorer(requirements)
        self.known: dict[Design, Judged] = {}
        self.seen: list[Judged] = []
        self.proposed = 0

    @property
    def spent(self) -> bool:
        return len(self.seen) >= self.budget or self.proposed >= PATIENCE * self.budget

    def of_keys(self, keys: Keys) -> list[Judged]:
        return self.of_designs(self.construction.decode(keys))

    def of_designs(self, designs: Iterable[Design]) -> list[Judged]:
        """What each is worth; beyond the budget nothing is scored, and worth nothing."""
        found = []
        for design in designs:
            self.proposed += 1
            known = self.known.get(design)
            if known is None and len(self.seen) < self.budget:
                known = self.known[design] = self.judge(design)
                self.seen.append(known)
            found.append(known or Judged(0.0, NOTHING))
        return found

    def of_scored(self, scored: Iterable[tuple[Design, DesignScore]]) -> None:
        """What a search scored itself, as it comes; every 64th is scored again, for all must be judged alike."""
        for design, score in scored:
            if self.spent:
                return
            self.proposed += 1
            if design not in self.known:
                self.known[design] = found = judged(score)
                own = self.judge(design).score if len(self.seen) % BATCH == 0 else found.score
                if abs(found.score - own) > 1e-9:
                    raise ValueError(f"a search scores a design {found.score}, and it is worth {own}")
                self.seen.append(found)

    def judge(self, design: Design) -> Judged:
        """One evaluation: the formulas tell how the design performs, for whoever made it."""
        return judged(self.scorer(design, evaluate(design, self.requirements, "analytic")))


def judged(score: DesignScore) -> Judged:
    performance = score.performance
    if score.broken or performance is None or not math.isfinite(performance.cycle_time):
        return Judged(score.total, NOTHING)
    complexity = score.measured[CONTROL_FLOW][0]
    return Judged(score.total, (performance.cycle_time, performance.cost, float(complexity or 0.0)))


# Random keys, and the untrained sampler.


def random_keys(meter: Meter, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while not meter.spent:
        meter.of_keys(rng.random((BATCH, meter.construction.genes)))


def untrained_sampler(meter: Meter, seed: int) -> None:
    """The default design, of which each decision is taken anew at the rate of its action: 0.3, 0.4, 0.2 or 0.1."""
    rng = np.random.default_rng(seed)
    rates, default = _rates(meter.construction), default_keys(meter.construction)
    while not meter.spent:
        fresh = rng.random((BATCH, len(rates)))
        meter.of_keys(np.where(rng.random(fresh.shape) < rates, fresh, default))


def _rates(construction: KeyDecoder) -> Keys:
    """The rate of the action that each gene decides."""
    rate = {action.name: action.rate for action in ACTIONS}
    problem = construction.problem
    named = {"keep": "element", "next": "element", "place": "synchronisation"}
    heads = [rate[named.get(HEADS[head], HEADS[head])] for head in problem.heads]
    units = len(problem.units)
    turns = [rate["element"]] * units + [rate["synchronisation"]] * units
    return np.array([*heads[: problem.rounds], *turns, *heads[problem.staffing :]])


def default_keys(construction: KeyDecoder) -> Keys:
    """One after the other as listed, each by the first of its pools, with the fewest servers that keep up."""
    keys = np.zeros(construction.genes)
    rounds, units = construction.problem.rounds, len(construction.problem.units)
    keys[rounds : rounds + units] = by_rank(-np.arange(units, dtype=np.float64))
    return keys


# Redesign heuristics.


def heuristics(meter: Meter, seed: int, first: Sequence[int]) -> None:
    """The tuned portfolio in its order, then the others in a random one, each once: there are no more."""
    order = _heuristic_order(seed, first)
    for start in range(0, len(order), BATCH):
        meter.of_keys(
            np.array([heuristic_keys(meter.construction.problem, one) for one in order[start : start + BATCH]])
        )


def _heuristic_order(seed: int, first: Sequence[int]) -> list[Heuristic]:
    shuffled = np.random.default_rng(seed).permutation(len(HEURISTICS)).tolist()
    return [HEURISTICS[n] for n in dict.fromkeys([*first, *shuffled])]


# Evolution (pymoo) and CMA-ES (cma).

OPERATORS = ("usual", "wide", "uniform")


def _operators(name: str) -> dict[str, Any]:
    """pymoo's usual crossover and mutation, wider ones, or whole keys from either parent, as random keys use."""
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.operators.mutation.pm import PM

    if name == "usual":
        return {}
    crossover = SBX(eta=3, prob=0.9) if name == "wide" else UniformCrossover(prob=0.9)
    return {"crossover": crossover, "mutation": PM(eta=3)}


def genetic(meter: Meter, seed: int, population: int, operators: str) -> None:
    """GA on the score."""
    from pymoo.algorithms.soo.nonconvex.ga import GA

    _evolve(meter, seed, lambda: GA(pop_size=population, **_operators(operators)), lambda one: (-one.score,))


def nsga2(
    meter: Meter, seed: int, population: int, operators: str, with_score: bool, first: Sequence[int] | None = None
) -> None:
    """NSGA-II on time, cost and control-flow complexity, with the score as a fourth where told.

    With `first`, half of the first generation are heuristics, the tuned portfolio among them.
    """
    from pymoo.algorithms.moo.nsga2 import NSGA2

    extra: dict[str, Any] = _operators(operators)
    if first is not None:
        rows = [
            heuristic_keys(meter.construction.problem, one) for one in _heuristic_order(seed, first)[: population // 2]
        ]
        fresh = np.random.default_rng(seed).random((population - len(rows), meter.construction.genes))
        extra["sampling"] = np.concatenate([rows, fresh])

    def aims(one: Judged) -> Sequence[float]:
        objectives = tuple(min(value, FAR) for value in one.objectives)
        return (*objectives, -one.score) if with_score else objectives

    _evolve(meter, seed, lambda: NSGA2(pop_size=population, **extra), aims)


def _evolve(meter: Meter, seed: int, algorithm: Callable[[], Any], aims: Callable[[Judged], Sequence[float]]) -> None:
    """Generation after generation; where one brings no new design, it is begun anew."""
    for again in range(meter.budget):
        if meter.spent:
            return
        _evolve_once(meter, seed + 7919 * again, algorithm(), aims)


def _evolve_once(meter: Meter, seed: int, algorithm: Any, aims: Callable[[Judged], Sequence[float]]) -> None:
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.problem import Problem as Keyed
    from pymoo.problems.static import StaticProblem
    from pymoo.termination import get_termination

    width = len(aims(Judged(0.0, NOTHING)))
    problem = Keyed(n_var=meter.construction.genes, n_obj=width, xl=0.0, xu=1.0)
    algorithm.setup(problem, termination=get_termination("n_gen", 10**9), seed=seed, verbose=False)
    while not meter.spent:
        asked = algorithm.ask()
        if asked is None or not len(asked):
            return
        known = len(meter.seen)
        values = np.array([aims(one) for one in meter.of_keys(asked.get("X"))], np.float64)
        if len(meter.seen) == known:
            return
        Evaluator().eval(StaticProblem(problem, F=values), asked)
        algorithm.tell(infills=asked)


def cma_es(meter: Meter, seed: int, sigma: float, population: int | None, diagonal: bool) -> None:
    """CMA-ES on the keys, begun anew from elsewhere where it has converged."""
    import cma

    rng = np.random.default_rng(seed)
    settings = {"bounds": [0, 1], "CMA_diagonal": diagonal, "verbose": -9}
    settings |= {"popsize": population} if population else {}
    start = np.full(meter.construction.genes, 0.5)
    while not meter.spent:
        own = {**settings, "seed": int(rng.integers(1, 2**31))}
        search = cma.CMAEvolutionStrategy(start, sigma, own)
        while not meter.spent and not search.stop():
            rows = search.ask()
            search.tell(rows, [-one.score for one in meter.of_keys(np.array(rows))])
        start = rng.uniform(0.2, 0.8, meter.construction.genes)


Arm = Callable[..., None]
ARMS: Mapping[str, Arm] = {
    "random": random_keys,
    "sampler": untrained_sampler,
    "heuristics": heuristics,
    "ga": genetic,
    "nsga2": nsga2,
    "nsga2_seeded": nsga2,
    "cma_es": cma_es,
}
NEEDS = {"ga": "pymoo", "nsga2": "pymoo", "nsga2_seeded": "pymoo", "cma_es": "cma"}


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


_NSGA2 = _grid(population=(32,), operators=OPERATORS, with_score=(False, True))
GRIDS: Mapping[str, list[dict[str, Any]]] = {
    "ga": _grid(population=(32, 64), operators=OPERATORS),
    "nsga2": _NSGA2,
    "nsga2_seeded": [{**one, "first": PORTFOLIO} for one in _NSGA2],
    "cma_es": _grid(sigma=(0.1, 0.2, 0.3), population=(None,), diagonal=(True, False)),
}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "random": {},
    "sampler": {},
    "heuristics": {"first": PORTFOLIO},
    "ga": {"population": 32, "operators": "uniform"},
    "nsga2": {"population": 32, "operators": "usual", "with_score": True},
    "nsga2_seeded": {"population": 32, "operators": "uniform", "with_score": True, "first": PORTFOLIO},
    "cma_es": {"sigma": 0.2, "population": None, "diagonal": False},
}
