"""The report of a design call on a terminal and as a page, and what a training run's report shows of its designs."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from groupwise import __version__
from groupwise.config import TrainingConfig
from groupwise.designer.design_call import DesignReport, search
from groupwise.designer.learning import likeliest
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy, first_policy
from groupwise.designer.results.course import candidates_line, diversity_table
from groupwise.designer.results.explanation import ParetoRow, lines_of, listed, one_line, row_of
from groupwise.designer.results.figures import draw_front, draw_generations, draw_parts, draw_stages
from groupwise.designer.results.outcome import STAGES, DesignOutcome
from groupwise.designer.tasks import PreparedRequirements, RequirementsLibrary, held_out, own_requirements
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.page import figure, whole_page
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.workflows.blocks import Design
from groupwise.workflows.duties import on_duty
from groupwise.workflows.pictures.svg import svg
from groupwise.workflows.scoring import ScorePart
from groupwise.workflows.violations import in_time

WIDEST = 110
# Lines of the workflow before it is cut off.
LONGEST = 10


def show(call: DesignReport, written: Sequence[Path], notes: Iterable[str], console: Console) -> None:
    """Print the report: the result first, notes and written files last."""
    width = min(console.width, WIDEST)
    for part in _terminal_parts(call, written, notes, width):
        console.print(part, width=width, highlight=False)


def _terminal_parts(
    call: DesignReport, written: Sequence[Path], notes: Iterable[str], width: int
) -> Iterator[RenderableType]:
    yield _headline_text(call)
    yield Padding(picture(call, width - 2), (1, 0, 0, 2), expand=False)
    yield Padding(Text(staff_words(call)), (1, 0, 0, 2), expand=False)
    if rows := call.rows():
        yield section("Pareto-optimal designs")
        yield Padding(pareto_table(rows, call.choice, call.explanation.baseline.given), (0, 0, 0, 2), expand=False)
    yield section(f"Changes from {call.explanation.baseline.words}")
    yield Padding(changes_table(call), (0, 0, 0, 2), expand=False)
    if call.outcome.analysis is not None:
        yield section("Simulation of the best design")
        yield Padding(Group(*map(Text, call.outcome.analysis.lines())), (0, 0, 0, 2), expand=False)
    yield section("Time by stage")
    yield Padding(stage_table(call.outcome, width - 2), (0, 0, 0, 2), expand=False)
    ends = [*(Text(f"Note: {note}", style="yellow") for note in notes), *(Text(f"Wrote {path}") for path in written)]
    if call.learned is not None:
        ends.append(Text(f"Learned weights: {call.learned} (use them with --policy {call.learned})"))
    if ends:
        yield Text("")
        yield Group(*ends)


def section(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _headline_text(call: DesignReport) -> RenderableType:
    words = Text.assemble((f"{call.design.name}: ", "bold"), call.explanation.headline())
    if call.score.broken:
        words.stylize("red")
    outcome = call.outcome
    counted = "1 evaluation" if outcome.evaluations == 1 else f"{outcome.evaluations} evaluations"
    effort = f"{counted} in {duration(sum(outcome.stages.values()))}"
    effort += f", results simulated in {duration(outcome.simulation)}"
    return Group(words, Text(effort, style="dim"), Text(candidates_line(outcome.generations), style="dim"))


def picture(call: DesignReport, width: int) -> RenderableType:
    """The workflow as a few lines of text."""
    lines = Text(one_line(call.design.root)).wrap(Console(width=width), width)
    return Group(*lines[:LONGEST], *([Text("…", style="dim")] if len(lines) > LONGEST else []))


def staff_words(call: DesignReport) -> str:
    """Who works: the servers of every pool, and the people among them by name."""
    requirements, servers = call.outcome.requirements, dict(call.design.servers)
    at_work = on_duty(requirements, servers)
    found = []
    for pool, count in servers.items():
        named = [who for who in at_work.get(pool, ()) if who in requirements.people]
        found.append(f"{pool} {count}" + (f" ({', '.join(named)})" if named else ""))
    return f"Staff: {', '.join(found)}" if found else "Staff: nobody is needed"


def pareto_table(rows: Sequence[ParetoRow], choice: int, given: bool) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in HEADINGS:
        table.add_column(name, justify="left" if name in ("", HEADINGS[-1]) else "right")
    for row in rows:
        table.add_row(*_cells(row, choice, given), style="bold" if row.number == choice else "")
    return table


HEADINGS = ("", "score", "cycle time", "cost per case", "complexity", "servers", "why not chosen")


def _cells(row: ParetoRow, choice: int, given: bool) -> tuple[str, ...]:
    start = "today's design" if given else "the plain sequence"
    mark = f"{'▶' if row.number == choice else ' '} {row.number}"
    cycle = in_time(row.cycle_time) + (f" ±{row.margin:.0%}" if 0.005 <= row.margin < math.inf else "")
    why = ", ".join(filter(None, (start if row.today else "", row.why)))
    return mark, f"{row.score:.3f}", cycle, f"{row.cost:.4g}", f"{row.control_flow:.0f}", str(row.servers), why


def changes_table(call: DesignReport) -> RenderableType:
    """What changed, and which measures raised and lowered the score."""
    diff = call.explanation
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    if diff.before.broken:
        rules = listed([str(rule) for rule in diff.before.broken], 2)
        table.add_row("✗", Text(f"no score, because it breaks rules: {rules}"))
    found = list(lines_of(diff.differences))
    for mark, words in found or [("=", "nothing: no better design was found")]:
        table.add_row(mark, Text(words))
    for mark, style, reasons in (("▲", "green", diff.rose), ("▼", "red", diff.fell)):
        if reasons:
            table.add_row(Text(mark, style), Text(listed([str(reason) for reason in reasons], 3)))
    return table


def stage_table(outcome: DesignOutcome, width: int) -> RenderableType:
    """The six stages with their times, and a bar for each one's share of the total."""
    total = sum(outcome.stages.values()) or 1.0
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, seconds in outcome.stages.items():
        bar = "━" * round(min(30, width - 40) * seconds / total)
        table.add_row(name, duration(seconds) if seconds else "–", Text(bar, style="cyan"))
    return table


