"""A page about a design call: the design and its start, the Pareto front, the parts of the score, the search."""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape
from pathlib import Path

import numpy as np

from groupwise import __version__
from groupwise.config import TrainingConfig
from groupwise.designer.construction import construct
from groupwise.designer.design_call import DesignReport, designed
from groupwise.designer.explanation import (
    PLAIN,
    Baseline,
    Explanation,
    ParetoRow,
    few,
    in_time,
    lines_of,
    plain_sequence,
    row_of,
)
from groupwise.designer.figures import draw_front, draw_generations, draw_parts, draw_stages
from groupwise.designer.outcome import STAGES, Generation
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.product import first_policy, held_out, own_requirements
from groupwise.designer.sampling import PolicyChooser, Views
from groupwise.designer.tasks import PreparedRequirements, RequirementsLibrary, score_design
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.page import figure, whole_page
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.workflows.blocks import Design
from groupwise.workflows.pictures.svg import svg
from groupwise.workflows.scoring import DesignScore, ScorePart

SMALLEST = 0.55
"""How much smaller than drawn a picture can still be read."""


def design_page(call: DesignReport) -> str:
    """The whole page."""
    return whole_page(f"{call.design.name} – Groupwise", (headline(call), *sections(call), footer()))


def sections(call: DesignReport) -> Iterable[str]:
    """What is told of a call, on its own page and on that of a run."""
    yield _designs(call)
    yield _changes(call.account)
    yield _front(call)
    yield _score(call)
    yield _course(call)
    yield _convergence(call)
    yield _notes(call.notes)


def headline(call: DesignReport) -> str:
    outcome, score = call.outcome, call.score
    facts = {
        "Score": f"{score.total:.3f}",
        "Start": "breaks a rule" if call.account.before.broken else f"{call.account.before.total:.3f}",
        "Cycle time": in_time(score.performance.cycle_time) if score.performance else "",
        "Cost per case": f"{score.performance.cost:.4g}" if score.performance else "",
        "Evaluations": str(outcome.evaluations),
        "Time": f"{sum(outcome.stages.values()):.2f} s",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value)
    size = f"{len(outcome.requirements.activities)} activities, {len(outcome.requirements.pools)} pools"
    return (
        f"<header><p class=run>A workflow design · {size}</p><h1>{escape(call.design.name)}</h1>"
        f"<p class=verdict>{escape(verdict(call))}</p></header><dl class=facts>{rows}</dl>"
    )


def verdict(call: DesignReport) -> str:
    """What came of it, in a sentence."""
    told = call.account
    if told.after.broken:
        return f"No design was found that keeps every rule: {told.after.broken[0]}."
    if told.before.broken:
        return f"The start breaks a rule ({told.before.broken[0]}); the design keeps all of them."
    if told.after.total <= told.before.total:
        return f"Nothing better than {told.start} was found."
    best = f", above all {told.rose[0].name}" if told.rose else ""
    paid = f"; {told.fell[0].name} pays for it" if told.fell else ""
    return f"It scores {told.after.total - told.before.total:.3f} more than the start{best}{paid}."


def _designs(call: DesignReport) -> str:
    old = f"<details><summary>The start: {escape(call.account.start)}</summary>{drawing(call.start)}</details>"
    return f"<section><h2>The design</h2>{drawing(call.design)}{old}</section>"


def drawing(design: Design) -> str:
    """The picture of a design inside a page: as it is, or a little smaller where it is too wide; then it scrolls."""
    text = svg(design)
    text = text[text.index("<svg") :]
    width = float(text.split('viewBox="0 0 ', 1)[1].split(" ", 1)[0])
    text = text.replace('<rect class="paper"', '<rect fill="none"', 1)
    style = f'style="width:{width:.0f}px;max-width:100%;min-width:{SMALLEST * width:.0f}px"'
    return f"<div class=scroll>{text.replace('<svg', f'<svg {style}', 1)}</div>"


def _changes(told: Explanation) -> str:
    rows = "".join(f"<tr><td>{mark}</td><td>{escape(words)}</td></tr>" for mark, words in lines_of(told.differences))
    better = "".join(_reason("▲", "right", str(reason)) for reason in told.rose)
    worse = "".join(_reason("▼", "wrong", str(reason)) for reason in told.fell)
    why = f"<h3>Why: what the score gained and lost</h3><table>{better}{worse}</table>" if better or worse else ""
    body = f"<div class=scroll><table>{rows}</table></div>" if rows else "<p>Nothing changed.</p>"
    return f"<section><h2>What changed</h2><p>Against {escape(told.start)}.</p>{body}{why}</section>"


