"""A design call from requirements to outcome: its stages, what is kept, what is learned, and when it ends."""

from __future__ import annotations

import logging
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config.sections import ScoringSettings, TrainingSettings
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.design_call import DesignOptions, design_for
from groupwise.designer.generations import pareto_front
from groupwise.designer.learning import LearningPolicy, likeliest
from groupwise.designer.pipeline import Designer, DesignSession
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.results.outcome import STAGES, GenerationMetrics
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.errors import ConfigError, ContractError
from groupwise.training.step_groups import StepGroups
from groupwise.workflows.requirements import Requirements, Weights, parse_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_design

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDLESS = TrainingSettings(early_stopping=False)
SMALL = GenerationSettings(batch_size=8)


def fresh_policy(seed: int = 0) -> GraphPolicy:
    torch.manual_seed(seed)
    return GraphPolicy().eval()


@pytest.fixture(scope="module")
def requirements() -> Requirements:
    return random_requirements(3, 8)


def test_a_call_goes_through_the_six_stages_and_ends_with_a_sound_design_that_keeps_the_rules(
    requirements: Requirements,
) -> None:
    outcome = Designer(fresh_policy()).design(requirements)
    assert outcome.evaluations in (64, 128, 256, 512), "more as long as it pays"
    assert set(outcome.stages) == set(STAGES)
    assert all(
        outcome.stages[name] > 0 for name in ("preprocessing", "candidate generation", "evaluation", "selection")
    )
    assert outcome.stages["policy update"] == outcome.stages["memory integration"] == 0
    assert check_design(outcome.best.design).sound
    assert not broken_rules(outcome.best.design, requirements)
    first = outcome.generations[0]
    assert sum(first.origins.values()) == 32
    assert first.origins["likeliest"] == first.origins["rule"] == 1
    assert first.origins["sample"] >= 25
    assert outcome.pareto


@given(seed=st.integers(0, 10_000))
@settings(max_examples=8)
def test_the_best_score_never_falls_between_generations_and_is_the_best_that_was_judged(seed: int) -> None:
    call = Designer(fresh_policy(seed), settings=SMALL, seed=seed).begin(random_requirements(seed, 6))
    seen: list[float] = []
    for _ in range(4):
        seen += call.generation().totals
        assert call.history[-1].best == max(seen)
    bests = [generation.best for generation in call.outcome().generations]
    assert bests == sorted(bests)


def test_a_call_turns_its_requirements_into_a_problem_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built: list[DesignProblem] = []
    build = DesignProblem.__init__

    def counted(problem: DesignProblem, asked: Requirements) -> None:
        built.append(problem)
        build(problem, asked)

    monkeypatch.setattr(DesignProblem, "__init__", counted)
    options = DesignOptions(EXAMPLES / "workflows" / "loan.yaml", 8, memory=tmp_path / "memory.sqlite", check=True)
    design_for(options, lambda generation: None, lambda: False)
    assert len(built) == 1


def test_no_design_is_judged_twice(requirements: Requirements) -> None:
    call = Designer(fresh_policy(), settings=SMALL).begin(requirements)
    designs = [result.candidate.design for _ in range(4) for result in call.generation().results]
    assert len(set(designs)) == len(designs) == call.evaluations


def test_evaluations_are_used_up_to_the_last_and_never_beyond(requirements: Requirements) -> None:
    designer = Designer(fresh_policy(), settings=SMALL, stopping=ENDLESS)
    assert designer.design(requirements, evaluations=19).evaluations == 19
    assert len(designer.design(requirements, generations=3).generations) == 3
    with pytest.raises(ConfigError, match="0 evaluations"):
        designer.design(requirements, evaluations=0)


def test_it_stops_when_the_best_has_hardly_improved_for_some_generations(requirements: Requirements) -> None:
    stopping = TrainingSettings(early_stopping=True, early_stopping_patience=2, early_stopping_threshold=1.0)
    outcome = Designer(fresh_policy(), settings=SMALL, stopping=stopping).design(requirements, generations=9)
    assert len(outcome.generations) == 3
    assert "Stopped early after 3 generations" in outcome.notes[0]
    never = TrainingSettings(early_stopping=True, early_stopping_patience=2, early_stopping_threshold=0.0)
    assert (
        len(Designer(fresh_policy(), settings=SMALL, stopping=never).design(requirements, generations=5).generations)
        == 5
    )