def duration(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "< 1 ms"
    return f"{seconds:.3g} s"


# The smallest scale at which a drawing is readable: names of 13 pixels have 11. Beyond that it scrolls.
SMALLEST = 0.85


def design_page(call: DesignReport) -> str:
    return whole_page(f"{call.design.name} – Groupwise", (headline(call), *sections(call), footer()))


def sections(call: DesignReport) -> Iterable[str]:
    """The sections about a call, on its own page and in the report of a run."""
    yield _designs(call)
    yield _changes(call)
    yield _front(call)
    yield _score(call)
    yield _course(call)
    yield _convergence(call)
    yield _notes(call.notes)


def headline(call: DesignReport) -> str:
    outcome, score = call.outcome, call.score
    facts = {
        "Score": f"{score.total:.3f}",
        "Before": "breaks a rule" if call.explanation.before.broken else f"{call.explanation.before.total:.3f}",
        "Cycle time": in_time(score.performance.cycle_time) if score.performance else "",
        "Cost per case": f"{score.performance.cost:.4g}" if score.performance else "",
        "Evaluations": str(outcome.evaluations),
        "Time": f"{sum(outcome.stages.values()):.2f} s",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value)
    size = f"{len(outcome.requirements.activities)} activities, {len(outcome.requirements.pools)} pools"
    return (
        f"<header><p class=run>A workflow design · {size}</p><h1>{escape(call.design.name)}</h1>"
        f"<p class=verdict>{escape(call.explanation.headline())}</p></header><dl class=facts>{rows}</dl>"
    )


def _designs(call: DesignReport) -> str:
    baseline = call.explanation.baseline
    old = f"<details><summary>Compared with: {escape(baseline.words)}</summary>{drawing(baseline.design)}</details>"
    return f"<section><h2>The design</h2>{drawing(call.design)}{old}</section>"


def drawing(design: Design) -> str:
    """A drawing of a design inside a page: scaled down a little where it is too wide, then scrolling."""
    text = svg(design)
    text = text[text.index("<svg") :]
    width = float(text.split('viewBox="0 0 ', 1)[1].split(" ", 1)[0])
    text = text.replace('<rect class="paper"', '<rect fill="none"', 1)
    style = f'style="width:{width:.0f}px;max-width:100%;min-width:{SMALLEST * width:.0f}px"'
    return f"<div class=scroll>{text.replace('<svg', f'<svg {style}', 1)}</div>"


def _changes(call: DesignReport) -> str:
    diff = call.explanation
    rows = "".join(f"<tr><td>{mark}</td><td>{escape(words)}</td></tr>" for mark, words in lines_of(diff.differences))
    better = "".join(_reason("▲", "right", str(reason)) for reason in diff.rose)
    worse = "".join(_reason("▼", "wrong", str(reason)) for reason in diff.fell)
    why = f"<h3>Why the score changed</h3><table>{better}{worse}</table>" if better or worse else ""
    body = f"<div class=scroll><table>{rows}</table></div>" if rows else "<p>Nothing.</p>"
    return f"<section><h2>What changed</h2><p>Compared with {escape(diff.baseline.words)}:</p>{body}{why}</section>"


def _reason(mark: str, kind: str, words: str) -> str:
    return f"<tr><td class={kind}><span>{mark}</span></td><td>{escape(words)}</td></tr>"


def _front(call: DesignReport) -> str:
    rows = call.rows()
    if not rows:
        return ""
    start = None if call.outcome.start_score.broken else row_of(call.outcome.today)
    picture = Picture(
        "front",
        "Pareto-optimal designs",
        "Each dot is a design that no other beats in cycle time, cost, complexity and lost cases at once; a larger dot "
        "is more complex. The chosen one has the best score, which weighs more than these.",
        f"{len(rows)} designs; the chosen one takes {in_time(rows[0].cycle_time)} and costs {rows[0].cost:.4g}",
        csv_text(list(COLUMNS), ([getattr(row, name) for name in COLUMNS] for row in rows)),
        lambda width: draw_front(rows, start, width),
    )
    return f"<section><h2>Pareto front</h2>{figure(picture, wide=True)}{_front_table(call, rows)}</section>"


COLUMNS = ("score", "cycle_time", "cost", "control_flow", "servers", "chosen")


def _front_table(call: DesignReport, rows: list[ParetoRow]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in HEADINGS)
    cells = [_cells(row, call.choice, call.explanation.baseline.given) for row in rows]
    body = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in values)}</tr>" for values in cells)
    return f"<div class=scroll><table class=numbers><tr>{head}</tr>{body}</table></div>"


