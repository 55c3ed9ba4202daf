"""From scores to advantages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config import TrainingConfig
from groupwise.training.estimators import (
    ScaledCritic,
    ValueScales,
    credited,
    divided,
    estimate_advantages,
    last_actions,
    scored_attempts,
)
from groupwise.types import End, Failed, Failure, Group, Score, ScoredGroup, Task, Trajectory

LOST = Failed(Failure("reward", "raised", "lost"))


def attempt(name: str, rewards: list[float], terminated: bool = True) -> Trajectory:
    size = len(rewards)
    zeros = np.zeros(size)
    end = End.FINISHED if terminated else End.TRUNCATED
    ones = np.ones(size, bool)
    return Trajectory(name, "t", "g", zeros, zeros, ones, zeros, zeros, np.array(rewards), end, terminated)


def group(name: str, rewards: list[list[float]], scores: list[Any] | None = None, task: str = "t/0") -> ScoredGroup:
    members = tuple(attempt(f"{name}{i}", r) for i, r in enumerate(rewards))
    given = [Score(sum(r), rewards=np.array(r)) for r in rewards] if scores is None else scores
    return ScoredGroup(Group(name, Task(task), members), tuple(given))


def advantages(groups: list[ScoredGroup], values: Any = None, **settings: Any) -> list[list[float]]:
    cfg = TrainingConfig(**settings).advantage
    return estimate_advantages(scored_attempts(groups), cfg, values).advantages.tolist()


def test_an_outcome_is_shared_by_all_steps_of_an_attempt_and_none_beyond() -> None:
    rows = advantages([group("a", [[1, 0], [0], [1]])])
    assert rows[0] == pytest.approx([0.7071, 0.7071], abs=1e-4)
    assert rows[1] == pytest.approx([-1.4142, 0], abs=1e-4)


def test_an_attempt_without_a_score_takes_no_part_in_its_group() -> None:
    rows = advantages([group("a", [[1], [0], [9]], [Score(1), Score(0), LOST])])
    assert rows == [[1.0], [-1.0]]


def test_return_to_go_by_hand() -> None:
    """Two members; the second ends after one step, so the first stands alone at its second step."""
    rows = advantages([group("a", [[1, 1], [1]])], estimator="group_rtg", advantage_scale="none", gamma=0.5)
    assert rows == [[0.5, 0.0], [-0.5, 0.0]]


@pytest.mark.parametrize("estimator", ["group_rtg", "gae"])
def test_a_score_that_does_not_say_when_is_credited_at_the_end(estimator: str) -> None:
    """A reward of one's own is what is learned from, by every estimator; the environment's is not added."""
    groups = [group("a", [[1, 1], [1, 1]], [Score(5.0), Score(2.0)])]
    values = (lambda members: [np.zeros(3) for _ in members]) if estimator == "gae" else None
    rows = advantages(groups, values, estimator=estimator, advantage_scale="none", gamma=1.0, gae_lambda=1.0)
    assert rows == ([[3.0, 3.0], [-3.0, -3.0]] if estimator == "group_rtg" else [[5.0, 5.0], [2.0, 2.0]])


def test_a_reward_against_the_environments_own_is_not_turned_around_by_discounting() -> None:
    """The environment pays for length, the score punishes it: the shorter attempt must win."""
    groups = [group("a", [[1.0] * 100, [1.0] * 500], [Score(-100.0), Score(-500.0)])]
    rows = advantages(groups, estimator="group_rtg", advantage_scale="none", gamma=1.0)
    assert rows[0][0] > 0 > rows[1][0]


def masked(rewards: list[float], mask: list[bool], score: Score) -> ScoredGroup:
    member = replace(attempt("m", rewards), mask=np.array(mask))
    rival = replace(attempt("r", [0.0] * len(rewards)), mask=np.array(mask))
    return ScoredGroup(Group("a", Task("t"), (member, rival)), (score, Score(0.0)))


@pytest.mark.parametrize("mask", [[False, True, False], [True, False, True], [True, True, False]])
def test_what_is_earned_off_the_policys_own_steps_belongs_to_the_action_before(mask: list[bool]) -> None:
    for score in (Score(5.0), Score(5.0, rewards=np.array([0.0, 0.0, 5.0]))):
        attempts = scored_attempts([masked([0.0, 0.0, 5.0], mask, score)])
        assert float(attempts.rewards[0].sum()) == 5.0
        assert float(attempts.rewards[0][torch.tensor(mask)].sum()) == 5.0


def test_what_is_earned_before_the_first_action_belongs_to_that_action() -> None:
    early = Score(3.0, rewards=np.array([3.0, 0.0, 0.0]))
    attempts = scored_attempts([masked([3.0, 0.0, 0.0], [False, True, True], early)])
    assert attempts.rewards[0].tolist() == [0.0, 3.0, 0.0]


def test_gae_knows_the_end_of_an_attempt_that_ends_with_a_tools_answer() -> None:
    scored = masked([0.0, 0.0, 0.0], [False, True, False], Score(1.0))
    cfg = TrainingConfig(estimator="gae", advantage_scale="none", gamma=1.0, gae_lambda=1.0).advantage
    estimate = estimate_advantages(scored_attempts([scored]), cfg, lambda ms: [np.full(4, 10.0) for _ in ms])
    assert estimate.returns is not None
    assert estimate.returns[:, 1].tolist() == [1.0, 0.0]


def test_gae_looks_from_action_to_action_over_what_lies_between() -> None:
    scored = masked([0.0] * 4, [True, False, True, True], Score(0.0))
    values = np.array([0.0, 99.0, 0.5, 0.0, 0.0])
    rows = advantages([scored], lambda ms: [values for _ in ms], estimator="gae", advantage_scale="none",
                      gamma=1.0, gae_lambda=0.0)  # fmt: skip
    assert rows[0][0] == 0.5


def test_gae_bootstraps_at_a_cut_and_not_at_an_end() -> None:
    members = (attempt("end", [1.0]), attempt("cut", [1.0], terminated=False))
    scored = ScoredGroup(Group("a", Task("t"), members), (Score(1.0), Score(1.0)))
    rows = advantages(
        [scored], lambda attempts: [np.array([0.0, 10.0]) for _ in attempts],
        estimator="gae", advantage_scale="none", gamma=0.5, gae_lambda=1.0,
    )  # fmt: skip
    assert rows == [[1.0], [6.0]]


def test_scaling_by_batch_or_by_group_divides_and_never_recentres() -> None:
    groups = [group("a", [[1], [3]]), group("b", [[10], [30]])]
    by_batch = torch.tensor(advantages(groups, estimator="group_rtg", advantage_scale="batch_std"))
    by_group = torch.tensor(advantages(groups, estimator="group_rtg", advantage_scale="group_std"))
    assert by_group.flatten().tolist() == pytest.approx([-1, 1, -1, 1])
    assert float(by_batch.square().mean()) == pytest.approx(1)
    assert float(by_batch[2] / by_batch[0]) == pytest.approx(10)


def test_rewards_are_clipped_before_they_are_compared() -> None:
    rows = advantages([group("a", [[1], [100]])], reward_clip=3.0, advantage_scale="none")
    assert rows == [[-1.0], [1.0]]


def test_a_batch_in_which_nothing_was_scored_has_no_rows() -> None:
    attempts = scored_attempts([group("a", [[1], [2]], [LOST, LOST])])
    assert attempts.members == ()
    assert estimate_advantages(attempts, TrainingConfig().advantage).advantages.shape == (0, 0)


THREE_TASKS = [
    group("a", [[100.0], [300.0]], task="large/0"),
    group("b", [[200.0], [200.0]], task="large/1"),
    group("c", [[0.01], [0.05]], task="small/0"),
    group("d", [[7.0], [7.0]], task="constant/0"),
]


@pytest.mark.parametrize("estimator", ["outcome", "group_rtg"])
def test_a_tasks_own_scale_by_hand(estimator: str) -> None:
    """Deviations ±d and 0, 0 of the large task have RMS d / √2: d is from the mean, or for returns from the other one.

    The small task's two have RMS of their own size. A task whose reward never varies stays exactly 0.
    """
    rows = advantages(THREE_TASKS, estimator=estimator, advantage_scale="task_rms")
    flat = [row[0] for row in rows]
    assert flat == pytest.approx([-(2**0.5), 2**0.5, 0, 0, -1, 1, 0, 0])


def test_a_tasks_scale_is_left_out_without_normalisation() -> None:
    rows = advantages(THREE_TASKS, advantage_scale="task_rms", advantage_normalization=False)
    assert [row[0] for row in rows][:2] == [-100, 100]


@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3), st.sampled_from(["outcome", "group_rtg", "group_gae"]))
@settings(max_examples=30, deadline=None)
def test_the_units_of_a_tasks_reward_do_not_matter(factors: list[float], estimator: str) -> None:
    """With `task_rms`, and with a critic in the task's own units, every task may be paid in its own currency."""

    def paid(units: list[float]) -> list[ScoredGroup]:
        rng = np.random.default_rng(0)
        return [
            group(f"g{n}", (unit * rng.normal(size=(3, 4))).tolist(), task=f"task{n}/0") for n, unit in enumerate(units)
        ]

    values = (lambda members: [np.linspace(0, 1, 5) for _ in members]) if estimator == "group_gae" else None
    found = [
        torch.tensor(advantages(paid(units), values, estimator=estimator, advantage_scale="task_rms"))
        for units in ([1.0] * 3, factors)
    ]
    torch.testing.assert_close(found[0], found[1])


