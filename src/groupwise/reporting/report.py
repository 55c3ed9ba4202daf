"""The report of a run: one self-contained page, `report.html`, made from its events and logged groups.

The page loads nothing: figures are inline, there is no script, and its content policy forbids both. Everything from the
run folder (names, messages, settings) is untrusted and escaped. Missing data is left out, so a run killed at its first
step has a report too.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError
from groupwise.files import write_atomic
from groupwise.reporting.example_group import evenly, group_picture, last_group
from groupwise.reporting.figures import Picture, pictures
from groupwise.reporting.history import History
from groupwise.reporting.page import details, facts_list, figure, whole_page
from groupwise.reporting.summary import ending
from groupwise.reporting.text import capital, duration, traceback_lines
from groupwise.reporting.verdict import advice, headline_metric, in_unit, method, subject, verdict
from groupwise.training.formatting import finite, number
from groupwise.training.hints import WARMUP
from groupwise.types import Sample

# Characters of an answer that the page shows.
LONGEST_TEXT = 400


def write_report(run_dir: Path, more: Sequence[str] = ()) -> Path:
    """Write `report.html` into the run folder and return its path. `more` are the product's own sections."""
    history = History.read(run_dir)
    path = run_dir / "report.html"
    write_atomic(path, page(history, last_group(run_dir), run_dir, more).encode("utf-8", "replace"))
    return path


def page(history: History, group: Sequence[Mapping[str, Any]], run_dir: Path, more: Sequence[str] = ()) -> str:
    """The page. `group` are the rows of one group, best first, or none."""
    drawn = pictures(history)
    sections = (
        _headline(history),
        _facts(history),
        _errors(history),
        _learning([picture for picture in drawn if picture.name == "learning"]),
        _samples(history),
        *more,
        _advice(history),
        _health([picture for picture in drawn if picture.name != "learning"]),
        _group(group),
        _settings(history),
        _again(history, run_dir),
    )
    return whole_page(f"{history.run} – Groupwise", sections)


def _headline(history: History) -> str:
    return (
        f"<header><p class=run>{escape(' · '.join(filter(None, (subject(history), method(history)))))}</p>"
        f"<h1>{escape(history.run)}</h1>"
        f"<p class=verdict>{escape(verdict(history))}</p></header>"
    )


def _facts(history: History) -> str:
    end = history.end or {}
    metric = headline_metric(history)
    steps, tests = history.series(metric.name)
    sign = -1 if metric.better == "lower" else 1
    best = max(zip(tests, steps, strict=True), key=lambda pair: (sign * pair[0], pair[1]), default=None)
    samples, attempts = history.last("totals/samples"), history.last("totals/attempts")
    facts = {
        "Ended": capital(ending(str(end.get("reason")))) if end else "Not ended: running or interrupted",
        "Steps": f"{history.step} of {history.total_steps}" if history.total_steps else str(history.step),
        "Time": duration(history.seconds),
        "Samples": "" if samples is None else f"{samples:,.0f}",
        "Attempts": "" if attempts is None else f"{attempts:,.0f}",
        "Best evaluation": f"{in_unit(metric, best[0])} at step {best[1]}" if best else "",
    }
    return facts_list(facts)


def _errors(history: History) -> str:
    words = [(str(error.get("message") or "unknown error"), str(error.get("hint") or "")) for error in history.errors]
    rows = "".join(f"<p><strong>{escape(message)}</strong> {escape(hint)}</p>" for message, hint in words)
    return f"<section class=error><h2>What went wrong</h2>{rows}</section>" if rows else ""


def _learning(drawn: Sequence[Picture]) -> str:
    body = "".join(figure(picture, wide=True) for picture in drawn)
    return f"<section><h2>Did it learn?</h2>{body or '<p>No step has been completed yet.</p>'}</section>"


def _samples(history: History) -> str:
    """The policy's answers to the same tasks at the first and the last evaluation."""
    answers = history.samples()
    if not answers:
        return ""
    # One column if there was only one evaluation.
    steps = sorted({min(answers), max(answers)})
    rows = "".join(
        f"<tr><td>{escape(sample.prompt)}</td><td>{escape(sample.expected)}</td>"
        f"{''.join(_answer(answers[step].get(prompt)) for step in steps)}</tr>"
        for prompt, sample in answers[steps[-1]].items()
    )
    names = ("Question", "Right answer", *(f"Step {step}" for step in steps))
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    return (
        f"<section><h2>What it answered{', before and after' if len(steps) > 1 else ''}</h2>"
        "<p>Greedy answers to the first held-out tasks; not hand-picked.</p>"
        f"<div class=scroll><table class=samples><tr>{head}</tr>{rows}</table></div></section>"
    )


