"""TensorBoard and W&B get what the event log has, each step once, and never stop a run."""

import json
import logging
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, MissingExtra
from groupwise.reporting.live_run import start_run
from groupwise.reporting.tracked_values import COLUMNS, completions, scalars
from groupwise.reporting.trackers import exporters
from groupwise.training.events import encode
from groupwise.types import Event

CONFIG = {"run": {"seed": 3}, "loss": {"beta": 0.1}}


def attempt(number: int, first: int, last: int, reward: float, seq: int = 0) -> list[Event]:
    """The events of one attempt at a run: steps `first` to `last`, an evaluation every fifth."""
    data: dict[str, Any] = {
        "config": CONFIG,
        "resumed_from": first - 1 if first > 1 else None,
        "total_steps": last,
    }
    rows: list[tuple[int, str, dict[str, Any]]] = [(first - 1, "start", data)]
    for step in range(first, last + 1):
        metrics = {"reward/mean": reward + step, "policy/kl": None, "optim/grad_norm": float("nan")}
        rows.append((step, "step", {"metrics": metrics, "timing": {"total": 0.5}, "totals": {"samples": step}}))
        if step % 5 == 0:
            said = {"prompt": "1|1?", "text": "2\n<b>", "expected": "2", "total": 0.5, "correct": None}
            rows.append((step, "eval", {"metrics": {"eval/reward_mean": reward}, "samples": [said]}))
    rows.append((last, "hint", {"code": "x", "message": "Flat <b>.", "remedy": "Try."}))
    return [Event("run", seq + i, number, 1000.0 + 100 * number + i, *row) for i, row in enumerate(rows)]


def export(kind: str, folder: Path, events: list[Event]) -> None:
    (sink,) = exporters([kind], folder, CONFIG)
    for event in events:
        sink.event(event)
    sink.close()


