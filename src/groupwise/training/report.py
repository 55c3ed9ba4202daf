"""One self-contained page about a run: `report.html`, made from its events and its last logged groups.

The page asks for nothing from anywhere: pictures are inline, there is no script, and its policy forbids
both. Whatever the run folder says (names, messages, settings) is hostile until escaped. What is missing is
left out: a run killed at its first step has a report too.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import shlex
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.training.figures import (
    COLOURS,
    PHASES,
    Draw,
    History,
    Panel,
    draw_group,
    draw_learning,
    draw_panels,
    draw_phases,
    inline_svg,
    short,
)
from groupwise.training.groups import read_groups
from groupwise.training.hints import WARMUP, finite, number, trend
from groupwise.training.storage import write_atomic

SMALL, WIDE = 4.0, 8.4
CSV_ROWS = 5000
GROUP_ROWS = 24
LEARNING = ("reward/mean", "reward/std", "reward/min", "reward/max", "eval/reward_mean", "eval/reward_std")
REASONS = {
    "finished": "Finished", "stopped": "Stopped by hand", "target_reached": "Target reached",
    "early_stopping": "Stopped early: no more improvement", "failed": "Failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of stacked panels over the steps, and how to read it."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


HEALTH = (
    Chart(
        "spread",
        "Groups that teach nothing",
        "A group whose attempts all score the same has no better and worse to learn from.",
        (
            Panel(
                "share of groups",
                (("groups/zero_spread_share", "no spread"), ("groups/failed_share", "failed")),
                percent=True,
                top=1.0,
            ),
        ),
    ),
    Chart(
        "advantage",
        "Size of the advantages",
        "How far attempts stand from their group. Near 0 there is nothing to learn from.",
        (Panel("advantage", (("advantage/std", "std"), ("advantage/abs_mean", "size"))),),
    ),
    Chart(
        "entropy",
        "Entropy of the policy",
        "How much the policy still tries out. A slow fall is learning; a drop to 0 ends exploration.",
        (Panel("nats", (("policy/entropy", ""),)),),
    ),
    Chart(
        "movement",
        "How far an update moves the policy",
        "KL from the policy that made the attempts, and the share of samples whose ratio was clipped.",
        (
            Panel("KL", (("policy/kl", "sampling"), ("policy/reference_kl", "reference"))),
            Panel("clipped", (("policy/clip_low", "low"), ("policy/clip_high", "high")), percent=True),
        ),
    ),
    Chart(
        "gradient",
        "Gradient and learning rate",
        "The gradient's norm before it is clipped, and the step size in use.",
        (
            Panel("gradient norm", (("optim/grad_norm", "policy"), ("optim/critic_grad_norm", "critic"))),
            Panel("learning rate", (("optim/learning_rate", ""),)),
        ),
    ),
    Chart(
        "length",
        "Length of the attempts",
        "Being cut off is success in some tasks (a pole that stays up) and failure in others.",
        (
            Panel("length", (("attempt/length_mean", "mean"), ("attempt/length_max", "longest"))),
            Panel("cut off at the limit", (("attempt/truncated_share", ""),), percent=True, top=1.0),
        ),
    ),
    Chart(
        "critic",
        "The critic",
        "Explained variance: 1 is a perfect prediction of returns, 0 no better than their mean.",
        (
            Panel("explained variance", (("value/explained_variance", ""),)),
            Panel("value loss", (("loss/value", ""),)),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure yet to be drawn, with its words and its data."""

    name: str
    title: str
    caption: str
    alt: str
    csv: str
    draw: Draw


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run folder and return its path."""
    history = History.read(run_dir)
    path = run_dir / "report.html"
    write_atomic(path, page(history, last_group(run_dir), run_dir).encode("utf-8", "replace"))
    return path


def page(history: History, group: Sequence[Mapping[str, Any]], run_dir: Path) -> str:
    """The whole page. `group` are the rows of one group, best first, or nothing."""
    drawn = pictures(history)
    sections = (
        _headline(history),
        _facts(history),
        _errors(history),
        _learning([picture for picture in drawn if picture.name == "learning"]),
        _advice(history),
        _health([picture for picture in drawn if picture.name != "learning"]),
        _group(group),
        _settings(history),
        _again(history, run_dir),
    )
    return TEMPLATE.format(title=escape(f"{history.run} – Groupwise"), style=STYLE, body="\n".join(sections))


def last_group(run_dir: Path) -> list[dict[str, Any]]:
    """Of the newest groups file that can be read, the group with the widest spread; best attempt first."""
    for path in sorted((run_dir / "groups").glob("*.parquet"), reverse=True):
        try:
            rows = read_groups(path)
        except (OSError, ValueError):
            continue
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(str(row.get("group_id")), []).append(row)
        if groups:
            return sorted(max(groups.values(), key=_spread), key=_rank)
    return []


def _spread(rows: Iterable[Mapping[str, Any]]) -> float:
    scores = [score for row in rows if (score := finite(row.get("total"))) is not None]
    return statistics.pstdev(scores) if scores else -1.0


def _rank(row: Mapping[str, Any]) -> float:
    score = finite(row.get("total"))
    return math.inf if score is None else -score


def verdict(history: History) -> str:
    """Before and after, in words."""
    steps, tests = history.series("eval/reward_mean")
    if len(tests) > 1:
        how = _compared(history, steps[0], steps[-1])
        before = "before training" if steps[0] == 0 else f"at step {steps[0]}"
        return (
            f"Evaluation reward {how} from {number(tests[0])} {before} to {number(tests[-1])} after step {steps[-1]}."
        )
    if tests:
        return f"Evaluation reward {number(tests[0])} at step {steps[0]}; there is no other to compare with."
    rewards = history.series("reward/mean")[1]
    if not rewards:
        return "No step was completed."
    size = max(1, min(5, len(rewards) // 2))
    first, last = statistics.fmean(rewards[:size]), statistics.fmean(rewards[-size:])
    word = "rose" if last > first else "went"
    return f"Training reward {word} from {number(first)} to {number(last)}; it was never evaluated."


def _compared(history: History, first: int, last: int) -> str:
    """`rose` or `fell` where the difference is larger than two standard errors, else `hardly moved`."""
    means, variances = [], 0.0
    for step in (first, last):
        metrics = history.evals[step]["metrics"]
        means.append(finite(metrics.get("eval/reward_mean")) or 0.0)
        std, attempts = finite(metrics.get("eval/reward_std")), finite(metrics.get("eval/attempts"))
        variances += (std or 0.0) ** 2 / max(attempts or 1.0, 1.0)
    change = means[1] - means[0]
    if abs(change) <= 2 * math.sqrt(variances):
        return "hardly moved:"
    return "rose" if change > 0 else "fell"


def subject(history: History) -> str:
    """What was trained, on what."""
    task, model = history.setting("task.environment"), history.setting("policy.model_name")
    parts = [Path(str(model)).name if model else "", str(task) if task else ""]
    return " on ".join(part for part in parts if part) or history.run


def advice(history: History) -> list[str]:
    """What to try next: the remedies of the hints, and what the curve itself suggests."""
    tips = list(dict.fromkeys(str(hint.get("remedy")) for _, hint in history.hints if hint.get("remedy")))
    rewards = history.series("reward/mean")[1]
    slope, error = trend(rewards[-max(10, len(rewards) // 4) :])
    if len(rewards) >= 10 and slope > 2 * error:
        tips.append("The reward was still rising at the end: train longer (training.num_episodes).")
    if not history.evals:
        tips.append("Set run.eval_steps, so that progress is measured on tasks apart from training.")
    if history.end is None:
        tips.append("The run has not ended. If nothing is writing to it any more, resume it (see below).")
    if rewards and not tips:
        tips.append("Nothing looks wrong. One run is one seed: repeat it with other values of run.seed.")
    return tips


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def pictures(history: History) -> list[Picture]:
    """Every figure of the run's course that has data, the learning curve first."""
    found = []
    if history.series("reward/mean")[0] or history.series("eval/reward_mean")[0]:
        found.append(_learning_picture(history))
    for chart in (_parts(history), *HEALTH):
        if panels := _with_data(history, chart):
            found.append(_chart_picture(history, replace(chart, panels=panels)))
    if any(history.series(f"timing/{phase}")[0] for phase in PHASES):
        found.append(_time_picture(history))
    return found


