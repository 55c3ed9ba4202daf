"""The pieces of every page: the frame, figures with their data, collapsible tables."""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files

from groupwise.reporting.canvas import inline_svg, inlined, render
from groupwise.reporting.figures import Picture

# Inches.
SMALL, WIDE = 4.0, 8.4


def whole_page(title: str, sections: Iterable[str]) -> str:
    """A self-contained page: inline figures, no script, and a content policy that forbids any request."""
    folder = files("groupwise.reporting")
    template, style = (folder.joinpath(name).read_text("utf-8") for name in ("report.html", "report.css"))
    return template.format(title=escape(title), style=style, body="\n".join(sections))


def figure(picture: Picture, wide: bool = False, drawn: bytes | None = None) -> str:
    """A figure with its caption and data; a wide one is drawn a second time for narrow screens.

    `drawn` is the SVG of the wide one if it exists already.
    """
    alt = f"{picture.title}: {picture.alt}"
    drawings = f"<div class=narrow>{inline_svg(picture.draw, SMALL, f'{picture.name}-s', alt)}</div>"
    if wide:
        svg = render(picture.draw, WIDE, "svg") if drawn is None else drawn
        drawings += f"<div class=wide>{inlined(svg, f'{picture.name}-w', alt)}</div>"
    data = base64.b64encode(picture.csv.encode("utf-8", "replace")).decode()
    return (
        f"<figure class={'double' if wide else 'single'}><h3>{escape(picture.title)}</h3>{drawings}"
        f"<figcaption>{escape(picture.caption)} "
        f'<a download="{picture.name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">Data (CSV)</a>'
        "</figcaption></figure>"
    )


def facts_list(values: Mapping[str, str]) -> str:
    """Names and values side by side; empty values are left out."""
    rows = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in values.items() if v)
    return f"<dl class=facts>{rows}</dl>"


def details(title: str, values: Iterable[tuple[str, str]], state: str = "") -> str:
    rows = "".join(f"<tr><th scope=row>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in values)
    table = f"<div class=scroll><table>{rows}</table></div>"
    return f"<details {state}><summary>{title}</summary>{table}</details>" if rows else ""
