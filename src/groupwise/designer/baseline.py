"""The design that a result is compared with: the one that the requirements name, or a plain sequence."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from groupwise.designer.heuristics import genes_of, plans_of
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Block, Design, DesignError, rewritten, tidied
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import Requirements

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