def _score(call: DesignReport) -> str:
    if call.score.broken:
        return ""
    after = call.score.explain()
    before = None if call.explanation.before.broken else call.explanation.before.explain()
    parts = [part for group in after.parts for part in group.parts if part.share is not None]
    picture = Picture(
        "parts",
        "Every measure, scaled to between 0 and 1",
        "Dots show the design, rings the baseline; lines connect the two.",
        "; ".join(f"{part.name} {part.share:.2f}" for part in parts),
        csv_text(["measure", "share", "value"], ([part.name, part.share, part.value] for part in parts)),
        lambda width: draw_parts(before, after, width),
    )
    table = f"<div class=scroll><table>{''.join(_lines(after, 0))}</table></div>"
    details = f"<details><summary>The full explanation</summary>{table}</details>"
    return f"<section><h2>Parts of the score</h2>{figure(picture, wide=True)}{details}</section>"


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
        "Best score so far, mean score, and the origin of the candidates.",
        "; ".join(f"generation {one.number + 1}: best {one.best:.3f}, mean {one.mean:.3f}" for one in generations),
        csv_text(["generation", "judged", "best", "mean", "novelty", "entropy"], rows),
        lambda width: draw_generations(generations, width),
    )
    timed = Picture(
        "stages",
        "Time by stage",
        "Bars show this call; grey ranges show the targets of the six stages.",
        "; ".join(f"{name} {seconds:.3f} s" for name, seconds in stages.items()),
        csv_text(["stage", "seconds", "from", "to"], ([name, s, *STAGES[name]] for name, s in stages.items())),
        lambda width: draw_stages(stages, len(generations), width),
    )
    body = "".join(figure(picture) for picture in (made, timed))
    words = f"<p>{escape(candidates_line(generations))}.</p>"
    return f"<section><h2>The search</h2>{words}<div class=grid>{body}</div>{diversity_table(generations)}</section>"


