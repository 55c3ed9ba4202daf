"""A sweep as a folder: one self-contained page, every figure as SVG and PNG with its data, and all numbers."""

import math
import shlex
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.control.sweep import figures as draw
from groupwise.control.sweep.axes import override, shown
from groupwise.control.sweep.findings import METHOD, TOP, Findings, Recommendation, headline
from groupwise.control.sweep.running import Sweep, SweepResult
from groupwise.control.sweep.trials import SweepTrial
from groupwise.files import disk, write_atomic
from groupwise.reporting.canvas import render_kinds
from groupwise.reporting.comparison_page import hints, html_table
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.page import WIDE, details, facts_list, figure, whole_page
from groupwise.reporting.statistics import Interval
from groupwise.reporting.text import duration, printable
from groupwise.training.formatting import number, percent

# Rows of settings in the page; trials.csv has them all.
ROWS = 200


def write_sweep(under_way: Sweep, findings: Sequence[Findings], command: str = "") -> Path:
    """Write `report.html`, `sweep.json`, `trials.csv` and `figures/` and return the page's path."""
    folder, result = under_way.folder, under_way.result()
    pictures = {found.algorithm: pictures_of(found, result) for found in findings}
    general = shares_pictures(findings, result)
    target = folder / "figures"
    with disk(target):
        target.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for picture in [*general, *(picture for own in pictures.values() for picture in own)]:
        kinds = render_kinds(picture.draw, WIDE, ("svg", "png"))
        drawn[picture.name] = kinds["svg"]
        for kind, content in {**kinds, "csv": picture.csv.encode("utf8", "replace")}.items():
            write_atomic(target / f"{picture.name}.{kind}", content, durable=False)
    write_atomic(folder / "trials.csv", trials_csv(result).encode("utf8", "replace"))
    under_way.save(**additions(findings, command))
    path = folder / "report.html"
    write_atomic(path, page(result, findings, pictures, general, drawn, command).encode("utf8", "replace"))
    return path


def additions(findings: Sequence[Findings], command: str) -> dict[str, Any]:
    """What the result file says beyond the trials."""
    found = {found.algorithm: found.to_dict() for found in findings}
    return {"command": command, "importance_method": METHOD, "findings": found}


def trials_csv(result: SweepResult) -> str:
    """A row for every run; nothing in it depends on how often the sweep was interrupted."""
    axes = result.plan.axes
    rows = [
        [trial.candidate.algorithm, trial.candidate.number, *map(_cell, trial.candidate.values), run.seed, run.state,
         "" if run.score is None else run.score, "" if run.solved is None else run.solved, run.steps or ""]
        for trial in result.trials for run in trial.runs
    ]  # fmt: skip
    names = [axis.name for axis in axes]
    return csv_text(["algorithm", "number", *names, "seed", "state", "score", "solved", "steps"], rows)


def _cell(value: Any) -> Any:
    """A value in a table for programs: numbers with all their digits."""
    return value if isinstance(value, float) else shown(value)


def pictures_of(found: Findings, result: SweepResult) -> list[Picture]:
    """The figures of one algorithm."""
    solved, name = result.scale.solved, _slug(found.algorithm)
    pictures = []
    if found.importance:
        rows = [[one.axis.name, *one.total.as_list(), *one.alone.as_list()] for one in found.importance]
        head = ["setting", "importance", "low", "high", "alone", "alone_low", "alone_high"]
        words = "; ".join(f"{one.axis.name} {percent(one.total.value)}" for one in found.importance)
        caption = (
            "How much of the variance of the score each setting accounts for within its range: alone (dark), and with "
            "what it does together with one other setting (light). Lines are 95% bootstrap intervals."
        )
        pictures.append(Picture(
            f"importance-{name}", "Which settings matter", caption, words, csv_text(head, rows),
            lambda width: draw.draw_importance(found, width),
        ))  # fmt: skip
    if found.surface is not None:
        pictures.append(_surface_picture(found, solved, name))
    if found.responses:
        rows = [
            [one.axis.name, shown(value), *map(float, numbers)]
            for one in found.responses
            for value, *numbers in zip(one.values, one.scores, one.low, one.high, strict=True)
        ]
        head = ["setting", "value", "score", "low", "high"]
        caption = (
            "The score along each setting, averaged over all others, as the forest predicts it, with a 95% bootstrap "
            "interval. Each grey dot is a trained setting, the mean of its seeds."
        )
        pictures.append(Picture(
            f"responses-{name}", "The score along each setting", caption, "", csv_text(head, rows),
            lambda width: draw.draw_responses(found, solved, width),
        ))  # fmt: skip
    return pictures


