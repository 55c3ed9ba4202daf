"""`groupwise score`: one number for a workflow, and the tree of parts behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import RequirementsFile, WorkflowFile, patiently
from groupwise.errors import ConfigError
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.opening import open_workflow
from groupwise.workflows.requirements import Weights
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.scoring import Part, score
from groupwise.workflows.soundness import check_document

Words = tuple[str, ...]


def score_file(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    tier: Annotated[
        Literal["auto", "analytic", "simulation", "schedule"], Parameter(help="How performance is found.")
    ] = "auto",
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Of the simulation.")] = 0,
    weight: Annotated[Words, Parameter(negative=(), help="Weigh a part otherwise: --weight performance=0.7.")] = (),
    common: Common = Common(),
) -> int:
    """Score a workflow: performance 40%, structure 25%, maintainability 20%, resources 15%, each explained.

    A workflow that is not sound or breaks a hard rule has no score; the exit status is then 1.
    """
    opened = open_workflow(file, requirements)
    asked = opened.insist_on_requirements("a score")
    insist_feasible(asked)
    unsound = {name: verdict for name, verdict in check_document(opened.document).items() if not verdict.sound}
    if unsound:
        name, verdict = next(iter(unsound.items()))
        raise ConfigError(
            f"{name} is {verdict.verdict}, and only a sound one has a score: {verdict.rule}, {verdict.explanation}",
            hint="`groupwise check` shows the steps that lead there.",
        )
    design = opened.design()
    with patiently(common.json):
        performance = None if broken_rules(design, asked) else evaluate(design, asked, tier=tier, seed=seed)
    chosen = asked.objective if isinstance(asked.objective, Weights) else Weights()
    found = score(design, asked, performance, weighted(chosen, weight))
    if common.json:
        answer({"file": str(file), **found.as_dict()})
    else:
        console = Console(highlight=False, soft_wrap=True)
        for words in tree(found.explain()):
            console.print(words)
    return 1 if found.broken else 0


def weighted(weights: Weights, words: Words) -> Weights:
    """The weights with some changed by NAME=NUMBER."""
    changed = weights.model_dump()
    for word in words:
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in changed or not 0 <= value < float("inf"):
            known = ", ".join(changed)
            raise ConfigError(
                f"--weight {word!r} is not NAME=NUMBER with a number of at least 0", hint=f"Names: {known}."
            )
        changed[name] = value
    return Weights(**changed)


def tree(part: Part, first: str = "", rest: str = "") -> Iterator[str]:
    """A part and what it is made of as lines of a tree, however wide."""
    yield escape(first) + line(part)
    for number, inner in enumerate(part.parts, 1):
        last = number == len(part.parts)
        yield from tree(inner, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))


def line(part: Part) -> str:
    if part.share is None:
        return f"[dim]–      {escape(part.name)}: {escape(part.words)}[/dim]"
    weight = f" [dim]{part.weight:.1%}[/dim]" if 0 < part.weight < 1 else ""
    scale = f" [dim]({escape(part.scale)})[/dim]" if part.scale else ""
    return f"[bold]{part.share:.3f}[/bold]  {escape(part.name)}{weight}: {escape(part.words)}{scale}"
