"""The workflow that a design is compared with: the start that the requirements name, or everything in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from groupwise.workflows.blocks import Activity, Block, Design, DesignError, rewritten
from groupwise.workflows.designer.keys import Construction
from groupwise.workflows.files import read_workflow
from groupwise.workflows.lifting import lift
from groupwise.workflows.requirements import Requirements

PLAIN = "one activity after the other, with the fewest servers that keep up"


@dataclass(frozen=True, slots=True)
class Beginning:
    """A design to compare with, what it is called, and what should be known about it."""

    design: Design
    words: str
    notes: tuple[str, ...] = ()


def beginning(requirements: Requirements, folder: Path = Path()) -> Beginning:
    """The start that the requirements name (a path from `folder`), or else the plain sequence."""
    if requirements.start is None:
        return Beginning(plain_sequence(requirements), PLAIN)
    path = folder / requirements.start
    try:
        return Beginning(with_pools(lift(read_workflow(path)), requirements), path.name)
    except DesignError as error:
        note = f"{path.name} has no block form, so the comparison is with a plain sequence: {error.message}"
        return Beginning(plain_sequence(requirements), PLAIN, (note,))


def plain_sequence(requirements: Requirements) -> Design:
    """The first legal candidate of every decision: all that is needed in one line, as precedence asks."""
    construction = Construction(requirements)
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
