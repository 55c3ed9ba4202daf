"""What the loop does between steps, and in which order, on a product so small that nothing else happens."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError, ResourceError, StorageError
from groupwise.files import is_locked
from groupwise.training import loop
from groupwise.training.control_file import send_command
from groupwise.training.folder import create_run, inspect_run, read_config
from groupwise.training.loop import changes
from groupwise.training.session import Parts, execute, use_threads
from groupwise.training.stop_conditions import EarlyStopping, StopFlag, graceful_stop
from groupwise.types import Batch, Evaluation, Event, GroupRecord, Hint, Policy, Sample, Tensors

Configure = Callable[..., TrainingConfig]
RECORD = GroupRecord("g", "t", "g/m0", 1.0, {}, (), 0.5, 3, "finished", "", 4)


class Arms(nn.Module):
    """A policy of one choice among three."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.logits = nn.Parameter(torch.rand(3))

    def evaluate(self, inputs: Tensors) -> Evaluation:
        logp = self.logits.log_softmax(0)[inputs["actions"]]
        return Evaluation(logp, torch.zeros_like(logp))

    def actor_parameters(self) -> list[nn.Parameter]:
        return [self.logits]

    def critic_parameters(self) -> list[nn.Parameter]:
        return []


class Choices:
    """Batches of four samples by two attempts; notes what it is told."""

    def __init__(self) -> None:
        self.made = 0
        self.published: list[int] = []
        self.hints: list[Hint] = []
        self.closed = False

    def next(self) -> Batch:
        self.made += 1
        actions = torch.tensor([[0], [1]])
        logp = torch.full((2, 1), -1.0)
        return Batch(
            {"actions": actions}, actions >= 0, logp, torch.tensor([[1.0], [-1.0]]), denominator=2.0,
            metrics={"reward/mean": float(self.made)}, samples=4, attempts=2, records=(RECORD,),
            hints=(Hint(f"batch-{self.made}", "said", "do"),),
        )  # fmt: skip

    def publish(self, policy: Policy) -> None:
        self.published.append(policy.version)

    def take_hints(self) -> list[Hint]:
        taken, self.hints = self.hints, []
        return taken

    def state_dict(self) -> dict[str, Any]:
        return {"made": self.made}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.made = state["made"]

    def close(self) -> None:
        self.closed = True


def bandit(cfg: TrainingConfig) -> Parts:
    return Parts(Arms(), Choices(), lambda policy: {"eval/reward_mean": 1.0})


def scores(*values: float) -> Callable[[TrainingConfig], Parts]:
    """Evaluations that return these, one after the other."""
    left = iter(values)
    return lambda cfg: replace(bandit(cfg), evaluate=lambda policy: {"eval/reward_mean": next(left)})


def steps_of(events: list[Event], kind: str) -> list[int]:
    return [event.step for event in events if event.type == kind]


@pytest.mark.parametrize(("settings", "evals", "checkpoints", "groups"), [
    ({"eval_steps": 2, "save_steps": 3, "group_log_steps": 1}, [0, 2, 4, 5], [3, 5], [1, 2, 3, 4, 5]),
    ({"eval_steps": 1, "save_steps": 1, "group_log_steps": 2}, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [2, 4]),
    ({"eval_steps": 5, "save_steps": 5, "group_log_steps": 5}, [0, 5], [5], [5]),
    ({"eval_steps": 6, "save_steps": 6, "group_log_steps": 6}, [0, 5], [5], []),
    ({"eval_steps": 0, "save_steps": 4, "group_log_steps": 0}, [], [4, 5], []),
])  # fmt: skip
def test_when_there_are_evaluations_checkpoints_and_groups(
    small_config: Configure, settings: dict[str, int], evals: list[int], checkpoints: list[int], groups: list[int]
) -> None:
    path = create_run(small_config(num_episodes=5, save_total_limit=9, **settings))
    events = list(execute(path, bandit))
    assert steps_of(events, "step") == [1, 2, 3, 4, 5]
    assert steps_of(events, "eval") == evals
    assert steps_of(events, "checkpoint") == checkpoints
    assert sorted(int(p.stem) for p in (path / "groups").iterdir()) == groups
    assert sorted(int(p.name) for p in (path / "checkpoints").iterdir()) == checkpoints
    end = events[-1]
    assert (end.type, end.step, end.data["reason"], end.data["steps"]) == ("end", 5, "finished", 5)