def test_the_critic_is_asked_and_taught_in_its_tasks_units() -> None:
    """Each member earns 10 (or 0.1) once and ends. The unit is that; half of it was expected: the rest is advantage."""
    groups = [group("a", [[10.0], [10.0]], task="large/0"), group("b", [[0.1], [0.1]], task="small/0")]
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none").advantage
    scales = ValueScales()
    critic = ScaledCritic(lambda members: [np.array([0.5, 0.0]) for _ in members], scales)
    found = estimate_advantages(scored_attempts(groups), cfg, critic)
    assert found.advantages.flatten().tolist() == pytest.approx([5, 5, 0.05, 0.05])
    assert found.returns is not None
    assert found.values is not None
    assert found.returns.flatten().tolist() == pytest.approx([1, 1, 1, 1])
    assert found.values.flatten().tolist() == [0.5] * 4
    assert scales.squares == pytest.approx({"large": 100, "small": 0.01})


def test_targets_are_written_in_the_units_after_the_update() -> None:
    """Paid 10, then 20: predictions of the second batch are read in units of 10, its targets are in those of √130."""
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none").advantage
    critic = ScaledCritic(lambda members: [np.array([0.5, 0.0]) for _ in members], ValueScales())
    estimate_advantages(scored_attempts([group("a", [[10.0], [10.0]])]), cfg, critic)
    found = estimate_advantages(scored_attempts([group("b", [[20.0], [20.0]])]), cfg, critic)
    assert found.returns is not None
    assert found.advantages.flatten().tolist() == pytest.approx([20 - 0.5 * 10] * 2)
    assert found.returns.flatten().tolist() == pytest.approx([20 / (0.9 * 100 + 0.1 * 400) ** 0.5] * 2)


