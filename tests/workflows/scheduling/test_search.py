"""The policy and the search: exact probabilities, never worse than HEFT, and a run on the one loop."""

from __future__ import annotations

import asyncio
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Event, Task
from groupwise.workflows.blocks import Activity, Design, Parallel, Sequence
from groupwise.workflows.evaluation.schedule import TaskGraph, heft, work_of
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import parse_requirements
from groupwise.workflows.scheduling import improve, load_policy, read_instances, work_of_document
from groupwise.workflows.scheduling.features import NAMES, case_of
from groupwise.workflows.scheduling.instances import application_of
from groupwise.workflows.scheduling.policy import RankPolicy
from groupwise.workflows.scheduling.product import MakespanReward, Schedules, best_with_each, build, check
from groupwise.workflows.scheduling.search import search
from groupwise.workflows.scheduling.shipped import save_policy
from groupwise.workflows.scheduling.worlds import random_work
from tests.workflows.scheduling.test_decoder import ODD, keeps_order

SHORT = {
    "product": "scheduling", "environment": "random", "num_episodes": 3, "num_generations": 8, "tasks_per_step": 2,
    "learning_rate": 1e-2, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "eval_steps": 3,
    "eval_episodes": 2, "threads": 1, "loss_type": "grpo",
}  # fmt: skip


@pytest.mark.parametrize("evaluations", [1, 2, 3, 16, 50])
def test_no_schedule_is_longer_than_hefts(evaluations: int) -> None:
    for work in (*(random_work(seed) for seed in range(8)), ODD, TaskGraph(("only",), ((1.0,),), {})):
        found = improve(work, evaluations=evaluations)
        assert found.makespan <= heft(work).makespan
        keeps_order(work, found)


def test_one_evaluation_is_heft_and_more_find_something_better() -> None:
    works = [random_work(seed) for seed in range(8)]
    assert [improve(work, evaluations=1) for work in works] == [heft(work) for work in works]
    gains = [improve(work, evaluations=100).makespan / heft(work).makespan for work in works]
    assert np.mean(gains) < 0.99


def test_a_search_evaluates_as_often_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.workflows.scheduling import search as module

    seen: list[int] = []
    real = module.makespans
    monkeypatch.setattr(module, "makespans", lambda p, rows: seen.append(len(rows)) or real(p, rows))
    case = case_of(random_work(3))
    for evaluations in (1, 2, 3, 4, 16, 101):
        seen.clear()
        search(case, RankPolicy(), evaluations, 0)
        assert 1 + sum(seen) == evaluations  # HEFT itself is the first


def test_a_seed_decides_the_search() -> None:
    case = case_of(random_work(3))
    one, same, other = (search(case, RankPolicy(), 30, seed).correction for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_zero_evaluations_are_refused() -> None:
    with pytest.raises(ConfigError, match="evaluations = 0 must be at least 1"):
        improve(ODD, evaluations=0)


def moved_policy() -> RankPolicy:
    policy = RankPolicy()
    with torch.no_grad():
        policy.head.weight.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(0))
    return policy


def test_recorded_probabilities_are_those_of_the_policy() -> None:
    policy, case = moved_policy(), case_of(random_work(2))
    actions, logp = policy.sample(case, 4, np.random.default_rng(0))
    obs = torch.from_numpy(np.repeat(case.features[None], 4, 0))
    seen = policy.evaluate({"obs": obs, "actions": torch.from_numpy(actions)})
    mean, spread = policy.see(case)
    gaussian = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(spread))
    np.testing.assert_allclose(seen.logp.detach(), logp, atol=1e-4)
    np.testing.assert_allclose(gaussian.log_prob(torch.from_numpy(actions)), logp, atol=1e-5)
    np.testing.assert_allclose(seen.entropy[0].detach(), gaussian.entropy(), atol=1e-5)


def test_a_fresh_policy_is_heft_with_noise() -> None:
    mean, spread = RankPolicy().see(case_of(random_work(1)))
    assert not mean.any()
    np.testing.assert_allclose(spread, 0.2, rtol=1e-6)


def test_features_know_no_unit_of_time() -> None:
    work = random_work(4)
    slow = TaskGraph(
        work.names,
        tuple(tuple(60 * time for time in row) for row in work.durations),
        {edge: 60 * hand for edge, hand in work.after.items()},
    )
    features = case_of(work).features
    assert features.shape == (len(work.names), len(NAMES))
    np.testing.assert_allclose(features, case_of(slow).features, atol=1e-5)
    assert np.isfinite(case_of(ODD).features).all()


def test_the_reward_is_the_best_of_all_choices_with_an_attempt() -> None:
    rewards = np.array([0.3, 1.2, 0.9, 1.2, 0.1])
    for size in (1, 2, 3, 5):
        by_hand = [
            np.mean([max(rewards[list(chosen)]) for chosen in combinations(range(5), size) if one in chosen])
            for one in range(5)
        ]
        np.testing.assert_allclose(best_with_each(rewards, size), by_hand)


