"""The score of a design: by default performance 40%, structure 25%, maintainability 20%, resources 15%.

    scored = score(design, requirements)
    scored.total           0 to 1; 0 if a hard rule is broken, and `scored.broken` names it
    scored.explain()       the tree of parts: value, scale, share, words

Scales are fixed by the requirements (`references_of`) and by constants, so scores from different batches can be
compared. `score_batch(..., normalization="zscore")` scores the four parts relative to their batch instead.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import groupwise.workflows.scoring.measures as measures
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Block, Design, activities, rewritten
from groupwise.workflows.duties import is_human
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.requirements import Requirements, Weights
from groupwise.workflows.rules import RuleBook
from groupwise.workflows.scoring.design_metrics import Anatomy, anatomy
from groupwise.workflows.scoring.lost_cases import LostCases
from groupwise.workflows.scoring.measures import BY_GROUP, GROUPS, MEASURES
from groupwise.workflows.scoring.references import references_of
from groupwise.workflows.wording import Violation, in_time


@dataclass(frozen=True, slots=True)
class ScorePart:
    """A part of a score: its weight in the total, the share it reaches of its maximum, and where that comes from."""

    name: str
    weight: float
    share: float | None
    words: str
    value: float | None = None
    unit: str = ""
    scale: str = ""
    parts: tuple[ScorePart, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("name", "weight", "share", "words", "value", "unit", "scale")}
        return {**own, "parts": [part.as_dict() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class DesignScore:
    """The total, the share that each group reaches (None: nothing to measure), and every measure behind them.

    `measured` has value, share and reference of each of `MEASURES`. `relative` has the groups' z-scores if the total is
    made from them. `kept` is the share of cases that are not lost by failures and timeouts.
    """

    total: float
    groups: tuple[float | None, ...]
    weights: tuple[float, ...]
    measured: tuple[tuple[float | None, float, float], ...] = ()
    broken: tuple[Violation, ...] = ()
    relative: tuple[float, ...] | None = None
    performance: Performance | None = None
    kept: float = 1.0

    def explain(self) -> ScorePart:
        """The score as a tree of parts."""
        if self.broken:
            rules = "hard rules are" if len(self.broken) > 1 else "hard rule is"
            words = f"{len(self.broken)} {rules} broken, so the score is 0"
            faults = tuple(ScorePart(rule.rule, 0.0, 0.0, rule.words) for rule in self.broken)
            return ScorePart("score", 1.0, self.total, words, parts=faults)
        weights = _shared(self.weights, self.groups)
        parts = tuple(self._group(number, weights[number]) for number in range(len(GROUPS)))
        how = "the weighted mean of its parts" if self.relative is None else "weighted z-scores within its batch"
        return ScorePart("score", 1.0, self.total, how, parts=parts)

    def _group(self, number: int, weight: float) -> ScorePart:
        numbers = BY_GROUP[GROUPS[number]]
        shares = [self.measured[n][1] if self.measured[n][0] is not None else None for n in numbers]
        weights = _shared([MEASURES[n].weight for n in numbers], shares)
        parts = tuple(self._measure(n, weight * own) for n, own in zip(numbers, weights, strict=True))
        words = "the weighted mean of its measures" if self.groups[number] is not None else "nothing to measure"
        if self.relative is not None:
            words = f"z-score {self.relative[number]:+.3f} in its batch"
        return ScorePart(GROUPS[number], weight, self.groups[number], words, parts=parts)

    def _measure(self, number: int, weight: float) -> ScorePart:
        measure, (value, share, reference) = MEASURES[number], self.measured[number]
        if value is None:
            return ScorePart(measure.name, 0.0, None, "not specified in the requirements")
        said = [in_time(one, 4) if measure.unit == "s" else one for one in (value, reference)]
        words, scale = measure.words.format(value=said[0]), measure.scale.format(reference=said[1])
        return ScorePart(measure.name, weight, share, words, value, measure.unit, scale)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        broken = [{"rule": rule.rule, "words": rule.words, "names": list(rule.names)} for rule in self.broken]
        shares = dict(zip(GROUPS, self.groups, strict=True))
        return {"score": self.total, "groups": shares, "broken": broken, "explanation": self.explain().as_dict()}


# The value (None: not specified in the requirements), its share, and the reference of its scale.
Measured: TypeAlias = tuple[float | None, float, float]
NOTHING: Measured = (None, 0.0, 0.0)
GROUP_WEIGHTS = tuple([tuple([MEASURES[n].weight for n in BY_GROUP[group]]) for group in GROUPS])
# A lost case counts this many times: it is worse than one that takes its share longer.
LOST_COUNTS = 3
COVERAGE = next(place for place, n in enumerate(BY_GROUP["structure"]) if MEASURES[n].name == "path coverage")


class DesignScorer:
    """Scores designs for one set of requirements; whatever does not depend on the design is computed once."""

    def __init__(self, requirements: Requirements, weights: Weights | None = None) -> None:
        self.requirements = requirements
        objective = requirements.objective
        chosen = weights or (objective if isinstance(objective, Weights) else Weights())
        self.weights = (chosen.performance, chosen.structure, chosen.maintainability, chosen.resources)
        if sum(self.weights) <= 0:
            raise ConfigError("every weight of the score is 0", hint="Set at least one above 0.", field="objective")
        self.rules = RuleBook(requirements)
        self.references = references_of(requirements)
        self.cases = LostCases(requirements)
        self.needed = sum(self.rules.needs.values())
        self.rate = requirements.demand.arrivals_per_second
        pools = requirements.pools
        self.least = {name: max(1, pool.least) for name, pool in pools.items()}
        self.most = {name: pool.most for name, pool in pools.items()}
        self.cpu = {name: activity.cpu for name, activity in requirements.activities.items()}
        self.time = {name: activity.duration.mean for name, activity in requirements.activities.items()}
        # CPU utilisation counts only if a machine pool may do work that needs cores.
        computing = {pool for activity in requirements.activities.values() if activity.cpu for pool in activity.pools}
        machines = {name for name, pool in pools.items() if pool.kind == "machine"}
        self.machines = machines if machines & computing else set()
        documented = measures.described(requirements.activities)
        # Whether each has a description, whether its label is well formed, and the share of cases that need it.
        self.facts = {
            name: (name in documented, measures.verb_and_object(name), self.rules.needs.get(name, 0.0))
            for name in requirements.activities
        }

    def __call__(self, design: Design, performance: Performance | None = None) -> DesignScore:
        """The score of a design; its performance is evaluated unless given."""
        found = anatomy(design, self.rules.limits)
        broken = self.rules.broken(design, found.runs)
        if not broken:
            performance = self._patient(design, performance or evaluate(design, self.requirements))
            full = self._overload(performance)
            late = self.rules.late(performance.cycle_time)
            broken = [full] if full else [late] if late else []
        if broken:
            return DesignScore(0.0, (0.0,) * len(GROUPS), self.weights, broken=tuple(broken), performance=performance)
        assert performance is not None
        structure, maintainability = self._shape(design, found)
        # Cases that are not lost, times covered activities: the share of the required work that is done.
        kept = self.cases.kept(design, performance.completed)
        done = kept**LOST_COUNTS * structure[COVERAGE][1]
        by_group = (
            self._performance(design, found, performance, done),
            structure,
            maintainability,
            self._resources(design, performance, done),
        )
        groups = tuple(map(_group_share, GROUP_WEIGHTS, by_group))
        measured = tuple(itertools.chain.from_iterable(by_group))
        return DesignScore(_weighted(self.weights, groups), groups, self.weights, measured, (), None, performance, kept)

    def _performance(self, design: Design, found: Anatomy, performance: Performance, done: float) -> list[Measured]:
        """Time, memory and throughput are scaled by the share of work that is `done`: giving up must not pay."""
        best, cost = self.references, performance.cost
        rate, time = performance.throughput, performance.cycle_time
        held = performance.memory / rate if rate > 0 else math.inf
        loaded = self._cores_busy(design, found, performance) if self.machines else None
        passed = min(1.0, rate / best.throughput) if best.throughput else 1.0
        return [
            (time, done * measures.at_least(best.cycle_time, time), best.cycle_time),
            (cost, done * measures.at_least(best.staffed, cost), best.staffed) if best.staffed else NOTHING,
            (held, done * measures.at_least(best.memory, held), best.memory) if best.memory else NOTHING,
            (loaded, measures.share_of(loaded), 1.0) if loaded is not None else NOTHING,
            (rate, done * passed, best.throughput),
        ]

    def _cores_busy(self, design: Design, found: Anatomy, performance: Performance) -> float:
        # The busy share of the machines' cores; 0 if no machine does work that needs cores.
        # Each server of a pool has as many cores as the pool's most demanding activity uses. The cores in use are the
        # average over its activities, weighted by how often and how long they are done.
        largest: dict[str, float] = {}
        kept: dict[str, float] = {}
        worked: dict[str, float] = {}
        for activity, _, share in found.runs:
            pool = activity.handling.pool or self.rules.first[activity.name]
            if pool in self.machines:
                cores, work = self.cpu[activity.name], share * self.time[activity.name]
                largest[pool] = max(largest.get(pool, 0.0), cores)
                kept[pool] = kept.get(pool, 0.0) + work * cores
                worked[pool] = worked.get(pool, 0.0) + work
        staff = {**self.least, **dict(design.servers)}
        there = sum(staff[pool] * cores for pool, cores in largest.items())
        busy, used = performance.utilisation, [pool for pool in largest if worked[pool] > 0]
        busy_cores = sum(busy[pool] * staff[pool] * kept[pool] / worked[pool] for pool in used)
        working = sum(share * staff[pool] for pool, share in performance.utilisation.items())
        return self._useful(performance, working) * busy_cores / there if there else 0.0

    def _shape(self, design: Design, found: Anatomy) -> tuple[list[Measured], list[Measured]]:
        metrics, runs = found.metrics, found.runs
        paths, states = self.references.cyclomatic, self.references.control_flow
        interface = math.sqrt(metrics.interface / metrics.nodes)
        described = labelled = 0
        covered, rarest = 0.0, 1.0
        for activity, _, share in runs:
            documented_well, named, needed = self.facts[activity.name]
            described += documented_well
            labelled += named
            covered += share if share < needed else needed
            rarest = share if share < rarest else rarest
        covered = covered / self.needed if self.needed else 1.0
        read = measures.readability(metrics, labelled / len(runs))
        apart = measures.modularity(found)
        documented = measures.documentation(
            described / len(runs), measures.says_something(design.documentation, design.name)
        )
        tested = measures.testability(metrics, rarest, paths)
        structure: list[Measured] = [
            (metrics.paths, measures.halved(metrics.paths, paths, paths + 9), paths),
            (metrics.control_flow, measures.halved(metrics.control_flow, states, states + 20), states),
            (interface, measures.halved(interface, 1, 5), 1.0),
            (metrics.connectivity, measures.halved(metrics.connectivity, 1, 2), 1.0),
            (covered, covered, 1.0),
        ]
        return structure, [(value, value, 1.0) for value in (read, apart, documented, tested)]

    def _overload(self, performance: Performance) -> Violation | None:
        """Whether more cases arrive than the pools can handle, so that queues grow without bound."""
        if self.rate is None or performance.capacity > self.rate:
            return None
        able = f"{self.rate:.4g} cases arrive per second, but only {performance.capacity:.4g} can be handled"
        return Violation("overload", performance.reason or able)

    def _patient(self, design: Design, found: Performance) -> Performance:
        """With timeouts for people, the worse of the figures with and without them: cutting people off must not pay."""
        if all(one.handling.timeout is None for one in activities(design.root)):
            return found

        def waited_for(block: Block) -> Block:
            if not isinstance(block, Activity) or block.handling.timeout is None:
                return block
            pool = block.handling.pool or self.rules.first[block.name]
            human = is_human(self.requirements, block.name, pool)
            return replace(block, handling=replace(block.handling, timeout=None)) if human else block

        root = rewritten(design.root, waited_for)
        if root == design.root:
            return found
        patient = evaluate(
            replace(design, root=root), self.requirements, "measured" if found.tier == "simulation" else "auto"
        )
        return replace(
            patient,
            cycle_time=max(found.cycle_time, patient.cycle_time),
            waiting=max(found.waiting, patient.waiting),
            cost=max(found.cost, patient.cost),
            throughput=min(found.throughput, patient.throughput),
            completed=min(found.completed, patient.completed),
            capacity=min(found.capacity, patient.capacity),
            reason=found.reason or patient.reason,
        )

    def _useful(self, performance: Performance, working: float) -> float:
        """The share of the servers' work that was necessary: doing more than that must not count as being busy."""
        done = working / performance.throughput if performance.throughput > 0 else 0.0
        return min(1.0, self.references.work / done) if done > 0 else 1.0

    def _waits(self, performance: Performance, working: float) -> float:
        """Waiting as a share of waiting and being worked on, both as numbers of cases at a time (Little's law).

        Work that waits in parallel does not make a case wait longer than it takes.
        """
        if not math.isfinite(performance.waiting):
            return 1.0
        waiting = min(performance.waiting, performance.cycle_time) * performance.throughput
        return waiting / (waiting + working) if waiting > 0 else 0.0

    def _resources(self, design: Design, performance: Performance, done: float) -> list[Measured]:
        best, loads = self.references, performance.utilisation
        staff = {**self.least, **dict(design.servers)}
        working, full, servers = 0.0, 0.0, 0
        for pool, busy_share in loads.items():
            working += busy_share * staff[pool]
            servers += staff[pool]
            full = max(full, busy_share)
        # Utilisation counts necessary work only; `full` is the load of the busiest pool.
        load = self._useful(performance, working) * working / servers if servers else None
        waits, cost = self._waits(performance, working), performance.cost
        useful = done * measures.at_least(best.cost, cost)
        return [
            (load, measures.busy(load), 0.8) if load is not None else NOTHING,
            (useful, useful, 1.0) if best.cost else NOTHING,
            (full, measures.share_of(1 - full), 0.0) if servers else NOTHING,
            (waits, measures.share_of(1 - waits), 0.0) if servers else NOTHING,
        ]


