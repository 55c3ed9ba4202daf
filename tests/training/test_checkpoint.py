"""Checkpoints: what is in one, which one is chosen, and which are kept."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import CheckpointError, ContractError
from groupwise.training.checkpoint import (
    Checkpoint,
    capture_randomness,
    checkpoint_folders,
    choose_checkpoint,
    drop_unfinished,
    later_checkpoints,
    load_checkpoint,
    log_reaches,
    newest_sound_checkpoint,
    plain_state,
    prune_checkpoints,
    restore_randomness,
    save_checkpoint,
    seed_everything,
    without_aliases,
)
from groupwise.types import Event

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3)}


def draws() -> list[Any]:
    return [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal(), float(torch.rand(()))]  # noqa: NPY002


def event(seq: int, step: int) -> Event:
    return Event("r", seq, 1, 0.0, step, "step", {})


def names(folder: Path) -> list[str]:
    return [path.name for path in checkpoint_folders(folder)]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_every_generator_goes_on_where_it_was(tmp_path: Path, before: int) -> None:
    """Through a file, and at odd numbers of normal draws, of which generators make two at a time."""
    seed_everything(5)
    for _ in range(before):
        random.gauss(0, 1), np.random.normal()  # noqa: NPY002
    path = save_checkpoint(tmp_path, 1, 0, WEIGHTS, {"randomness": capture_randomness()})
    first = draws()
    draws()
    restore_randomness(load_checkpoint(path).state["randomness"])
    assert draws() == first


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**32 + 7])
def test_a_seed_seeds_everything(seed: int) -> None:
    seed_everything(seed)
    first = draws()
    seed_everything(seed)
    again = draws()
    seed_everything(seed + 1)
    other = draws()
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    state = {
        "a": [1, 2.5, "x", None, True, b"y"],
        "t": torch.ones(2),
        "deep": {"list": [{"n": np.float64(3)}], "pair": (1, 2)},
    }
    path = save_checkpoint(tmp_path, 12, 34, {**WEIGHTS, "half": torch.ones(3, dtype=torch.float16)}, state)
    found = load_checkpoint(path)
    assert (path.name, found.step, found.seq, found.path) == ("000012", 12, 34, path)
    assert torch.equal(found.model["w"], WEIGHTS["w"])
    assert found.model["half"].dtype == torch.float16
    assert found.state["a"] == state["a"]
    assert (found.state["deep"]["list"], found.state["deep"]["pair"]) == ([{"n": 3.0}], (1, 2))
    assert torch.equal(found.state["t"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["000012"], "and nothing else is left"


def test_a_second_checkpoint_of_a_step_replaces_the_first(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, 3, WEIGHTS, {"n": 1})
    path = save_checkpoint(tmp_path, 1, 4, WEIGHTS, {"n": 2})
    assert (load_checkpoint(path).seq, load_checkpoint(path).state["n"]) == (4, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]


def test_a_checkpoint_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, 3, WEIGHTS, {"n": 1})
    with pytest.raises(ContractError):
        save_checkpoint(tmp_path, 1, 4, WEIGHTS, {"n": object()})
    assert load_checkpoint(tmp_path / "000001").state["n"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "COMPLETE"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = save_checkpoint(tmp_path, 1, 0, WEIGHTS, {})
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=f"checkpoint 000001 is incomplete: {name} is missing"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_file_that_changed_without_changing_its_length_is_noticed(tmp_path: Path, name: str) -> None:
    path = save_checkpoint(tmp_path, 1, 0, WEIGHTS, {"n": 1})
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"000001 is damaged: {name} has changed since it was written"):
        load_checkpoint(path)


@pytest.mark.parametrize("counts", [{"step": -1}, {"seq": -1}, {"step": 1.0}, {"seq": True}, {"step": "1"}])
def test_a_step_or_event_number_that_is_no_count_is_damage(tmp_path: Path, counts: dict[str, Any]) -> None:
    path = save_checkpoint(tmp_path, 1, 0, WEIGHTS, {})
    state = torch.load(path / "state.pt", weights_only=True)
    torch.save({**state, **counts}, path / "state.pt")
    from groupwise.training.checkpoint import _mark

    (path / "COMPLETE").write_text(json.dumps({n: _mark(path / n) for n in ("model.safetensors", "state.pt")}))
    with pytest.raises(CheckpointError, match="not a count"):
        load_checkpoint(path)


def test_only_the_same_tensor_under_two_names_is_an_alias() -> None:
    weight = torch.arange(4.0).reshape(2, 2)
    model = OrderedDict(
        a=weight, again=weight, view=weight.view(2, 2), turned=weight.t(), row=weight[0], other=weight[1],
        equal=weight.clone(), flat=weight.flatten(), bits=weight.view(torch.int32),
        nothing=torch.zeros(0), empty=torch.zeros(0),
    )  # fmt: skip
    tensors, aliases = without_aliases(model)
    assert aliases == {"again": "a", "view": "a"}
    assert list(tensors) == ["a", "turned", "row", "other", "equal", "flat", "bits", "nothing", "empty"]
    assert all(torch.equal(tensors[name], model[name]) for name in tensors)
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    weight += 1
    assert torch.equal(tensors["a"], weight - 1), "what is stored does not change any more"


@pytest.mark.parametrize(("value", "path"), [
    ({"a": {1}}, r"state\['a'\] is a set"), ([1, [object()]], r"state\[1\]\[0\] is a object"),
    ({"x": (1, np.zeros(2))}, r"state\['x'\]\[1\] is a ndarray"), ({3: lambda: 0}, r"state\[3\] is a function"),
])  # fmt: skip
def test_what_cannot_be_saved_is_named_by_its_place(value: Any, path: str) -> None:
    with pytest.raises(ContractError, match=path):
        plain_state(value)


@pytest.mark.parametrize("value", [np.int64(3), np.float32(0.5), np.bool_(True)])
def test_numbers_of_numpy_become_pythons(value: Any) -> None:
    found = plain_state({"n": [value]})["n"][0]
    assert type(found) in (int, float, bool)
    assert found == value


def test_checkpoints_are_ordered_by_their_number_and_nothing_else_is_one(tmp_path: Path) -> None:
    for name in ("999999", "1000000", "000002", "12x", ".000009.tmp", "x3"):
        (tmp_path / name).mkdir()
    (tmp_path / "000077").write_text("a file")
    assert names(tmp_path) == ["1000000", "999999", "000002"]
    assert [p.name for p in later_checkpoints(tmp_path, 2)] == ["1000000", "999999"]
    assert [p.name for p in later_checkpoints(tmp_path, 1)] == ["1000000", "999999", "000002"]
    assert later_checkpoints(tmp_path, 1_000_000) == []


@pytest.mark.parametrize(("limit", "left"), [(1, [3]), (2, [3, 2]), (3, [3, 2, 1]), (4, [3, 2, 1])])
def test_the_newest_checkpoints_are_kept(tmp_path: Path, limit: int, left: list[int]) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"{step:06d}").mkdir()
    prune_checkpoints(tmp_path, limit)
    assert names(tmp_path) == [f"{step:06d}" for step in left]


def test_what_is_half_written_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.tmp", "b.tmp", ".c", "d"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".folder.tmp").mkdir()
    (tmp_path / ".folder.tmp" / "inner").write_text("x")
    drop_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".c", "b.tmp", "d"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 2, 4 and 6, which count on 3, 5 and 7 events."""
    for step in (2, 4, 6):
        save_checkpoint(tmp_path / "checkpoints", step, step + 1, WEIGHTS, {})
    return tmp_path


