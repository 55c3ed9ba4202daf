"""Colours and lines, by day and by night; a drawing names styles and never colours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """Colours as (by day, by night); an empty colour is none. `weight` and `size` are those of letters."""

    fill: tuple[str, str] = ("none", "none")
    stroke: tuple[str, str] = ("none", "none")
    width: float = 1.0
    dash: tuple[float, float] | None = None
    size: float = 0.0
    bold: bool = False


INK = ("#1e293b", "#e2e8f0")
QUIET = ("#64748b", "#94a3b8")
PAPER = ("#ffffff", "#0f172a")
POOLS = (
    (("#e3eefb", "#6d9bd1"), ("#1d3350", "#5b8dc7")),
    (("#e4f4e6", "#74b283"), ("#1c3a2a", "#5fa574")),
    (("#fdf0dc", "#d9a45b"), ("#40301a", "#c79552")),
    (("#f3e6f7", "#b08ac2"), ("#38264a", "#a583bd")),
    (("#fde8e6", "#d98b83"), ("#442423", "#cf837b")),
    (("#dff3f3", "#66b0b0"), ("#153b3d", "#5aa5a6")),
    (("#f0f0d8", "#a9a957"), ("#35361b", "#a0a152")),
    (("#ece7e1", "#a5947f"), ("#35302a", "#9d8d79")),
    (("#e6e6fb", "#8b8bd0"), ("#2a2a52", "#8585cb")),
    (("#e9f7d9", "#93bb5c"), ("#2a3d17", "#8bb455")),
    (("#fbe3ef", "#cf7fa6"), ("#43203a", "#c87aa0")),
    (("#dfe7ec", "#7f97a6"), ("#25333c", "#7a93a3")),
)

WORTH = (
    ("#f6f8fb", "#1e293b"),
    ("#fdf3d7", "#3f3318"),
    ("#e9f2c9", "#39401b"),
    ("#cfeac4", "#24442a"),
    ("#a9dfb4", "#1f5c37"),
)
"""From worth nothing to solved."""

STYLES: dict[str, Style] = {
    "paper": Style(fill=PAPER),
    "flow": Style(stroke=QUIET, width=1.4),
    "tip": Style(fill=QUIET),
    "task": Style(fill=("#f6f8fb", "#1e293b"), stroke=QUIET, width=1.3),
    "call": Style(fill=("#f6f8fb", "#1e293b"), stroke=INK, width=2.4),
    "gate": Style(fill=PAPER, stroke=INK, width=1.4),
    "glyph": Style(stroke=INK, width=2.2),
    "start": Style(fill=("#e4f4e6", "#1c3a2a"), stroke=("#3f8f57", "#6cc287"), width=1.8),
    "end": Style(fill=("#fde8e6", "#442423"), stroke=("#b4544a", "#e08a82"), width=3.4),
    "condition": Style(fill=PAPER, stroke=QUIET, width=1.4),
    "region": Style(fill=("#b4544a12", "#e08a8220"), stroke=("#b4544a", "#e08a82"), width=1.2, dash=(6, 4)),
    "name": Style(fill=INK, size=13),
    "label": Style(fill=QUIET, size=11),
    "mark": Style(fill=QUIET, size=11),
    "icon": Style(stroke=QUIET, width=1.2),
    "heading": Style(fill=INK, size=15, bold=True),
    "axis": Style(stroke=("#cbd5e1", "#334155"), width=1.0),
    "limit": Style(stroke=QUIET, width=1.0, dash=(4, 3)),
    "lost": Style(fill=("#fde8e6", "#442423"), stroke=("#b4544a", "#e08a82"), width=1.2, dash=(3, 2)),
    "won": Style(stroke=("#2f855a", "#68d391"), width=2.6),
    **{
        f"worth{number}": Style(fill=(day, night), stroke=QUIET, width=1.2) for number, (day, night) in enumerate(WORTH)
    },
    **{
        f"pool{number}": Style(fill=(day[0], night[0]), stroke=(day[1], night[1]), width=1.3)
        for number, (day, night) in enumerate(POOLS)
    },
}
