"""Dynamic sampling: groups that cannot teach are put aside, counted and kept in the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents import language_product as answers
from groupwise.config import AdvantageSettings, RolloutSettings, TrainingConfig
from groupwise.reporting.figures import pictures
from groupwise.reporting.history import History
from groupwise.rewards.scoring import per_attempt
from groupwise.training.estimators import AdvantageEstimate, scored_attempts
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.learner import Learner
from groupwise.training.session import Parts, execute
from groupwise.training.step_groups import (
    MOST_TOKENS,
    StepGroups,
    can_teach,
    group_metrics,
    group_records,
    spread_metrics,
    words,
)
from groupwise.types import End, Event, Failed, Failure, Group, Score, ScoredGroup, Task, Trajectory

Configure = Callable[..., TrainingConfig]
Numbers = Callable[[Path], dict[str, Any]]

LANGUAGE = {
    "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 4, "tasks_per_step": 4,
    "per_device_train_batch_size": 64, "num_epochs": 1, "num_episodes": 5, "eval_steps": 0, "save_steps": 2,
}  # fmt: skip
FAILED = Failed(Failure("reward", "raised", "no"))


def attempt(name: str) -> Trajectory:
    one = np.ones(1)
    return Trajectory(name, "t", "g", one, one, one > 0, one, one.astype(int), one, End.FINISHED, True)


def group(number: int, *totals: float | None) -> ScoredGroup:
    scores = tuple(FAILED if total is None else Score(total) for total in totals)
    members = tuple(attempt(f"{number}/{n}") for n in range(len(totals)))
    return ScoredGroup(Group(str(number), Task(str(number)), members), scores)


def test_parts_have_the_denominator_of_the_total_and_add_up() -> None:
    """Errors of one kind are a part of all errors: their mean cannot be the larger one."""
    parts = ({"errors": 0.0}, {"errors": 3.0, "errors/unknown_tool": 3.0}, {"errors": 1.0, "errors/timeout": 1.0})
    members = tuple(attempt(str(n)) for n in range(4))
    scores = (*(Score(sum(of.values()), of) for of in parts), FAILED)
    scored = ScoredGroup(Group("g", Task("t"), members), scores)
    attempts = scored_attempts((scored,))
    found = group_metrics(StepGroups((scored,)), attempts, AdvantageEstimate(torch.zeros(attempts.mask.shape)))
    part = {name.removeprefix("reward/part/"): value for name, value in found.items() if "/part/" in name}
    assert part == pytest.approx({"errors": 4 / 3, "errors/unknown_tool": 1.0, "errors/timeout": 1 / 3})
    assert sum(part.values()) == pytest.approx(found["reward/mean"])
    assert found["groups/failed_share"] == 0.25


def made(name: str, mask: list[int], end: End = End.FINISHED, **changes: Any) -> Trajectory:
    steps = np.arange(len(mask))
    versions = changes.pop("versions", np.full(len(mask), 3))
    return Trajectory(
        name, "t/0", "g", steps, steps, np.array(mask, bool), -steps / 10, versions, 0.0 * steps, end, True, **changes
    )


# Five attempts of 2, 0, 3, 1 and 7 actions; the last one's group was put aside.
MADE = (
    made("a", [0, 1, 1], End.TRUNCATED, meta={"content": "said", "text": "all", "reasoning": "why", "prompt": "asked"}),
    made("b", [0, 0], End.ENV_ERROR, meta={"text": "only text"}),
    made("c", [1, 0, 1, 1], End.TURN_LIMIT, versions=np.array([7, 1, 5, 6]), meta={"tokens": ("x", "y", "z", "!")}),
    made("d", [1], End.TOOL_FAILURE, meta={"tokens": ("lost",)}),
    made("e", [1] * 7),
)
DRAWN = StepGroups(
    (ScoredGroup(Group("0", Task("t/0"), MADE[:4]),
                 (Score(4.0, {"p": 1.0}, ("f",)), FAILED, Score(1.0, {"q": 3.0}), FAILED)),),
    (ScoredGroup(Group("1", Task("t/1"), MADE[4:]), (Score(-2.0, {}, ("own",)),)),), rounds=2,
)  # fmt: skip


def test_the_metrics_of_a_step_by_hand() -> None:
    attempts = scored_attempts(DRAWN.kept)
    worth = torch.tensor([[99.0, 2, -4, 99], [1, 99, 3, 2]], dtype=torch.float64)
    expected = {
        "groups/count": 2.0, "groups/failed_share": 0.4, "attempt/length_mean": 2.6, "attempt/length_max": 7.0,
        "attempt/truncated_share": 0.4, "reward/mean": 1.0, "reward/std": 6**0.5, "reward/min": -2.0,
        "reward/max": 4.0, "reward/part/p": 1 / 3, "reward/part/q": 1.0, "groups/zero_spread_share": 0.5,
        "advantage/std": 2.481934729198171, "advantage/abs_mean": 2.4,
    }  # fmt: skip
    assert group_metrics(DRAWN, attempts, AdvantageEstimate(worth)) == pytest.approx(expected)


def test_a_step_without_any_score_says_so_and_has_no_reward() -> None:
    silent = StepGroups((group(0, None, None),), (), 1)
    found = group_metrics(silent, scored_attempts(silent.kept), AdvantageEstimate(torch.zeros(0, 0)))
    assert (found["reward/mean"], found["groups/zero_spread_share"], found["groups/failed_share"]) == (None, None, 1.0)
    nothing = [member for member in MADE if not member.actions_taken]
    idle = StepGroups((ScoredGroup(Group("0", Task("t"), tuple(nothing)), (Score(1.0),)),))
    found = group_metrics(idle, scored_attempts(idle.kept), AdvantageEstimate(torch.zeros(1, 2)))
    assert (found["advantage/std"], found["advantage/abs_mean"], found["reward/mean"]) == (None, None, 1.0)


def test_the_records_of_a_step_by_hand() -> None:
    attempts = scored_attempts(DRAWN.kept)
    worth = torch.tensor([[99.0, 2, -4, 99], [1, 99, 3, 2]], dtype=torch.float64)
    a, b, c, d, e = group_records(DRAWN, attempts, AdvantageEstimate(worth))
    assert [r.trajectory_id for r in (a, b, c, d, e)] == ["a", "b", "c", "d", "e"]
    assert [r.group_id for r in (a, b, c, d, e)] == ["0"] * 4 + ["1"]
    assert [r.total for r in (a, b, c, d, e)] == [4.0, None, 1.0, None, -2.0]
    assert [r.advantage for r in (a, b, c, d, e)] == [-1.0, 0.0, 2.0, 0.0, 0.0], "the mean over its own actions"
    assert [r.length for r in (a, b, c, d, e)] == [2, 0, 3, 1, 7]
    assert [r.version for r in (a, b, c, d, e)] == [3, 0, 5, 3, 3], "the oldest of its own actions"
    assert [r.flags for r in (a, b, c, d, e)] == [("f",), (), (), (), ("own", "resampled")]
    assert [r.failure for r in (a, b, c)] == ["", "reward/raised: no", ""]
    assert [r.end for r in (a, b, c, d)] == ["truncated", "env_error", "turn_limit", "tool_failure"]
    assert [dict(r.parts) for r in (a, b, c)] == [{"p": 1.0}, {}, {"q": 3.0}]
    assert (a.text, a.reasoning, a.prompt, b.text, e.text) == ("said", "why", "asked", "only text", "")
    assert (a.tokens, c.tokens, c.acted) == ((), ("x", "y", "z", "!"), (True, False, True, True))
    assert c.token_advantages == (1, 0, 3, 2)
    assert c.token_logps == pytest.approx((0, -0.1, -0.2, -0.3))
    assert (d.tokens, d.token_advantages, d.token_logps) == (("lost",), (0.0,), (0.0,))


def test_the_records_of_long_attempts_are_cut_off_everywhere_at_the_same_token() -> None:
    long = made("l", [1] * (MOST_TOKENS + 5), meta={"tokens": tuple(map(str, range(MOST_TOKENS + 5)))})
    drawn = StepGroups((ScoredGroup(Group("0", Task("t"), (long,)), (Score(1.0),)),))
    attempts = scored_attempts(drawn.kept)
    (record,) = group_records(drawn, attempts, AdvantageEstimate(torch.ones(attempts.mask.shape)))
    lengths = [len(getattr(record, name)) for name in ("tokens", "acted", "token_advantages", "token_logps")]
    assert lengths == [MOST_TOKENS] * 4
    assert record.length == MOST_TOKENS + 5


@pytest.mark.parametrize("length", range(38, 45))
def test_words_at_their_limit_and_just_beyond(length: int) -> None:
    text = "ab" * 30
    found = words(text[:length], limit=40)
    assert len(found) <= 40
    assert (found == text[:length]) == (length <= 40)
    if length > 40:
        begin, _, end = found.partition(f" […{length} characters in all…] ")
        assert begin == text[: len(begin)]
        assert end == text[:length][length - len(end) :]
        assert len(begin) == len(end) > 0


@pytest.mark.parametrize(("kept", "rounds", "dynamic", "expected"), [
    (0, 0, False, 3), (0, 1, False, 0), (2, 0, False, 1), (0, 2, True, 3), (0, 3, True, 0), (1, 2, True, 2),
    (3, 1, True, 0), (4, 1, True, 0),
])  # fmt: skip
def test_how_many_groups_the_next_round_draws(kept: int, rounds: int, dynamic: bool, expected: int) -> None:
    cfg = RolloutSettings(tasks_per_step=3, dynamic_sampling=dynamic, max_resamples=2)
    assert StepGroups(tuple(group(n, 1.0) for n in range(kept)), (), rounds).missing(cfg) == expected


def test_the_share_without_spread_is_over_groups_with_a_score() -> None:
    groups = [group(0, 1.0, 1.0), group(1, None, None), group(2, 1.0, 2.0), group(3, 5.0), group(4, 1e9, 1e9 + 1)]
    assert spread_metrics(groups) == {"groups/zero_spread_share": 0.75, "groups/close_share": 0.25}


def drawn_from(
    stream: Iterator[ScoredGroup], places: int, rounds: int, **advantage: Any
) -> tuple[StepGroups, list[int]]:
    """What is drawn from a stream of ready groups, and how many were asked for in each round."""
    rollout = RolloutSettings(tasks_per_step=places, dynamic_sampling=True, max_resamples=rounds)
    drawn, asked = StepGroups(), []
    while count := drawn.missing(rollout):
        asked.append(count)
        drawn = drawn.add([next(stream) for _ in range(count)], rollout, AdvantageSettings(**advantage))
    return drawn, asked


def names(groups: Sequence[ScoredGroup]) -> list[int]:
    return [int(g.group.id) for g in groups]


def test_only_empty_places_are_drawn_again_and_nothing_that_teaches_is_thrown_away() -> None:
    stream = (group(n, 1.0, 1.0 if n % 3 else 0.0) for n in range(1000))
    drawn, asked = drawn_from(stream, places=4, rounds=10)
    assert names(drawn.kept) == [0, 3, 6, 9]
    assert names(drawn.aside) == [1, 2, 4, 5, 7, 8]
    assert asked == [4, 2, 2, 1, 1]
    assert drawn.metrics() == {"groups/resampled": 6.0, "groups/rounds": 5.0}


def test_the_limit_counts_rounds_after_the_first() -> None:
    drawn, asked = drawn_from((group(n, 1.0, 1.0) for n in range(1000)), places=3, rounds=2)
    assert (len(drawn.kept), len(drawn.aside), asked) == (0, 9, [3, 3, 3])


def test_without_dynamic_sampling_silent_groups_stay() -> None:
    silent = [group(n, 1.0, 1.0) for n in range(2)]
    rollout = RolloutSettings(tasks_per_step=2)
    drawn = StepGroups().add(silent[: StepGroups().missing(rollout)], rollout, AdvantageSettings())
    assert drawn.missing(rollout) == 0
    assert (names(drawn.kept), drawn.aside, drawn.rounds) == ([0, 1], (), 1)


@pytest.mark.parametrize(("totals", "settings", "teaches"), [
    ((1.0, 0.0), {}, True), ((1.0, 1.0), {}, False), ((1.0, None), {}, False), ((None, None), {}, False),
    ((7.0, 5.0), {"reward_clip": 2.0}, False), ((7.0, 5.0), {"reward_clip": 2.0, "estimator": "group_rtg"}, True),
    ((1.0, 1.0), {"baseline_type": "global_mean"}, True), ((1.0, 1.0), {"estimator": "gae"}, True),
    ((None, None), {"estimator": "gae"}, False),
])  # fmt: skip
def test_which_groups_can_teach(totals: tuple[float | None, ...], settings: dict[str, Any], teaches: bool) -> None:
    assert can_teach(group(0, *totals), AdvantageSettings(**settings)) is teaches


def uneven(task: Task, attempt: Trajectory) -> float:
    """Half of the prompts have a score that varies, as much as an untrained model's answers do."""
    return float(attempt.actions[attempt.mask].sum() % 11) if task.payload[0] % 2 else 1.0


