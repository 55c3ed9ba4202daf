"""What the report of a designer's training shows beside the curves: designs before and after, and a search with it."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.training.choosing import choose_checkpoint
from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.beginning import PLAIN, Beginning, plain_sequence
from groupwise.workflows.designer.calling import designed
from groupwise.workflows.designer.construction import construct
from groupwise.workflows.designer.judging import judge
from groupwise.workflows.designer.page import drawing, sections, verdict
from groupwise.workflows.designer.pipeline import Designer
from groupwise.workflows.designer.policy import GraphPolicy
from groupwise.workflows.designer.product import first_policy, held_out, own_requirements
from groupwise.workflows.designer.sampling import PolicyChooser, Views
from groupwise.workflows.designer.tasks import Library, Prepared

SHOWN, MOST = 2, 20
LARGEST = 15
"""Designs of more activities are too wide to look at side by side."""
EVALUATIONS = 64


def sections_of_run(run_dir: Path, cfg: TrainingConfig) -> list[str]:
    """Sections about what the newest checkpoint designs for requirements that it was not trained on."""
    after = GraphPolicy().eval()
    after.load_state_dict(choose_checkpoint(run_dir, None).model)
    before = first_policy(cfg).eval()
    library = Library(own_requirements(cfg))
    prepared = [library(task.id) for task in held_out(cfg, library)[:MOST]]
    small = [one for one in prepared if len(one.problem.names) <= LARGEST] or prepared[:1]
    return [_before_and_after(before, after, small[:SHOWN]), *_search(after, small[0])]


def _before_and_after(before: GraphPolicy, after: GraphPolicy, shown: list[Prepared]) -> str:
    rows = "".join(_pair(before, after, prepared) for prepared in shown)
    return (
        "<section><h2>What it designed, before and after</h2><p>The likeliest design for the first held-out "
        f"requirements of at most {LARGEST} activities; not otherwise chosen.</p>{rows}</section>"
    )


def _pair(before: GraphPolicy, after: GraphPolicy, prepared: Prepared) -> str:
    told = [likeliest(policy, prepared) for policy in (before, after)]
    name = escape(prepared.problem.requirements.name)
    pictures = "".join(
        f"<p class=run>{when}: score {total:.3f}</p>{drawing(design)}"
        for when, (design, total) in zip(("Before", "After"), told, strict=True)
    )
    return f"<h3>{name}, {len(prepared.problem.names)} activities</h3>{pictures}"


def likeliest(policy: GraphPolicy, prepared: Prepared) -> tuple[Design, float]:
    """The policy's likeliest design and its score."""
    chooser = PolicyChooser(Views(policy, prepared.problem), np.random.default_rng(0), greedy=np.ones(1, bool))
    design = prepared.drafter(construct(prepared.problem, chooser, 1))[0]
    return design, judge(prepared, design).total


def _search(policy: GraphPolicy, prepared: Prepared) -> list[str]:
    """A search with the trained policy, told as a design call is."""
    requirements = prepared.problem.requirements
    start = Beginning(plain_sequence(requirements), PLAIN)
    with Designer(policy) as designer:
        call = designed(designer, requirements, start, EVALUATIONS)
    intro = f"<p>{escape(verdict(call))} {call.outcome.evaluations} designs were judged.</p>"
    head = f"<section><h2>A search with it: {escape(requirements.name)}</h2>{intro}</section>"
    return [head, *sections(call)]