def test_the_unit_follows_what_a_task_returns_slowly_and_is_never_zero() -> None:
    scales, mask = ValueScales(), torch.ones(1, 1)
    assert scales.before(["a"], torch.tensor([[2.0]]), mask).tolist() == [2.0]
    assert scales.after(["a"], torch.tensor([[4.0]]), mask).tolist() == pytest.approx([(0.9 * 4 + 0.1 * 16) ** 0.5])
    assert scales.before(["a"], torch.tensor([[99.0]]), mask).tolist() == pytest.approx([5.2**0.5])
    assert scales.before(["free"], torch.tensor([[0.0]]), mask).tolist() == [1.0]


def test_group_gae_bootstraps_at_a_cut_in_the_tasks_units() -> None:
    """Paid 4 once: a unit of 4. Cut there, the state after is worth 10 units of 4, discounted by half: 4 + 20."""
    members = (attempt("end", [4.0]), attempt("cut", [4.0], terminated=False))
    scored = ScoredGroup(Group("a", Task("t/0"), members), (Score(4.0), Score(4.0)))
    rows = advantages(
        [scored], lambda attempts: [np.array([0.0, 10.0]) for _ in attempts],
        estimator="group_gae", advantage_scale="none", gamma=0.5, gae_lambda=1.0,
    )  # fmt: skip
    assert rows == [[4.0], [24.0]]


