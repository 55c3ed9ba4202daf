"""A run that is stopped, killed or damaged goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.errors import CheckpointError, ContractError, RunError, RunLocked, StorageError
from groupwise.training.checkpoint import (
    checkpoint_folders,
    drop_unfinished,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from groupwise.training.control_file import send_command
from groupwise.training.events import DAMAGE, read_events
from groupwise.training.folder import create_run, find_run, inspect_run, inspect_runs, read_config
from groupwise.training.learner import Learner
from groupwise.training.run import Run
from groupwise.training.session import execute

Numbers = Callable[[Path], dict[str, Any]]
Configure = Callable[..., TrainingConfig]


def finish(path: Path) -> list[Any]:
    return list(execute(path, build))


def copy_of(path: Path, name: str) -> Path:
    return Path(shutil.copytree(path, path.parent / name))


@pytest.fixture
def undisturbed(small_config: Configure, numbers: Numbers) -> tuple[Path, dict[str, Any]]:
    path = create_run(small_config(run_name="undisturbed"))
    finish(path)
    return path, numbers(path)


def stopped_after(path: Path, steps: int) -> None:
    """Run at most `steps` steps and drop the rest on the floor, like a process that vanished."""
    for event in execute(path, build):
        if event.type == "step" and event.step == steps:
            return


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_run_interrupted_at_any_step_ends_bit_for_bit_like_an_undisturbed_one(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers, steps: int
) -> None:
    path = create_run(small_config(run_name=f"interrupted-{steps}"))
    stopped_after(path, steps)
    finish(path)
    assert numbers(path) == undisturbed[1]


def test_interrupted_runs_agree_with_dropout_style_global_randomness(small_config: Configure, numbers: Numbers) -> None:
    """The global generators are part of a checkpoint too: a policy may draw from them."""

    def noisy(cfg: TrainingConfig) -> Any:
        parts = build(cfg)
        inner = parts.policy.evaluate

        def evaluate(inputs: Any) -> Any:
            seen = inner(inputs)
            return type(seen)(seen.logp * (1 + 0.01 * torch.rand(())), seen.entropy, seen.value)

        parts.policy.evaluate = evaluate
        return parts

    whole = create_run(small_config(run_name="whole"))
    list(execute(whole, noisy))
    broken = create_run(small_config(run_name="broken"))
    for event in execute(broken, noisy):
        if event.step == 3:
            break
    list(execute(broken, noisy))
    assert numbers(broken) == numbers(whole)


def kill_at(path: Path, seconds: float, *, once_begun: bool = False) -> bool:
    """Train in a child process that the kernel ends after `seconds` of its processor time; whether it did.

    Processor time does not depend on what else the machine does. `once_begun` counts from the attempt's first event.
    """
    child = os.fork()
    if child == 0:
        try:
            events = execute(path, build)
            if once_begun:
                next(events)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process on the spot, as SIGKILL does
            signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-4))
            list(events)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def seconds_of(path: Path) -> float:
    """The processor time of a run from beginning to end."""
    before = time.process_time()
    finish(path)
    return time.process_time() - before


def test_kill_minus_9_at_twenty_random_moments_changes_nothing(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers
) -> None:
    whole = seconds_of(create_run(small_config(run_name="clock")))
    rng = random.Random(7)
    seen, killed = set(), 0
    for number in range(20):
        path = create_run(small_config(run_name=f"killed-{number}"))
        killed += kill_at(path, rng.uniform(0.0, 1.1 * whole))
        seen.add(inspect_run(path).step)
        finish(path)
        assert numbers(path) == undisturbed[1], f"kill {number}"
    assert killed >= 10
    assert len(seen) >= 4, "the kills should have struck at different steps"


def test_a_run_killed_again_and_again_still_ends_the_same(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers
) -> None:
    whole = seconds_of(create_run(small_config(run_name="clock")))
    path = create_run(small_config(run_name="harried"))
    rng = random.Random(3)
    # Six times at most an eighth of the run: it cannot end before its last kill.
    killed = [kill_at(path, rng.uniform(0.0, whole / 8), once_begun=True) for _ in range(6)]
    assert all(killed)
    finish(path)
    assert numbers(path) == undisturbed[1]
    assert inspect_run(path).attempt == 7


def last_record(path: Path) -> int:
    """Where the last record of a file begins: the last line of a log, the whole of anything else."""
    content = path.read_bytes()
    if path.suffix != ".jsonl":
        return 0
    return content.rstrip(b"\n").rfind(b"\n") + 1


def damaged_files(path: Path) -> list[Path]:
    files = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file())
    newest = max(path.glob("checkpoints/*")).name
    last_groups = max(path.glob("groups/*")).name
    return [
        p for p in files
        if p.parts[0] not in ("checkpoints", "groups") or newest in p.parts or p.name == last_groups
    ]  # fmt: skip


def test_any_file_cut_at_its_last_record_is_survived(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers, tmp_path: Path
) -> None:
    """Every file, cut at a spread of bytes of its last record; benchmarks/chaos.py cuts at every byte."""
    source = create_run(small_config(run_name="cut"))
    send_command(source, "checkpoint")
    stopped_after(source, 5)
    for name in damaged_files(source):
        begin, size = last_record(source / name), (source / name).stat().st_size
        cuts = {begin, begin + 1, (begin + size) // 2, size - 2, size - 1} & set(range(begin, size))
        for cut in sorted(cuts):
            path = tmp_path / "damaged" / "cut"
            shutil.copytree(source, path)
            os.truncate(path / name, cut)
            finish(path)
            wanted = dict(undisturbed[1])
            if name.parts[0] == "groups":
                wanted["groups"] = {n: rows for n, rows in wanted["groups"].items() if n != name.name}
            assert numbers(path) == wanted, f"{name} cut at byte {cut}"
            shutil.rmtree(path)


def test_opening_a_log_cut_at_every_byte_keeps_whole_events_only(small_config: Configure) -> None:
    source = create_run(small_config(run_name="log"))
    stopped_after(source, 5)
    log = source / "events.jsonl"
    whole, begin = log.read_bytes(), last_record(log)
    for cut in range(begin, len(whole)):
        log.write_bytes(whole[:cut])
        assert len(read_events(log)) == whole.count(b"\n") - 1


def test_a_checkpoint_cut_at_any_byte_is_known_to_be_damaged(small_config: Configure, tmp_path: Path) -> None:
    path = create_run(small_config(run_name="bytes"))
    finish(path)
    newest = max(path.glob("checkpoints/*"))
    for file in sorted(newest.iterdir()):
        whole = file.read_bytes()
        for cut in range(0, len(whole), 1 if len(whole) < 2000 else 97):
            file.write_bytes(whole[:cut])
            if file.name == "COMPLETE" and whole[:cut].strip() == whole.strip():
                continue
            with pytest.raises(CheckpointError):
                load_checkpoint(newest)
        file.write_bytes(whole)
    load_checkpoint(newest)


def test_a_damaged_newest_checkpoint_falls_back_to_the_last_good_one_with_a_warning(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers
) -> None:
    path = create_run(small_config(run_name="flipped"))
    stopped_after(path, 5)
    weights = path / "checkpoints" / "000004" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    events = finish(path)
    assert events[0].data["resumed_from"] == 2
    assert any(e.type == "hint" and "000004 is damaged" in e.data["message"] for e in events)
    assert numbers(path) == undisturbed[1]


def test_what_is_damaged_is_set_aside_and_never_deleted(small_config: Configure) -> None:
    path = create_run(small_config(run_name="aside"))
    stopped_after(path, 5)
    (path / "groups" / "mine.parquet").write_bytes(b"somebody else's")
    (path / "checkpoints" / "000004" / "COMPLETE").write_bytes(b"{")
    finish(path)
    assert (path / "damaged" / "2" / "checkpoints" / "000004" / "model.safetensors").exists()
    assert (path / "groups" / "mine.parquet").exists()


def test_a_log_damaged_at_its_beginning_costs_no_weights(small_config: Configure) -> None:
    path = create_run(small_config(run_name="early"))
    stopped_after(path, 5)
    log = path / "events.jsonl"
    content = bytearray(log.read_bytes())
    content[5] ^= 1
    log.write_bytes(content)
    events = finish(path)
    assert events[0].data["resumed_from"] == 4
    assert (path / "damaged" / "2" / "events.jsonl").read_bytes() == content
    assert [e.seq for e in read_events(log)] == list(range(len(read_events(log))))


def test_a_lost_log_costs_no_weights_and_is_rebuilt_from_the_groups(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers
) -> None:
    path = create_run(small_config(run_name="logless"))
    stopped_after(path, 5)
    (path / "events.jsonl").unlink()
    assert find_run(str(path)) == path
    events = finish(path)
    assert events[0].data["resumed_from"] == 4
    told = [e.data["message"] for e in events if e.type == "hint" and e.data["code"] == DAMAGE]
    rebuilt = "with the rewards of 4 earlier steps from the group files"
    assert told == [f"the event log was lost: a new one begins at step 4, {rebuilt}"]
    now, then = numbers(path), undisturbed[1]
    assert [now[name] for name in ("weights", "groups", "end")] == [then[name] for name in ("weights", "groups", "end")]
    assert now["steps"][4:] == then["steps"][4:]
    for (step, rebuilt, _), (_, metrics, _) in zip(now["steps"][:4], then["steps"][:4], strict=True):
        assert len(rebuilt) == 4
        assert rebuilt == pytest.approx({name: metrics[name] for name in rebuilt}), f"step {step}"


def test_a_new_log_is_not_taken_for_the_one_that_older_checkpoints_count_on(
    small_config: Configure, undisturbed: tuple[Path, dict[str, Any]], numbers: Numbers
) -> None:
    path = create_run(small_config(run_name="twice", group_log_steps=0))
    stopped_after(path, 5)
    (path / "events.jsonl").unlink()
    for _ in range(2):
        events = execute(path, build)
        # Checkpoint 2 counts on seven events, and so many are in the new log when it dies again.
        while next(events).seq < 8 and not (path / "checkpoints" / "000006").exists():
            pass
        events.close()  # type: ignore[attr-defined]
        shutil.rmtree(path / "checkpoints" / "000006", ignore_errors=True)
    assert finish(path)[0].data["resumed_from"] == 4
    assert numbers(path)["weights"] == undisturbed[1]["weights"]
    assert [e.step for e in read_events(path / "events.jsonl") if e.type == "step"] == [5, 6]


def test_a_log_of_a_newer_version_is_refused_and_left_alone(small_config: Configure) -> None:
    path = create_run(small_config(run_name="newer"))
    stopped_after(path, 1)
    log = path / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"v": 1,', b'"v": 99,'))
    before = log.read_bytes()
    with pytest.raises(RunError, match="written by a newer Groupwise: its events have version 99, this one reads 1"):
        finish(path)
    assert log.read_bytes() == before
    (path / "status.json").unlink()
    assert [run.state for run in inspect_runs(path.parent)] == ["damaged"]


def test_half_a_checkpoint_never_has_the_name_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, 0, {"w": torch.zeros(2)}, {})
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before it could remove anything
        prune_checkpoints(tmp_path, 2)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["000003", "000002"]
    drop_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003"]


def test_an_old_checkpoint_leaves_nothing_behind_when_the_disk_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, 0, {"w": torch.zeros(2)}, {})
    unlink, failures = os.unlink, [OSError(5, "Input/output error")]

    def fail_once(*where: Any, **how: Any) -> None:
        if failures:
            raise failures.pop()
        unlink(*where, **how)

    monkeypatch.setattr(os, "unlink", fail_once)
    prune_checkpoints(tmp_path, 1)
    assert not failures
    assert [path.name for path in tmp_path.iterdir()] == ["000002"]


def test_what_a_crash_left_half_written_is_gone_after_a_resume(small_config: Configure) -> None:
    path = create_run(small_config(run_name="crumbs"))
    stopped_after(path, 3)
    (path / ".status.json.123.tmp").write_bytes(b"{")
    (path / ".start.tmp").mkdir()
    finish(path)
    assert not list(path.rglob(".*.tmp"))


def test_a_run_that_could_not_be_created_leaves_its_name_free(small_config: Configure) -> None:
    cfg = small_config(run_name="again")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            create_run(cfg)
        except StorageError as error:
            status = 0 if "ulimit -f" in error.hint else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(Path(cfg.run.output_dir).iterdir()) == []
    assert create_run(cfg).name == "again"
    with pytest.raises(RunError, match="already exists"):
        create_run(cfg)


def test_a_run_of_unreadable_checkpoints_is_refused_and_left_alone(small_config: Configure) -> None:
    path = create_run(small_config(run_name="unreadable"))
    stopped_after(path, 5)
    for folder in (path / "checkpoints").iterdir():
        (folder / "state.pt").write_bytes(b"")
    before = sorted(str(p) for p in path.rglob("*"))
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        finish(path)
    assert {str(p) for p in path.rglob("*")} >= set(before) - {str(path / "status.json")}


def test_a_disk_that_will_not_read_just_now_is_not_taken_for_damage(
    small_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_run(small_config(run_name="busy"))
    stopped_after(path, 5)

    def busy(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("groupwise.training.checkpoint._mark", busy)
        with pytest.raises(StorageError, match="Too many open files"):
            finish(path)
    assert finish(path)[0].data["resumed_from"] == 4


def test_a_state_that_could_not_be_read_back_is_refused_when_it_is_saved(small_config: Configure) -> None:
    def careless(cfg: TrainingConfig) -> Any:
        parts = build(cfg)
        inner = parts.source.state_dict
        parts.source.state_dict = lambda: {**inner(), "queue": {1, 2}}  # type: ignore[method-assign]
        return parts

    with pytest.raises(ContractError, match=r"state\['source'\]\['queue'\] is a set"):
        list(execute(create_run(small_config()), careless))


def test_numbers_of_numpy_in_a_state_are_kept_as_numbers(small_config: Configure, numbers: Numbers) -> None:
    def numpyish(cfg: TrainingConfig) -> Any:
        return replace(build(cfg), evaluate=lambda policy: {"eval/reward_mean": np.mean([1.0, 2.0])})

    path = create_run(small_config(run_name="numpy"))
    for event in execute(path, numpyish):
        if event.type == "step" and event.step == 5:
            break
    assert next(execute(path, numpyish)).data["resumed_from"] == 4


def test_settings_that_do_not_fit_the_checkpoint_are_refused_and_not_kept(small_config: Configure) -> None:
    path = create_run(small_config(run_name="fit"))
    stopped_after(path, 3)
    cfg = read_config(path)
    with pytest.raises(CheckpointError, match="does not fit the settings"):
        list(execute(path, build, cfg.replace(hidden_sizes=[16])))
    assert read_config(path) == cfg
    assert finish(path)[-1].data["reason"] == "finished"


def test_settings_changed_on_resume_are_used_and_told(small_config: Configure) -> None:
    path = create_run(small_config(run_name="changed"))
    stopped_after(path, 3)
    learners = []
    original = Learner.load_state_dict

    def spy(self: Learner, *state: Any) -> None:
        original(self, *state)
        learners.append(self)

    Learner.load_state_dict = spy  # type: ignore[method-assign]
    try:
        events = list(execute(path, build, read_config(path).replace(weight_decay=0.5, adam_beta1=0.5)))
    finally:
        Learner.load_state_dict = original  # type: ignore[method-assign]
    group = learners[0].optimizer.param_groups[0]
    assert (group["weight_decay"], group["betas"][0]) == (0.5, 0.5)
    told = next(e.data["message"] for e in events if e.type == "hint")
    assert "optim.weight_decay: 0.0 → 0.5" in told


def test_tied_weights_are_stored_once_and_come_back_twice(tmp_path: Path) -> None:
    weight = torch.randn(3, 2)
    path = save_checkpoint(tmp_path, 1, 0, {"embed": weight, "head": weight, "bias": weight[0]}, {})
    model = load_checkpoint(path).model
    assert torch.equal(model["embed"], weight)
    assert torch.equal(model["head"], weight)
    assert torch.equal(model["bias"], weight[0])


def test_a_forked_worker_does_not_keep_the_lock_of_a_dead_run(small_config: Configure) -> None:
    path = create_run(small_config(run_name="orphan"))
    run = Run(path)
    begun = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(begun[1], b"!")
        signal.pause()
        os._exit(0)
    os.read(begun[0], 1)
    run._lock.release()  # as if this process had died while its worker lives on
    try:
        Run(path).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_a_checkpoint_never_runs_code_from_its_file(small_config: Configure, tmp_path: Path) -> None:
    import hashlib
    import json
    import pickle

    path = create_run(small_config(run_name="hostile"))
    finish(path)
    newest = max(path.glob("checkpoints/*"))
    witness = tmp_path / "witness"

    class Attack:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {witness}",))

    content = pickle.dumps(Attack(), protocol=2)
    (newest / "state.pt").write_bytes(content)
    marks = json.loads((newest / "COMPLETE").read_text())
    marks["state.pt"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (newest / "COMPLETE").write_text(json.dumps(marks))
    with pytest.raises(CheckpointError):
        load_checkpoint(newest)
    assert not witness.exists()


def test_events_are_numbered_without_gaps_and_no_step_is_doubled(small_config: Configure) -> None:
    path = create_run(small_config(run_name="gaps"))
    for steps in (1, 3, 5):
        stopped_after(path, steps)
    finish(path)
    events = read_events(path / "events.jsonl")
    assert [e.seq for e in events] == list(range(len(events)))
    assert [e.step for e in events if e.type == "step"] == [1, 2, 3, 4, 5, 6]
    assert (path / "events.jsonl").read_bytes().count(b"\n") == len(events)


def test_a_second_process_on_the_same_run_is_refused(small_config: Configure) -> None:
    path = create_run(small_config(run_name="mine"))
    run = Run(path)
    try:
        with pytest.raises(RunLocked, match=f"mine is being written by another process.*{os.getpid()}"):
            Run(path)
    finally:
        run.close()
    finish(path)


def test_a_run_whose_settings_are_lost_is_read_from_its_events(small_config: Configure) -> None:
    path = create_run(small_config(run_name="lost"))
    stopped_after(path, 3)
    cfg = read_config(path)
    (path / "config.toml").write_text("[run]\nseed = 99\n")
    assert read_config(path) == cfg
    (path / "events.jsonl").unlink()
    with pytest.raises(RunError, match="missing or damaged"):
        read_config(path)


def test_a_finished_run_resumed_stays_finished_and_more_steps_go_on(small_config: Configure, numbers: Numbers) -> None:
    path = create_run(small_config(run_name="more"))
    finish(path)
    again = finish(path)
    assert [e.type for e in again] == ["start", "end"]
    longer = read_config(path).replace(num_episodes=8)
    assert [e.step for e in execute(path, build, longer) if e.type == "step"] == [7, 8]
    assert read_config(path).training.num_episodes == 8


def test_a_run_that_reached_its_target_does_not_train_on_after_a_crash(small_config: Configure) -> None:
    path = create_run(small_config(run_name="target", target_reward=1.0))
    events = finish(path)
    assert (events[-1].step, events[-1].data["reason"]) == (2, "target_reached")
    log = path / "events.jsonl"
    os.truncate(log, last_record(log))
    assert [e.type for e in finish(path)] == ["start", "end"]
