"""A design explained: its baseline, the Pareto-optimal designs, what changed, and why the score changed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.designer.generations import Candidate
from groupwise.designer.heuristics import genes_of, plans_of
from groupwise.designer.tasks import PreparedRequirements, control_flow_of
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Block, Choice, Design, DesignError, Parallel, children, rewritten
from groupwise.workflows.blocks import Sequence as InOrder
from groupwise.workflows.differences import Change, Differences, compare_workflows
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import DesignScore, ScorePart
from groupwise.workflows.scoring.measures import MEASURES

PLAIN = "a plain sequence with minimal staffing"
# How many names a line lists before "and n more".
LISTED = 4
# Effects on the score below this are not mentioned.
SMALLEST = 5e-4
# Relative changes of cycle time and cost below this are not mentioned.
NOTICED = 0.005
# Measures whose unit means little to people; their share of the best is shown instead.
ABSTRACT = ("memory", "throughput")
PERCENT = {measure.name for measure in MEASURES if ":.0%}" in measure.words}


@dataclass(frozen=True, slots=True)
class Baseline:
    """A design to compare with, what to call it, and notes on how it was made.

    `given`: it is the user's current design, not one made here.
    """

    design: Design
    words: str
    notes: tuple[str, ...] = ()
    given: bool = False


def baseline_of(prepared: PreparedRequirements, folder: Path = Path()) -> Baseline:
    """The starting design that the requirements name (a path relative to `folder`), or a plain sequence."""
    requirements = prepared.problem.requirements
    if requirements.start is None:
        return plain_sequence(prepared)
    path = folder / requirements.start
    try:
        return Baseline(with_pools(lift(read_workflow(path)), requirements), path.name, given=True)
    except DesignError as error:
        note = f"{path.name} is not block-structured, so the comparison is with {PLAIN}: {error.message}"
        return replace(plain_sequence(prepared), notes=(note,))


def plain_sequence(prepared: PreparedRequirements) -> Baseline:
    """The first legal candidate of every decision: all required activities in one line, in the required order."""
    keys = np.zeros((1, genes_of(prepared.problem)))
    return Baseline(prepared.drafter(plans_of(prepared.problem, keys))[0], PLAIN)


def with_pools(design: Design, requirements: Requirements) -> Design:
    """The same design with all the pools and server counts that it leaves implicit."""

    def assigned(block: Block) -> Block:
        if not isinstance(block, Activity) or block.handling.pool or block.name not in requirements.activities:
            return block
        first = next(iter(requirements.activities[block.name].pools), None)
        return Activity(block.name, replace(block.handling, pool=first))

    servers = {name: max(1, pool.least) for name, pool in requirements.pools.items()} | dict(design.servers)
    return replace(design, root=rewritten(design.root, assigned), servers=tuple(servers.items()))


@dataclass(frozen=True, slots=True)
class ParetoRow:
    """One line of the Pareto table; times in seconds."""

    score: float
    cycle_time: float
    cost: float
    control_flow: float
    servers: int
    chosen: bool


def pareto_rows(pareto: Sequence[Candidate], best: Candidate) -> list[ParetoRow]:
    """The Pareto-optimal designs: the chosen one first, the others by score."""
    everyone = {one.design: one for one in (*pareto, best)}
    found = {
        row_of(design, one.score, design == best.design)
        for design, one in everyone.items()
        if one.score is not None and not one.score.broken
    }
    return sorted(found, key=lambda row: (not row.chosen, -row.score))


def few(rows: Sequence[ParetoRow], most: int = 6) -> list[ParetoRow]:
    """At most that many rows: the chosen one, the best, the fastest, the cheapest, the simplest, then by score."""
    if len(rows) <= most:
        return list(rows)
    picked = [row for row in rows if row.chosen]
    for key in ("cycle_time", "cost", "control_flow", "servers"):
        picked.append(min(rows, key=lambda row: (getattr(row, key), -row.score)))
    # By the digits that are shown: rows that look the same are listed once.
    kept = {tuple(f"{value:.3g}" for value in astuple(row)[:-1]): row for row in reversed([*picked, *rows])}
    return sorted(list(reversed(kept.values()))[:most], key=lambda row: (not row.chosen, -row.score))


def row_of(design: Design, score: DesignScore, chosen: bool) -> ParetoRow:
    assert score.performance is not None
    servers, performance = sum(number for _, number in design.servers), score.performance
    return ParetoRow(score.total, performance.cycle_time, performance.cost, control_flow_of(score), servers, chosen)


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A measure that changed: its values, its shares of the best possible, and its effect on the score."""

    name: str
    before: float
    after: float
    shares: tuple[float, float]
    effect: float

    def __str__(self) -> str:
        was, now = shown(self.name, self.before), shown(self.name, self.after)
        if was == now or self.name in ABSTRACT:
            was, now = (f"{share:.0%}" for share in self.shares)
            now += " of the best"
        return f"{self.name} {was} → {now} ({f'{self.effect:+.3f}'.replace('-', '−')})"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the design differs from the baseline, and which measures raised and lowered the score."""

    baseline: Baseline
    before: DesignScore
    after: DesignScore
    differences: Differences
    rose: tuple[ScoreChange, ...]
    fell: tuple[ScoreChange, ...]

    def headline(self) -> str:
        """The result in one or two sentences."""
        origin = "your current design" if self.baseline.given else PLAIN
        if self.after.broken:
            return f"No design was found that obeys every rule: {self.after.broken[0]}."
        if self.before.broken:
            broken = f"{origin[0].upper()}{origin[1:]} breaks a rule ({self.before.broken[0]})"
            return f"Score {self.after.total:.3f}. {broken}; this design obeys all of them."
        if self.after.total <= self.before.total:
            return f"No better design than {origin} was found (its score is {self.before.total:.3f})."
        gain = self.after.total - self.before.total
        return f"Score {self.after.total:.3f}, up {gain:.3f} from {origin}{self._what_changed()}."

    def _what_changed(self) -> str:
        # Cycle time and cost in percent, or the measure with the largest effect where these hardly changed.
        old, new = self.before.performance, self.after.performance
        assert old is not None
        assert new is not None
        unit, size = time_unit(max(old.cycle_time, new.cycle_time))
        parts = []
        if time := _percent(old.cycle_time, new.cycle_time, ("slower", "faster")):
            parts.append(f"finish {time} ({old.cycle_time / size:.3g} → {new.cycle_time / size:.3g} {unit})")
        if cost := _percent(old.cost, new.cost, ("more", "less")):
            parts.append(f"cost {cost} ({old.cost:.4g} → {new.cost:.4g})")
        if not parts:
            return f", mainly through {self.rose[0].name}" if self.rose else ""
        agree = (new.cycle_time < old.cycle_time) == (new.cost < old.cost)
        return f": cases {(' and ' if agree else ' but ').join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "start": self.baseline.words,
            "start_score": self.before.total,
            "start_broken": [str(violation) for violation in self.before.broken],
            "differences": self.differences.as_dict(),
            "rose": [asdict(change) for change in self.rose],
            "fell": [asdict(change) for change in self.fell],
        }


def _percent(old: float, new: float, words: tuple[str, str]) -> str:
    # "16% faster": the relative change, and the word for a rise or a fall; nothing if it is not worth mentioning.
    if not (math.isfinite(old) and math.isfinite(new) and old > 0) or abs(new / old - 1) < NOTICED:
        return ""
    return f"{abs(new / old - 1):.0%} {words[new < old]}"


def explain(start: Baseline, before: DesignScore, best: Candidate, requirements: Requirements) -> Explanation:
    assert best.score is not None
    found = compare_workflows(with_pools(start.design, requirements), with_pools(best.design, requirements))
    changes = sorted(_score_changes(before, best.score), key=lambda change: -abs(change.effect))
    rose = tuple(change for change in changes if change.effect > 0)
    return Explanation(start, before, best.score, found, rose, tuple(one for one in changes if one.effect < 0))


def _score_changes(before: DesignScore, after: DesignScore) -> Iterator[ScoreChange]:
    # Every measure with its effect on the score; the effects add up to the difference of the two scores.
    if before.broken or after.broken:
        return
    old = {part.name: part for part in _measures(before.explain())}
    for part in _measures(after.explain()):
        was = old.get(part.name)
        if was is None or was.share is None or part.share is None or was.value is None or part.value is None:
            continue
        effect = part.weight * part.share - was.weight * was.share
        if abs(effect) >= SMALLEST:
            yield ScoreChange(part.name, was.value, part.value, (was.share, part.share), effect)


def _measures(part: ScorePart) -> Iterator[ScorePart]:
    if not part.parts:
        yield part
    for inner in part.parts:
        yield from _measures(inner)


def lines_of(found: Differences) -> Iterator[tuple[str, str]]:
    """The differences in a few lines, each a mark and words: added, removed, moved, and similar changes grouped."""
    if found.added:
        yield "+", listed(found.added)
    if found.removed:
        yield "−", listed(found.removed)
    yield from (("↕", str(move)) for move in found.moved[:LISTED])
    if len(found.moved) > LISTED:
        yield "↕", f"{len(found.moved) - LISTED} more changes of order"
    kinds: dict[str, list[Change]] = {}
    for change in found.changed:
        if change.what != "documentation":
            alike = change.what if change.what == "servers" else f"{change.what} {_step(change)}"
            kinds.setdefault(alike, []).append(change)
    for alike, changes in kinds.items():
        servers = alike == "servers"
        names = [f"{change.name} {_step(change)}" if servers else change.name for change in changes]
        yield "~", f"{alike}: {listed(names, 6 if servers else LISTED)}"


def listed(words: Sequence[str], most: int = LISTED) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _step(change: Change) -> str:
    return f"{_value(change.what, change.before)} → {_value(change.what, change.after)}"


def _value(what: str, value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("most", value))
    if value is None:
        return "none"
    if isinstance(value, float):
        return in_time(value) if what in ("due", "timeout", "delay") else f"{value:.4g}"
    return str(value)


def shown(name: str, value: float) -> str:
    """A measure's value as people read it."""
    if name in PERCENT:
        return f"{value:.0%}"
    unit = next((measure.unit for measure in MEASURES if measure.name == name), "")
    return in_time(value) if unit == "s" else f"{value:.4g}" + (f" {unit}" if unit else "")


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit people would use for a time, and its length in seconds."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    return next(((unit, size) for unit, size in units if 2 * size <= seconds < math.inf), ("s", 1.0))


def in_time(seconds: float) -> str:
    unit, size = time_unit(seconds)
    return f"{seconds / size:.3g} {unit}"


def one_line(block: Block) -> str:
    """A block tree in one line: a → (b ∥ c) → [d 30% | – 70%]."""
    match block:
        case Activity(name):
            return name
        case InOrder(parts):
            return " → ".join(map(one_line, parts))
        case Parallel(parts):
            return f"({' ∥ '.join(map(one_line, parts))})"
        case Choice(parts, shares):
            branches = (f"{one_line(part)} {share:.0%}" for part, share in zip(parts, shares, strict=True))
            return f"[{' | '.join(branches)}]"
        case _:
            return f"{{{' '.join(map(one_line, children(block)))}}}" if children(block) else "–"