def _group_share(weights: Sequence[float], measured: Sequence[Measured]) -> float | None:
    """The weighted mean of a group's measures; None if the requirements say nothing about any of them."""
    known = [(weight, share) for weight, (value, share, _) in zip(weights, measured, strict=True) if value is not None]
    total = sum(weight for weight, _ in known)
    return sum(weight * share for weight, share in known) / total if total else None


def _weighted(weights: Sequence[float], groups: Sequence[float | None]) -> float:
    """The weighted mean over the groups that have a value."""
    pairs = [(weight, share) for weight, share in zip(weights, groups, strict=True) if share is not None]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * share for weight, share in pairs) / total if total else 0.0


def _shared(weights: Sequence[float], shares: Sequence[float | None]) -> list[float]:
    """The weights of the groups that have a share, normalised to sum to 1."""
    own = [weight if share is not None else 0.0 for weight, share in zip(weights, shares, strict=True)]
    total = sum(own)
    return [weight / total if total else 0.0 for weight in own]


_latest: tuple[Requirements, Weights | None, DesignScorer] | None = None


def score(
    design: Design, requirements: Requirements, performance: Performance | None = None, weights: Weights | None = None
) -> DesignScore:
    """The score of a design. For many designs, make a `DesignScorer` or use `score_batch`."""
    global _latest
    kept = _latest
    if kept is None or kept[0] is not requirements or kept[1] is not weights:
        _latest = kept = (requirements, weights, DesignScorer(requirements, weights))
    return kept[2](design, performance)


