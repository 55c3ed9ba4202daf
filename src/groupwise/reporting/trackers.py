"""Trackers of a run: TensorBoard, Weights & Biases, MLflow and Trackio, all written without a network.

They get its numbers and, at each evaluation, a table of answers. An exporter consumes events: `event(event)` and
`close()`. The run does not depend on it: an exporter that fails is switched off with one warning. A resumed run records
no step twice: TensorBoard discards what came after the checkpoint, and local records of W&B and MLflow are written anew
from the event log. Trackio's cannot be cut back.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Protocol

from groupwise.errors import ConfigError
from groupwise.reporting.tracked_values import COLUMNS, as_markdown, completions, missing, scalars
from groupwise.training.events import read_events
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


def _kind(name: str) -> type[TensorBoard] | type[Rewritten]:
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
            raise missing("TensorBoard", "tensorboard") from error
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
            if rows := completions(event):
                self._write(event, [self._text("completions", as_markdown(rows))])

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


class Rewritten:
    """A tracker whose local record cannot be cut back: a resumed run writes what it keeps of the log again."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._run_dir, self._config = run_dir, config
        self._begun = False
        self._load()

    def event(self, event: Event) -> None:
        if event.type == "start":
            resumed = event.data.get("resumed_from")
            anew = self._begin(resumed is not None)
            self._begun = True
            if resumed is not None and anew:
                for kept in read_events(self._run_dir / "events.jsonl"):
                    if kept.step <= int(resumed):
                        self._log(kept)
        elif self._begun:
            self._log(event)

    def close(self) -> None:
        if self._begun:
            self._finish()

    def _load(self) -> None:
        """Import the package, or refuse."""
        raise NotImplementedError

    def _begin(self, resumed: bool) -> bool:
        """Begin a record; whether it is empty."""
        raise NotImplementedError

    def _log(self, event: Event) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


class WandB(Rewritten):
    """Writes an offline W&B run into the run folder; `wandb sync` uploads it later.

    WANDB_MODE, if set, chooses another mode, such as online. The W&B run has the same id in every attempt.
    """

    def _load(self) -> None:
        # W&B reports its own crashes over the network unless this is set before it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
        except ImportError as error:
            raise missing("Weights & Biases", "wandb") from error
        self._wandb = wandb
        mode = os.environ.get("WANDB_MODE") or "offline"
        self._mode: Any = {"run": "online", "dryrun": "offline"}.get(mode, mode)
        # A stable id: syncing a resumed run updates the same W&B run.
        self._id = re.sub(r"[^\w.-]+", "-", self._run_dir.name)[-100:] or "run"

    def _begin(self, resumed: bool) -> bool:
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
        return bool(self._mode == "offline")

    def _log(self, event: Event) -> None:
        values: dict[str, Any] = dict(scalars(event))
        if rows := completions(event):
            values["completions"] = self._wandb.Table(columns=list(COLUMNS), data=rows)
        if values:
            self._run.log(values, step=event.step)

    def _finish(self) -> None:
        self._run.finish()


class MLflow(Rewritten):
    """Writes an MLflow run into `<run>/mlruns`, or to MLFLOW_TRACKING_URI if that is set."""

    def _load(self) -> None:
        # MLflow allows its file store only when asked, and counts its users over the network unless told not to.
        for name, value in (("MLFLOW_ALLOW_FILE_STORE", "true"), ("MLFLOW_DISABLE_TELEMETRY", "true")):
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param, RunTag
        except ImportError as error:
            raise missing("MLflow", "mlflow") from error
        self._client, self._metric, self._param, self._tag = MlflowClient, Metric, Param, RunTag
        self._address = os.environ.get("MLFLOW_TRACKING_URI", "")

    def _begin(self, resumed: bool) -> bool:
        folder = (self._run_dir / "mlruns").resolve()
        if not self._address:
            shutil.rmtree(folder, ignore_errors=True)
            # A store that this process has opened before is not made again.
            (folder / ".trash").mkdir(parents=True)
        store = self._store = self._client(self._address or folder.as_uri())
        known = store.get_experiment_by_name("groupwise")
        experiment = known.experiment_id if known else store.create_experiment("groupwise")
        name = self._run_dir.name
        found = store.search_runs([experiment], f"tags.`groupwise.run` = '{name}'") if resumed and self._address else []
        if found:
            self._id = found[0].info.run_id
            return False
        self._id = store.create_run(experiment, tags={"groupwise.run": name}, run_name=name).info.run_id
        flat = {
            f"{section}.{key}": value
            for section, values in self._config.items()
            for key, value in (values.items() if isinstance(values, Mapping) else ())
        }
        store.log_batch(self._id, params=[self._param(key, str(value)[:500]) for key, value in flat.items()][:100])
        store.log_dict(self._id, json.loads(json.dumps(dict(self._config), default=str)), "config.json")
        return True

    def _log(self, event: Event) -> None:
        when = int(event.time * 1000)
        if values := dict(scalars(event)):
            self._store.log_batch(self._id, [self._metric(k, v, when, event.step) for k, v in values.items()])
        if rows := completions(event):
            # The form in which MLflow's page shows a table.
            table = {"columns": list(COLUMNS), "data": rows}
            self._store.log_dict(self._id, table, f"completions/{event.step:06}.json")

    def _finish(self) -> None:
        self._store.set_terminated(self._id)


class Trackio(Rewritten):
    """Writes a local Trackio run, which `trackio show --project groupwise` displays."""

    def _load(self) -> None:
        try:
            import trackio
        except ImportError as error:
            hint = "pip install trackio, in an environment with a version of huggingface_hub that it supports"
            raise missing("Trackio", "trackio", hint) from error
        self._trackio = trackio

    def _begin(self, resumed: bool) -> bool:
        # Trackio appends: the steps that a resumed run repeats are in its record twice.
        settings = json.loads(json.dumps(dict(self._config), default=str))
        self._trackio.init(
            project="groupwise", name=self._run_dir.name, config=settings, resume="allow", embed=False,
        )  # fmt: skip
        return False

    def _log(self, event: Event) -> None:
        values: dict[str, Any] = dict(scalars(event))
        if rows := completions(event):
            values["completions"] = self._trackio.Table(columns=list(COLUMNS), data=rows)
        if values:
            self._trackio.log(values, step=event.step)

    def _finish(self) -> None:
        self._trackio.finish()


KINDS: Mapping[str, type[TensorBoard] | type[Rewritten]] = {
    "tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow, "trackio": Trackio,
}  # fmt: skip
