"""From groups to a batch, with attempts made by hand: what is counted, kept, dropped, asked and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.errors import NoSignalError
from groupwise.training import batch_source
from groupwise.training.batch_source import BatchRows, GroupSource, NumberedTasks
from groupwise.training.dry_run import dry_run
from groupwise.training.estimators import Attempts, padded
from groupwise.types import Batch, End, Failed, Failure, Group, Hint, Score, ScoredGroup, Task, Tensors, Trajectory

Configure = Callable[..., TrainingConfig]


def attempt(name: str, mask: Sequence[int], end: End = End.FINISHED, version: int = 4, **changes: Any) -> Trajectory:
    """Column t has the action 10 t and the log-probability −t / 10."""
    steps = np.arange(len(mask))
    made = Trajectory(
        name, f"task/{name[0]}", name[0], obs=steps, actions=10 * steps, mask=np.array(mask, bool),
        behavior_logp=-steps / 10, versions=np.full(len(mask), version), rewards=np.zeros(len(mask)), end=end,
        terminated=end is End.FINISHED,
    )  # fmt: skip
    return replace(made, **changes)


def group(name: str, *members: Trajectory) -> Group:
    return Group(name, Task(f"task/{name}", None, ord(name)), members)


# Group a: totals 3 and 1; group b has no spread; group c: one of its attempts has no score.
GROUPS = (
    group("a", attempt("a0", [0, 1, 1]), attempt("a1", [0, 1, 1, 1, 0, 1], End.TRUNCATED)),
    group("b", attempt("b0", [1, 1], End.TURN_LIMIT), attempt("b1", [1, 1, 1, 1])),
    group("c", attempt("c0", [1, 0, 1]), attempt("c1", [1, 1, 1, 1, 1]), attempt("c2", [1], version=2)),
)
TOTALS: dict[str, float | None] = {"a0": 3.0, "a1": 1.0, "b0": 2.0, "b1": 2.0, "c0": 5.0, "c1": None, "c2": 7.0}
LOST = Failed(Failure("reward", "raised", "no judge", "Call it."))


class Canned:
    """Hands out ready groups, again and again."""

    def __init__(self, groups: Sequence[Group] = GROUPS) -> None:
        self.groups, self.given = groups, 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.given += len(tasks)
        return [self.groups[(self.given - len(tasks) + n) % len(self.groups)] for n in range(len(tasks))]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.given = state["given"]


async def totals(task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
    return [LOST if (total := TOTALS[m.id]) is None else Score(total) for m in members]


def make(cfg: TrainingConfig, reward: Any = totals, groups: Sequence[Group] = GROUPS, **parts: Any) -> GroupSource:
    rows = {name: parts.pop(name) for name in ("weights", "engine") if name in parts}

    def collate(attempts: Attempts) -> BatchRows:
        inputs = {"actions": padded([m.actions for m in attempts.members], np.int64)}
        logp = padded([m.behavior_logp for m in attempts.members], np.float32)
        return BatchRows(inputs, attempts.mask, logp, pick=lambda table: table, **rows)

    tasks = NumberedTasks(lambda number: Task(f"task/{number}", None, number))
    return GroupSource(cfg, tasks=tasks, rollout=Canned(groups), reward=reward, collate=collate, **parts)


@pytest.fixture
def config(small_config: Configure) -> Configure:
    plain = {"estimator": "outcome", "advantage_scale": "none", "tasks_per_step": 3}
    return lambda **changes: small_config(**{**plain, **changes})


def scored(*kept: Group) -> tuple[ScoredGroup, ...]:
    return tuple(
        ScoredGroup(g, tuple(LOST if (t := TOTALS[m.id]) is None else Score(t) for m in g.members)) for g in kept
    )


def test_a_batch_by_hand(config: Configure) -> None:
    batch = make(config()).next()
    assert batch.advantages[:, 0].tolist() == [0, 0, -1, 1], "group b teaches nothing and its rows are left out"
    assert batch.mask.int().tolist() == [[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 1], [1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    standing = torch.tensor([[1.0], [-1.0], [-1.0], [1.0]])
    assert torch.equal(batch.advantages, standing * batch.mask)
    assert batch.inputs["actions"].tolist()[1] == [0, 10, 20, 30, 40, 50]
    assert batch.behavior_logp[2].tolist() == pytest.approx([0, -0.1, -0.2, 0, 0, 0])
    # Six scored attempts of 15 actions; seven attempts of 20 were made.
    assert (batch.denominator, batch.total_rows, batch.total_tokens) == (15.0, 6, 15)
    assert (batch.samples, batch.attempts, len(batch.records)) == (20, 7, 7)
    optional = ("keep", "versions", "old_logp", "weights", "reference_logp", "returns", "values")
    assert [getattr(batch, name) for name in optional] == [None] * 7
    assert set(batch.timing) == {"rollout", "score", "advantage"}
    assert all(seconds >= 0 for seconds in batch.timing.values())


@pytest.mark.parametrize(("loss_type", "expected"), [
    ("dapo", 15.0), ("grpo", 6.0), ("luspo", 6.0), ("dr_grpo", 6.0 * 50), ("vespo", 15.0),
])  # fmt: skip
def test_denominators_count_idle_attempts_and_leave_out_failed_ones(
    config: Configure, loss_type: str, expected: float
) -> None:
    assert make(config(loss_type=loss_type, max_completion_length=50)).next().denominator == expected


@pytest.mark.parametrize(("changes", "rows"), [
    ({}, 4), ({"beta": 0.1, "use_reference_model": True}, 6), ({"estimator": "gae"}, 6),
    ({"beta": 0.1, "kl_target": 0.1, "use_reference_model": True}, 6),
])  # fmt: skip
def test_idle_rows_stay_where_a_kl_or_value_term_acts_on_them(
    config: Configure, changes: dict[str, Any], rows: int
) -> None:
    def totals_known(members: Sequence[Trajectory]) -> list[Any]:
        return [np.full(len(m) + 1, TOTALS[m.id]) for m in members]

    batch = make(config(gamma=1.0, **changes), values=totals_known if "estimator" in changes else None).next()
    assert batch.rows == rows
    assert (batch.advantages == 0).all(1).any() == (rows == 6)


def test_a_critics_targets_and_values_travel_with_their_rows(config: Configure) -> None:
    """λ = 1 and a discount of 1: an attempt that ended is worth what it earned."""

    def values(members: Sequence[Trajectory]) -> list[Any]:
        return [10 * TOTALS[m.id] + np.arange(len(m) + 1) for m in members]

    batch = make(config(estimator="gae", gamma=1.0, gae_lambda=1.0), values=values).next()
    assert batch.returns is not None
    assert batch.values is not None
    assert batch.returns[3].tolist() == [2, 2, 2, 2, 0, 0]
    assert batch.values[3].tolist() == [20, 21, 22, 23, 0, 0]
    assert batch.advantages[3].tolist() == [-18, -19, -20, -21, 0, 0]
    # a1 was cut off after its last action: the value of what would have come next is added.
    assert batch.returns[1].tolist() == [0, 17, 17, 17, 0, 17]


def test_samples_and_attempts_count_groups_that_were_put_aside(config: Configure) -> None:
    batch = make(config(dynamic_sampling=True, max_resamples=1)).next()
    # Two rounds: a, b and c, then another a in the place of b.
    assert (batch.metrics["groups/resampled"], batch.attempts, batch.samples) == (1.0, 9, 26)
    assert (batch.rows, batch.total_rows, batch.denominator) == (6, 6, 15.0)


def test_a_dry_run_makes_and_scores_the_first_groups_and_learns_nothing(config: Configure) -> None:
    source, published = make(config()), []
    source.publish = published.append  # type: ignore[method-assign]
    tried = dry_run(source, "policy", 2)  # type: ignore[arg-type]
    assert [g.group.id for g in tried.groups] == ["a", "b"]
    assert [score.total for g in tried.groups for score in g.scores if isinstance(score, Score)] == [3, 1, 2, 2]
    assert (source.tasks.cursor, published) == (2, ["policy"])  # type: ignore[attr-defined]
    assert tried.rollout_seconds >= 0
    assert tried.score_seconds > 0


def test_seconds_of_a_phase_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 3.0, 8.0])
    monkeypatch.setattr(batch_source.time, "perf_counter", lambda: next(now))
    clock = batch_source._Clock()
    for name in ("rollout", "score", "rollout"):
        clock.lap(name)
    assert clock.laps == {"rollout": 1.0 + 5.0, "score": 2.0}


def test_a_reward_that_takes_too_long_has_failed(config: Configure) -> None:
    async def endless(task: Task, members: Sequence[Trajectory]) -> list[Score]:
        if task.id == "task/b":
            await asyncio.Event().wait()
        return [Score(float(n)) for n in range(len(members))]

    batch = make(config(reward_timeout=0.05), endless).next()
    assert [record.total is None for record in batch.records] == [False] * 2 + [True] * 2 + [False] * 3


def test_truncated_attempts_are_kept_out_of_the_loss_and_stay_in_their_group(config: Configure) -> None:
    """a1 ran into the limit of tokens, b0 into that of turns: of the former only the row is left out."""
    assert make(config(mask_truncated=False)).next().keep is None
    batch = make(config(mask_truncated=True)).next()
    assert batch.advantages[0, 1] == 1.0
    assert batch.keep is not None
    assert (batch.keep & batch.mask).int().tolist() == [[0, 1, 1, 0, 0, 0], [1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert (batch.total_rows, batch.denominator) == (6, 15.0)
    everything = make(config(mask_truncated=True, beta=0.1, use_reference_model=True)).next()
    assert everything.keep is not None
    assert (everything.keep & everything.mask).any(1).tolist() == [True, False, False, True, True, True]


@pytest.mark.parametrize(("changes", "engine", "wanted"), [
    ({}, False, False), ({}, True, True), ({"bf16": True}, False, True), ({"fp16": True}, False, True),
])  # fmt: skip
def test_versions_travel_where_the_sampler_rounds_differently(
    config: Configure, changes: dict[str, Any], engine: bool, wanted: bool
) -> None:
    versions = make(config(**changes), engine=engine).next().versions
    assert (versions is not None) == wanted
    if versions is not None:
        assert versions.tolist() == [[4, 4, 4, 0, 0, 0], [4] * 6, [4, 4, 4, 0, 0, 0], [2, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("own", [torch.arange(1.0, 7.0), torch.arange(1.0, 7.0)[:, None].expand(6, 6)], ids=["B", "BT"])
def test_a_products_weights_and_those_of_groups_are_multiplied(config: Configure, own: Tensor) -> None:
    """With one group for all, `balanced` weighs everything 1; the product's own weights remain."""
    alone = make(config(), weights=own).next().weights
    both = make(config(group_weight_method="balanced"), weights=own).next().weights
    assert alone is not None
    assert both is not None
    assert alone.reshape(4, -1)[:, 0].tolist() == [1, 2, 5, 6]
    torch.testing.assert_close(both, torch.tensor([[1.0], [2.0], [5.0], [6.0]]).expand(4, 6))


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_reference_answers_every_row_in_its_place(config: Configure, size: int) -> None:
    """Rows are sorted by length to be asked; what comes back must not stay in that order."""
    asked: list[int] = []

    def reference(inputs: Tensors) -> Tensor:
        asked.append(len(inputs["actions"]))
        return inputs["actions"].double() / 7

    cfg = config(beta=0.1, use_reference_model=True, per_device_train_batch_size=size)
    batch = make(cfg, reference=reference).next()
    assert batch.reference_logp is not None
    assert batch.reference_logp.dtype == torch.float64
    torch.testing.assert_close(batch.reference_logp, batch.inputs["actions"].double() / 7)
    assert sum(asked) == 6
    assert max(asked) == min(size, 6)


