"""The formats workflows are kept in: which one a file has, and one way in and one way out.

A format is a module of this package with a `FORMAT`. Reading takes bytes and yields a `Document`; writing takes a
document and yields bytes, or raises `CannotExpress`, which names the element that the format has no words for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.document import Document, document_of

LARGEST = 64 << 20
# One module each. A suffix that several share (.xml, .json, .yaml) is decided by content.
MODULES: tuple[str, ...] = (
    "yawl",
    "bpmn",
    "pnml",
    "json_file",
    "mermaid",
    "actions",
    "argo",
    "airflow",
    "wfcommons",
    "svg_file",
    "png_file",
)


class CannotExpress(DesignError):
    """The design has something that the format cannot say."""

    code = "cannot_express"


class BadFile(ConfigError):
    """A workflow file that cannot be read; the message has the line where there is one."""

    code = "workflow_file"


@dataclass(frozen=True, slots=True)
class Format:
    """`suffixes` are its own; `fits` tells from the first bytes of a file whether it is of this format."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    fits: Callable[[bytes], bool] = lambda head: False
    read: Callable[[bytes], Document] | None = None
    write: Callable[[Document], bytes] | None = None


def formats() -> dict[str, Format]:
    """Every format by its name."""
    found = [import_module(f"groupwise.workflows.files.{module}").FORMAT for module in MODULES]
    return {format_.name: format_ for format_ in found}


def find_format(path: Path, *, name: str | None = None, head: bytes = b"") -> Format:
    """The format called `name`, or else the one that suffix and content point to."""
    known = formats()
    if name is not None:
        if name not in known:
            raise ConfigError(f"{name!r} is no format; there are {', '.join(known)}")
        return known[name]
    fits = {
        one.name: max(map(len, filter(path.name.lower().endswith, one.suffixes)), default=0) for one in known.values()
    }
    fitting = [one for one in known.values() if fits[one.name] == max(fits.values()) > 0]
    if len(fitting) > 1 or not fitting:
        fitting = [one for one in (fitting or known.values()) if head and one.fits(head)] or fitting
    if not fitting:
        raise ConfigError(f"{path}: no format has the suffix {path.suffix!r}", hint=f"There are {', '.join(known)}.")
    return fitting[0]


def read_workflow(path: str | Path, format: str | None = None) -> Document:
    """The workflow in a file."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise BadFile(f"{path} has {size >> 20} MiB, and a workflow may have {LARGEST >> 20}")
        content = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from error
    found = find_format(path, name=format, head=content[:4096])
    if found.read is None:
        raise BadFile(f"{path}: {found.title} is written and not read")
    try:
        return found.read(content)
    except ConfigError as error:
        raise BadFile(f"{path}: {error.message}", hint=error.hint) from error


def write_workflow(workflow: Document | Design, path: str | Path, format: str | None = None) -> None:
    """Write the workflow to a file in the format of its suffix, or in `format`."""
    path = Path(path)
    found = find_format(path, name=format)
    if found.write is None:
        raise CannotExpress(f"{path}: {found.title} is read and not written")
    content = found.write(workflow if isinstance(workflow, Document) else document_of(workflow))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