def language(tiny: ModuleType, cfg: TrainingConfig, reward: Callable[..., float] = uneven) -> Parts:
    return tiny.build(cfg, tiny.per_attempt(reward))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("totals", "close"), [((1000.0, 1000.0005), 1.0), ((1000.0, 1000.0), None), ((1000.0, 1000.002), None)]
)
def test_rewards_that_differ_too_little_are_counted_apart_from_equal_ones(
    totals: tuple[float, ...], close: float | None
) -> None:
    assert spread_metrics([group(0, *totals)]).get("groups/close_share") == close


def test_a_step_counts_and_records_every_attempt_that_was_made(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    parts = language(tiny_language, small_config(**LANGUAGE, dynamic_sampling=True))
    batch = parts.source.next()
    aside, rounds = batch.metrics["groups/resampled"], batch.metrics["groups/rounds"]
    assert aside
    assert rounds
    made = 4 + int(aside)
    assert parts.source.tasks.cursor == made
    assert batch.attempts == 4 * made == len(batch.records)
    assert batch.samples == sum(record.length for record in batch.records)
    marked = [record for record in batch.records if "resampled" in record.flags]
    assert len(marked) == 4 * aside
    assert all(record.advantage == 0 and record.total == 1.0 for record in marked)
    assert batch.rows == batch.total_rows == 16
    assert batch.metrics["groups/zero_spread_share"] == pytest.approx(aside / made)
    assert batch.metrics["reward/mean"] == pytest.approx(
        np.mean([r.total for r in batch.records if r.total is not None])
    )


class Canned:
    """A rollout that has its groups already."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = list(groups)

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        return [self.groups.pop(0) for _ in tasks]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_a_step_that_ran_out_of_rounds_is_neither_smaller_nor_larger_than_any_other(
    small_config: Configure, tiny_language: ModuleType, loss_type: str
) -> None:
    """Its update is the one of a step that drew just the groups it kept, once or twice over."""
    cfg = small_config(**LANGUAGE, loss_type=loss_type, max_resamples=1)
    groups = language(tiny_language, cfg).source.rollout.collect(language(tiny_language, cfg).source.tasks.take(20))
    silent, telling = ([g for g in groups if g.task.payload[0] % 2 == n] for n in (0, 1))

    def update(given: Sequence[Group], **changes: Any) -> tuple[dict[str, float], torch.Tensor]:
        own = cfg.replace(adam_epsilon=1.0, max_grad_norm=1e9, **changes)
        parts = language(tiny_language, own)
        parts.source.rollout = Canned(given)
        metrics = Learner(parts.policy, own).update(parts.source.next())
        return metrics, torch.cat([p.detach().flatten() for p in parts.policy.actor_parameters()])

    few, weights = update([telling[0], *silent[:3], telling[1], *silent[3:5]], dynamic_sampling=True)
    same, expected = update(telling[:2], tasks_per_step=2)
    assert torch.equal(weights, expected)
    twice, _ = update(telling[:2] * 2)
    assert few["optim/grad_norm"] == pytest.approx(same["optim/grad_norm"])
    assert few["optim/grad_norm"] == pytest.approx(twice["optim/grad_norm"], rel=1e-5)
    with_silent, _ = update([*telling[:2], *silent[:2]])
    assert with_silent["optim/grad_norm"] < 0.9 * few["optim/grad_norm"], "silent groups dilute a plain step"


def test_when_every_group_stays_silent_nothing_is_learned_and_a_hint_says_so(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    cfg = small_config(**{**LANGUAGE, "num_episodes": 8}, dynamic_sampling=True, max_resamples=1, beta=0.1,
                       use_reference_model=True)  # fmt: skip
    path = create_run(cfg)
    events = list(execute(path, lambda c: language(tiny_language, c, lambda task, attempt: 1.0)))
    steps = [e for e in events if e.type == "step"]
    assert [e.data["metrics"]["optim/steps"] for e in steps] == [0.0] * 8
    assert [e.data["metrics"]["groups/resampled"] for e in steps] == [8.0] * 8
    assert steps[-1].data["totals"]["attempts"] == 8 * 8 * 4
    assert "reward_constant" in {e.data["code"] for e in events if e.type == "hint"}
    assert {tuple(row["flags"]) for row in read_groups(path / "groups" / "000001.parquet")} == {("resampled",)}


@pytest.mark.parametrize("steps", [1, 3])
def test_an_interrupted_run_draws_again_what_it_would_have_drawn(
    small_config: Configure, tiny_language: ModuleType, numbers: Numbers, steps: int
) -> None:
    whole, broken = (
        create_run(small_config(**LANGUAGE, dynamic_sampling=True, max_resamples=2, run_name=name))
        for name in ("whole", "broken")
    )
    finish(execute(whole, lambda c: language(tiny_language, c)))
    finish(execute(broken, lambda c: language(tiny_language, c)), steps)
    finish(execute(broken, lambda c: language(tiny_language, c)))
    assert numbers(broken) == numbers(whole)
    resampled = [metrics["groups/resampled"] for _, metrics, _ in numbers(whole)["steps"]]
    assert len(set(resampled)) > 1


def test_the_language_product_draws_anew_and_replays_and_survives_an_interruption(
    small_config: Configure, numbers: Numbers
) -> None:
    changes = {
        **LANGUAGE, "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 4,
        "num_episodes": 4, "dynamic_sampling": True, "replay_size": 6, "replay_groups": 2,
    }  # fmt: skip

    def build(cfg: TrainingConfig) -> Parts:
        return answers.build(
            cfg, per_attempt(lambda task, a: float(a.actions[a.mask].sum() % 7) if task.seed % 2 else 0)
        )

    whole, broken = (create_run(small_config(**changes, run_name=name)) for name in ("whole", "broken"))
    finish(execute(whole, build))
    finish(execute(broken, build), steps=3)
    finish(execute(broken, build))
    assert numbers(broken) == numbers(whole)
    steps = [metrics for _, metrics, _ in numbers(whole)["steps"]]
    assert all(metrics["groups/resampled"] >= 4 for metrics in steps)
    assert [metrics["replay/share"] for metrics in steps] == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert {chart.name for chart in pictures(History.of(read_events(whole / "events.jsonl")))} >= {"drawing", "spread"}


def finish(events: Iterator[Event], steps: int | None = None) -> None:
    for event in events:
        if event.type == "step" and event.step == steps:
            return
