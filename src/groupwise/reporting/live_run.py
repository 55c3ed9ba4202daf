"""A run that is trained and shown: start one from its settings, follow it to its end, and write its report."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError
from groupwise.products import product_of
from groupwise.reporting.console import watch
from groupwise.reporting.report import write_report
from groupwise.reporting.trackers import check_trackers, exporters
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, read_config
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import graceful_stop
from groupwise.types import Event

INTERRUPTED = 130  # the exit status that shells use for Ctrl-C


def start_run(cfg: TrainingConfig, *, json: bool, quiet: bool = False) -> tuple[Path, int]:
    """Make a run of these settings and follow it to its end: its folder, and the exit status."""
    # Everything that can be refused is refused before there is a folder.
    check_trackers(cfg.run.report_to)
    product = product_of(cfg)
    cfg = product.prepare(cfg)
    product.check(cfg)
    path = create_run(cfg)
    return path, follow_run(path, cfg, json=json, quiet=quiet)


def follow_run(path: Path, cfg: TrainingConfig, *, json: bool, quiet: bool = False, by_hand: bool = False) -> int:
    """Train to the end while showing it, then write the report. The exit status is 130 if it was interrupted."""
    last = deque(run_events(path, cfg, json=json, quiet=quiet, by_hand=by_hand), maxlen=1).pop()
    report = write_run_report(path)
    stopped = last.data["reason"] == "stopped"
    if not json and not quiet:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"report: {report}", highlight=False, markup=False)
        if stopped:
            console.print(f"stopped; continue with: groupwise resume {path}", highlight=False, markup=False)
    return INTERRUPTED if stopped else 0


def run_events(
    path: Path, cfg: TrainingConfig, *, json: bool = False, quiet: bool = False, by_hand: bool = False
) -> Iterator[Event]:
    """The events of the run as they happen, shown on the terminal and sent to the trackers on the way.

    Ctrl-C or SIGTERM lets the current step finish and saves; a second one stops at once.
    """
    product = product_of(cfg)

    def build(cfg: TrainingConfig) -> Parts:
        return product.build(product.open_run(path, cfg, learning=True))

    # Read before `execute` truncates the log to the checkpoint it resumes from.
    earlier = read_events(path / "events.jsonl")
    with graceful_stop() as stop, ExitStack() as closing:
        sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
        for sink in sinks:
            closing.callback(sink.close)
        events = execute(path, build, cfg, stop, by_hand=by_hand)
        for event in watch(events, json=json, quiet=quiet, earlier=earlier):
            for sink in sinks:
                sink.event(event)
            yield event


def write_run_report(run_dir: Path) -> Path:
    """Write report.html, with the sections that the run's product adds if it has anything to show yet."""
    try:
        cfg = read_config(run_dir)
        added = product_of(cfg).report_sections(run_dir, cfg)
    except GroupwiseError:
        added = ()
    return write_report(run_dir, added)