@pytest.mark.parametrize(("limit", "steps"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (100, 5)])
def test_a_run_ends_once_it_has_seen_its_samples(small_config: Configure, limit: int, steps: int) -> None:
    """Four samples a step; the last step is evaluated and saved like any last step."""
    path = create_run(small_config(num_episodes=5, total_samples=limit, eval_steps=9, save_steps=9))
    events = list(execute(path, bandit))
    assert steps_of(events, "step") == list(range(1, steps + 1))
    assert steps_of(events, "eval") == [0, steps]
    assert steps_of(events, "checkpoint") == [steps]
    assert events[-1].data["reason"] == "finished"
    totals = [event.data["totals"] for event in events if event.type == "step"]
    assert totals == [{"samples": 4 * n, "attempts": 2 * n} for n in range(1, steps + 1)]
    assert [e.type for e in execute(path, bandit)] == ["start", "end"]


def test_the_events_of_a_step_come_in_order_and_hints_once(small_config: Configure) -> None:
    sources = []

    def talking(cfg: TrainingConfig) -> Parts:
        parts = bandit(cfg)
        sources.append(parts.source)

        def evaluate(policy: Policy) -> dict[str, float]:
            parts.source.hints.append(Hint("evaluated", "said", ""))  # type: ignore[attr-defined]
            return {"eval/reward_mean": 1.0}

        sample = Sample("2+2", "4", "4", 1.0, True)
        return replace(parts, evaluate=evaluate, samples=lambda: [sample], notes=("know this",))

    path = create_run(small_config(num_episodes=2, eval_steps=1, save_steps=1))
    events = list(execute(path, talking))
    said = [event.data.get("code", event.type) for event in events]
    assert said == [
        "start", "notice", "eval", "evaluated", "step", "batch-1", "eval", "evaluated", "checkpoint",
        "step", "batch-2", "eval", "evaluated", "checkpoint", "end",
    ]  # fmt: skip
    assert events[1].data["message"] == "know this"
    assert events[2].data["samples"] == [
        {"prompt": "2+2", "text": "4", "expected": "4", "total": 1.0, "correct": True, "reasoning": ""}
    ]
    (source,) = sources
    assert source.published == [0, 1, 2], "before the first step and after every update"
    assert source.closed


def test_a_step_reports_the_batch_the_update_and_the_time(small_config: Configure) -> None:
    events = list(execute(create_run(small_config(num_episodes=1)), bandit))
    data = next(e.data for e in events if e.type == "step")
    assert data["metrics"]["reward/mean"] == 1.0
    assert data["metrics"]["optim/steps"] == 2.0
    timing = data["timing"]
    assert timing["total"] >= timing["update"] > 0
    assert timing["samples_per_second"] == pytest.approx(4 / timing["total"])


@pytest.mark.parametrize(("found", "ends", "reason"), [
    ([9.0, 1.0, 9.0], 2, "target_reached"), ([1.0, 4.9, 4.9, 5.0], 3, "target_reached"), ([1.0] * 6, 5, "finished"),
])  # fmt: skip
def test_a_target_counts_from_the_first_step_on(
    small_config: Configure, found: list[float], ends: int, reason: str
) -> None:
    path = create_run(small_config(num_episodes=5, eval_steps=1, save_steps=9, target_reward=5.0))
    events = list(execute(path, scores(*found)))
    assert (events[-1].step, events[-1].data["reason"]) == (ends, reason)
    assert steps_of(events, "checkpoint") == [ends]
    assert inspect_run(path).state == "finished"
    assert json.loads((path / "status.json").read_text())["reason"] == reason