def _reason(mark: str, kind: str, words: str) -> str:
    return f"<tr><td class={kind}><span>{mark}</span></td><td>{escape(words)}</td></tr>"


def _front(call: DesignReport) -> str:
    rows = call.rows()
    if not rows:
        return ""
    start = row_of(call.start, call.account.before, False) if not call.account.before.broken else None
    picture = Picture(
        "front",
        "Designs that no other beats in everything",
        "Each dot is a design; larger ones have more control-flow complexity. The chosen one has the best score, which "
        "counts more than these three.",
        f"{len(rows)} designs; the chosen one takes {in_time(rows[0].cycle_time)} and costs {rows[0].cost:.4g}",
        csv_text(list(COLUMNS), ([getattr(row, name) for name in COLUMNS] for row in rows)),
        lambda width: draw_front(rows, start, width),
    )
    return f"<section><h2>Pareto front</h2>{figure(picture, wide=True)}{_front_table(few(rows, 12))}</section>"


COLUMNS = ("score", "cycle_time", "cost", "control_flow", "servers", "chosen")


def _front_table(rows: list[ParetoRow]) -> str:
    names = ("", "Score", "Cycle time", "Cost per case", "Control-flow complexity", "Servers")
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    body = ""
    for row in rows:
        values = (
            "▶" if row.chosen else "", f"{row.score:.3f}", in_time(row.cycle_time), f"{row.cost:.4g}",
            f"{row.control_flow:.0f}", str(row.servers),
        )  # fmt: skip
        body += f"<tr>{''.join(f'<td>{value}</td>' for value in values)}</tr>"
    return f"<div class=scroll><table class=numbers><tr>{head}</tr>{body}</table></div>"


def _score(call: DesignReport) -> str:
    if call.score.broken:
        return ""
    after = call.score.explain()
    before = call.account.before.explain() if not call.account.before.broken else None
    parts = [part for group in after.parts for part in group.parts if part.share is not None]
    picture = Picture(
        "parts",
        "Every measure between 0 and 1",
        "Dots are the design, rings the start; a line shows which way it went.",
        "; ".join(f"{part.name} {part.share:.2f}" for part in parts),
        csv_text(["measure", "share", "value"], ([part.name, part.share, part.value] for part in parts)),
        lambda width: draw_parts(before, after, width),
    )
    return f"<section><h2>Parts of the score</h2>{figure(picture, wide=True)}{_explained(call.score)}</section>"


def _explained(score: DesignScore) -> str:
    rows = "".join(_lines(score.explain(), 0))
    return f"<details><summary>The whole explanation</summary><div class=scroll><table>{rows}</table></div></details>"


def _lines(part: ScorePart, depth: int) -> Iterable[str]:
    share = "–" if part.share is None else f"{part.share:.3f}"
    words = escape(f"{part.name}: {part.words}" + (f" ({part.scale})" if part.scale else ""))
    yield f"<tr><td>{share}</td><td style='padding-left:{1.2 * depth}rem'>{words}</td></tr>"
    for inner in part.parts:
        yield from _lines(inner, depth + 1)


def _course(call: DesignReport) -> str:
    generations, stages = call.outcome.generations, call.outcome.stages
    rows = [[one.number + 1, one.judged, one.best, one.mean, one.novelty, one.entropy] for one in generations]
    made = Picture(
        "generations",
        "Candidates by generation",
        "Best so far and mean score, and where the candidates came from.",
        _told(generations),
        csv_text(["generation", "judged", "best", "mean", "novelty", "entropy"], rows),
        lambda width: draw_generations(generations, width),
    )
    timed = Picture(
        "stages",
        "Time by stage",
        "Bars are this call, the grey spans what the six stages were once promised to take.",
        "; ".join(f"{name} {seconds:.3f} s" for name, seconds in stages.items()),
        csv_text(["stage", "seconds", "from", "to"], ([name, s, *STAGES[name]] for name, s in stages.items())),
        lambda width: draw_stages(stages, len(generations), width),
    )
    body = "".join(figure(picture) for picture in (made, timed))
    return f"<section><h2>The search</h2><div class=grid>{body}</div></section>"


