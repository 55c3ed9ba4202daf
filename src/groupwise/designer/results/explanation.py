"""A design explained: the Pareto-optimal designs, what changed from the baseline, and why the score changed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.designer.baseline import PLAIN, Baseline, with_pools
from groupwise.designer.generations import Candidate
from groupwise.designer.results.outcome import DesignOutcome
from groupwise.designer.tasks import control_flow_of
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Choice,
    Design,
    Finish,
    Loop,
    Parallel,
    PartialOrder,
    Skip,
    activities,
    children,
)
from groupwise.workflows.blocks import Sequence as InOrder
from groupwise.workflows.differences import Change, Differences, compare_workflows
from groupwise.workflows.partial_orders import in_order, reduced
from groupwise.workflows.scoring import DesignScore, ScorePart
from groupwise.workflows.scoring.lost_cases import LostCases
from groupwise.workflows.scoring.measures import MEASURES
from groupwise.workflows.violations import in_time, time_unit

# How many names a line lists before "and n more".
LISTED = 4
# Effects on the score below this are not mentioned.
SMALLEST = 5e-4
# Shares of lost cases below this are not mentioned.
WORTH_A_WORD = 0.005
# Relative changes of cycle time and cost below this are not mentioned.
NOTICED = 0.005
# The margin of a cycle time beyond which it is worth a word, and the load of a pool that explains it.
UNCERTAIN, BUSY = 0.1, 0.9
# Measures whose unit means little to people; their share of the best is shown instead.
ABSTRACT = ("memory", "throughput")
PERCENT = {measure.name for measure in MEASURES if ":.0%}" in measure.words}


@dataclass(frozen=True, slots=True)
class ParetoRow:
    """One line of the Pareto table: its number for `--choose`, and why it was not chosen. Times in seconds."""

    number: int
    score: float
    cycle_time: float
    interval: tuple[float, float]
    cost: float
    control_flow: float
    servers: int
    chosen: bool
    today: bool
    why: str

    @property
    def margin(self) -> float:
        """Half of the interval's width, as a share of the cycle time."""
        return (self.interval[1] - self.interval[0]) / 2 / self.cycle_time if self.cycle_time else 0.0


def pareto_rows(outcome: DesignOutcome) -> list[ParetoRow]:
    """The Pareto-optimal designs: the chosen one first, the others by score."""
    return [row_of(one, number, outcome.best) for number, one in enumerate(outcome.pareto, 1)]


def row_of(candidate: Candidate, number: int = 0, best: Candidate | None = None) -> ParetoRow:
    score = candidate.score
    assert score is not None
    assert score.performance is not None
    performance, chosen = score.performance, candidate is best
    return ParetoRow(
        number,
        score.total,
        performance.cycle_time,
        performance.interval,
        performance.cost,
        control_flow_of(score),
        sum(count for _, count in candidate.design.servers),
        chosen,
        candidate.origin == "start",
        "" if chosen or best is None or best.score is None else _why_not(score, best.score),
    )


def _why_not(score: DesignScore, best: DesignScore) -> str:
    # Why a Pareto-optimal design was not chosen: what it loses most by, compared with the one that was.
    if score.total > best.total:
        return "the deadline is within its margin of error"
    gap, changes = best.total - score.total, list(_score_changes(best, score))
    less = f"{gap:.3f} less" if gap >= SMALLEST else "hardly less"
    worst = min(changes, key=lambda change: change.effect, default=None)
    return f"{less}: {worst.name}" if worst is not None and worst.effect < 0 else less


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
    """How the design differs from the baseline, and which measures raised and lowered the score.

    `kept`: the design is the baseline itself.
    """

    baseline: Baseline
    before: DesignScore
    after: DesignScore
    differences: Differences
    rose: tuple[ScoreChange, ...]
    fell: tuple[ScoreChange, ...]
    kept: bool = False

    def headline(self) -> str:
        """The result in one or two sentences."""
        origin = "your current design" if self.baseline.given else PLAIN
        if self.after.broken:
            return f"No design was found that obeys every rule. The closest one breaks this: {self.after.broken[0]}."
        if self.before.broken:
            broken = f"{origin[0].upper()}{origin[1:]} breaks a rule ({self.before.broken[0]})"
            return f"Score {self.after.total:.3f}. {broken}; this design obeys all of them."
        if self.kept or self.differences.same:
            return f"No better design than {origin} was found (its score is {self.before.total:.3f})."
        gain = self.after.total - self.before.total
        moved = f"{'up' if gain >= 0 else 'down'} {abs(gain):.3f} from {origin}"
        return f"Score {self.after.total:.3f}, {moved}{self._what_changed()}."

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


