from __future__ import annotations

import numpy as np
import pytest

from groupwise.control import ppo
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.classic.mountain_car import MountainCar
from groupwise.control.classic.pendulums import Pendulum
from groupwise.control.grpo import BEYOND_EVALUATION, build, make_tasks
from groupwise.control.multitask import SUITES, MultiTask, SuiteTask, TaskCurriculum, make_suite
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.checker import check_environment
from groupwise.rollout.contract import random_actions
from groupwise.rollout.episodes import collect_groups
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Discrete, Task


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_keeps_the_contract(name):
    suite = make_suite(name, max_steps=60)
    assert suite.max_steps <= 60
    assert check_environment(suite) == []


def test_the_seed_says_which_task_it_is_and_the_task_sees_it():
    suite = make_suite("reward-scales")
    seeds = [suite.seed_of(kind, start) for kind, start in [(2, 7), (0, 7), (1, 9), (2, 7)]]
    assert [suite.kind_at(seed) for seed in seeds] == [suite.kinds[k] for k in (2, 0, 1, 2)]
    obs = suite.reset(seeds)
    assert obs.shape == (4, 7)
    assert obs[:, 4:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    np.testing.assert_array_equal(obs[[0, 1, 3], :4], CartPole().reset([7, 7, 7]))
    np.testing.assert_array_equal(obs[2:3, :4], CartPole().reset([9]))


def test_every_task_goes_as_it_would_alone_but_for_its_reward_scale():
    suite = make_suite("reward-scales")
    alone = [CartPole(), CartPole(half_length=1.0), CartPole(half_length=0.25, force=-10.0)]
    suite.reset([suite.seed_of(kind, 3) for kind in (2, 0, 1)])
    for env in alone:
        env.reset([3])
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 2, 3)
        obs, rewards, terminated, truncated = suite.step(actions)
        for row, kind in enumerate((2, 0, 1)):
            seen, earned, ended, cut = alone[kind].step(actions[row : row + 1])
            np.testing.assert_array_equal(obs[row, :4], seen[0])
            assert rewards[row] == earned[0] * (100.0, 1.0, 0.01)[kind]
            assert (terminated[row], truncated[row]) == (ended[0], cut[0])


def test_tasks_of_unlike_sizes_share_a_policy_and_do_only_what_they_can():
    suite = make_suite("classic")
    assert (suite.observation_size, suite.action_space) == (9, Discrete(3))
    obs = suite.reset([suite.seed_of(kind, 1) for kind in range(3)])
    assert obs[0, 4:6].tolist() == [0.0, 0.0]
    assert suite.action_mask().tolist() == [[True, True, False], [True] * 3, [True] * 3]
    policy = MLPPolicy(9, 3)
    tasks = make_tasks(suite, "classic", 0).take(3)
    (group, *_) = collect_groups(suite, policy, tasks, 8, np.random.default_rng(0))
    assert max(member.actions.max() for member in group.members) == 1


def test_tasks_whose_actions_do_not_go_together_are_refused():
    with pytest.raises(ContractError, match="Discrete.count=2., Box"):
        MultiTask("odd", [SuiteTask("a", CartPole()), SuiteTask("b", Pendulum())])