def test_a_group_is_scored_against_heft() -> None:
    case = case_of(random_work(6))
    (group,) = Schedules(RankPolicy(), 6, 0).collect([Task("random/0", case, 0)])
    scores = asyncio.run(MakespanReward(1)(group.task, group.members))
    assert all(score.total == pytest.approx(score.parts["heft_ratio"]) for score in scores)
    assert len({score.total for score in scores}) > 1


def run(path: Path, cfg: TrainingConfig, stop_after: int | None = None) -> tuple[list[Event], dict[str, torch.Tensor]]:
    """The events of a run and its weights in the end; it can be told to stop after a step."""
    made: list[Parts] = []
    stop = StopFlag()

    def built(cfg: TrainingConfig) -> Parts:
        made.append(build(cfg))
        return made[-1]

    events = []
    path.mkdir(exist_ok=True)
    for event in execute(path, built, cfg, stop):
        events.append(event)
        stop.raised = stop.raised or (event.type == "step" and event.step == stop_after)
    return events, made[-1].policy.state_dict()


def test_a_run_goes_through_the_one_loop_and_resumes_exactly(tmp_path: Path) -> None:
    cfg = TrainingConfig(**SHORT)
    check(cfg)
    events, weights = run(tmp_path / "whole", cfg)
    assert events[-1].type == "end"
    found = [event.data["metrics"] for event in events if event.type == "eval"]
    assert [set(one) >= {"eval/reward_mean", "eval/best_of_16"} for one in found] == [True, True]
    assert weights["head.weight"].any()
    run(tmp_path / "halves", cfg, stop_after=2)
    _, resumed = run(tmp_path / "halves", cfg)
    assert all(torch.equal(value, resumed[name]) for name, value in weights.items())


def test_settings_that_make_no_run_are_refused(tmp_path: Path) -> None:
    cfg = TrainingConfig(**SHORT)
    with pytest.raises(ConfigError, match="looks at single steps"):
        check(cfg.replace(estimator="group_rtg"))
    with pytest.raises(ConfigError, match="task.options.left_out is not an option"):
        check(cfg.replace(options={"left_out": "montage"}))
    with pytest.raises(ConfigError, match="holds no WfCommons instance"):
        check(cfg.replace(environment=str(tmp_path)))
    for value in (0, 8, "most"):
        with pytest.raises(ConfigError, match="task.options.best_of = .* must be at least 1 and less than"):
            check(cfg.replace(options={"best_of": value}))


def test_weights_of_other_features_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = moved_policy()
    save_policy(policy, tmp_path / "mine.safetensors", {"seed": "3"})
    again = load_policy(tmp_path / "mine.safetensors")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in policy.state_dict().items())
    monkeypatch.setattr("groupwise.workflows.scheduling.shipped.SCHEMA", "another")
    save_policy(policy, tmp_path / "other.safetensors")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="was trained on features of schema another, and this version has"):
        load_policy(tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="holds no policy"):
        load_policy(tmp_path / "none.safetensors")


INSTANCE = """{"name": "two", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [
 {"id": "a", "name": "a", "parents": [], "children": ["b"], "inputFiles": ["in"], "outputFiles": ["x", "y"]},
 {"id": "b", "name": "b", "parents": ["a"], "children": [], "inputFiles": ["in", "x"], "outputFiles": []}],
 "files": [{"id": "in", "sizeInBytes": 7}, {"id": "x", "sizeInBytes": 250000000}, {"id": "y", "sizeInBytes": 9}]},
 "execution": {"makespanInSeconds": 9, "executedAt": "now", "tasks": [
 {"id": "a", "runtimeInSeconds": 6.0}, {"id": "b", "runtimeInSeconds": 3.0}]}}}"""


def test_an_instance_becomes_work_with_its_files_handed_on(tmp_path: Path) -> None:
    (tmp_path / "two-small-001.json").write_text(INSTANCE)
    work = work_of_document(read_workflow(tmp_path / "two-small-001.json"))
    assert work.durations == ((6.0, 6.0, 4.0, 3.0), (3.0, 3.0, 2.0, 1.5))
    assert work.after == {(0, 1): 2.0}
    assert list(read_instances(tmp_path)) == ["two-small-001"]
    assert application_of("two-small-001") == "two"
    left = TrainingConfig(**SHORT).replace(environment=str(tmp_path), options={"leave_out": "two"})
    check(left)


def test_a_design_of_one_run_can_be_improved() -> None:
    requirements = parse_requirements(
        {
            "name": "night",
            "activities": {f"a{n}": {"duration": {"mean": 1 + n % 5}, "pools": ["slow", "fast"]} for n in range(12)},
            "pools": {"slow": {"most": 2}, "fast": {"most": 1, "speed": 2.0}},
        }
    )
    design = Design(
        "night", Parallel(tuple(Sequence((Activity(f"a{n}"), Activity(f"a{n + 1}"))) for n in range(0, 12, 2)))
    )
    work, _ = work_of(design, requirements, any_pool=True)
    assert improve(work, evaluations=50).makespan <= heft(work).makespan