def _surface_picture(found: Findings, solved: float | None, name: str) -> Picture:
    surface = found.surface
    assert surface is not None
    rows = [
        [shown(across), shown(above), float(surface.scores[row, column])]
        for row, above in enumerate(surface.y.level_values())
        for column, across in enumerate(surface.x.level_values())
    ]
    caption = (
        f"The score over {surface.x.name} and {surface.y.name}, averaged over all other settings. Colours of the "
        "ground are predicted by the forest; dots and numbers are means of trained settings. The ring or frame is the "
        "recommended setting."
    )
    return Picture(
        f"surface-{name}", "ScoreCurve surface", caption, f"{surface.x.name} across, {surface.y.name} upwards",
        csv_text([surface.x.name, surface.y.name, "predicted_score"], rows),
        lambda width: draw.draw_surface(found, solved, width),
    )  # fmt: skip


def shares_pictures(findings: Sequence[Findings], result: SweepResult) -> list[Picture]:
    """How many settings reach which score, for all algorithms in one figure."""
    done = [found for found in findings if any(trial.complete for trial in found.trials)]
    if not done:
        return []
    curves = draw.share_curves(done)
    rows = [[name, float(x), float(y)] for name, pair in curves.items() for x, y in zip(*pair, strict=True)]
    words = "; ".join(f"{f.algorithm} {percent(f.solving.value)} solve" for f in done if f.solving is not None)
    caption = (
        "The share of settings whose mean score over seeds reaches a level. The higher a line, the more an algorithm "
        "forgives a setting that is not the best."
    )
    return [Picture(
        "shares", "How many settings do how well", caption, words, csv_text(["algorithm", "score", "share"], rows),
        lambda width: draw.draw_shares(done, result.scale.solved, width),
    )]  # fmt: skip


def _slug(name: str) -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).lstrip(".-") or "algorithm"
    )


def page(
    result: SweepResult,
    findings: Sequence[Findings],
    pictures: dict[str, list[Picture]],
    general: Sequence[Picture],
    drawn: dict[str, bytes],
    command: str,
) -> str:
    plan = result.plan
    title = f"Sweep of {', '.join(axis.name for axis in plan.axes)}"
    place = next(iter(plan.bases.values())).task.environment
    notes = list(dict.fromkeys(note for found in findings for note in found.notes))
    again = f"<h3>Repeat or continue the sweep</h3><pre><code>{escape(command)}</code></pre>" if command else ""
    sections = [
        (f"<header><p class=run>Sweep in {escape(place)}</p><h1>{escape(title)}</h1>"
         f"<p class=verdict>{escape(' '.join(_headlines(findings)))}</p></header>"),
        facts_list(_facts(result)),
        hints(notes),
        "<section><h2>The result</h2>" + _overview(findings) + f"<p class=step>{escape(_how_to_read(result))}</p>"
        + _drawn(general, drawn) + "</section>",
        *(_chapter(found, result, pictures[found.algorithm], drawn, len(findings) > 1) for found in findings),
        f"<section><h2>Method</h2><p>Importance: {escape(METHOD)}.</p>{again}</section>",
        f"<footer>Made by Groupwise on {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}.</footer>",
    ]  # fmt: skip
    return whole_page(f"{title} – Groupwise", sections)


def _headlines(findings: Sequence[Findings]) -> list[str]:
    several = len(findings) > 1
    return [f"{found.algorithm}: {headline(found)}" if several else headline(found) for found in findings]


def _facts(result: SweepResult) -> dict[str, str]:
    plan = result.plan
    runs = [run for trial in result.trials for run in trial.runs]
    ended = sum(run.state in ("finished", "failed") for run in runs)
    return {
        "Method": plan.method,
        "Settings": str(plan.count),
        "Seeds": f"{len(plan.seeds)} ({plan.seeds[0]} to {plan.seeds[-1]})"
        if len(plan.seeds) > 1
        else str(plan.seeds[0]),
        "Runs": str(result.total) if result.finished else f"{ended} of {result.total}, unfinished",
        "Failed": str(sum(run.state == "failed" for run in runs) or ""),
        "Training time": duration(sum(run.wall_seconds or 0.0 for run in runs)),
    }


def _how_to_read(result: SweepResult) -> str:
    solved = result.scale.solved
    words = f"The score is the {result.scale.meaning}."
    if solved is not None:
        words += f" A setting solves if its mean over seeds is {number(solved)} or more."
    return (
        f"{words} The recommended setting has the best mean; its interval is a bootstrap over seeds. It was chosen "
        "because it did well on these seeds, so expect a little less: “on a fresh seed” chooses by all seeds but one "
        "and scores the choice by the one left out."
    )