def test_a_reference_is_not_asked_about_nothing(config: Configure) -> None:
    def never(inputs: Tensors) -> Tensor:
        raise AssertionError("there is no row to ask about")

    silent = (GROUPS[1],) * 3
    assert make(config(), groups=silent, reference=never).next().rows == 0


def test_advantages_from_elsewhere_are_taken_as_they_are(config: Configure) -> None:
    source = make(config(reward_clip=1.0), reference=lambda inputs: inputs["actions"].float())
    batch = source.with_advantages(GROUPS[0], [0.0, -7.5])
    assert batch.advantages.tolist() == [[0.0] * 6, [0, -7.5, -7.5, -7.5, 0, -7.5]]
    assert (batch.rows, batch.denominator) == (2, 6.0)
    assert batch.reference_logp is not None


def test_the_loss_weights_of_a_batch_are_by_step_of_their_attempt(config: Configure) -> None:
    kinds = tuple(replace(g, task=Task(f"{kind}/0")) for g, kind in zip(GROUPS, "xxy", strict=True))
    cfg = config(group_weight_method="balanced", beta=0.1, use_reference_model=True)
    batch = make(cfg, groups=kinds).next()
    assert batch.weight_group is not None
    assert batch.weight_group.tolist() == [[0] * 6] * 4 + [[1] * 6] * 2
    assert batch.weights is not None
    # Twelve steps of x and three of y weigh the same: 7.5/12 and 7.5/3 each.
    assert batch.weights[:, 0].tolist() == pytest.approx([0.625] * 4 + [2.5] * 2)