def _parts(history: History) -> Chart:
    names = [name for name in history.names() if name.startswith("reward/part/")][: len(COLOURS)]
    # A single part is the reward itself.
    lines = tuple((n, short(n.removeprefix("reward/part/"), 14)) for n in names) if len(names) > 1 else ()
    caption = "The parts the reward is made of, each as a mean over the step's attempts."
    return Chart("parts", "Parts of the reward", caption, (Panel("mean", lines),))


def _with_data(history: History, chart: Chart) -> tuple[Panel, ...]:
    """The chart's panels and lines that have data."""
    panels = (
        replace(panel, lines=tuple(line for line in panel.lines if history.series(line[0])[0]))
        for panel in chart.panels
    )
    return tuple(panel for panel in panels if panel.lines)


def _learning_picture(history: History) -> Picture:
    return Picture(
        "learning",
        "Learning curve",
        "Mean reward of each step's attempts, with a band of one standard deviation. Dots are evaluations.",
        _in_words(history, [("reward/mean", "training reward"), ("eval/reward_mean", "evaluation reward")]),
        as_csv(history, LEARNING),
        lambda width: draw_learning(history, width),
    )


def _chart_picture(history: History, chart: Chart) -> Picture:
    lines = [(name, f"{panel.title} {label}".strip()) for panel in chart.panels for name, label in panel.lines]
    return Picture(
        chart.name,
        chart.title,
        chart.caption,
        _in_words(history, lines),
        as_csv(history, [name for name, _ in lines]),
        lambda width: draw_panels(history, chart.panels, width),
    )


