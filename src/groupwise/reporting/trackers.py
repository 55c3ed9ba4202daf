"""Trackers of a run's numbers: TensorBoard and Weights & Biases, both written without a network.

An exporter consumes events: `event(event)` and `close()`. The run does not depend on it: an exporter that fails is
switched off with one warning. A resumed run records no step twice: TensorBoard discards what came after the checkpoint,
and an offline W&B run is rewritten from the event log.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Protocol

from groupwise.errors import ConfigError, MissingExtra
from groupwise.training.events import read_events
from groupwise.training.formatting import finite
from groupwise.types import Event

logger = logging.getLogger(__name__)


class Exporter(Protocol):
    def event(self, event: Event) -> None: ...
    def close(self) -> None: ...


def exporters(report_to: Sequence[str], run_dir: Path, config: Mapping[str, Any]) -> list[Exporter]:
    """One exporter per tracker in `report_to`; `config` is the run's nested configuration."""
    return [GuardedTracker(_kind(name)(run_dir, config), name) for name in dict.fromkeys(report_to)]


def check_trackers(report_to: Sequence[str]) -> None:
    """Refuse a tracker that does not exist or is not installed. It writes nothing."""
    exporters(report_to, Path(), {})


def _kind(name: str) -> type[TensorBoard] | type[WandB]:
    if name in KINDS:
        return KINDS[name]
    near = difflib.get_close_matches(name, KINDS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known trackers: {', '.join(KINDS)}."
    raise ConfigError(f"report_to: there is no tracker {name!r}", hint=hint, field="run.report_to")


class GuardedTracker:
    """An exporter that can fail only once: then it is switched off, and the run continues."""

    def __init__(self, exporter: Exporter, name: str) -> None:
        self._exporter: Exporter | None = exporter
        self._name = name

    def event(self, event: Event) -> None:
        self._try("event", event)

    def close(self) -> None:
        self._try("close")
        self._exporter = None

    def _try(self, method: str, *arguments: Event) -> None:
        if self._exporter is None:
            return
        try:
            getattr(self._exporter, method)(*arguments)
        except Exception as error:
            self._exporter = None
            what = "The %s export failed (%s: %s) and was switched off."
            words = f"{what} The run continues, and its event log is complete."
            logger.warning(words, self._name, type(error).__name__, error)


class TensorBoard:
    """Writes scalars, settings and hints to `<run>/tensorboard`, without TensorFlow or torch."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise _missing("TensorBoard", "tensorboard") from error
        self._event, self._summary = event_pb2, summary_pb2
        self._tensor, self._string = tensor_pb2.TensorProto, types_pb2.DT_STRING
        self._config = config
        self._folder = run_dir / "tensorboard"
        self._open = EventFileWriter
        self._writer: Any = None

    def event(self, event: Event) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._folder), flush_secs=10)
        if event.type == "start":
            self._start(event)
        elif event.type == "hint":
            self._write(event, [self._text("hints", f"{event.data.get('message')}\n\n{event.data.get('remedy')}")])
        elif values := dict(scalars(event)):
            self._write(event, [self._summary.Summary.Value(tag=k, simple_value=v) for k, v in values.items()])

    def _start(self, event: Event) -> None:
        # At this record readers discard everything from its step on: steps that the resumed run repeats.
        resumed = event.data.get("resumed_from")
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        first = 0 if resumed is None else int(resumed) + 1
        self._writer.add_event(self._event.Event(wall_time=event.time, step=first, session_log=start))
        # Indented, so that TensorBoard's Markdown shows it unchanged.
        self._write(event, [self._text("config", indent(json.dumps(self._config, indent=2, default=str), "    "))])

    def _text(self, tag: str, text: str) -> Any:
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        metadata = self._summary.SummaryMetadata(plugin_data=plugin)
        tensor = self._tensor(dtype=self._string, string_val=[text.encode("utf-8", "replace")])
        tensor.tensor_shape.dim.add(size=1)
        return self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)

    def _write(self, event: Event, values: Sequence[Any]) -> None:
        summary = self._summary.Summary(value=values)
        self._writer.add_event(self._event.Event(wall_time=event.time, step=event.step, summary=summary))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandB:
    """Writes an offline W&B run into the run folder; `wandb sync` uploads it later.

    WANDB_MODE, if set, chooses another mode, such as online. The W&B run has the same id in every attempt.
    """

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        # W&B reports its own crashes over the network unless this is set before it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
        except ImportError as error:
            raise _missing("Weights & Biases", "wandb") from error
        self._wandb, self._run_dir, self._config = wandb, run_dir, config
        mode = os.environ.get("WANDB_MODE") or "offline"
        self._mode: Any = {"run": "online", "dryrun": "offline"}.get(mode, mode)
        # A stable id: syncing a resumed run updates the same W&B run.
        self._id = re.sub(r"[^\w.-]+", "-", run_dir.name)[-100:] or "run"
        self._run: Any = None

    def event(self, event: Event) -> None:
        if event.type == "start":
            self._start(event)
        elif self._run is not None:
            self._log(event)

    def _start(self, event: Event) -> None:
        resumed = event.data.get("resumed_from")
        if self._mode == "offline":
            # An offline run cannot be appended to, so earlier attempts are replaced.
            for stale in (self._run_dir / "wandb").glob(f"offline-run-*-{self._id}"):
                shutil.rmtree(stale)
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # else it prints an advertisement if openai is imported
        settings = self._wandb.Settings(
            console="off", silent=True, quiet=True, disable_git=True, disable_code=True, save_code=False,
            x_disable_stats=True, x_save_requirements=False,
        )  # fmt: skip
        self._run = self._wandb.init(
            project="groupwise", id=self._id, name=self._run_dir.name, dir=str(self._run_dir), mode=self._mode,
            config=dict(self._config), resume="allow" if self._mode == "online" else None, reinit="create_new",
            settings=settings,
        )  # fmt: skip
        if resumed is not None and self._mode == "offline":
            for kept in read_events(self._run_dir / "events.jsonl"):
                if kept.step <= int(resumed):
                    self._log(kept)

    def _log(self, event: Event) -> None:
        if values := dict(scalars(event)):
            self._run.log(values, step=event.step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


KINDS: Mapping[str, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}


def scalars(event: Event) -> Iterator[tuple[str, float]]:
    """The finite numbers of a step or an evaluation: metrics, `timing/…` and `totals/…`."""
    if event.type not in ("step", "eval"):
        return
    for part, prefix in (("metrics", ""), ("timing", "timing/"), ("totals", "totals/")):
        values = event.data.get(part)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if (number := finite(value)) is not None:
                yield f"{prefix}{name}", number


def _missing(product: str, package: str) -> MissingExtra:
    message = f"report_to includes {product}, but the package {package!r} is not installed"
    return MissingExtra(message, hint="pip install 'groupwise[tracking]'", field="run.report_to")