def score_batch(
    designs: Sequence[Design],
    requirements: Requirements,
    performances: Sequence[Performance | None] | None = None,
    weights: Weights | None = None,
    normalization: Literal["reference", "zscore"] = "reference",
) -> list[DesignScore]:
    """The scores of a batch, on the fixed scales or relative to the batch.

    With z-scores each group counts as (share − mean) / standard deviation over the batch (population; 0 if all are
    equal). A design that breaks a rule takes part with shares of 0.
    """
    scorer = DesignScorer(requirements, weights)
    given = performances if performances is not None else [None] * len(designs)
    scores = [scorer(design, performance) for design, performance in zip(designs, given, strict=True)]
    return standardised(scores) if normalization == "zscore" else scores


def standardised(scores: Sequence[DesignScore]) -> list[DesignScore]:
    """The same scores, with totals made from the groups' z-scores."""
    columns = []
    for number in range(len(GROUPS)):
        values = [one.groups[number] or 0.0 for one in scores]
        mean, spread = statistics.fmean(values), statistics.pstdev(values)
        columns.append([(value - mean) / spread if spread > 1e-12 else 0.0 for value in values])
    found = []
    for place, one in enumerate(scores):
        relative = tuple(column[place] for column in columns)
        found.append(replace(one, total=_weighted(one.weights, relative), relative=relative))
    return found
