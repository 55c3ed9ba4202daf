"""What ranks say to each other, as far as one process can tell; `test_many_ranks.py` starts several."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RankError, ResourceError, RunError, StorageError
from groupwise.training.ranks.communication import (
    ALONE,
    Ranks,
    _Outcome,
    check_groups,
    joined,
    local_settings,
    take_device,
)
from groupwise.training.run import FollowedRun


def test_alone_every_exchange_returns_what_it_was_given() -> None:
    table = torch.tensor([1.0, 2.0])
    assert ALONE.gather(lambda: 3) == [3]
    assert ALONE.on_first(lambda: 4) == ALONE.together(lambda: 4) == 4
    assert ALONE.dealt([1, 2, 3], lambda share: [10 * one for one in share]) == [10, 20, 30]
    assert ALONE.add(table) is ALONE.largest(table) is table
    assert ALONE.fill(torch.tensor([1, 0]), (2, 1), torch.tensor([[5.0], [6.0]])).tolist() == [[6.0], [5.0]]
    with pytest.raises(ZeroDivisionError):
        ALONE.together(lambda: 1 // 0)


def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with joined(TrainingConfig()) as ranks:
        assert ranks is ALONE


def test_shares_are_complete_and_disjoint() -> None:
    for size in (1, 2, 3, 7):
        shares = [Ranks(rank, size).share(range(10)) for rank in range(size)]
        assert sorted(number for share in shares for number in share) == [*range(10)]
        rows = [Ranks(rank, size).rows(torch.arange(10)).tolist() for rank in range(size)]
        assert rows == [list(share) for share in shares]


def test_an_error_arrives_with_its_kind_its_remedy_and_where_it_happened() -> None:
    sent = _Outcome(error=StorageError("disk full", hint="Free some.", field="run.output_dir"), rank=2, host="node1")
    error = pickle.loads(pickle.dumps(sent)).error  # noqa: S301
    assert type(error) is StorageError
    assert (error.message, error.hint, error.field) == ("rank 2 on node1: disk full", "Free some.", "run.output_dir")
    other = pickle.loads(pickle.dumps(_Outcome(error=KeyError("x"), rank=0, host="here"))).error  # noqa: S301
    assert str(other) == "KeyError: 'x'"


def test_more_ranks_than_groups_are_refused_where_groups_are_shared() -> None:
    check_groups(4, TrainingConfig(tasks_per_step=4))
    with pytest.raises(ConfigError, match="8 ranks share 4 groups") as refused:
        check_groups(8, TrainingConfig(tasks_per_step=4))
    assert "rollout.tasks_per_step to 8" in refused.value.hint
    check_groups(8, TrainingConfig(product="ppo"))


def test_a_rank_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ResourceError, match="no cuda:2 on this machine, which has 2") as refused:
        take_device(Ranks(2, 4, 2), TrainingConfig(device="cuda"))
    assert "--nproc-per-node 2" in refused.value.hint
    with pytest.raises(ConfigError, match="'cuda:0' names one device for 2 ranks"):
        take_device(Ranks(0, 2), TrainingConfig(device="cuda:0"))
    assert local_settings(Ranks(1, 2, 1), TrainingConfig(device="cuda")).policy.device == "cuda:1"
    assert local_settings(ALONE, TrainingConfig(device="cuda")).policy.device == "cuda"


def test_ranks_that_cannot_be_reached_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    cfg = TrainingConfig(tasks_per_step=2, join_timeout=1.0)
    with (
        pytest.raises(RankError, match=r"rank 1 of 2 could not join the others at 127.0.0.1:9 within 1 s"),
        joined(cfg),
    ):
        raise AssertionError("there is nobody to join")


def test_a_run_folder_that_a_machine_cannot_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not there on this machine") as refused:
        FollowedRun(tmp_path / "run-1", None, 1)
    assert "shared file system" in refused.value.hint


def test_float16_and_shards_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="optim.fp16"):
        TrainingConfig(sharding="fsdp", fp16=True)