def _convergence(call: DesignReport) -> str:
    """The four values that tell of convergence beside their targets, and how well the best was predicted."""
    head = "".join(f"<th scope=col>{name}</th>" for name in ("Value", "Now", "Target", "", "Met, it means"))
    rows = ""
    for one in call.convergence():
        value = "not measured" if one.value is None else f"{one.value:.3g}"
        mark, kind = {True: ("✓", "right"), False: ("✗", "wrong"), None: ("–", "")}[one.met]
        target = f"{'above' if one.target.above else 'below'} {one.target.bound:g}"
        cells = (f"<th scope=row>{one.target.name}</th>", f"<td>{value}</td>", f"<td>{target}</td>")
        rows += f"<tr>{''.join(cells)}<td class='{kind}'><span>{mark}</span></td><td>{one.target.words}</td></tr>"
    checked = "".join(
        f"<p>{escape(line)}</p>" for line in (call.outcome.analysis.lines() if call.outcome.analysis else ())
    )
    simulated = f"<h3>Predicted and simulated</h3>{checked}" if checked else ""
    table = f"<div class=scroll><table class=numbers><tr>{head}</tr>{rows}</table></div>"
    words = "<p>Over the newest ten generations. There is a loss with --learn only, and a hit rate with --memory.</p>"
    return f"<section><h2>Convergence</h2>{words}{table}{simulated}</section>"


def _told(generations: Iterable[Generation]) -> str:
    return "; ".join(f"generation {one.number + 1}: best {one.best:.3f}, mean {one.mean:.3f}" for one in generations)


def _notes(notes: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<section><h2>Notes</h2><ul class=hints>{rows}</ul></section>" if rows else ""


def footer() -> str:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"<footer>Made by Groupwise {__version__} on {made}.</footer>"


SHOWN, MOST = 2, 20
LARGEST = 15
"""Designs of more activities are too wide to look at side by side."""
EVALUATIONS = 64


def sections_of_run(run_dir: Path, cfg: TrainingConfig) -> list[str]:
    """Sections about what the newest checkpoint designs for requirements that it was not trained on."""
    after = GraphPolicy().eval()
    after.load_state_dict(choose_checkpoint(run_dir, None).model)
    before = first_policy(cfg).eval()
    library = RequirementsLibrary(own_requirements(cfg))
    prepared = [library(task.id) for task in held_out(cfg, library)[:MOST]]
    small = [one for one in prepared if len(one.problem.names) <= LARGEST] or prepared[:1]
    return [_before_and_after(before, after, small[:SHOWN]), *_search(after, small[0])]


def _before_and_after(before: GraphPolicy, after: GraphPolicy, shown: list[PreparedRequirements]) -> str:
    rows = "".join(_pair(before, after, prepared) for prepared in shown)
    return (
        "<section><h2>What it designed, before and after</h2><p>The likeliest design for the first held-out "
        f"requirements of at most {LARGEST} activities; not otherwise chosen.</p>{rows}</section>"
    )


def _pair(before: GraphPolicy, after: GraphPolicy, prepared: PreparedRequirements) -> str:
    told = [likeliest(policy, prepared) for policy in (before, after)]
    name = escape(prepared.problem.requirements.name)
    pictures = "".join(
        f"<p class=run>{when}: score {total:.3f}</p>{drawing(design)}"
        for when, (design, total) in zip(("Before", "After"), told, strict=True)
    )
    return f"<h3>{name}, {len(prepared.problem.names)} activities</h3>{pictures}"


def likeliest(policy: GraphPolicy, prepared: PreparedRequirements) -> tuple[Design, float]:
    """The policy's likeliest design and its score."""
    chooser = PolicyChooser(Views(policy, prepared.problem), np.random.default_rng(0), greedy=np.ones(1, bool))
    design = prepared.drafter(construct(prepared.problem, chooser, 1))[0]
    return design, score_design(prepared, design).total


def _search(policy: GraphPolicy, prepared: PreparedRequirements) -> list[str]:
    """A search with the trained policy, told as a design call is."""
    requirements = prepared.problem.requirements
    start = Baseline(plain_sequence(requirements), PLAIN)
    with Designer(policy) as designer:
        call = designed(designer, requirements, start, EVALUATIONS)
    intro = f"<p>{escape(verdict(call))} {call.outcome.evaluations} designs were judged.</p>"
    head = f"<section><h2>A search with it: {escape(requirements.name)}</h2>{intro}</section>"
    return [head, *sections(call)]