def _overview(findings: Sequence[Findings]) -> str:
    rows = [
        [found.algorithm, _share(found.solving), _one(found.recommendation), _fresh(found.recommendation),
         "–" if found.recommendation is None else found.recommendation.trial.candidate.name]
        for found in findings
    ]  # fmt: skip
    head = ("", "settings that solve", "best mean score", "on a fresh seed", "recommended")
    return html_table(head, rows)


def _share(found: Interval | None) -> str:
    if found is None:
        return "–"
    interval = "" if math.isnan(found.low) else f" ({percent(found.low)} to {percent(found.high)})"
    return f"{percent(found.value)}{interval}"


def score_words(found: Interval) -> str:
    if math.isnan(found.low):
        return f"{number(found.value)} (one seed)"
    return f"{number(found.value)} ({number(found.low)} to {number(found.high)})"


def _one(found: Recommendation | None) -> str:
    return "–" if found is None else score_words(found.score)


def _fresh(found: Recommendation | None) -> str:
    return "–" if found is None or found.fresh is None else score_words(found.fresh)


def _drawn(pictures: Sequence[Picture], drawn: dict[str, bytes]) -> str:
    return "".join(figure(picture, wide=True, drawn=drawn.get(picture.name)) for picture in pictures)


def _chapter(
    found: Findings, result: SweepResult, pictures: Sequence[Picture], drawn: dict[str, bytes], several: bool
) -> str:
    best = sorted((t for t in found.trials if t.complete), key=lambda t: -(t.mean or 0.0))
    names = [axis.name for axis in found.axes]
    head = ("", *names, "mean score", "by seed")
    top = html_table(head, [_trial_row(trial) for trial in best[:TOP]])
    every = [(trial.candidate.name, _line(trial, names)) for trial in found.trials[:ROWS]]
    title = found.algorithm if several else "Settings"
    chosen = ""
    if found.recommendation is not None:
        chosen = f"<h3>Recommended</h3><pre><code>{escape(as_options(found, found.recommendation))}</code></pre>"
    return (
        f"<section><h2>{escape(title)}</h2>{chosen}{_drawn(pictures, drawn)}<h3>The best settings</h3>{top}"
        f"{details(f'All {len(found.trials)} settings', every)}</section>"
    )


def as_options(found: Findings, chosen: Recommendation) -> str:
    """The recommended setting as options of a command."""
    values = zip(found.axes, chosen.trial.candidate.values, strict=True)
    return " ".join(f"--set {shlex.quote(override(axis.name, value))}" for axis, value in values)


def _trial_row(trial: SweepTrial) -> list[str]:
    interval = trial.interval()
    assert interval is not None
    seeds = ", ".join(number(score) for score in trial.scores)
    return [trial.candidate.name, *map(shown, trial.candidate.values), score_words(interval), seeds]


def _line(trial: SweepTrial, names: Sequence[str]) -> str:
    values = ", ".join(f"{name} {shown(value)}" for name, value in zip(names, trial.candidate.values, strict=True))
    score = trial.state if trial.mean is None else f"{number(trial.mean)} ({', '.join(map(number, trial.scores))})"
    return f"{values}: {score}"


def sweep_view(result: SweepResult, findings: Sequence[Findings]) -> RenderableType:
    """The findings on the terminal."""
    parts: list[Any] = [Text(printable(words), style="bold") for words in _headlines(findings)]
    for found in findings:
        importance = {one.axis.name: one.total for one in found.importance}
        table = Table(box=None, pad_edge=False)
        for heading in (f"{found.algorithm}: best settings", *(axis.name for axis in found.axes), "mean score 95%"):
            table.add_column(heading, justify="left" if not table.columns else "right")
        best = sorted((t for t in found.trials if t.complete), key=lambda t: -(t.mean or 0.0))
        for trial in best[:TOP]:
            interval = trial.interval()
            assert interval is not None
            cells = [trial.candidate.name, *map(shown, trial.candidate.values), score_words(interval)]
            table.add_row(*(Text(printable(cell)) for cell in cells))
        if importance:
            table.add_row(
                *(Text("importance", "dim"), *(Text(_share(importance[a.name]), "dim") for a in found.axes), Text())
            )
        parts += [Text(), table]
        if (chosen := found.recommendation) is not None:
            words = as_options(found, chosen)
            fresh = "" if chosen.fresh is None else f"; on a fresh seed {score_words(chosen.fresh)}"
            parts.append(Text(printable(f"recommended: {words}  (score {score_words(chosen.score)}{fresh})")))
    notes = dict.fromkeys(note for found in findings for note in found.notes)
    return Group(*parts, *(Text(printable(note), style="yellow") for note in notes))