@given(st.randoms(use_true_random=False), st.sampled_from(["outcome", "group_rtg", "group_gae"]))
@settings(max_examples=30, deadline=None)
def test_order_of_members_and_names_of_tasks_do_not_matter(random: Any, estimator: str) -> None:
    rng = np.random.default_rng(1)
    lengths = [[3, 1, 4], [1, 5, 2], [2, 2, 2], [6, 3, 1]]
    rewards = [[rng.normal(size=n).tolist() for n in row] for row in lengths]
    tasks = ["a/0", "b/0", "a/1", "b/1"]
    values = (lambda ms: [np.cos(np.arange(len(m) + 1)) for m in ms]) if estimator == "group_gae" else None

    def found(order: list[int], inner: list[int], names: dict[str, str]) -> dict[tuple[int, int], Any]:
        groups = [
            group(f"g{g}", [rewards[g][m] for m in inner], task=tasks[g].replace(tasks[g][0], names[tasks[g][0]]))
            for g in order
        ]
        rows = advantages(groups, values, estimator=estimator, advantage_scale="task_rms")
        places = [(g, m) for g in order for m in inner]
        return {(g, m): row[: lengths[g][m]] for (g, m), row in zip(places, rows, strict=True)}

    order, inner = list(range(4)), list(range(3))
    before = found(order, inner, {"a": "a", "b": "b"})
    random.shuffle(order)
    random.shuffle(inner)
    after = found(order, inner, {"a": "zebra", "b": "ant"})
    for place, row in before.items():
        assert after[place] == pytest.approx(row)


def test_a_group_of_one_has_no_advantage_without_a_critic() -> None:
    groups = [group("a", [[5.0]], task="x/0"), group("b", [[1.0], [2.0]], task="y/0")]
    for estimator in ("outcome", "group_rtg"):
        rows = advantages(groups, estimator=estimator, advantage_scale="task_rms")
        assert [row[0] for row in rows] == pytest.approx([0, -1, 1])


def ragged(seed: int) -> list[ScoredGroup]:
    """Three tasks, groups of 1 to 4 attempts of 1 to 6 steps, with holes in their masks; some are cut, some failed."""
    rng = np.random.default_rng(seed)
    groups = []
    for number, size in enumerate([3, 1, 4, 2, 2]):
        members, scores = [], []
        for member in range(size):
            steps = int(rng.integers(1, 7))
            rewards = (10.0 ** (number % 3) * rng.normal(size=steps)).round(3)
            made = attempt(f"{number}/{member}", rewards.tolist(), terminated=bool(rng.random() < 0.6))
            mask = rng.random(steps) < 0.7
            mask[rng.integers(steps)] = True
            members.append(replace(made, mask=mask))
            scores.append(LOST if rng.random() < 0.15 else Score(float(rewards.sum()), rewards=rewards))
        groups.append(
            ScoredGroup(Group(str(number), Task(f"{'xyz'[number % 3]}/{number}"), tuple(members)), tuple(scores))
        )
    return groups


Steps = dict[tuple[int, int], float]


def credit(groups: list[ScoredGroup], clip: float | None) -> dict[int, tuple[int, str, bool, list[float], list[int]]]:
    """For each scored attempt in order: group, task, whether it ended, what each own action earned, and their steps."""
    found = {}
    pairs = ((n, m, s) for n, g in enumerate(groups) for m, s in zip(g.group.members, g.scores, strict=True))
    for row, (number, member, score) in enumerate(p for p in pairs if isinstance(p[2], Score)):
        own = np.flatnonzero(member.mask).tolist()
        earned = dict.fromkeys(own, 0.0)
        for step, reward in enumerate(member.rewards.tolist()):
            earned[max((place for place in own if place <= step), default=own[0])] += reward
        paid = [earned[place] if clip is None else min(max(earned[place], -clip), clip) for place in own]
        found[row] = (number, groups[number].group.task.kind, member.terminated, paid, own)
        assert isinstance(score, Score)
    return found