def _convergence(call: DesignReport) -> str:
    # The four convergence values beside their targets, and how well the best design was predicted.
    head = "".join(f"<th scope=col>{name}</th>" for name in ("Value", "Now", "Target", "", "If met"))
    rows = ""
    for one in call.convergence():
        value = "not measured" if one.value is None else f"{one.value:.3g}"
        mark, kind = {True: ("✓", "right"), False: ("✗", "wrong"), None: ("–", "")}[one.met]
        target = f"{'above' if one.target.above else 'below'} {one.target.bound:g}"
        cells = (f"<th scope=row>{one.target.name}</th>", f"<td>{value}</td>", f"<td>{target}</td>")
        rows += f"<tr>{''.join(cells)}<td class='{kind}'><span>{mark}</span></td><td>{one.target.words}</td></tr>"
    lines = call.outcome.analysis.lines() if call.outcome.analysis else ()
    checked = "".join(f"<p>{escape(line)}</p>" for line in lines)
    simulated = f"<h3>Prediction and simulation</h3>{checked}" if checked else ""
    table = f"<div class=scroll><table class=numbers><tr>{head}</tr>{rows}</table></div>"
    words = "<p>Over the last ten generations. The loss needs --learn, the hit rate --memory.</p>"
    return f"<section><h2>Convergence</h2>{words}{table}{simulated}</section>"


def _notes(notes: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<section><h2>Notes</h2><ul class=hints>{rows}</ul></section>" if rows else ""


def footer() -> str:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"<footer>Made by Groupwise {__version__} on {made}.</footer>"


SHOWN, MOST = 2, 20
# Designs with more activities are too wide to compare side by side.
LARGEST = 15
EVALUATIONS = 64


def report_sections(run_dir: Path, cfg: TrainingConfig) -> list[str]:
    """Sections on what the latest checkpoint designs for requirements that it was not trained on."""
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
        "<section><h2>Designs before and after training</h2><p>The likeliest design for the first held-out "
        f"requirements with at most {LARGEST} activities; nothing was hand-picked.</p>{rows}</section>"
    )


def _pair(before: GraphPolicy, after: GraphPolicy, prepared: PreparedRequirements) -> str:
    found = [likeliest(policy, prepared) for policy in (before, after)]
    name = escape(prepared.problem.requirements.name)
    pictures = "".join(
        f"<p class=run>{when}: score {score.total:.3f}</p>{drawing(design)}"
        for when, (design, score) in zip(("Before", "After"), found, strict=True)
    )
    return f"<h3>{name}, {len(prepared.problem.names)} activities</h3>{pictures}"


def _search(policy: GraphPolicy, prepared: PreparedRequirements) -> list[str]:
    # A search with the trained policy, reported like a design call.
    requirements = prepared.problem.requirements
    with Designer(policy) as designer:
        session = designer.begin(requirements)
        call = search(session, EVALUATIONS)
    intro = f"<p>{escape(call.explanation.headline())} {call.outcome.evaluations} designs were evaluated.</p>"
    head = f"<section><h2>A search with the trained policy: {escape(requirements.name)}</h2>{intro}</section>"
    return [head, *sections(call)]