def test_a_reason_to_end_survives_a_resume_unless_training_is_changed(small_config: Configure) -> None:
    path = create_run(small_config(num_episodes=5, eval_steps=1, target_reward=5.0))
    list(execute(path, scores(0.0, 9.0)))
    decayed = read_config(path).replace(weight_decay=0.1)
    assert [e.type for e in execute(path, scores(), decayed)] == ["start", "hint", "end"]
    events = list(execute(path, scores(9.0), read_config(path).replace(target_reward=8.0, weight_decay=0.0)))
    assert steps_of(events, "step") == [2]
    told = next(e for e in events if e.type == "hint")
    assert told.data["message"] == "settings changed since step 1: training.target_reward: 5.0 → 8.0"


def test_a_run_that_was_stopped_goes_on_when_it_is_resumed(small_config: Configure) -> None:
    path, flag = create_run(small_config(num_episodes=4, save_steps=9, eval_steps=0)), StopFlag()
    events = []
    for event in execute(path, bandit, stop=flag):
        events.append(event)
        flag.raised = flag.raised or (event.type == "step" and event.step == 2)
    assert (events[-1].step, events[-1].data["reason"]) == (2, "stopped")
    assert (steps_of(events, "checkpoint"), inspect_run(path).state) == ([2], "stopped")
    again = list(execute(path, bandit))
    assert (again[0].data["resumed_from"], steps_of(again, "step")) == (2, [3, 4])
    assert next(e.data["totals"] for e in again if e.type == "step") == {"samples": 12, "attempts": 6}
    assert again[-1].data["reason"] == "finished"


def test_a_target_reached_when_somebody_says_stop_is_reached(small_config: Configure) -> None:
    path, flag = create_run(small_config(num_episodes=4, eval_steps=1, target_reward=5.0)), StopFlag()
    flag.raised = True
    assert list(execute(path, scores(0.0, 9.0), stop=flag))[-1].data["reason"] == "target_reached"


@pytest.mark.parametrize(("op", "saved", "reason", "refused"), [
    ("checkpoint", True, "finished", False), ("scale", False, "finished", True), ("stop", True, "stopped", False),
])  # fmt: skip
def test_each_order_is_echoed_and_carried_out_or_refused(
    small_config: Configure, op: str, saved: bool, reason: str, refused: bool
) -> None:
    path = create_run(small_config(num_episodes=3, save_steps=9, eval_steps=0))
    sent = send_command(path, op, {"workers": 2})
    events = list(execute(path, bandit))
    (echo,) = [e for e in events if e.type == "control"]
    assert (echo.step, echo.data["id"], echo.data["op"], echo.data["args"]) == (1, sent.id, op, {"workers": 2})
    assert ("refused" in echo.data) is refused
    assert (1 in steps_of(events, "checkpoint")) is saved
    assert events[-1].data["reason"] == reason


def test_a_failure_is_recorded_where_it_happened_and_everything_is_let_go(small_config: Configure) -> None:
    sources = []

    def failing(cfg: TrainingConfig) -> Parts:
        parts = bandit(cfg)
        sources.append(parts.source)
        whole = parts.source.next

        def fail() -> Batch:
            if parts.source.made == 2:  # type: ignore[attr-defined]
                parts.source.hints.append(Hint("why", "it broke", ""))  # type: ignore[attr-defined]
                raise GroupwiseError("no more", hint="Rest.")
            return whole()

        parts.source.next = fail  # type: ignore[method-assign]
        return parts

    path = create_run(small_config(num_episodes=5, eval_steps=0, save_steps=9))
    seen = []
    with pytest.raises(GroupwiseError, match="no more"):
        for event in execute(path, failing):
            seen.append(event)
    assert [(e.step, e.data.get("code")) for e in seen[-2:]] == [(2, "why"), (2, None)]
    assert seen[-1].data["error"]["message"] == "no more"
    assert (inspect_run(path).state, inspect_run(path).step, inspect_run(path).total) == ("failed", 2, 5)
    assert sources[0].closed
    assert not is_locked(path / "lock")