def value(row: int, step: int) -> float:
    return float(np.sin(3 * row + step))


def brute_force(groups: list[ScoredGroup], estimator: str, gamma: float, lam: float, clip: float | None) -> Steps:
    """Advantages before scaling, one action after the other; `gae` with V = `value`."""
    rows, found = credit(groups, clip), {}
    returns = {}
    for row, (_, _, _, paid, own) in rows.items():
        for place, step in enumerate(own):
            returns[row, step] = sum(gamma**later * paid[place + later] for later in range(len(paid) - place))
    for row, (number, _, ended, paid, own) in rows.items():
        length = len(attempts_of(groups)[row])
        ahead = 0.0
        for place in reversed(range(len(own))):
            step = own[place]
            if estimator == "group_rtg":
                others = [
                    returns[r, step] for r, (n, *_) in rows.items() if n == number and r != row and (r, step) in returns
                ]
                found[row, step] = returns[row, step] - float(np.mean(others)) if others else 0.0
                continue
            last = place == len(own) - 1
            following = (0.0 if ended else value(row, length)) if last else value(row, own[place + 1])
            ahead = paid[place] + gamma * following - value(row, step) + (0.0 if last else gamma * lam * ahead)
            found[row, step] = ahead
    return found


def attempts_of(groups: list[ScoredGroup]) -> list[Trajectory]:
    return [m for g in groups for m, s in zip(g.group.members, g.scores, strict=True) if isinstance(s, Score)]


