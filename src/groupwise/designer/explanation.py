"""The workflow that a design is compared with: the start that the requirements name, or everything in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.designer.generations import Candidate
from groupwise.designer.heuristics import KeyDecoder
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Block, Choice, Design, DesignError, Parallel, children, rewritten
from groupwise.workflows.blocks import Sequence as InOrder
from groupwise.workflows.differences import Change, Differences, compare_workflows
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import DesignScore, ScorePart
from groupwise.workflows.scoring.measures import MEASURES

PLAIN = "one activity after the other, with the fewest servers that keep up"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A design to compare with, what it is called, and what should be known about it."""

    design: Design
    words: str
    notes: tuple[str, ...] = ()


def baseline_of(requirements: Requirements, folder: Path = Path()) -> Baseline:
    """The start that the requirements name (a path from `folder`), or else the plain sequence."""
    if requirements.start is None:
        return Baseline(plain_sequence(requirements), PLAIN)
    path = folder / requirements.start
    try:
        return Baseline(with_pools(lift(read_workflow(path)), requirements), path.name)
    except DesignError as error:
        note = f"{path.name} has no block form, so the comparison is with a plain sequence: {error.message}"
        return Baseline(plain_sequence(requirements), PLAIN, (note,))


def plain_sequence(requirements: Requirements) -> Design:
    """The first legal candidate of every decision: all that is needed in one line, as precedence asks."""
    construction = KeyDecoder(requirements)
    return construction.decode(np.zeros((1, construction.genes)))[0]


def with_pools(design: Design, requirements: Requirements) -> Design:
    """The same design with every pool and every number of servers said that it leaves to be understood."""

    def told(block: Block) -> Block:
        if not isinstance(block, Activity) or block.handling.pool or block.name not in requirements.activities:
            return block
        first = next(iter(requirements.activities[block.name].pools), None)
        return Activity(block.name, replace(block.handling, pool=first))

    servers = {name: max(1, pool.least) for name, pool in requirements.pools.items()} | dict(design.servers)
    return replace(design, root=rewritten(design.root, told), servers=tuple(servers.items()))


TOLD = 4
SMALLEST = 5e-4
ABSTRACT = ("memory", "throughput")
"""Measures whose own unit says little to people."""
CONTROL_FLOW = next(n for n, measure in enumerate(MEASURES) if measure.name == "control-flow complexity")
PERCENT = {measure.name for measure in MEASURES if ":.0%}" in measure.words}


@dataclass(frozen=True, slots=True)
class ParetoRow:
    """One line of the Pareto table."""

    score: float
    cycle_time: float
    cost: float
    control_flow: float
    servers: int
    chosen: bool


def pareto_rows(pareto: Sequence[Candidate], best: Candidate) -> list[ParetoRow]:
    """The designs that no other beats in everything: the chosen one, then by score."""
    everyone = {one.design: one for one in (*pareto, best)}
    found = {
        row_of(design, one.score, design == best.design)
        for design, one in everyone.items()
        if one.score is not None and not one.score.broken
    }
    return sorted(found, key=lambda row: (not row.chosen, -row.score))


def few(rows: Sequence[ParetoRow], most: int = 6) -> list[ParetoRow]:
    """At most so many of the rows: the chosen one, the best, the fastest, the cheapest, the simplest, then by score."""
    if len(rows) <= most:
        return list(rows)
    picked = [row for row in rows if row.chosen]
    for key in ("cycle_time", "cost", "control_flow", "servers"):
        picked.append(min(rows, key=lambda row: (getattr(row, key), -row.score)))
    kept = {_seen(row): row for row in reversed([*picked, *rows])}
    return sorted(list(reversed(kept.values()))[:most], key=lambda row: (not row.chosen, -row.score))


def _seen(row: ParetoRow) -> tuple[str, ...]:
    """A row as far as people tell it from others."""
    return tuple(f"{value:.3g}" for value in (row.score, row.cycle_time, row.cost, row.control_flow, row.servers))


def row_of(design: Design, score: DesignScore, chosen: bool) -> ParetoRow:
    """A design that breaks no rule, with its score, as a row."""
    assert score.performance is not None
    complexity = score.measured[CONTROL_FLOW][0]
    servers = sum(number for _, number in design.servers)
    return ParetoRow(
        score.total, score.performance.cycle_time, score.performance.cost, complexity or 0.0, servers, chosen
    )


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A measure that changed, its value and the share of what it could be, and by how much that moved the score."""

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
    """What is different from the start, and why the score is: what rose, and what fell."""

    start: str
    before: DesignScore
    after: DesignScore
    differences: Differences
    rose: tuple[ScoreChange, ...]
    fell: tuple[ScoreChange, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "start_score": self.before.total,
            "start_broken": [str(violation) for violation in self.before.broken],
            "differences": self.differences.as_dict(),
            "rose": [asdict(reason) for reason in self.rose],
            "fell": [asdict(reason) for reason in self.fell],
        }


def explain(start: Baseline, before: DesignScore, best: Candidate, requirements: Requirements) -> Explanation:
    """The best design against the start."""
    assert best.score is not None
    found = compare_workflows(with_pools(start.design, requirements), with_pools(best.design, requirements))
    reasons = sorted(_reasons(before, best.score), key=lambda reason: -abs(reason.effect))
    return Explanation(
        start.words,
        before,
        best.score,
        found,
        tuple(reason for reason in reasons if reason.effect > 0),
        tuple(reason for reason in reasons if reason.effect < 0),
    )


def _reasons(before: DesignScore, after: DesignScore) -> Iterator[ScoreChange]:
    """Every measure with its effect on the score; together they are the difference of the two."""
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
    """The differences in few lines, each a mark and words: what came, went and moved, and like changes together."""
    if found.added:
        yield "+", listed(found.added)
    if found.removed:
        yield "−", listed(found.removed)
    yield from (("↕", str(move)) for move in found.moved[:TOLD])
    if len(found.moved) > TOLD:
        yield "↕", f"{len(found.moved) - TOLD} more stand otherwise to others"
    kinds: dict[str, list[Change]] = {}
    for change in found.changed:
        if change.what != "documentation":
            alike = change.what if change.what == "servers" else f"{change.what} {_step(change)}"
            kinds.setdefault(alike, []).append(change)
    for alike, changes in kinds.items():
        servers = alike == "servers"
        told = [f"{change.name} {_step(change)}" if servers else change.name for change in changes]
        yield "~", f"{alike}: {listed(told, 6 if servers else TOLD)}"


def listed(words: Sequence[str], most: int = TOLD) -> str:
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


def in_time(seconds: float) -> str:
    """Seconds in the unit people would use."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if 2 * size <= seconds < float("inf"):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def in_a_line(design: Design) -> str:
    """The tree as one line: a → (b ∥ c) → [d 30% | – 70%]."""
    return _drawn(design.root)


def _drawn(block: Block) -> str:
    match block:
        case Activity(name):
            return name
        case InOrder(parts):
            return " → ".join(map(_drawn, parts))
        case Parallel(parts):
            return f"({' ∥ '.join(map(_drawn, parts))})"
        case Choice(parts, shares):
            told = (f"{_drawn(part)} {share:.0%}" for part, share in zip(parts, shares, strict=True))
            return f"[{' | '.join(told)}]"
        case _:
            return f"{{{' '.join(map(_drawn, children(block)))}}}" if children(block) else "–"