def _time_picture(history: History) -> Picture:
    return Picture(
        "time",
        "Time per step",
        "Seconds by phase: making attempts, scoring them, advantages, updating the policy.",
        _in_words(history, [(f"timing/{phase}", f"seconds of {phase}") for phase in PHASES]),
        as_csv(history, [f"timing/{phase}" for phase in (*PHASES, "total")]),
        lambda width: draw_phases(history, width),
    )


def _in_words(history: History, lines: Iterable[tuple[str, str]]) -> str:
    """Where each line begins and ends: what a reader who cannot see the figure needs."""
    words = []
    for name, label in lines:
        steps, values = history.series(name)
        if len(values) > 1:
            ends = f"{number(values[0])} at step {steps[0]} to {number(values[-1])} at step {steps[-1]}"
            words.append(f"{label} from {ends}")
        elif values:
            words.append(f"{label} {number(values[0])} at step {steps[0]}")
    return "; ".join(words)


def as_csv(history: History, names: Sequence[str]) -> str:
    """The series as a table by step; of very long runs evenly spaced rows, with the last one."""
    columns = {name: dict(zip(*history.series(name), strict=True)) for name in names}
    columns = {name: column for name, column in columns.items() if column}
    steps = sorted(set[int]().union(*columns.values()))
    every = -(-len(steps) // CSV_ROWS) or 1
    rows = sorted({*steps[::every], *steps[-1:]})
    return _table_text(["step", *columns], ([step, *(c.get(step, "") for c in columns.values())] for step in rows))


def _table_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _headline(history: History) -> str:
    return (
        f"<header><p class=run>{escape(_method(history))}</p><h1>{escape(subject(history))}</h1>"
        f"<p class=verdict>{escape(verdict(history))}</p></header>"
    )


def _method(history: History) -> str:
    """The run's name and how its groups are made and learned from, as far as its settings say."""
    tasks, size = history.setting("rollout.tasks_per_step"), history.setting("rollout.num_generations")
    loss, credit = history.setting("loss.loss_type"), history.setting("advantage.estimator")
    parts = [
        f"{tasks} × {size} attempts a step" if tasks and size else "",
        f"{loss} loss" if loss else "",
        f"{credit} advantages" if credit else "",
    ]
    return " · ".join(part for part in (f"Run {history.run}", *parts) if part)


def _facts(history: History) -> str:
    end = history.end or {}
    steps, tests = history.series("eval/reward_mean")
    best = max(zip(tests, steps, strict=True), default=None)
    samples, attempts = history.last("totals/samples"), history.last("totals/attempts")
    facts = {
        "Ended": REASONS.get(str(end.get("reason")), "Not ended: running or interrupted"),
        "Steps": f"{history.step} of {history.total_steps}" if history.total_steps else str(history.step),
        "Time": duration(history.seconds),
        "Samples": "" if samples is None else f"{samples:,.0f}",
        "Attempts": "" if attempts is None else f"{attempts:,.0f}",
        "Best evaluation": f"{number(best[0])} at step {best[1]}" if best else "",
    }
    rows = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items() if v)
    return f"<dl class=facts>{rows}</dl>"