def divide(groups: list[ScoredGroup], raw: Steps, scale: str) -> Steps:
    """By the root mean square over all actions of the batch, of the group or of the task."""
    if scale == "none":
        return raw
    place = {"batch_std": lambda row: 0, "group_std": lambda row: row[0], "task_rms": lambda row: row[1]}[scale]
    key = {row: place(about) for row, about in credit(groups, None).items()}
    rms = {
        name: float(np.mean([v**2 for (row, _), v in raw.items() if key[row] == name])) ** 0.5 for name in key.values()
    }
    return {(row, t): v / rms[key[row]] if rms[key[row]] else 0.0 for (row, t), v in raw.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clip", [None, 5.0])
@pytest.mark.parametrize(("scale", "normalised"), [
    ("none", True), ("batch_std", True), ("group_std", True), ("task_rms", True), ("batch_std", False),
])  # fmt: skip
@pytest.mark.parametrize("estimator", ["group_rtg", "gae"])
def test_advantages_are_those_of_a_brute_force(
    estimator: str, scale: str, normalised: bool, clip: float | None, seed: int
) -> None:
    groups = ragged(seed)
    cfg = TrainingConfig(
        estimator=estimator, advantage_scale=scale, advantage_normalization=normalised, reward_clip=clip, gamma=0.8,
        gae_lambda=0.6,
    ).advantage  # fmt: skip
    seen = attempts_of(groups)
    values = lambda members: [np.array([value(r, t) for t in range(len(m) + 1)]) for r, m in enumerate(members)]  # noqa: E731
    found = estimate_advantages(scored_attempts(groups), cfg, values if estimator == "gae" else None)
    raw = brute_force(groups, estimator, 0.8, 0.6, clip)
    expected = np.zeros(found.advantages.shape)
    for (row, step), advantage in divide(groups, raw, scale if normalised else "none").items():
        expected[row, step] = advantage
    np.testing.assert_allclose(found.advantages, expected, atol=1e-9)
    assert (found.returns is None) == (found.values is None) == (estimator != "gae")
    if found.returns is not None and found.values is not None:
        for (row, step), advantage in raw.items():
            assert float(found.returns[row, step]) == pytest.approx(advantage + value(row, step)), "not scaled"
            assert float(found.values[row, step]) == value(row, step)
    assert len(seen) == len(found.advantages)


BASELINES = {
    "group_mean": [-2.0, 0, 2, -1, 1], "group_median": [-2.0, 0, 2, -1, 1], "leave_one_out": [-3.0, 0, 3, -2, 2],
    "global_mean": [-3.8, -1.8, 0.2, 1.7, 3.7], "none": [1.0, 3, 5, 6.5, 8.5],
}  # fmt: skip


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("estimator", ["outcome", "turns"])
def test_every_baseline_by_hand(baseline: str, estimator: str) -> None:
    """Attempts of one action: there a turn's advantage is that of its attempt."""
    groups = [group("a", [[1], [3], [5]]), group("b", [[6.5], [8.5]])]
    rows = advantages(groups, estimator=estimator, baseline_type=baseline, advantage_scale="none")
    assert [row[0] for row in rows] == pytest.approx(BASELINES[baseline])


@pytest.mark.parametrize(("scale", "std", "expected"), [
    ("group_std", "population", [-1, 1, -1, 1]), ("group_std", "sample", [-(2**-0.5), 2**-0.5, -(2**-0.5), 2**-0.5]),
    ("batch_std", "population", [-1 / 13**0.5, 1 / 13**0.5, -5 / 13**0.5, 5 / 13**0.5]),
    ("none", "sample", [-1, 1, -5, 5]),
])  # fmt: skip
def test_every_scale_of_an_outcome_by_hand(scale: str, std: str, expected: list[float]) -> None:
    """Totals 1, 3 and −3, 7: their deviation from the batch's mean of 2 has the square 13; the group's 1 and 25."""
    groups = [group("a", [[1], [3]]), group("b", [[-3], [7]])]
    rows = advantages(groups, advantage_scale=scale, std_type=std)
    assert [row[0] for row in rows] == pytest.approx(expected)
    plain = advantages(groups, advantage_scale=scale, std_type=std, advantage_normalization=False)
    assert [row[0] for row in plain] == [-1, 1, -5, 5]


def test_turns_clip_discount_and_scale() -> None:
    """Two turns each. Clipped to 2, the totals are 3 and 1; a tool's answer lies between the turns."""
    mask = np.array([True, False, True])
    members = tuple(replace(attempt(n, r), mask=mask) for n, r in (("p", [1.0, 0, 9]), ("q", [1.0, 0, 0])))
    scored = ScoredGroup(Group("a", Task("t/0"), members), (Score(10.0, rewards=members[0].rewards), Score(1.0)))
    rows = advantages([scored], estimator="turns", reward_clip=2.0, gamma=0.5, advantage_scale="none")
    # q's score does not say when: all of it counts at the end, so its first turn earned 1 less than p's.
    assert rows[0] == pytest.approx([0.5 + 0.5 * 0.5, 0, 0.5])
    assert rows[1] == pytest.approx([-0.5 - 0.5 * 0.5, 0, -0.5])
    rms = advantages([scored], estimator="turns", reward_clip=2.0, gamma=0.5, advantage_scale="group_std")
    assert rms[0] == pytest.approx([0.75 / 0.40625**0.5, 0, 0.5 / 0.40625**0.5])


@pytest.mark.parametrize("total", [-7.0, 7.0])
def test_rewards_are_clipped_on_both_sides(total: float) -> None:
    (row, _) = advantages([group("a", [[total], [0.0]])], reward_clip=3.0, advantage_scale="none")
    assert row == [np.sign(total) * 1.5]


def test_the_scale_of_values_counts_every_action_of_every_attempt_of_a_task_and_nothing_else() -> None:
    scales = ValueScales()
    returns = torch.tensor([[3.0, 4, 99], [5, 99, 99], [2, 2, 2]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
    units = scales.before(["a", "a", "b"], returns, mask)
    assert units.tolist() == pytest.approx([(50 / 3) ** 0.5, (50 / 3) ** 0.5, 2.0])
    assert scales.before(["c"], returns[:1], torch.zeros(1, 3, dtype=torch.bool)).tolist() == [1.0]
    twin = ValueScales()
    twin.load_state_dict(scales.state_dict())
    scales.after(["a"], returns[:1], mask[:1])
    assert twin.squares == pytest.approx({"a": 50 / 3, "b": 4.0, "c": 0.0}), "a state does not change afterwards"
    assert scales.squares["a"] == pytest.approx(0.9 * 50 / 3 + 0.1 * 12.5)


def test_group_gae_discounts_clips_and_measures_in_the_units_of_clipped_returns() -> None:
    """Paid 1 and 9, clipped to 4, at a discount of a half: returns 3 and 4, a unit of √12.5."""
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none", reward_clip=4.0, gamma=0.5, gae_lambda=1.0)
    scales = ValueScales()
    critic = ScaledCritic(lambda members: [np.array([0.2, 0.4, 7.0]) for _ in members], scales)
    found = estimate_advantages(scored_attempts([group("a", [[1.0, 9.0]])]), cfg.advantage, critic)
    unit = 12.5**0.5
    assert found.advantages[0].tolist() == pytest.approx([3 - 0.2 * unit, 4 - 0.4 * unit])
    assert found.returns is not None
    assert found.returns[0].tolist() == pytest.approx([3 / unit, 4 / unit])
    assert scales.squares["t"] == pytest.approx(12.5)


def test_the_units_follow_the_critics_targets_and_not_what_was_paid() -> None:
    """λ = 0: the target of the first step is 3 + 0.5 · V of the second, which the critic puts at 4 units of √10."""
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none", gamma=0.5, gae_lambda=0.0).advantage
    scales = ValueScales()
    critic = ScaledCritic(lambda members: [np.array([0.0, 4.0, 0.0]) for _ in members], scales)
    found = estimate_advantages(scored_attempts([group("a", [[3.0, 2.0]])]), cfg, critic)
    paid = (4.0**2 + 2.0**2) / 2
    target = (3 + 0.5 * 4 * paid**0.5, 2.0)
    after = 0.9 * paid + 0.1 * (target[0] ** 2 + target[1] ** 2) / 2
    assert scales.squares["t"] == pytest.approx(after)
    assert found.returns is not None
    assert found.returns[0].tolist() == pytest.approx([t / after**0.5 for t in target])


@pytest.mark.parametrize(("mask", "expected"), [
    ([[0, 0, 0]], [[0, 0, 0]]), ([[1, 0, 1]], [[0, 0, 1]]), ([[1, 1, 0]], [[0, 1, 0]]), ([[1, 0, 0]], [[1, 0, 0]]),
])  # fmt: skip
def test_the_last_action_of_a_row(mask: list[list[int]], expected: list[list[int]]) -> None:
    assert last_actions(torch.tensor(mask).bool()).int().tolist() == expected


def test_an_attempt_without_an_action_earns_nothing() -> None:
    member = replace(attempt("m", [1.0, 2.0]), mask=np.zeros(2, bool))
    for score in (Score(3.0), Score(3.0, rewards=np.array([1.0, 2.0]))):
        assert credited(member, score).tolist() == [0.0, 0.0]


def test_a_tiny_scale_is_still_a_scale() -> None:
    """Advantages of a billionth are divided like any others; only 0 stays 0."""
    assert divided(torch.tensor([1e-9, 0.0]), torch.tensor([1e-9, 0.0])).tolist() == [1.0, 0.0]
    assert divided(torch.tensor([5.0]), torch.tensor([1e-12])).tolist() == [0.0]


def test_attempts_know_their_group_their_task_and_their_seed() -> None:
    groups = [group("a", [[1], [2, 2]], task="x/0"), group("b", [[3]], task="y/7"), group("c", [[4]], task="x/1")]
    groups[1] = replace(groups[1], group=replace(groups[1].group, task=Task("y/7", None, 5)))
    found = scored_attempts(groups)
    assert found.group.tolist() == [0, 0, 1, 2]
    assert found.weight_group.tolist() == found.scale_group[0].tolist() == [0, 0, 1, 0]
    assert (found.kinds, found.seeds) == (("x", "x", "y", "x"), (0, 0, 5, 0))
    assert found.mask.int().tolist() == [[1, 0], [1, 1], [1, 0], [1, 0]]
    assert found.rewards.tolist() == [[1, 0], [2, 2], [3, 0], [4, 0]]


@pytest.mark.parametrize("estimator", ["outcome", "group_rtg", "turns"])
def test_nested_scale_groups_borrow_from_level_to_level(estimator: str) -> None:
    """Attempts of one action: within a task of six, groups of two and four, of which the first has no spread."""
    groups = [group(n, [[a], [b]]) for n, a, b in (("a", 5, 5), ("b", 1, 3), ("c", 0, 8))]
    attempts = scored_attempts(groups)
    attempts = replace(attempts, scale_group=torch.tensor([[4] * 6, [0, 0, 1, 1, 1, 1], [9, 9, 8, 8, 7, 7]]))
    cfg = TrainingConfig(estimator=estimator, advantage_scale="task_rms", gamma=1.0).advantage
    unit = 2.0 if estimator == "group_rtg" else 1.0  # from the other one, or from the mean of both
    raw = [unit * d for d in (0, 0, -1, 1, -4, 4)]
    whole = unit**2 * (2 * 1 + 2 * 16) / 6
    outer = (4 * unit**2 * (2 * 1 + 2 * 16) / 4 + 4 * whole) / 8
    square = [whole, whole, *[(2 * unit**2 + 4 * outer) / 6] * 2, *[(2 * 16 * unit**2 + 4 * outer) / 6] * 2]
    found = estimate_advantages(attempts, cfg).advantages[:, 0].tolist()
    assert found == pytest.approx([d / m**0.5 for d, m in zip(raw, square, strict=True)])


@pytest.mark.parametrize("estimator", ["group_rtg", "gae", "turns"])
def test_an_action_counts_once_in_the_scale_so_that_long_attempts_have_more_say(estimator: str) -> None:
    """The root mean square of all actions' advantages is 1, whatever the lengths, and padding does not count."""
    groups = [group("a", [[1.0] * 5, [0.0, 2.0], [4.0]]), group("b", [[0.5], [3.0] * 7])]
    attempts = scored_attempts(groups)
    values = lambda members: [np.cos(np.arange(len(m) + 1)) for m in members]  # noqa: E731
    for scale in ("batch_std", "group_std", "task_rms"):
        cfg = TrainingConfig(estimator=estimator, advantage_scale=scale, gamma=0.9).advantage
        found = estimate_advantages(attempts, cfg, values if estimator == "gae" else None).advantages
        parts = [attempts.group == n for n in (0, 1)] if scale == "group_std" else [attempts.group >= 0]
        for rows in parts:
            acting = found[rows][attempts.mask[rows]]
            assert float(acting.square().mean()) == pytest.approx(1.0), scale
        assert float(found[~attempts.mask].abs().max()) == 0.0


def test_a_critic_without_units_gets_new_ones_every_time() -> None:
    """A plain function is no memory: the units of one batch must not reach the next."""
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none", gamma=1.0, gae_lambda=1.0).advantage
    values = lambda members: [np.full(2, 0.5) for _ in members]  # noqa: E731
    for paid in (10.0, 1000.0):
        found = estimate_advantages(scored_attempts([group("a", [[paid], [paid]])]), cfg, values)
        assert found.advantages[:, 0].tolist() == pytest.approx([paid / 2] * 2)


def test_a_new_task_gets_its_units_from_its_own_returns_and_a_known_one_keeps_its_own() -> None:
    cfg = TrainingConfig(estimator="group_gae", advantage_scale="none", gamma=1.0, gae_lambda=1.0).advantage
    critic = ScaledCritic(lambda members: [np.full(2, 0.5) for _ in members], ValueScales())
    estimate_advantages(scored_attempts([group("a", [[10.0]], task="old/0")]), cfg, critic)
    groups = [group("a", [[20.0]], task="old/1"), group("b", [[4.0]], task="new/0")]
    found = estimate_advantages(scored_attempts(groups), cfg, critic)
    assert found.advantages[:, 0].tolist() == pytest.approx([20 - 0.5 * 10, 4 - 0.5 * 4])
    assert critic.scales.squares == pytest.approx({"old": 0.9 * 100 + 0.1 * 400, "new": 16.0})