@pytest.mark.parametrize("name", [name for name in SUITES if name != "curriculum"])
def test_tasks_come_in_turn_and_say_their_kind(name):
    suite = make_suite(name)
    tasks = make_tasks(suite, name, 0).take(2 * len(suite.kinds))
    assert [task.kind for task in tasks] == [*suite.kinds, *suite.kinds]
    assert [suite.kind_at(task.seed) for task in tasks] == [*suite.kinds, *suite.kinds]
    assert min(task.seed // len(suite.kinds) for task in tasks) >= BEYOND_EVALUATION


def test_the_kind_of_a_task_is_what_stands_before_the_last_slash():
    assert Task("cartpole-short/123").kind == "cartpole-short"
    assert Task("ALE/Pong-v5/7").kind == "ALE/Pong-v5"
    assert Task("addition").kind == "addition"


def test_weaker_agents_are_weaker():
    suite = make_suite("capability")
    suite.reset([suite.seed_of(kind, 3) for kind in range(3)])
    obs = suite.step(np.array([1, 1, 1]))[0]
    assert obs[0, 1] > obs[1, 1] > obs[2, 1]


def curriculum_of(levels=3, goal=5.0, window=2):
    suite = MultiTask(
        "curriculum",
        [SuiteTask(f"level-{n}", MountainCar(max_steps=3), goal=goal) for n in range(levels)],
        tell_task=False,
    )
    return TaskCurriculum(suite, lambda number, kind: Task(f"level-{kind}/{number}", seed=kind), seed=0, window=window)


class Always:
    """Groups of attempts that all earned the same."""

    def __init__(self, total):
        self.total = total

    def play(self, tasks):
        env = MountainCar(max_steps=3)
        policy = MLPPolicy(2, 3)
        groups = collect_groups(env, policy, tasks, 2, np.random.default_rng(0))
        for group in groups:
            for member in group.members:
                member.rewards[:] = self.total / 3
        return groups


def test_a_curriculum_opens_the_next_level_when_the_newest_is_mastered():
    course = curriculum_of()
    course.see(Always(4.0).play(course.take(4)))
    assert course.level == 0
    course.see(Always(6.0).play(course.take(4)))
    assert course.level == 1
    kinds = [task.kind for task in course.take(200)]
    assert 60 < kinds.count("level-1") < 140
    assert "level-2" not in kinds
    course.see(Always(6.0).play([task for task in course.take(40) if task.kind == "level-0"]))
    assert course.level == 1
    for _ in range(2):
        course.see(Always(9.0).play(course.take(20)))
    assert course.level == 2


def test_a_curriculum_goes_on_from_its_state():
    course, twin = curriculum_of(), curriculum_of()
    course.see(Always(6.0).play(course.take(4)))
    twin.load_state_dict(course.state_dict())
    assert [task.id for task in twin.take(20)] == [task.id for task in course.take(20)]


def test_the_levels_of_the_mountain_car_are_easier_the_faster_it_starts():
    suite = make_suite("curriculum")
    reached = []
    for kind in range(len(suite.kinds)):
        suite.reset([suite.seed_of(kind, start) for start in range(200)])
        rng = np.random.default_rng(0)
        for _ in range(200):
            _, _, terminated, _ = suite.step(random_actions(suite, rng, 200))
        reached.append(terminated.mean())
    assert reached[0] > 0.1
    assert reached[-1] == 0.0
    assert reached == sorted(reached, reverse=True)


@pytest.mark.parametrize("name", ["reward-scales", "classic", "curriculum"])
def test_a_suite_trains_and_its_evaluation_tells_the_tasks_apart(small_config, name):
    cfg = small_config(environment=name, max_episode_steps=40, num_episodes=2, tasks_per_step=3, eval_episodes=12)
    events = list(execute(create_run(cfg), build))
    metrics = next(e.data["metrics"] for e in events if e.type == "eval")
    for kind in make_suite(name).kinds:
        assert 0 < metrics[f"eval/{kind}/length_mean"] <= 40
    steps = [e.data["metrics"] for e in events if e.type == "step"]
    assert len(steps) == 2


GROUPS = {"num_generations": 4, "tasks_per_step": 3}
BASELINE = {"product": "ppo", "estimator": "gae", "num_envs": 6, "num_steps": 32, "value_clip": None}


@pytest.mark.parametrize(("make", "own"), [(build, GROUPS), (ppo.build, BASELINE)])
def test_gradient_surgery_trains_a_suite_and_says_how_often_tasks_conflict(small_config, make, own):
    cfg = small_config(environment="reward-scales", gradient_surgery="pcgrad", num_episodes=2, eval_steps=0, **own)
    steps = [e.data["metrics"] for e in execute(create_run(cfg), make) if e.type == "step"]
    shares = [step["optim/task_conflicts"] for step in steps]
    assert len(shares) == 2
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) > 0


@pytest.mark.parametrize(("make", "own"), [(build, GROUPS), (ppo.build, BASELINE)])
def test_gradient_surgery_needs_several_tasks(small_config, make, own):
    with pytest.raises(ConfigError, match="is about several tasks, but CartPole is one") as refused:
        make(small_config(environment="CartPole-v1", gradient_surgery="pcgrad", **own))
    assert refused.value.field == "optim.gradient_surgery"
    assert "suite" in refused.value.hint


@pytest.mark.parametrize(("make", "own"), [(build, {**GROUPS, "estimator": "group_gae"}), (ppo.build, BASELINE)])
def test_jax_gives_training_the_advantages_of_torch(small_config, make, own):
    pytest.importorskip("jax")
    cfg = small_config(environment="reward-scales", advantage_scale="task_rms", max_episode_steps=60, **own)
    one, other = (make(cfg.replace(gae_backend=backend)).source.next() for backend in ("torch", "jax"))
    np.testing.assert_allclose(one.advantages, other.advantages, rtol=0, atol=1e-6)
    np.testing.assert_allclose(one.returns, other.returns, rtol=0, atol=1e-6)