def _errors(history: History) -> str:
    words = [(str(error.get("message") or "unknown error"), str(error.get("hint") or "")) for error in history.errors]
    rows = "".join(f"<p><strong>{escape(message)}</strong> {escape(hint)}</p>" for message, hint in words)
    return f"<section class=error><h2>What went wrong</h2>{rows}</section>" if rows else ""


def _learning(drawn: Sequence[Picture]) -> str:
    body = "".join(_figure(picture, wide=True) for picture in drawn)
    return f"<section><h2>Did it learn?</h2>{body or '<p>There is no step to show yet.</p>'}</section>"


def _advice(history: History) -> str:
    hints = "".join(
        f"<li><span class=step>step {step}</span> {escape(str(hint.get('message', '')))}</li>"
        for step, hint in history.hints
    )
    calm = "Nothing suspicious was seen." if history.step > WARMUP else "Too few steps to judge by."
    hints = f"<ul class=hints>{hints}</ul>" if hints else f"<p>{calm}</p>"
    tips = "".join(f"<li>{escape(tip)}</li>" for tip in advice(history))
    tips = f"<h3>What to try next</h3><ul>{tips}</ul>" if tips else ""
    return f"<section><h2>Hints</h2>{hints}{tips}</section>"


def _health(drawn: Sequence[Picture]) -> str:
    figures = "".join(_figure(picture) for picture in drawn)
    body = f"<section><h2>Health of the training</h2><div class=grid>{figures}</div></section>"
    return body if figures else ""