def spoil(run: Path, *steps: int) -> None:
    for step in steps:
        (run / "checkpoints" / f"{step:06d}" / "state.pt").write_bytes(b"")


@pytest.mark.parametrize(("step", "spoiled", "found"), [(None, (), 6), (4, (), 4), (None, (6,), 4), (None, (4,), 6)])
def test_the_checkpoint_asked_for_or_the_newest_sound_one_is_chosen(
    run: Path, step: int | None, spoiled: tuple[int, ...], found: int
) -> None:
    spoil(run, *spoiled)
    assert choose_checkpoint(run, step).step == found


def test_why_there_is_no_checkpoint_is_said(run: Path, tmp_path: Path) -> None:
    spoil(run, 4)
    with pytest.raises(CheckpointError, match=r"none for step 5\nIts checkpoints: 2, 4, 6\."):
        choose_checkpoint(run, 5)
    with pytest.raises(CheckpointError, match=r"000004 is damaged: state.pt has changed"):
        choose_checkpoint(run, 4)
    with pytest.raises(CheckpointError, match=r"none was saved yet\nIts checkpoints: none\."):
        choose_checkpoint(tmp_path / "elsewhere")


# The steps of the events in the log: checkpoint 2 counts on three of them, the last one of step 2, and so on.
WHOLE = [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("log", "spoiled", "found"), [
    (WHOLE, (), 6), (WHOLE[:6], (), 4), (WHOLE[:5], (), 4), (WHOLE[:4], (), 2), (WHOLE[:2], (), 6), ([], (), 6),
    (WHOLE, (6,), 4), (WHOLE, (6, 4), 2), (WHOLE[:2], (6,), 4), ([0, 1, 2, 3, 3, 3, 3], (), 2),
])  # fmt: skip
def test_a_run_resumes_at_the_newest_sound_checkpoint_that_its_log_reaches(
    run: Path, log: list[int], spoiled: tuple[int, ...], found: int
) -> None:
    """If the log reaches none, at the newest sound one."""
    spoil(run, *spoiled)
    warnings: list[str] = []
    chosen = newest_sound_checkpoint(run, [event(seq, step) for seq, step in enumerate(log)], warnings)
    assert chosen is not None
    assert chosen.step == found
    assert len(warnings) == len([step for step in spoiled if step > found])


def test_a_run_without_a_checkpoint_starts_at_the_beginning_and_one_with_only_damaged_ones_is_refused(
    run: Path, tmp_path: Path
) -> None:
    assert newest_sound_checkpoint(tmp_path / "new", [], []) is None
    spoil(run, 2, 4, 6)
    with pytest.raises(CheckpointError, match="none of the 3 checkpoints of run .* can be read: .*000006.*; .*000002"):
        newest_sound_checkpoint(run, [], [])


@pytest.mark.parametrize(("seq", "steps", "reached"), [
    (0, [], True), (0, [1], True), (1, [], False), (1, [5], True), (1, [4], False), (2, [5], False), (2, [4, 5], True),
    (2, [5, 4], False), (2, [4, 5, 6], True),
])  # fmt: skip
def test_a_log_reaches_a_checkpoint_if_its_last_event_is_there_and_of_its_step(
    seq: int, steps: list[int], reached: bool
) -> None:
    events = [event(number, step) for number, step in enumerate(steps)]
    assert log_reaches(events, Checkpoint(5, seq, Path(), {}, {})) is reached
