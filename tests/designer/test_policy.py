"""The policy: probabilities that are the same however they are worked out, and weights that fit or are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from groupwise.designer.construction import construct
from groupwise.designer.learning import Collation, trajectories
from groupwise.designer.plans import DecisionBatch, Plans
from groupwise.designer.policy import GraphPolicy, load_policy, save_policy
from groupwise.designer.problem import DesignProblem, Floats, Head, Ints, table_order
from groupwise.designer.sampling import Parents, PolicyChooser, PolicyView, Retake
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.errors import ConfigError
from groupwise.training.estimators import Attempts
from groupwise.types import Trajectory
from groupwise.workflows.requirements import Requirements


@pytest.fixture
def policy() -> GraphPolicy:
    """Random weights whose decisions are far from even."""
    torch.manual_seed(3)
    found = GraphPolicy()
    with torch.no_grad():
        found.out *= 10
    return found.eval()


def drawn(policy: GraphPolicy, world: int, size: int, count: int, epsilon: float = 0.0) -> tuple[Plans, Floats]:
    problem = DesignProblem(random_requirements(world, size))
    chooser = PolicyChooser(PolicyView(policy, problem), np.random.default_rng(world), epsilon)
    plans = construct(problem, chooser, count, record=True)
    return plans, chooser.log_probabilities(plans)


def attempts_of(groups: Sequence[tuple[str, Plans, Floats]]) -> list[Trajectory]:
    found: list[Trajectory] = []
    for name, plans, logp in groups:
        designs = PreparedRequirements.of(plans.problem.requirements).drafter(plans)
        found += trajectories(plans, designs, logp, task_id=name, group_id=name, version=0)
    return found


def padded(members: Sequence[Trajectory]) -> Attempts:
    """As many rows as attempts, none of which anybody scored."""
    mask = torch.zeros(len(members), max(map(len, members)), dtype=torch.bool)
    for row, member in enumerate(members):
        mask[row, : len(member)] = torch.from_numpy(member.mask)
    none = torch.zeros(len(members), dtype=torch.long)
    return Attempts(tuple(members), (), (), (), none, none[None], none, torch.zeros(mask.shape), mask)


def evaluated(policy: GraphPolicy, groups: Sequence[tuple[str, Plans, Floats]]) -> tuple[Floats, Floats, Floats]:
    """Log-probabilities as the learner works them out, those that were recorded, and which decisions there were."""
    problems = {name: plans.problem for name, plans, _ in groups}
    rows = Collation(problems.__getitem__)(padded(attempts_of(groups)))
    with torch.no_grad():
        found = policy.evaluate(rows.inputs)
    return found.logp.double().numpy(), rows.behavior_logp.double().numpy(), rows.mask.numpy()


def test_the_learner_finds_the_probabilities_that_were_drawn_with(policy: GraphPolicy) -> None:
    """Worlds of different sizes, padded together."""
    groups = [(f"w{n}", *drawn(policy, n, size, 4)) for n, size in ((1, 5), (2, 12), (3, 23))]
    found, recorded, mask = evaluated(policy, groups)
    assert mask.sum() > 100
    assert (recorded[mask > 0] < 0).all()
    np.testing.assert_allclose(found * mask, recorded * mask, atol=1e-4)


def test_a_mixture_with_chance_is_recorded_as_such(policy: GraphPolicy) -> None:
    """(1 − ε) π + ε / n, where the learner's own probability is π."""
    epsilon = 0.3
    plans, logp = drawn(policy, 5, 14, 8, epsilon)
    found, recorded, mask = evaluated(policy, [("w", plans, logp)])
    assert plans.legal is not None
    few, turns = table_order(plans.problem)
    legal = plans.legal.sum(-1)[:, np.concatenate([few, turns])]
    decided = mask > 0
    expected = np.log((1 - epsilon) * np.exp(found) + epsilon / np.maximum(legal, 1))
    np.testing.assert_allclose(recorded[decided], expected[decided], atol=1e-4)
    assert np.abs(found[decided] - recorded[decided]).max() > 0.1