def lost_words(cases: LostCases, design: Design) -> list[str]:
    """A sentence on the cases that the design loses through failed tries, if there are any to speak of."""
    lost = 1 - cases.kept(design, 1.0)
    if lost < WORTH_A_WORD:
        return []
    worst = max(activities(design.root), key=cases.lost)
    often = f"{worst.name!r} fails for good in {cases.lost(worst):.0%} of its cases"
    return [f"{lost:.1%} of the cases are lost because tries fail ({often})."]


def uncertain_words(score: DesignScore) -> list[str]:
    """A sentence on a cycle time that the longest simulation does not know well."""
    found = score.performance
    if found is None or not found.cycle_time or not all(map(math.isfinite, found.interval)):
        return []
    margin = (found.interval[1] - found.interval[0]) / 2 / found.cycle_time
    if margin <= UNCERTAIN:
        return []
    busiest, share = max(found.utilisation.items(), key=lambda one: one[1], default=("", 0.0))
    who = f": {busiest!r} is busy {share:.0%} of its time" if share > BUSY else ""
    known = f"The cycle time is known only to ±{margin:.0%}, although it was simulated for long. That happens where"
    waits = "Expect much longer waits whenever there is a little more work."
    return [f"{known} somebody is busy nearly all of the time{who}. {waits}"]


def _percent(old: float, new: float, words: tuple[str, str]) -> str:
    # "16% faster": the relative change, and the word for a rise or a fall; nothing if it is not worth mentioning.
    if not (math.isfinite(old) and math.isfinite(new) and old > 0) or abs(new / old - 1) < NOTICED:
        return ""
    return f"{abs(new / old - 1):.0%} {words[new < old]}"


def explain(outcome: DesignOutcome, chosen: Candidate | None = None) -> Explanation:
    """The chosen design, by default the best, compared with the start."""
    best, start, requirements = chosen or outcome.best, outcome.start, outcome.requirements
    assert best.score is not None
    before = outcome.start_score
    found = compare_workflows(with_pools(start.design, requirements), with_pools(best.design, requirements))
    changes = sorted(_score_changes(before, best.score), key=lambda change: -abs(change.effect))
    rose = tuple(change for change in changes if change.effect > 0)
    fell = tuple(change for change in changes if change.effect < 0)
    return Explanation(start, before, best.score, found, rose, fell, kept=best.origin == "start")


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


def one_line(block: Block) -> str:
    """A block tree in one line: a → (b ∥ c) → [d 30% | – 70%]. A partial order: (a → c ∥ b → d (also after a))."""
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
        case Loop(body, again, redo):
            between = "" if isinstance(redo, Skip) else f": {one_line(redo)}"
            return f"({one_line(body)} ↺ {again:.0%}{between})"
        case PartialOrder(parts, edges):
            return f"({' ∥ '.join(_chains(parts, edges))})"
        case Finish():
            return "■"
        case _:
            return f"{{{' '.join(map(one_line, children(block)))}}}" if children(block) else "–"


def _chains(parts: Sequence[Block], edges: frozenset[tuple[int, int]]) -> list[str]:
    """A partial order as chains that contain every part once, with a note where one waits for another chain, too."""
    chains: list[list[str]] = []
    tails: dict[int, list[str]] = {}
    direct = reduced(len(parts), edges)
    for here in in_order(len(parts), direct):
        before = sorted(a for a, b in direct if b == here)
        last = next((a for a in before if a in tails), None)
        words = one_line(parts[here])
        if others := [_title(parts[a]) for a in before if a != last]:
            words = f"({words})" if isinstance(parts[here], InOrder) else words
            words += f" ({'also ' if last is not None else ''}after {', '.join(others)})"
        chain = tails.pop(last) if last is not None else []
        if last is None:
            chains.append(chain)
        chain.append(words)
        tails[here] = chain
    return [" → ".join(chain) for chain in chains]


def _title(block: Block) -> str:
    """A part of an order as others refer to it: by its last activity."""
    names = [one.name for one in activities(block)]
    return names[-1] if names else "–"
