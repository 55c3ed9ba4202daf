"""All figures of a simulation into a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.errors import StorageError
from groupwise.workflows.document import Document
from groupwise.workflows.pictures.animation import animation_gif, animation_svg
from groupwise.workflows.pictures.figures import Try, gantt, queues, utilisation
from groupwise.workflows.pictures.svg import svg, svg_of

SHOWN = 300


def write_figures(
    document: Document, tries: Sequence[Try], servers: Mapping[str, int], folder: str | Path
) -> list[Path]:
    """The workflow, a Gantt chart, queues, utilisation, and tokens that move as SVG and GIF; the files written.

    The Gantt chart and the tokens show the first 300 tries.
    """
    folder = Path(folder)
    pictures: dict[str, str | bytes] = {"workflow.svg": svg(document), "gantt.svg": svg_of(gantt(tries[:SHOWN]))}
    if any(one.pool is not None for one in tries):
        pictures["queues.svg"] = svg_of(queues(tries))
        pictures["utilisation.svg"] = svg_of(utilisation(tries, servers))
    pictures["tokens.svg"] = animation_svg(document, tries, most=SHOWN)
    pictures["tokens.gif"] = animation_gif(document, tries, seconds=12.0, most=SHOWN)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            (folder / name).write_bytes(picture.encode() if isinstance(picture, str) else picture)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in pictures]