def renamed(requirements: Requirements, order: Sequence[str]) -> Requirements:
    """The same requirements with their activities listed in another order."""
    listed = {name: requirements.activities[name] for name in order}
    return requirements.model_copy(update={"activities": listed})


def test_the_order_in_which_activities_are_listed_does_not_matter(policy: GraphPolicy) -> None:
    """The distribution of every first decision about an activity or a pool is the same."""
    original = random_requirements(11, 12)
    names = list(original.activities)
    other = renamed(original, names[::-1])
    first, second = (_distributions(policy, requirements) for requirements in (original, other))
    assert first.keys() == second.keys()
    assert len(first) > 20
    for key, shares in first.items():
        np.testing.assert_allclose(shares, second[key], atol=1e-5, err_msg=str(key))


def _distributions(policy: GraphPolicy, requirements: Requirements) -> dict[tuple[int, str], Floats]:
    problem = DesignProblem(requirements)
    view = PolicyView(policy, problem)
    found: dict[tuple[int, str], Floats] = {}
    nodes = [*problem.names, *problem.pool_names]

    class Looking:
        """Takes the first of everything before the order, where decisions do not hang together by numbers."""

        def __call__(self, question: DecisionBatch) -> Ints:
            if question.slots[0] < problem.rounds:
                logits = np.where(question.legal, view.logits(question), -np.inf)
                shares = np.exp(logits - logits.max(-1, keepdims=True))
                shares /= shares.sum(-1, keepdims=True)
                for place, subject in enumerate(question.subjects[0].tolist()):
                    found[question.head, nodes[subject]] = shares[0, place]
            return question.legal.argmax(-1)

    construct(problem, Looking(), 1)
    return found


def test_weights_come_back_as_they_were_saved(policy: GraphPolicy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    save_policy(policy, path, {"seed": "3"})
    again = load_policy(path)
    for (name, one), other in zip(policy.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_weights_of_another_schema_are_refused(policy: GraphPolicy, tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    save_policy(policy, path)
    save_file(load_file(str(path)), str(path), {"schema": "0123456789abcdef"})
    with pytest.raises(ConfigError, match="schema 0123456789abcdef"):
        load_policy(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="is not a policy"):
        load_policy(path)
    with pytest.raises(ConfigError, match="is not a policy"):
        load_policy(tmp_path / "missing.safetensors")


def test_to_take_nothing_again_makes_the_same_design(policy: GraphPolicy) -> None:
    plans, _ = drawn(policy, 8, 16, 6)
    problem = plans.problem
    chooser = PolicyChooser(PolicyView(policy, problem), np.random.default_rng(0))
    nothing = np.zeros_like(plans.free)
    retake = Retake(problem, Parents(plans.choices, plans.unit_order, nothing), chooser)
    again = construct(problem, retake, len(plans))
    drafter = PreparedRequirements.of(problem.requirements).drafter
    assert drafter(again) == drafter(plans)
    assert (retake.logp == 0).all()


def test_only_what_is_taken_again_changes(policy: GraphPolicy) -> None:
    """Places taken again by chance leave pools, retries and servers as they were."""
    plans, _ = drawn(policy, 8, 16, 6)
    problem = plans.problem
    again = np.broadcast_to(problem.heads == Head.PLACE, plans.free.shape)
    chooser = PolicyChooser(PolicyView(policy, problem), np.random.default_rng(0), 1.0)
    retake = Retake(problem, Parents(plans.choices, plans.unit_order, again), chooser)
    found = construct(problem, retake, len(plans))
    for name in ("pool", "retries", "timeout", "due", "discipline", "priority", "kept"):
        assert (getattr(found, name) == getattr(plans, name)).all(), name
    assert (found.stage != plans.stage).any()
    assert (retake.logp.sum(1) < 0).all()
