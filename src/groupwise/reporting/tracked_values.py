"""What trackers get of a run's events: the numbers of a step, and the answers of an evaluation as a table."""

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.errors import MissingExtra
from groupwise.training.formatting import finite
from groupwise.types import Event

COLUMNS = ("step", "prompt", "completion", "expected", "reward", "correct", "reasoning")


def scalars(event: Event) -> Iterator[tuple[str, float]]:
    """The finite numbers of a step or an evaluation: metrics, `timing/…` and `totals/…`."""
    if event.type not in ("step", "eval"):
        return
    for part, prefix in (("metrics", ""), ("timing", "timing/"), ("totals", "totals/")):
        values = event.data.get(part)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if (number := finite(value)) is not None:
                yield f"{prefix}{name}", number


def completions(event: Event) -> list[list[Any]]:
    """The answers that an evaluation shows, one row of `COLUMNS` each; none of other events."""
    shown = event.data.get("samples") if event.type == "eval" else None
    rows = [one for one in shown if isinstance(one, Mapping)] if isinstance(shown, list) else []
    return [
        [event.step, *(str(one.get(name) or "") for name in ("prompt", "text", "expected")), finite(one.get("total")),
         one.get("correct"), str(one.get("reasoning") or "")]
        for one in rows
    ]  # fmt: skip


def as_markdown(rows: list[list[Any]]) -> str:
    """The table as Markdown; cells keep to one line."""

    def cell(value: Any) -> str:
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for given, shown in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("\n", " ⏎ ")):
            text = text.replace(given, shown)
        return text

    lines = [COLUMNS, ["---"] * len(COLUMNS), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def missing(product: str, package: str, hint: str = "pip install 'groupwise[tracking]'") -> MissingExtra:
    message = f"report_to includes {product}, but the package {package!r} is not installed"
    return MissingExtra(message, hint=hint, field="run.report_to")
