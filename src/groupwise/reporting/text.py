"""Text for a terminal, a figure or a page: printable strings, durations, and a curve drawn in characters."""

import codecs
import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from groupwise.training.formatting import finite, number


def printable(value: Any) -> str:
    """Text from a run, made safe for a terminal: control characters, which could move its cursor, are replaced."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "�" for c in text)


def traceback_lines(hint: Mapping[str, Any]) -> list[str]:
    """The traceback of a hint about user code, line by line; nothing for other hints."""
    return [printable(line) for line in str(hint.get("traceback") or "").splitlines()]


# What stands for a character in encodings that lack it; for any other it is a question mark.
PLAIN_CHARACTERS = {
    "–": "-", "−": "-", "—": "-", "±": "+-", "×": "x", "·": ".", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=",
    "✓": "+", "✗": "x", "▶": ">", "▲": "^", "▼": "v", "↕": "|", "∥": "||", "▋": "#", "█": "#", "━": "-", "’": "'",
    "├": "|", "└": "`", "│": "|", "─": "-", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "⟲": "@", "½": "1/2",
}  # fmt: skip
PLAIN_ERRORS = "groupwise.plain"


def _plain_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN_CHARACTERS.get(c, "#" if "▁" <= c <= "▏" else "?") for c in lacking), error.end


codecs.register_error(PLAIN_ERRORS, _plain_characters)


def tolerate_any_text(stream: Any) -> None:
    """Let a stream print something alike where its encoding lacks a character, rather than raise."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=PLAIN_ERRORS)


def in_any_encoding(stream: Any) -> bool:
    """Whether the stream can print every character; JSON for one that cannot escapes them."""
    return "utf" in str(getattr(stream, "encoding", None) or "utf").lower()


def capital(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def short(text: str, length: int) -> str:
    """Text for a figure, cut to `length`; control characters and half surrogates are replaced."""
    shown = "".join(c if c.isprintable() else "�" for c in text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


# Bits of a Braille character by column and, from the bottom, row.
DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def curve(
    values: Sequence[float | None],
    width: int = 60,
    height: int = 8,
    *,
    steps: tuple[int, int] | None = None,
    ascii_only: bool = False,
) -> str:
    """A curve in Braille dots (2 × 4 per character) with its range at the left and its steps below.

    `width` and `height` are in characters; the width includes the labels, and the steps add one line.
    """
    known = [value for v in values if (value := finite(v)) is not None]
    if not known:
        return "(no values yet)"
    low, high = min(known), max(known)
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    margin = max(len(number(low)), len(number(high)))
    columns = max(width - margin - 2, 4)
    across, down = (1, 1) if ascii_only else (2, 4)
    points = resample(known, columns * across)
    scale = (height * down - 1) / (high - low)
    levels = [round((value - low) * scale) for value in points]
    cells = [[0] * columns for _ in range(height)]
    for x, level in enumerate(levels):
        # Steep parts are filled halfway to their neighbours, so that the line stays connected.
        near = [*levels[max(x - 1, 0) : x], *levels[x + 1 : x + 2]]
        ends = [level, *((level + other + (level > other)) // 2 for other in near)]
        for y in range(min(ends), max(ends) + 1):
            row = height - 1 - y // down
            cells[row][x // across] |= DOTS[x % across][y % down]
    return _with_axes(cells, low, high, margin, steps or (1, len(values)), ascii_only)


def _with_axes(
    cells: Sequence[Sequence[int]], low: float, high: float, margin: int, steps: tuple[int, int], ascii_only: bool
) -> str:
    bar = "|" if ascii_only else "│"
    lines = []
    for i, row in enumerate(cells):
        label = number(high) if i == 0 else number(low) if i == len(cells) - 1 else ""
        ink = "".join(("*" if ascii_only else chr(0x2800 + bits)) if bits else " " for bits in row)
        lines.append(f"{label:>{margin}} {bar}{ink}".rstrip())
    first, last = map(str, steps)
    gap = len(cells[0]) - len(first) - len(last)
    lines.append(" " * (margin + 2) + (first + " " * gap + last if gap > 0 else last))
    return "\n".join(lines)


def course(steps: Sequence[int], values: Sequence[float]) -> list[float]:
    """A value for every step from the first to the last, interpolated over steps that have none."""
    filled: list[float] = []
    for (start, low), (end, high) in pairwise(zip(steps, values, strict=True)):
        filled += [low + (high - low) * (step - start) / (end - start) for step in range(start, end)]
    return [*filled, *values[-1:]]


def resample(values: Sequence[float], count: int) -> list[float]:
    """`count` values along the same curve: means of neighbours if fewer, straight lines if more."""
    n = len(values)
    if n >= count:
        edges = [i * n // count for i in range(count + 1)]
        return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if n == 1:
        return [values[0]] * count
    places = [i * (n - 1) / (count - 1) for i in range(count)]
    floors = [min(int(place), n - 2) for place in places]
    return [values[i] + (values[i + 1] - values[i]) * (p - i) for i, p in zip(floors, places, strict=True)]