def test_what_cannot_be_met_is_refused_before_anything_is_made(requirements: Requirements) -> None:
    first, second = list(requirements.activities)[:2]
    rules = requirements.rules.model_copy(update={"precedes": ((first, second), (second, first))})
    with pytest.raises(ConfigError, match=first):
        Designer(fresh_policy()).design(requirements.model_copy(update={"rules": rules}))


def test_weights_come_from_the_settings() -> None:
    scoring = ScoringSettings(performance_weight=0.5, structural_weight=0.15)
    assert Designer(fresh_policy(), scoring=scoring).weights == Weights(performance=0.5, structure=0.15)


def test_the_same_seed_designs_the_same(requirements: Requirements) -> None:
    first, second = (Designer(fresh_policy(), settings=SMALL, seed=5).design(requirements, 16) for _ in range(2))
    assert first.best.design == second.best.design
    assert [generation.mean for generation in first.generations] == [
        generation.mean for generation in second.generations
    ]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=12))
def test_the_pareto_front_is_what_nobody_beats(rows: list[tuple[int, ...]]) -> None:
    def beats(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    wanted = {row for row in rows if not any(beats(other, row) for other in rows)}
    found = pareto_front(np.array(rows, float))
    assert [rows[n] for n in found] == sorted({rows[n] for n in found}, key=rows.index)
    assert {rows[n] for n in found} == wanted


# learning


def learning(requirements: Requirements, generations: int = 1) -> tuple[DesignSession, GenerationMetrics]:
    """A call of a learning designer, up to where the policy would be updated."""
    settings = SMALL if generations == 1 else GenerationSettings(batch_size=64)
    call = Designer(fresh_policy(), settings=settings, learn=True).begin(requirements)
    for _ in range(generations - 1):
        call.generation()
    metrics = GenerationMetrics()
    metrics.start()
    for candidate in call.generate():
        metrics.record(call.evaluator.evaluate(candidate))
    return call, metrics


def updater(call: DesignSession) -> LearningPolicy:
    assert call.policy is not None
    return call.policy


def test_without_learning_the_policy_stays_as_it_is(requirements: Requirements) -> None:
    policy = fresh_policy()
    before = [parameter.clone() for parameter in policy.parameters()]
    Designer(policy, settings=SMALL).design(requirements, 16)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_learning_makes_the_better_of_what_was_drawn_likelier(requirements: Requirements) -> None:
    call, metrics = learning(requirements)
    group = updater(call).group(metrics)
    assert group is not None
    improvement = updater(call).improvement
    batch = improvement.source.compare(StepGroups((group,), (), 1))
    before = improvement.policy.evaluate(batch.inputs).logp.detach()
    update = updater(call).update([result.candidate for result in metrics.results], metrics)
    after = improvement.policy.evaluate(batch.inputs).logp.detach()
    assert update.attempts == 6, "all but the likeliest and the widest, which were not drawn"
    assert update.version == improvement.policy.version == 1
    assert float(((after - before) * batch.advantages * batch.mask).sum()) > 0


@pytest.mark.parametrize("generations", [1, 2])
def test_what_is_learned_from_was_drawn_from_the_policy_and_carries_the_probability_of_its_mixture(
    requirements: Requirements, generations: int
) -> None:
    call, metrics = learning(requirements, generations)
    group = updater(call).group(metrics)
    assert group is not None
    drafts = [draft for draft in call.generations.drafts if draft.logp is not None]
    candidates = [one for one in drafts[0].candidates if one.origin == "sample"]
    assert [member.meta["design"] for member in group.group.members] == [one.design for one in candidates]
    assert {result.candidate.origin for result in metrics.results} - {"sample"}
    batch = updater(call).improvement.source.compare(StepGroups((group,), (), 1))
    policy = updater(call).improvement.policy.evaluate(batch.inputs).logp.detach().double().exp()
    legal = torch.cat([batch.inputs["legal"].sum(-1), batch.inputs["next_legal"].sum(-1)], 1)
    assert drafts[0].epsilon is not None
    drawn = [one.origin == "sample" for one in drafts[0].candidates]
    epsilon = torch.from_numpy(drafts[0].epsilon[drawn])
    assert {0.1, 0.3} <= {*epsilon.tolist()} if generations > 1 else 0.3 in epsilon
    mixture = (1 - epsilon[:, None]) * policy + epsilon[:, None] / legal.clamp(min=1)
    error = (mixture.log() - batch.behavior_logp).abs()[batch.mask]
    assert batch.rows == len(candidates), "a group of equal scores would leave nothing to compare"
    assert float(error.max()) < 1e-4


def test_a_design_drawn_twice_counts_twice_and_is_judged_once() -> None:
    call, metrics = learning(
        parse_requirements({"name": "two", "activities": {n: {"duration": {"mean": 9}} for n in "ab"}})
    )
    group = updater(call).group(metrics)
    assert group is not None
    designs = [member.meta["design"] for member in group.group.members]
    assert len(set(designs)) < len(designs)
    terms = updater(call).terms
    known = {
        result.candidate.design: result.total - terms.penalty(result.candidate.design, result.score)
        for result in metrics.results
    }
    assert group.totals().tolist() == [known[design] for design in designs]


# watching


def test_the_monitoring_example_runs_and_tells_of_every_generation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.argv", ["workflow_monitoring.py", "--generations", "2"])
    with caplog.at_level(logging.INFO):
        runpy.run_path(str(EXAMPLES / "workflow_monitoring.py"), run_name="__main__")
    told = [record.message for record in caplog.records if record.name == "designer"]
    assert len(told) == 3
    assert all(message.startswith("Generation metrics: 32 judged, best 0.") for message in told[:2])
    assert all("policy loss" in message for message in told[:2])


def test_nothing_is_recorded_before_a_generation_started(requirements: Requirements) -> None:
    call = Designer(fresh_policy(), settings=SMALL).begin(requirements)
    result = call.evaluator.evaluate(call.generate()[0])
    with pytest.raises(ContractError, match="started"):
        GenerationMetrics().record(result)


def test_half_of_every_generation_teaches_while_the_policy_learns(requirements: Requirements) -> None:
    settings = GenerationSettings(batch_size=32)
    with Designer(fresh_policy(), settings=settings, stopping=ENDLESS, learn=True) as designer:
        call = designer.begin(requirements)
        attempts = [call.generation().updates[0].attempts for _ in range(3)]
    assert attempts[0] >= 28
    assert all(one >= 12 for one in attempts[1:])


def test_calls_that_learn_improve_the_likeliest_designs_of_the_requirements_they_are_about() -> None:
    asked = [random_requirements(seed, 8) for seed in (1, 2)]
    prepared = [PreparedRequirements.of(one) for one in asked]
    policy = fresh_policy()

    def mean() -> float:
        return float(np.mean([likeliest(policy, one)[1].total for one in prepared]))

    before = mean()
    with Designer(policy, stopping=ENDLESS, learn=True, learning_rate=1e-3) as designer:
        for _ in range(3):
            for one in asked:
                for _ in designer.begin(one).run(10_000, 4):
                    pass
    assert mean() > before + 0.01


@pytest.mark.parametrize("coefficient", ["performance_loss_coef", "structural_loss_coef", "entropy_coef"])
def test_without_one_of_the_losses_of_self_correction_the_policy_learns_something_else(
    coefficient: str,
) -> None:
    # With branches, so that designs differ in complexity.
    requirements = random_requirements(1, 14)

    def learned(**changes: float) -> list[torch.Tensor]:
        policy = fresh_policy()
        with Designer(policy, settings=SMALL, learn=True, **changes) as designer:
            designer.begin(requirements).generation()
        return list(policy.parameters())

    usual, without = learned(), learned(**{coefficient: 0.0})
    assert any(not torch.equal(a, b) for a, b in zip(usual, without, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(usual, learned(), strict=True)), "learning is not repeatable"


def test_the_structural_loss_makes_simpler_samples_likelier() -> None:
    requirements = random_requirements(1, 14)
    with Designer(fresh_policy(), learn=True, structural_loss_coef=100.0, performance_loss_coef=0.0) as designer:
        call = designer.begin(requirements)
        metrics = GenerationMetrics()
        metrics.start()
        for candidate in call.generate():
            metrics.record(call.evaluator.evaluate(candidate))
        group = updater(call).group(metrics)
        assert group is not None
        batch = designer.improvement.source.compare(StepGroups((group,), (), 1)) if designer.improvement else None
        assert batch is not None
        before = designer.policy.evaluate(batch.inputs).logp.detach()
        update = updater(call).update([result.candidate for result in metrics.results], metrics)
        gained = ((designer.policy.evaluate(batch.inputs).logp.detach() - before) * batch.mask).sum(1)
    losses = torch.tensor([updater(call).terms.known[one.meta["design"]][1] for one in group.group.members])
    assert update.losses[1] == pytest.approx(float(losses.mean()))
    assert float(torch.corrcoef(torch.stack([gained.double(), losses.double()]))[0, 1]) < -0.3
