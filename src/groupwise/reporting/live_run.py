"""A run that is trained and shown: start one from its settings, follow it to its end, and write its report."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

from rich.console import Console

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError
from groupwise.products import product_of
from groupwise.reporting.console import watch
from groupwise.reporting.report import write_report
from groupwise.reporting.trackers import check_trackers, exporters
from groupwise.training.events import looked_at_events
from groupwise.training.folder import create_run, read_config
from groupwise.training.ranks.communication import ALONE, Ranks, remember_run, remembered_run
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag, graceful_stop
from groupwise.types import Event

INTERRUPTED = 130  # the exit status that shells use for Ctrl-C


def start_run(cfg: TrainingConfig, *, json: bool, quiet: bool = False, ranks: Ranks = ALONE) -> tuple[Path, int]:
    """Make a run of these settings and follow it to its end: its folder, and the exit status."""
    cfg = ranks.together(lambda: ready(cfg))
    # Ranks that were started again after one died go on with the run that they began.
    path, cfg = ranks.on_first(lambda: begun_run(lambda: create_run(cfg), cfg))
    return path, follow_run(path, cfg, json=json, quiet=quiet, ranks=ranks)


def ready(cfg: TrainingConfig) -> TrainingConfig:
    """The settings as the run will have them; everything that can be refused is refused before there is a folder."""
    check_trackers(cfg.run.report_to)
    product = product_of(cfg)
    cfg = product.prepare(cfg)
    product.check(cfg)
    return cfg


def begun_run(create: Callable[[], Path], cfg: TrainingConfig) -> tuple[Path, TrainingConfig]:
    """The run that this launch of ranks began before it was restarted, or a new one; and its settings."""
    path = remembered_run()
    if path is not None:
        return path, read_config(path)
    path = create()
    remember_run(path)
    return path, cfg


def follow_run(
    path: Path, cfg: TrainingConfig, *, json: bool, quiet: bool = False, by_hand: bool = False, ranks: Ranks = ALONE,
    signals: bool = True,
) -> int:  # fmt: skip
    """Train to the end while showing it, then write the report. The exit status is 130 if it was interrupted."""
    last = deque(
        run_events(path, cfg, json=json, quiet=quiet, by_hand=by_hand, ranks=ranks, signals=signals), maxlen=1
    ).pop()
    stopped = last.data["reason"] == "stopped"
    if not ranks.first:
        return INTERRUPTED if stopped else 0
    report = write_run_report(path)
    if not json and not quiet:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"report: {report}", highlight=False, markup=False)
        if stopped:
            console.print(f"stopped; continue with: groupwise resume {path}", highlight=False, markup=False)
    return INTERRUPTED if stopped else 0


def run_events(
    path: Path, cfg: TrainingConfig, *, json: bool = False, quiet: bool = False, by_hand: bool = False,
    ranks: Ranks = ALONE, signals: bool = True,
) -> Iterator[Event]:  # fmt: skip
    """The events of the run as they happen, shown on the terminal and sent to the trackers on the way.

    Ctrl-C or SIGTERM lets the current step finish and saves; a second one stops at once. Without `signals` somebody
    else sees to that, and SIGTERM ends the process. Of many ranks the first shows the events.
    """
    product = product_of(cfg)
    stopped_by_signals = graceful_stop if signals else lambda: nullcontext(StopFlag())

    def build(cfg: TrainingConfig) -> Parts:
        # Rank 0 may keep something in the run's folder; the others find it there.
        opened: list[TrainingConfig] = []
        ranks.on_first(lambda: opened.append(product.open_run(path, cfg, learning=True)))
        return product.build(opened[0] if opened else product.open_run(path, cfg, learning=False))

    if not ranks.first:
        with stopped_by_signals() as stop:
            yield from execute(path, build, cfg, stop, ranks=ranks)
        return

    # Read before `execute` truncates the log to the checkpoint it resumes from.
    earlier = looked_at_events(path / "events.jsonl")
    with stopped_by_signals() as stop, ExitStack() as closing:
        sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
        for sink in sinks:
            closing.callback(sink.close)
        events = execute(path, build, cfg, stop, by_hand=by_hand, ranks=ranks)
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
