"""The design that a result is compared with: the one that the requirements name, or a plain sequence.

What is known of a process as it is today ends here too: `design_as_logged` is the one that an event log shows,
`requirements_around` what a drawing without numbers asks for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.designer.heuristics import genes_of, plans_of
from groupwise.designer.tasks import PreparedRequirements
from groupwise.errors import ConfigError
from groupwise.workflows import blocks
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Block, Design, DesignError, activities, rewritten, tidied
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import Requirements, parse_requirements

PLAIN = "a plain sequence with minimal staffing"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A design to compare with, what to call it, and notes on how it was made.

    `given`: it is the user's current design, not one made here.
    """

    design: Design
    words: str
    notes: tuple[str, ...] = ()
    given: bool = False


def baseline_of(prepared: PreparedRequirements, folder: Path | None = None) -> Baseline:
    """The starting design that the requirements name (a path relative to `folder`), or a plain sequence.

    Without a folder, requirements may come from anywhere, and a start that is not found is left out with a note.
    """
    requirements = prepared.problem.requirements
    if requirements.start is None:
        return plain_sequence(prepared)
    path = (folder or Path()) / requirements.start
    if folder is None and not path.exists():
        note = f"{path} was not found in this folder, so the comparison is with {PLAIN}"
        return replace(plain_sequence(prepared), notes=(note,))
    try:
        return Baseline(with_pools(lift(read_workflow(path)), requirements), path.name, given=True)
    except DesignError as error:
        note = f"{path.name} is not block-structured, so the comparison is with {PLAIN}: {error.message}"
        return replace(plain_sequence(prepared), notes=(note,))


def plain_sequence(prepared: PreparedRequirements) -> Baseline:
    """The first legal candidate of every decision: all required activities in one line, in the required order."""
    keys = np.zeros((1, genes_of(prepared.problem)))
    (design,) = prepared.drafter(plans_of(prepared.problem, keys))
    # In the form in which it is read back from a file, so that both have the same score.
    return Baseline(replace(design, root=tidied(design.root)), PLAIN)


def with_pools(design: Design, requirements: Requirements) -> Design:
    """The same design with all the pools and server counts that it leaves implicit."""

    def assigned(block: Block) -> Block:
        if not isinstance(block, Activity) or block.handling.pool or block.name not in requirements.activities:
            return block
        first = next(iter(requirements.activities[block.name].pools), None)
        return Activity(block.name, replace(block.handling, pool=first))

    servers = {name: max(1, pool.least) for name, pool in requirements.pools.items()} | dict(design.servers)
    return replace(design, root=rewritten(design.root, assigned), servers=tuple(servers.items()))


def design_as_logged(requirements: Requirements, order: Iterable[tuple[str, str]]) -> Design:
    """The activities in the `order` of most cases of the log, side by side where they were, with all staff it shows."""
    parts: list[Block] = []
    place: dict[str, int] = {}
    for branch in requirements.branches:
        place |= dict.fromkeys(branch.options, len(parts))
        rest = 1 - sum(branch.options.values())
        some: list[tuple[Block, float]] = [(Activity(name), share) for name, share in branch.options.items()]
        some += [(blocks.Skip(), rest)] if rest > blocks.SUM_TOLERANCE or len(some) == 1 else []
        ways, shares = zip(*some, strict=True)
        parts.append(blocks.Choice(tuple(ways), tuple(shares)))
    for name in requirements.activities:
        if name not in place:
            place[name] = len(parts)
            parts.append(Activity(name))
    edges = {(place[one], place[other]) for one, other in order if place[one] != place[other]}
    # Two choices may point both ways; what was mined as a rule decides, and of the rest the first.
    forwards = {edge for edge in edges if edge[::-1] not in edges}
    root = tidied(blocks.simplest_order(tuple(parts), frozenset(forwards))) if len(parts) > 1 else parts[0]
    servers = tuple((name, pool.most) for name, pool in requirements.pools.items())
    return with_pools(Design(requirements.name, root, servers, requirements.documentation), requirements)


def requirements_around(design: Design, name: str) -> Requirements:
    """Requirements of a workflow that has no numbers: its order and branches, and ten minutes for each task."""
    teams = {one.name: one.handling.pool or "staff" for one in activities(design.root)}
    staff = dict.fromkeys(teams.values(), 1) | dict(design.servers)
    branches = [block for block in blocks.walk(design.root) if isinstance(block, blocks.Choice)]
    strange = (blocks.Loop, blocks.PartialOrder, blocks.Cancellable, blocks.Instances, blocks.Finish)
    if any(isinstance(block, strange) for block in blocks.walk(design.root)) or not all(map(_is_plain, branches)):
        raise ConfigError(
            f"{name} has loops, early ends or branches of several steps, which cannot be guessed without numbers",
            hint="Use an event log, or write requirements with `start` (docs/workflows.md).",
        )
    return parse_requirements({
        "name": name,
        "activities": {one: {"duration": {"mean": 600}, "pools": [team]} for one, team in teams.items()},
        "pools": {team: {"most": max(10, count)} for team, count in staff.items()},
        "rules": {"precedes": sorted(_order(design.root))},
        "branches": [{"name": f"branch {number}", "options": _shares(one)} for number, one in enumerate(branches, 1)],
        "demand": {"arrivals_per_second": 0.001},
    })  # fmt: skip


def _is_plain(choice: Any) -> bool:
    return all(isinstance(part, Activity | blocks.Skip) for part in choice.parts)


def _shares(choice: Any) -> dict[str, float]:
    parts = zip(choice.parts, choice.probabilities, strict=True)
    return {part.name: round(share, 6) for part, share in parts if isinstance(part, Activity)}


def _order(block: Block) -> Iterator[tuple[str, str]]:
    """The pairs of activities that follow each other directly."""
    if isinstance(block, blocks.Sequence):
        parts = [[activity.name for activity in activities(part)] for part in block.parts]
        for earlier, later in pairwise([part for part in parts if part]):
            yield from product(earlier, later)
    for part in blocks.children(block):
        yield from _order(part)
