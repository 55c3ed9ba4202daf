"""Text and durations from a run, fit for a terminal, a figure or a page."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> str:
    """Text from a run, for a terminal: control characters could move its cursor, so they are replaced."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "�" for c in text)


def short(text: str, length: int) -> str:
    """Text for a figure: what cannot be shown (control characters, halves of characters) is replaced."""
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