def tensorboard(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()


def series(board: Any, tag: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in board.Scalars(tag)]


def test_scalars_are_the_finite_numbers_of_an_event() -> None:
    _, step, *_ = attempt(1, 1, 5, 10.0)
    assert dict(scalars(step)) == {"reward/mean": 11.0, "timing/total": 0.5, "totals/samples": 1.0}
    assert dict(scalars(Event("run", 0, 1, 0.0, 0, "end", {"metrics": {"a": 1.0}}))) == {}


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    export("tensorboard", tmp_path, attempt(1, 1, 10, 100.0))
    board = tensorboard(tmp_path)
    assert set(board.Tags()["scalars"]) == {
        "reward/mean",
        "eval/reward_mean",
        "timing/total",
        "totals/samples",
    }
    assert series(board, "reward/mean") == [(step, 100.0 + step) for step in range(1, 11)]
    assert series(board, "eval/reward_mean") == [(5, 100.0), (10, 100.0)]
    assert board.Scalars("reward/mean")[0].wall_time == 1101.0
    (hint,) = board.Tensors("hints")
    assert hint.tensor_proto.string_val == [b"Flat <b>.\n\nTry."]
    assert [point.step for point in board.Tensors("completions")] == [5, 10]
    assert rb"1\|1?" in (text := board.Tensors("completions")[0].tensor_proto.string_val[0])
    assert b"&lt;b>" in text
    (config,) = board.Tensors("config")
    assert b'"beta": 0.1' in config.tensor_proto.string_val[0]


@pytest.mark.parametrize("resumed_from", [0, 5, 9])
def test_tensorboard_shows_no_step_twice_after_a_resume(tmp_path: Path, resumed_from: int) -> None:
    export("tensorboard", tmp_path, attempt(1, 1, 9, 100.0))
    export("tensorboard", tmp_path, attempt(2, resumed_from + 1, 12, 200.0))
    board = tensorboard(tmp_path)
    expected = [(step, (100.0 if step <= resumed_from else 200.0) + step) for step in range(1, 13)]
    assert series(board, "reward/mean") == expected
    assert [step for step, _ in series(board, "eval/reward_mean")] == [5, 10]


def test_tensorboard_needs_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from groupwise.reporting.trackers import exporters\n"
        f"exporters(['tensorboard'], Path({str(tmp_path)!r}), {{}})\n"
        "print({'torch', 'tensorflow', 'wandb'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        if at + 7 + length > len(content):
            return  # still being written
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""


def wandb_history(folder: Path, count: int) -> list[tuple[int, float]]:
    """The logged rewards; W&B answers `finish` a little before its service has written the file's end."""
    deadline = time.monotonic() + 60
    while len(rows := _history(wandb_file(folder))) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return rows


def wandb_file(folder: Path) -> Path:
    (path,) = (folder / "wandb").glob("offline-run-*/run-pole-1-.wandb")
    return path


def _history(path: Path) -> list[tuple[int, float]]:
    rows = []
    for record in wandb_records(path):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if "reward/mean" in items:
                rows.append((int(items["_step"]), float(items["reward/mean"])))
    return rows


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, with W&B's own folders beside it and no setting of the user's."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    folder = tmp_path / "pole <1>"
    folder.mkdir()
    return folder


def test_wandb_writes_one_offline_run_with_each_step_once(offline: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = attempt(1, 1, 9, 100.0), attempt(2, 6, 12, 200.0, seq=7)
    export("wandb", offline, first)
    assert wandb_history(offline, 9) == [(step, 100.0 + step) for step in range(1, 10)]

    kept = [event for event in first if event.step <= 5]
    (offline / "events.jsonl").write_bytes(b"".join(map(encode, kept)))
    export("wandb", offline, second)
    assert wandb_history(offline, 12) == [(s, (100.0 if s <= 5 else 200.0) + s) for s in range(1, 13)]
    (run,) = [r.run for r in wandb_records(wandb_file(offline)) if r.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.display_name, run.project) == ("pole-1-", "pole <1>", "groupwise")
    assert "loss" in {update.key for update in run.config.update}
    (table,) = list(offline.glob("wandb/offline-run-*/files/media/table/completions_5_*.table.json"))
    shown = json.loads(table.read_text())
    assert (shown["columns"], shown["data"]) == ([*COLUMNS], completions(first[6]))
    assert capfd.readouterr() == ("", ""), "W&B must not write over the display"


def test_wandb_obeys_the_mode_the_user_has_set(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    export("wandb", offline, attempt(1, 1, 3, 100.0))
    assert not list(offline.glob("wandb/offline-run-*"))


def mlflow_run(folder: Path) -> tuple[Any, Any]:
    from mlflow import MlflowClient

    store = MlflowClient((folder / "mlruns").as_uri())
    (run,) = store.search_runs([store.get_experiment_by_name("groupwise").experiment_id])
    return store, run


def test_mlflow_keeps_one_local_run_with_each_step_once(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first, second = attempt(1, 1, 9, 100.0), attempt(2, 6, 12, 200.0, seq=7)
    export("mlflow", offline, first)
    (offline / "events.jsonl").write_bytes(b"".join(encode(event) for event in first if event.step <= 5))
    export("mlflow", offline, second)
    store, run = mlflow_run(offline)
    points = [(point.step, point.value) for point in store.get_metric_history(run.info.run_id, "reward/mean")]
    assert points == [(s, (100.0 if s <= 5 else 200.0) + s) for s in range(1, 13)]
    assert (run.info.run_name, run.info.status, run.data.params["loss.beta"]) == ("pole <1>", "FINISHED", "0.1")
    tables = [file.path for file in store.list_artifacts(run.info.run_id, "completions")]
    assert tables == ["completions/000005.json", "completions/000010.json"]
    table = json.loads(Path(store.download_artifacts(run.info.run_id, tables[0])).read_text())
    assert table == {"columns": [*COLUMNS], "data": completions(first[6])}


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("tensorboard", "tensorboard.summary.writer.event_file_writer"), ("wandb", "wandb"), ("mlflow", "mlflow"),
        ("trackio", "trackio"),
    ],
)  # fmt: skip
def test_a_missing_package_names_the_extra(
    kind: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as error:
        exporters([kind], tmp_path, {})
    assert error.value.hint.startswith(
        "pip install trackio" if kind == "trackio" else "pip install 'groupwise[tracking]'"
    )


def test_a_missing_tracker_is_refused_before_there_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    cfg = TrainingConfig(environment="CartPole-v1", report_to=("wandb",), output_dir=str(tmp_path / "runs"))
    with pytest.raises(MissingExtra):
        start_run(cfg, json=True)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_tracker_is_refused_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"):
        exporters(["tensorbord"], tmp_path, {})
    assert exporters((), tmp_path, {}) == []


def test_an_exporter_that_fails_is_switched_off_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        export("tensorboard", tmp_path, attempt(1, 1, 20, 100.0))
    (record,) = caplog.records
    assert "tensorboard export failed (FileExistsError" in record.getMessage()
    assert "The run continues" in record.getMessage()