def _group(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    shown = _evenly(rows, GROUP_ROWS)
    more = f" {len(shown)} of its {len(rows)} attempts are shown." if len(shown) < len(rows) else ""
    caption = (
        f"Task {rows[0].get('task_id')} at step {rows[0].get('step')}: of that step's groups the one whose "
        f"attempts differ most. What scored above the group's mean is made likelier, what scored below "
        f"less likely.{more}"
    )
    scores = [score for row in rows if (score := finite(row.get("total"))) is not None]
    ends = f" from {number(min(scores))} to {number(max(scores))}" if scores else ""
    alt = f"{len(scores)} scored attempts{ends}; {len(rows) - len(scores)} failed"
    keys = ("trajectory_id", "total", "advantage", "length", "end", "failure")
    table = _table_text(keys, ([row.get(key) for key in keys] for row in rows))
    picture = Picture(
        "group",
        "Scores and advantages of one group",
        caption,
        alt,
        table,
        lambda width: draw_group(shown, width),
    )
    return f"<section><h2>One group of attempts</h2>{_figure(picture, wide=True)}</section>"


def _evenly(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    if len(rows) <= count:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]


def _figure(picture: Picture, wide: bool = False) -> str:
    """A figure with its words and its data; a wide one is drawn a second time for narrow screens."""
    alt = f"{picture.title}: {picture.alt}"
    drawings = f"<div class=narrow>{inline_svg(picture.draw, SMALL, f'{picture.name}-s', alt)}</div>"
    if wide:
        drawings += f"<div class=wide>{inline_svg(picture.draw, WIDE, f'{picture.name}-w', alt)}</div>"
    data = base64.b64encode(picture.csv.encode("utf-8", "replace")).decode()
    return (
        f"<figure class={'double' if wide else 'single'}><h3>{escape(picture.title)}</h3>{drawings}"
        f"<figcaption>{escape(picture.caption)} "
        f'<a download="{picture.name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">Data (CSV)</a>'
        "</figcaption></figure>"
    )


def _settings(history: History) -> str:
    usual = dict(_flat(TrainingConfig().to_dict()))
    settings = _flat(history.config)
    changed = [(name, value) for name, value in settings if usual.get(name) != value]
    blocks = (
        _details("Settings that differ from the defaults", changed, "open"),
        _details("All settings", settings),
        _details("Machine and versions", _flat(history.env)),
    )
    return f"<section><h2>Settings</h2>{''.join(blocks)}</section>" if any(blocks) else ""


def _details(title: str, values: Iterable[tuple[str, str]], state: str = "") -> str:
    rows = "".join(f"<tr><th scope=row>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in values)
    table = f"<div class=scroll><table>{rows}</table></div>"
    return f"<details {state}><summary>{title}</summary>{table}</details>" if rows else ""


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names and plain text."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            rows.append((f"{prefix}{key}", "null" if value is None else shown))
    return rows


def _again(history: History, run_dir: Path) -> str:
    folder = shlex.quote(str(run_dir))
    commands = {
        "It was started with": str(history.env.get("command") or ""),
        "Go on from the last checkpoint": f"groupwise resume {folder}",
        "The same run again": f"groupwise train {shlex.quote(str(run_dir / 'config.toml'))}",
    }
    blocks = (f"<h3>{k}</h3><pre><code>{escape(v)}</code></pre>" for k, v in commands.items() if v)
    rows = "".join(blocks)
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    version = escape(str(history.env.get("groupwise") or ""))
    return (
        f"<section><h2>Reproduce or resume</h2>{rows}</section>"
        f"<footer>Made by Groupwise {version} on {made} from events.jsonl.</footer>"
    )


STYLE = """
:root { --ink:#1c2127; --muted:#5c6570; --rule:#dfe3e8; --ground:#ffffff; --soft:#f5f7f9; --blue:#2563a8;
  --orange:#c2571a; --green:#2f8554; --purple:#7a4fa3; --rose:#b23a63; --warn:#8a6100;
  color-scheme:light dark }
@media (prefers-color-scheme: dark) { :root { --ink:#e3e7ec; --muted:#9aa5b1; --rule:#343c46;
  --ground:#14181d; --soft:#1d232a; --blue:#6fb1f4; --orange:#f09a5c; --green:#6fc796; --purple:#c2a2f0;
  --rose:#f08fb0; --warn:#e3b341 } }
* { box-sizing:border-box }
body { margin:0 auto; padding:1.5rem 1rem 4rem; max-width:66rem; background:var(--ground); color:var(--ink);
  font:1rem/1.5 system-ui,sans-serif; overflow-wrap:anywhere }
h1 { font-size:1.9rem; line-height:1.2; margin:.1rem 0 .4rem }
h2 { font-size:1.3rem; margin:2.6rem 0 .6rem }
h3 { font-size:1rem; margin:.8rem 0 .3rem }
p { margin:.4rem 0 }
a { color:var(--blue) }
.run, figcaption, .step, footer { color:var(--muted); font-size:.875rem }
.verdict { font-size:1.2rem }
.facts { display:flex; flex-wrap:wrap; gap:.8rem 2rem; margin:1.2rem 0 0; padding:.8rem 0;
  border-block:1px solid var(--rule) }
.facts dt { color:var(--muted); font-size:.8rem }
.facts dd { margin:0; font-weight:600 }
.error { border-left:4px solid var(--orange); padding-left:1rem; margin-top:1.6rem }
.error h2 { margin-top:0 }
.hints { border-left:4px solid var(--warn); padding-left:2rem }
.hints li { margin:.4rem 0 }
figure { margin:0 }
svg { display:block; width:100%; height:auto }
svg text { font-family:inherit!important }
.grid { display:grid; grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr)); gap:2.2rem 2.5rem }
.double .narrow { display:none }
@media (max-width:44rem) {
  .double .narrow { display:block }
  .double .wide { display:none }
  h1 { font-size:1.5rem }
  .verdict { font-size:1.05rem }
}
details { border:1px solid var(--rule); border-radius:.4rem; margin:.5rem 0; padding:.5rem .9rem }
summary { cursor:pointer; font-weight:600 }
.scroll { overflow-x:auto }
table { border-collapse:collapse; margin:.6rem 0; font-size:.875rem }
th, td { text-align:left; padding:.15rem 1.2rem .15rem 0; vertical-align:top; font-weight:400 }
th { color:var(--muted) }
pre { background:var(--soft); padding:.6rem .8rem; border-radius:.4rem; margin:.2rem 0 1rem;
  font-size:.875rem; white-space:pre-wrap }
footer { margin-top:3rem; border-top:1px solid var(--rule); padding-top:.8rem }
@media print { figcaption a { display:none } }
"""

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