def _answer(sample: Sample | None) -> str:
    if sample is None:
        return "<td></td>"
    said = escape(sample.text) + _thought(sample.reasoning)
    if sample.correct is None:
        return f"<td>{said}</td>"
    mark, word = ("✓", "right") if sample.correct else ("✗", "wrong")
    return f"<td class={word}><span title={word}>{mark}</span> {said}</td>"


def _thought(reasoning: Any) -> str:
    """What the model thought before it answered, folded up."""
    text = escape(short_text(reasoning))
    return f"<details class=thought><summary>Thought</summary>{text}</details>" if text else ""


def _advice(history: History) -> str:
    said = [(step, escape(str(hint.get("message", ""))), traceback_lines(hint)) for step, hint in history.hints]
    hints = "".join(
        f"<li><span class=step>step {step}</span> {message}{_code(lines)}</li>" for step, message, lines in said
    )
    calm = "Nothing suspicious." if history.step > WARMUP else "Too few steps to judge."
    hints = f"<ul class=hints>{hints}</ul>" if hints else f"<p>{calm}</p>"
    tips = "".join(f"<li>{escape(tip)}</li>" for tip in advice(history))
    tips = f"<h3>What to try next</h3><ul>{tips}</ul>" if tips else ""
    return f"<section><h2>Hints</h2>{hints}{tips}</section>"


def _code(lines: Sequence[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>" if lines else ""


def _health(drawn: Sequence[Picture]) -> str:
    figures = "".join(figure(picture) for picture in drawn)
    body = f"<section><h2>Health of the training</h2><div class=grid>{figures}</div></section>"
    return body if figures else ""


def _group(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    picture = figure(group_picture(rows), wide=True)
    return f"<section><h2>One group of attempts</h2>{picture}{_texts(rows)}</section>"


def _texts(rows: Sequence[Mapping[str, Any]]) -> str:
    """The answers of a group's members, if they are texts."""
    if not any(row.get("text") or row.get("reasoning") for row in rows):
        return ""
    said = "".join(
        f"<tr><td>{escape(shown(row.get('total')))}</td><td>{escape(shown(row.get('advantage')))}</td>"
        f"<td>{escape(short_text(row.get('text')))}{_thought(row.get('reasoning'))}</td></tr>"
        for row in evenly(rows)
    )
    head = "".join(f"<th scope=col>{name}</th>" for name in ("Score", "Advantage", "Answer"))
    asked = escape(short_text(rows[0].get("prompt")))
    return f"<p>Question: {asked}</p><div class=scroll><table class=samples><tr>{head}</tr>{said}</table></div>"


def shown(value: Any) -> str:
    found = finite(value)
    return "–" if found is None else number(found)


def short_text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _settings(history: History) -> str:
    try:
        defaults = TrainingConfig(product=str(history.setting("task.product")))
    except GroupwiseError:  # a product that is not installed here
        defaults = TrainingConfig()
    usual = dict(_flat(defaults.to_dict()))
    settings = _flat(history.config)
    changed = [(name, value) for name, value in settings if usual.get(name) != value]
    blocks = (
        details("Settings that differ from the defaults", changed, "open"),
        details("All settings", settings),
        details("Machine and versions", _flat(history.env)),
    )
    return f"<section><h2>Settings</h2>{''.join(blocks)}</section>" if any(blocks) else ""


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
    # A finished run needs a larger budget before it can continue.
    longer = f" --set training.num_episodes={2 * history.step}" if history.step >= history.total_steps else ""
    commands = {
        "Started with": str(history.env.get("command") or ""),
        "Resume from the last checkpoint": f"groupwise resume {folder}{longer}",
        "Repeat the run": f"groupwise train {shlex.quote(str(run_dir / 'config.toml'))} --set run.run_name=null",
    }
    rows = "".join(f"<h3>{k}</h3><pre><code>{escape(v)}</code></pre>" for k, v in commands.items() if v)
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    version = escape(str(history.env.get("groupwise") or ""))
    return (
        f"<section><h2>Reproduce or resume</h2>{rows}</section>"
        f"<footer>Made by Groupwise {version} on {made} from events.jsonl.</footer>"
    )
