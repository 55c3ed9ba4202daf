"""The table of formats, how a file's format is recognised, and the one way to read and to write workflows.

A format is a module (or package) here with a `FORMAT`. Reading turns bytes into a `Document`; writing turns a document
into bytes, or raises `CannotExpress`, which names the element that the format has no way to express.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.files import write_output
from groupwise.readers import ReadLimits, read_bytes
from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.document import Document, document_of

# WfCommons instances are the largest files by far: tens of MiB, and millions of values.
LIMITS = ReadLimits(size=64 << 20, depth=900, values=6_000_000, memory=768 << 20)
# Extras that only say how a file is drawn or written; losing them loses nothing of the workflow.
DRAWN = ("container", "vertex", "flow", "net", "layout", "decomposesTo", "definitions", "process", "sequenceFlow")
UNSEEN = ("http://www.omg.org/spec/BPMN/20100524/DI", "urn:groupwise:workflow")
# What a BPMN file draws besides nodes and flows; a picture can leave out nothing else.
VISIBLE = (
    "textAnnotation",
    "group",
    "association",
    "dataObjectReference",
    "dataStoreReference",
    "laneSet",
    "collaboration",
)
# Modules of this package. Where several formats share a suffix (.xml, .json, .yaml), the content decides.
MODULES: tuple[str, ...] = (
    "yawl", "bpmn", "pnml", "json_file", "mermaid", "github_actions", "argo", "airflow", "wfcommons",
)  # fmt: skip


class CannotExpress(DesignError):
    """The workflow has something that the format cannot express."""

    code = "cannot_express"


class BadFile(ConfigError):
    """A workflow file that cannot be read; the message names the line if there is one."""

    code = "workflow_file"


@dataclass(frozen=True, slots=True)
class Format:
    """A file format; `fits` recognises it by its first bytes, `namespaces` are those of the extras it writes.

    A `picture` shows a workflow, and nothing is read from it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    fits: Callable[[bytes], bool] = lambda head: False
    read: Callable[[bytes], Document] | None = None
    write: Callable[[Document], bytes] | None = None
    namespaces: tuple[str, ...] = ()
    picture: bool = False


def formats() -> dict[str, Format]:
    found = [import_module(f"groupwise.workflows.files.{module}").FORMAT for module in MODULES]
    return {format_.name: format_ for format_ in (*found, SVG, PNG)}


def find_format(path: Path, *, name: str | None = None, head: bytes = b"") -> Format:
    """The format called `name`, or the one that suffix and content point to."""
    known = formats()
    if name is not None:
        if name not in known:
            raise ConfigError(f"unknown format {name!r}; known: {', '.join(known)}")
        return known[name]
    own = path.name.lower()
    # The longest matching suffix wins: x.argo.yaml is Argo, although GitHub Actions has .yaml as well.
    fits = {one.name: max(map(len, filter(own.endswith, one.suffixes)), default=0) for one in known.values()}
    fitting = [one for one in known.values() if fits[one.name] == max(fits.values()) > 0]
    if len(fitting) > 1 or not fitting:
        fitting = [one for one in (fitting or known.values()) if head and one.fits(head)] or fitting
    if not fitting:
        hint = f"Known: {', '.join(known)}."
        raise ConfigError(f"{path}: no supported format has the suffix {path.suffix!r}", hint=hint)
    return fitting[0]


def read_workflow(path: str | Path, format: str | None = None) -> Document:
    path = Path(path)
    try:
        content = read_bytes(path, LIMITS)
    except ConfigError as error:
        raise BadFile(f"{path}: {error.message}", hint=error.hint) from error
    found = find_format(path, name=format, head=content[:4096])
    if found.read is None:
        raise BadFile(f"{path}: {found.title} files can be written but not read")
    try:
        return found.read(content)
    except ConfigError as error:
        raise BadFile(f"{path}: {error.message}", hint=error.hint) from error


def write_workflow(workflow: Document | Design, path: str | Path, format: str | None = None) -> tuple[str, ...]:
    """Write the workflow in the format of the suffix, or in `format`; return notes on what had to be left out."""
    path = Path(path)
    found = find_format(path, name=format)
    if found.write is None:
        raise CannotExpress(f"{path}: {found.title} files can be read but not written")
    document = workflow if isinstance(workflow, Document) else document_of(workflow)
    content = found.write(document)
    write_output(path, content)
    return left_out(document, found)


def left_out(document: Document, format_: Format) -> tuple[str, ...]:
    """A note on what a document keeps from its file and this format has no place for, except drawings."""
    known = (*format_.namespaces, *UNSEEN)
    # An element without anything in it is a node or flow that is written.
    extras = [e for e in document.all_extras() if e.attributes or e.children or e.text.strip()]
    extras = [e for e in extras if e.namespace not in known and e.name not in DRAWN]
    counts = Counter(e.name for e in extras if e.name in VISIBLE or not format_.picture)
    said = [f"{name} ({number})" for name, number in counts.most_common()]
    return (f"left out, because {format_.title} has no place for it: {', '.join(said)}",) if said else ()


def _write_svg(document: Document) -> bytes:
    from groupwise.workflows.pictures.svg import svg

    return svg(document).encode()


SVG = Format("svg", "SVG", (".svg",), write=_write_svg, picture=True)


def _write_png(document: Document) -> bytes:
    from groupwise.workflows.pictures.png import png  # matplotlib takes a second to import

    return png(document)


PNG = Format("png", "PNG", (".png",), write=_write_png, picture=True)