@pytest.mark.parametrize(("where", "steps", "patience", "words"), [
    ("reward", 10, 3, "the last 3 steps"), ("reward", 2, 2, "the last 2 steps"), ("reward", 1, 1, "the only step"),
    ("judge", 10, 1, "this step"), ("judge", 1, 1, "the only step"),
])  # fmt: skip
def test_how_many_silent_steps_a_run_bears(
    config: Configure, where: str, steps: int, patience: int, words: str
) -> None:
    lost = Failed(Failure(where, "raised", "no reply", ""))

    async def silent(task: Task, members: Sequence[Trajectory]) -> list[Failed]:
        return [lost] * len(members)

    source = make(config(num_episodes=steps), silent)
    for _ in range(patience - 1):
        assert source.next().rows == 0
    message = f"every attempt of {words} failed: {where}: no reply\nFix the {where} and resume the run."
    with pytest.raises(NoSignalError, match=message):
        source.next()


def test_a_judge_that_is_away_is_waited_for_if_anything_else_failed_too(config: Configure) -> None:
    async def mixed(task: Task, members: Sequence[Trajectory]) -> list[Failed]:
        return [Failed(Failure("judge" if n else "reward", "c", "m", "Ask.")) for n in range(len(members))]

    source = make(config(), mixed)
    source.next(), source.next()
    assert source.state_dict()["silent_steps"] == 2
    other = make(config(), mixed)
    other.load_state_dict(source.state_dict())
    with pytest.raises(NoSignalError, match=r"last 3 steps failed: reward: m\nAsk\."):
        other.next()