@pytest.mark.parametrize(("error", "raised", "message", "hint"), [
    (StorageError("disk is full", hint="Free some."), StorageError, "disk is full",
     "Free some. Then continue from the last checkpoint with `groupwise resume {path}`."),
    (ValueError("odd"), ValueError, "ValueError: odd", ""),
    (MemoryError("no room. Tried hard. X"), ResourceError, "out of memory: no room Tried hard", "language.lora_rank"),
], ids=["storage", "other", "memory"])  # fmt: skip
def test_what_ended_a_run_is_said_in_its_log_and_raised(
    small_config: Configure, error: Exception, raised: type[Exception], message: str, hint: str
) -> None:
    def failing(cfg: TrainingConfig) -> Parts:
        raise error

    path = create_run(small_config())
    seen = []
    with pytest.raises(raised):
        for event in execute(path, failing):
            seen.append(event)
    (told,) = seen
    assert told.data["error"]["message"] == message
    assert hint.format(path=path) in told.data["error"].get("hint", "")
    assert inspect_run(path).state == "failed"


def test_the_seed_decides_what_a_policy_begins_with(small_config: Configure) -> None:
    first: dict[int, list[float]] = {}

    def begun(cfg: TrainingConfig) -> Parts:
        parts = bandit(cfg)
        first.setdefault(cfg.run.seed, []).append(float(parts.policy.logits.detach().sum()))  # type: ignore[attr-defined]
        return parts

    for seed in (1, 2, 1):
        torch.rand(5)
        next(execute(create_run(small_config(seed=seed)), begun))
    assert first[1][0] == first[1][1] != first[2][0]


def test_threads_are_left_alone_or_set_and_given_back() -> None:
    before = torch.get_num_threads()
    use_threads(None)()
    assert torch.get_num_threads() == before
    give_back = use_threads(before + 1)
    assert torch.get_num_threads() == before + 1
    give_back()
    assert torch.get_num_threads() == before


def test_what_changed_between_two_settings() -> None:
    before = {"a": {"x": 1, "y": [1]}, "b": {"z": None}, "gone": {"w": 1}}
    assert changes(before, before) == []
    after = {"a": {"x": 2, "y": [1]}, "b": {"z": 3}, "new": {"v": None, "u": 0}}
    assert changes(before, after) == ["a.x: 1 → 2", "b.z: None → 3", "new.u: None → 0"]


@pytest.mark.parametrize(("patience", "found", "ends"), [
    (1, [1.0, 1.0], 1), (2, [1.0, 1.0, 1.0], 2), (2, [1.0, 0.5, 1.1, 1.0, 1.1], 4), (3, [5.0, 6.0, 5.0, 4.0, 3.0], 4),
    (2, [1.0, float("nan"), 1.0, float("inf"), 0.0], 4), (2, [-5.0, -4.0, -4.5, -4.2], 3),
])  # fmt: skip
def test_patience_counts_evaluations_without_an_improvement(
    small_config: Configure, patience: int, found: list[float], ends: int
) -> None:
    settings = {"early_stopping_threshold": 0.0, "early_stopping_patience": patience}
    watch = EarlyStopping(small_config(early_stopping=True, **settings))
    reasons = [watch.reason(step, score) for step, score in enumerate(found)]
    assert [step for step, reason in enumerate(reasons) if reason == "early_stopping"] == [ends]
    never = EarlyStopping(small_config(early_stopping=False, **settings))
    assert [never.reason(step, score) for step, score in enumerate(found)] == [None] * len(found)


@pytest.mark.parametrize(("best", "score", "better"), [
    (1.0, 1.1, False), (1.0, 1.11, True), (10.0, 11.0, False), (10.0, 11.1, True), (0.0, 0.1, False), (0.0, 0.11, True),
    (-10.0, -9.0, False), (-10.0, -8.9, True), (0.2, 0.3, False), (0.2, 0.31, True),
])  # fmt: skip
def test_an_improvement_is_more_than_a_tenth_of_the_best_and_of_1(
    small_config: Configure, best: float, score: float, better: bool
) -> None:
    watch = EarlyStopping(small_config(early_stopping=True, early_stopping_threshold=0.1, early_stopping_patience=1))
    watch.reason(3, best)
    assert watch.reason(7, score) == (None if better else "early_stopping")
    assert (watch.best, watch.best_step) == ((score, 7) if better else (best, 3))
    twin = EarlyStopping(small_config(early_stopping=True, early_stopping_threshold=0.1, early_stopping_patience=9))
    twin.load_state_dict(watch.state_dict())
    assert (twin.best, twin.best_step, twin.waited) == (watch.best, watch.best_step, int(not better))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_insists(number: int) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), graceful_stop() as flag:
        assert not flag.raised
        os.kill(os.getpid(), number)
        assert flag.raised
        os.kill(os.getpid(), number)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    seen: list[Any] = []

    def work() -> None:
        before = signal.getsignal(signal.SIGINT)
        with graceful_stop() as flag:
            seen.extend([flag.raised, signal.getsignal(signal.SIGINT) is before])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, True]


def test_the_folder_says_where_a_running_run_is(small_config: Configure) -> None:
    path = create_run(small_config(num_episodes=3, eval_steps=0, save_steps=9))
    seen = []
    for event in execute(path, bandit):
        info = inspect_run(path)
        seen.append((event.type, info.state, info.step, info.total))
    assert [about for kind, *about in seen if kind == "step"] == [["running", n, 3] for n in (0, 1, 2)]
    assert Path(path / "env.json").exists()


def test_a_resumed_run_hands_out_the_weights_it_goes_on_with(small_config: Configure) -> None:
    """Before its first step, and with the version that the checkpoint had."""
    sources = []

    def noted(cfg: TrainingConfig) -> Parts:
        parts = bandit(cfg)
        sources.append(parts.source)
        return parts

    path = create_run(small_config(num_episodes=2, eval_steps=0, save_steps=1))
    list(execute(path, noted))
    list(execute(path, noted, read_config(path).replace(num_episodes=3)))
    assert [source.published for source in sources] == [[0, 1, 2], [2, 3]]


def test_the_status_follows_the_run_step_by_step_with_its_latest_metrics(small_config: Configure) -> None:
    path = create_run(small_config(num_episodes=3, eval_steps=2, save_steps=9))
    seen = []
    for event in execute(path, bandit):
        status = json.loads((path / "status.json").read_text())
        if event.type == "step":
            seen.append((event.step, status["state"], status["step"], status["total"]))
        assert status["pid"] == os.getpid()
    assert seen == [(1, "running", 0, 3), (2, "running", 1, 3), (3, "running", 2, 3)]
    last = json.loads((path / "status.json").read_text())
    assert (last["state"], last["step"], last["reason"]) == ("finished", 3, "finished")
    assert (last["metrics"]["reward/mean"], last["metrics"]["eval/reward_mean"]) == (3.0, 1.0)
    assert last["seq"] == len((path / "events.jsonl").read_text().splitlines())


def test_an_end_counts_the_seconds_of_this_attempt_and_a_step_those_of_its_parts(
    small_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is a second later at every look: the batch, the update and the evaluation take one each."""
    ticks = iter(range(1000))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(ticks)))
    events = list(execute(create_run(small_config(num_episodes=1, eval_steps=1)), bandit))
    step = next(e.data["timing"] for e in events if e.type == "step")
    assert (step["update"], step["total"], step["samples_per_second"]) == (1.0, 3.0, pytest.approx(4 / 3))
    assert [e.data["timing"]["evaluate"] for e in events if e.type == "eval"] == [1.0, 1.0]
    assert events[-1].data["seconds"] == next(ticks) - 1


def test_everything_a_position_remembers_comes_back(small_config: Configure) -> None:
    """Samples, attempts, what early stopping has waited and what hints have been given."""
    path = create_run(small_config(num_episodes=9, eval_steps=1, save_steps=1, early_stopping=True,
                                   early_stopping_patience=4, early_stopping_threshold=0.0))  # fmt: skip
    flag = StopFlag()
    for event in execute(path, scores(5.0, 1.0, 1.0), stop=flag):
        flag.raised = event.step == 2
    events = list(execute(path, scores(1.0, 1.0)))
    assert (events[-1].step, events[-1].data["reason"]) == (4, "early_stopping"), "two evaluations were waited before"
    totals = [event.data["totals"] for event in events if event.type == "step"]
    assert totals == [{"samples": 12, "attempts": 6}, {"samples": 16, "attempts": 8}]