def test_a_single_score_ends_the_silence(config: Configure) -> None:
    """Two silent steps, one in which a single attempt is scored, and again."""
    calls = 0

    async def rare(task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
        nonlocal calls
        calls += 1
        return [Score(1.0) if m.id == "c2" and calls % 9 == 0 else LOST for m in members]

    source = make(config(num_episodes=9), rare)
    seen = []
    for _ in range(6):
        source.next()
        seen.append(source.silent_steps)
    assert seen == [1, 2, 0, 1, 2, 0]


class Talking:
    """A reward that reports metrics and hints of its own, and has a state."""

    def __init__(self) -> None:
        self.seen = 0

    async def __call__(self, task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
        self.seen += 1
        return await totals(task, members)

    def metrics(self) -> dict[str, float]:
        return {"reward/own": 7.0}

    def hints(self) -> tuple[Hint, ...]:
        return (Hint("own", "said", "do"),)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


def test_a_reward_may_report_for_itself_and_is_remembered(config: Configure) -> None:
    source = make(config(), Talking())
    batch = source.next()
    assert batch.metrics["reward/own"] == 7.0
    assert [hint.code for hint in batch.hints] == ["own"]
    fresh = make(config(), Talking())
    fresh.load_state_dict(source.state_dict())
    assert (fresh.reward.seen, fresh.rollout.given, fresh.tasks.cursor) == (3, 3, 3)  # type: ignore[attr-defined]
    plain = make(config())
    assert plain.state_dict()["reward"] is None
    assert "reward/own" not in plain.next().metrics


@pytest.mark.parametrize(("changes", "wanted"), [
    ({}, set()), ({"dynamic_sampling": True}, {"groups/resampled", "groups/rounds"}),
    ({"replay_size": 4, "replay_groups": 1}, {"replay/share", "replay/age_mean"}),
])  # fmt: skip
def test_metrics_of_features_that_are_off_are_not_reported(
    config: Configure, changes: dict[str, Any], wanted: set[str]
) -> None:
    found = set(make(config(**changes)).next().metrics)
    optional = {"groups/resampled", "groups/rounds", "replay/share", "replay/age_mean"}
    assert found & optional == wanted


def test_only_groups_that_can_teach_are_replayed_and_not_in_the_step_they_are_made(config: Configure) -> None:
    source = make(config(replay_size=10, replay_groups=10, replay_max_age=100))
    first, second = source.next(), source.next()
    assert [first.metrics["replay/share"], second.metrics["replay/share"]] == [0.0, 2 / 5]
    assert [g.group.id for g in source.replay.kept] == ["a", "c", "a", "c"]
    assert (first.attempts, second.attempts, second.samples) == (7, 7, 20), "replayed attempts are not made again"
    assert (first.denominator, second.denominator) == (15.0, 15.0 + 6 + 3)
    assert len(second.records) == 7


def test_a_source_goes_on_where_another_stood(config: Configure) -> None:
    cfg = config(replay_size=5, replay_groups=2, group_weight_method="performance", estimator="group_gae",
                 advantage_scale="task_rms", seed=3)  # fmt: skip

    def values(members: Sequence[Trajectory]) -> list[Any]:
        return [np.cos(np.arange(len(m) + 1)) for m in members]

    async def in_parts(task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
        known = [TOTALS[m.id] for m in members]
        return [LOST if t is None else Score(t, {"half": t / 2, "square": t * t}) for t in known]

    kinds = tuple(replace(g, task=Task(f"{kind}/0")) for g, kind in zip(GROUPS, "xxy", strict=True))
    whole, broken, resumed = (make(cfg, in_parts, kinds, values=values) for _ in range(3))
    for _ in range(3):
        whole.next(), broken.next()
    resumed.load_state_dict(broken.state_dict())
    assert resumed.parts.table() == whole.parts.table()
    for _ in range(3):
        wanted, found = whole.next(), resumed.next()
        assert wanted.metrics == found.metrics
        for name in ("advantages", "returns", "weights", "behavior_logp"):
            assert torch.equal(getattr(wanted, name), getattr(found, name)), name


def test_states_of_older_versions_are_read(config: Configure) -> None:
    source = make(config())
    source.next()
    state = source.state_dict()
    old = {name: state[name] for name in ("tasks", "rollout", "reward", "silent_steps")}
    fresh = make(config())
    fresh.load_state_dict(old)
    assert fresh.tasks.cursor == 3  # type: ignore[attr-defined]


def test_numbered_tasks_are_made_once_each_and_in_order() -> None:
    tasks = NumberedTasks(lambda number: Task(str(number)))
    assert [t.id for t in tasks.take(2)] == ["0", "1"]
    assert [t.id for t in tasks.take(0)] == []
    again = NumberedTasks(lambda number: Task(str(number)))
    again.load_state_dict(tasks.state_dict())
    assert [t.id for t in again.take(3)] == [t.id for t in tasks.take(3)] == ["2", "3", "4"]


def test_a_batch_is_selected_and_moved_with_everything_in_it() -> None:
    """A tensor left behind would belong to other rows."""
    rows = torch.arange(3)[:, None].expand(3, 2)
    names = [field.name for field in fields(Batch) if field.type in ("Tensor", "Tensor | None")]
    tensors = {name: rows + n for n, name in enumerate(names)}
    batch = Batch({"x": rows, "y": rows[:, 0]}, denominator=9.0, total_rows=5, total_tokens=8, **tensors)  # type: ignore[arg-type]
    assert len(tensors) == 12
    part = batch.select(torch.tensor([2, 0]))
    for name, tensor in tensors.items():
        assert torch.equal(getattr(part, name), tensor[[2, 0]]), name
    assert (part.inputs["x"].tolist(), part.inputs["y"].tolist()) == ([[2, 2], [0, 0]], [2, 0])
    assert (part.rows, part.denominator, part.total_rows, part.total_tokens) == (2, 9.0, 5, 8)
    assert batch.select(slice(1, 2)).inputs["x"].tolist() == [[1, 1]]
    assert replace(batch, keep=None).select(slice(0, 1)).keep is None


def renamed(name: str, members: Sequence[Trajectory], version: int) -> Group:
    return group(name, *(replace(m, versions=np.full(len(m), version)) for m in members))


def test_what_is_set_aside_still_counts_in_the_parts_of_the_reward_and_in_the_policys_age(config: Configure) -> None:
    """A first step that keeps group a of version 4, and a second of version 6 whose groups are all set aside."""
    silent = tuple(renamed("b", GROUPS[1].members, 6) for _ in range(4))

    async def in_parts(task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
        return [Score(TOTALS[m.id] or 0.0, {"half": (TOTALS[m.id] or 0.0) / 2}) for m in members]

    cfg = config(tasks_per_step=2, dynamic_sampling=True, max_resamples=1, replay_size=4, replay_groups=4,
                 replay_max_age=2)  # fmt: skip
    source = make(cfg, in_parts, (GROUPS[0], GROUPS[1], GROUPS[1], *silent))
    first, second = source.next(), source.next()
    assert [first.metrics["groups/resampled"], second.metrics["groups/resampled"]] == [2.0, 4.0]
    assert (second.metrics["replay/share"], second.metrics["replay/age_mean"]) == (1.0, 2.0)
    assert source.replay.version == 6
    assert (first.attempts, second.attempts) == (6, 8)
    everything = (*scored(GROUPS[0], *GROUPS[1:2] * 2), *scored(*silent))
    halves = [score.total / 2 for g in everything for score in g.scores if isinstance(score, Score)]
    found = source.parts.table()["half"]
    assert found["count"] == len(halves) == 14
    assert found["mean"] == pytest.approx(np.mean(halves))
    assert second.rows == 2, "only the group of the step before"


def test_a_record_has_its_own_attempts_advantage_and_not_that_of_a_namesake_replayed_beside_it(
    config: Configure,
) -> None:
    """Both steps have attempts a0 and a1; in the second their totals are exchanged."""
    calls = 0

    async def exchanged(task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
        nonlocal calls
        calls += 1
        return [Score((3.0, 1.0)[(m.id == "a1") ^ (calls > 1)]) for m in members]

    source = make(config(tasks_per_step=1, replay_size=2, replay_groups=1), exchanged, GROUPS[:1])
    assert [record.advantage for record in source.next().records] == [1.0, -1.0]
    second = source.next()
    assert [record.advantage for record in second.records] == [-1.0, 1.0]
    assert [float(row[row != 0][0]) for row in second.advantages] == [-1.0, 1.0, 1.0, -1.0]


def test_nothing_is_replayed_or_kept_where_there_is_no_room_for_it(config: Configure) -> None:
    source = make(config(replay_size=0, replay_groups=0))
    source.next(), source.next()
    assert (len(source.replay.kept), source.replay.version) == (0, 0)


def test_every_part_of_a_sources_state_is_loaded(config: Configure) -> None:
    """A state whose every part differs from that of a fresh source comes back as it was."""
    cfg = config(
        replay_size=3, replay_groups=1, group_weight_method="performance", estimator="group_gae",
        advantage_scale="task_rms", beta=0.1, use_reference_model=True,
    )  # fmt: skip

    def values(members: Sequence[Trajectory]) -> list[Any]:
        return [np.ones(len(m) + 1) for m in members]

    def source() -> GroupSource:
        return make(cfg, Talking(), values=values, reference=lambda inputs: inputs["actions"].float())

    used, fresh = source(), source()
    used.next()
    used.micro_batches.size, used.silent_steps = 7, 2
    state = used.state_dict()
    parts = "tasks rollout reward parts replay groups value_scales micro_batches silent_steps workers"
    assert sorted(state) == sorted(parts.split())
    # Without workers there is nothing to say of them; tests/rollout has a state with some.
    assert [name for name in state if repr(state[name]) == repr(fresh.state_dict()[name])] == ["workers"]
    fresh.load_state_dict(state)
    assert repr(fresh.state_dict()) == repr(state)


@pytest.mark.parametrize(("changes", "stays"), [
    ({}, False), ({"kl_target": 0.1, "beta": 0.1}, True), ({"beta": 1e-9}, True), ({"beta": 0.0}, False),
])  # fmt: skip
def test_rows_that_teach_nothing_are_left_out_only_if_nothing_else_acts_on_them(
    config: Configure, changes: dict[str, Any], stays: bool
) -> None:
    cfg = config(use_reference_model=True, **changes)
    batch = make(cfg, reference=lambda inputs: inputs["actions"].float()).next()
    assert batch.rows == (6 if stays else 4)
    assert batch.reference_logp is not None
    assert len(batch.reference_logp) == batch.rows


def test_hints_of_a_step_come_from_the_reference_the_scorer_and_the_reward_once(config: Configure) -> None:
    class Odd(Talking):
        async def __call__(self, task: Task, members: Sequence[Trajectory]) -> list[Score | Failed]:
            if task.id == "task/b":
                raise RuntimeError("no reward today")
            return await totals(task, members)

    source = make(config(num_episodes=9), Odd())
    source.micro_batches.size = 1
    first, *scorer, last = (hint.code for hint in source.next().hints)
    assert (first, last) == ("out_of_memory", "own")
    assert len(scorer) == 1
    assert list(source.take_hints()) == []


def by_step(attempts: Attempts) -> BatchRows:
    """A row for every action, as policies without memory want them."""

    def pick(table: Tensor) -> Tensor:
        return table[attempts.mask][:, None]

    actions = padded([m.actions for m in attempts.members], np.int64)
    logp = padded([m.behavior_logp for m in attempts.members], np.float32)
    mask = torch.ones(int(attempts.mask.sum()), 1, dtype=torch.bool)
    return BatchRows({"actions": pick(actions)}, mask, pick(logp), pick, engine=True)


@pytest.mark.parametrize(("loss_type", "denominator"), [("dapo", 15.0), ("grpo", 6.0)])
def test_a_product_may_lay_out_its_attempts_in_rows_of_its_own(
    config: Configure, loss_type: str, denominator: float
) -> None:
    """Whatever the source adds follows each action into its row; only the denominator is counted over attempts."""

    def values(members: Sequence[Trajectory]) -> list[Any]:
        return [10.0 * TOTALS[m.id] + np.arange(len(m) + 1) for m in members]  # type: ignore[operator]

    cfg = config(loss_type=loss_type, estimator="gae", gamma=1.0, gae_lambda=1.0, mask_truncated=True,
                 group_weight_method="balanced")  # fmt: skip
    kinds = tuple(replace(g, task=Task(f"{kind}/0")) for g, kind in zip(GROUPS, "xxy", strict=True))
    plain, source = make(cfg, groups=kinds, values=values, engine=True), make(cfg, groups=kinds, values=values)
    source.collate = by_step
    whole, rows = plain.next(), source.next()
    assert (rows.rows, rows.total_rows, rows.total_tokens, rows.denominator) == (15, 15, 15, denominator)
    assert (whole.total_rows, whole.total_tokens, whole.denominator) == (6, 15, denominator)
    for name in ("advantages", "keep", "versions", "weight_group", "weights", "returns", "values", "behavior_logp"):
        expected, found = getattr(whole, name), getattr(rows, name)
        assert found.shape == (15, 1), name
        assert torch.equal(found[:, 0], expected[whole.mask]), name
        assert found.dtype == expected.dtype, name
    assert torch.equal(rows.inputs["actions"][:, 0], whole.inputs["actions"][whole.mask])
