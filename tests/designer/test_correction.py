"""Predictions that were wrong: told in words, counted as losses, and better the next time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from groupwise.cli import run
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.prediction_correction import (
    FEW,
    WORST,
    Correction,
    Losses,
    LossTerms,
    LossWeights,
    MeasuredPerformance,
    check_by_simulation,
    known_correction,
    learn_from,
    measured_from_log,
    predict,
    remember_correction,
)
from groupwise.designer.results.outcome import DesignOutcome
from groupwise.designer.tasks import random_requirements
from groupwise.errors import ConfigError
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.files import write_workflow
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring.design_metrics import anatomy

SMALL = GenerationSettings(batch_size=8)


@pytest.fixture(scope="module")
def requirements() -> Requirements:
    return random_requirements(1, 10, load=0.3)


@pytest.fixture(scope="module")
def outcome(requirements: Requirements) -> DesignOutcome:
    torch.manual_seed(0)
    return Designer(GraphPolicy().eval(), settings=SMALL).design(requirements, 8)


def longer(requirements: Requirements, factor: float) -> Requirements:
    """The world as it is: everything takes longer than stated."""
    return Correction(dict.fromkeys(requirements.activities, factor)).applied(requirements)


def test_durations_of_1_4_times_those_stated_are_found_out_and_the_error_is_a_tenth_of_what_it_was(
    requirements: Requirements, outcome: DesignOutcome
) -> None:
    design, truth = outcome.best.design, longer(requirements, 1.4)
    errors, known = [], Correction()
    for seed in range(3):
        achieved = evaluate(design, truth, "simulation", seed=seed, cases=4000).cycle_time
        analysis = learn_from(design, requirements, MeasuredPerformance(achieved), known)
        errors.append(abs(analysis.mistakes[0].error))
        known = analysis.correction
    assert errors[0] > 0.3
    assert max(errors[1:]) < errors[0] / 10
    assert set(known.durations) == set(requirements.activities)
    assert all(1.3 < factor < 1.5 for factor in known.durations.values())


def test_an_analysis_says_what_was_mispredicted_by_how_much_and_what_was_adjusted(
    requirements: Requirements, outcome: DesignOutcome
) -> None:
    design = outcome.best.design
    said = predict(design, requirements)
    analysis = learn_from(design, requirements, MeasuredPerformance(said.cycle_time * 1.4, said.cost / 2), entropy=2.0)
    time, cost, losses, adjusted = analysis.lines()
    assert time.endswith("(40.0% more)")
    assert cost.endswith("(50.0% less)")
    assert losses.startswith("Losses: performance 0.2050, structural")
    assert "exploration -2.0000" in losses
    assert adjusted.startswith("Based on 1 measurement, durations are multiplied by 1.")
    assert adjusted.endswith(" and costs by 0.50.")
    assert predict(design, requirements, analysis.correction).cycle_time == pytest.approx(
        said.cycle_time * 1.4, rel=1e-6
    )
    assert predict(design, requirements, analysis.correction).cost == pytest.approx(said.cost / 2)


def test_the_three_losses_are_weighted_and_entropy_is_a_bonus() -> None:
    losses = Losses(performance=0.2, structural=0.5, exploration=-3.0, weights=LossWeights(1.0, 0.1, 0.01))
    assert losses.total == pytest.approx(0.2 + 0.05 - 0.03)


def test_a_simulation_blames_the_formulas_and_not_the_durations(
    requirements: Requirements, outcome: DesignOutcome
) -> None:
    design = outcome.best.design
    analysis = check_by_simulation(design, requirements, Correction(formulas=1.5))
    assert not analysis.correction.durations
    assert analysis.correction.formulas == pytest.approx(1.0, abs=0.1)
    again = check_by_simulation(design, requirements, analysis.correction)
    assert abs(again.mistakes[0].error) < abs(analysis.mistakes[0].error) / 10


def test_what_was_measured_of_single_activities_is_believed(requirements: Requirements, outcome: DesignOutcome) -> None:
    first = next(iter(requirements.activities))
    stated = requirements.activities[first].duration.mean
    analysis = learn_from(outcome.best.design, requirements, MeasuredPerformance(durations={first: stated * 3}))
    assert analysis.correction.durations[first] == pytest.approx(3)
    assert {factor for name, factor in analysis.correction.durations.items() if name != first} == {1.0}


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_measurements_that_cannot_be_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="measured cycle time"):
        MeasuredPerformance(cycle_time=value)
    with pytest.raises(ConfigError, match="no measurement was given"):
        MeasuredPerformance()


def test_a_correction_survives_and_is_used_by_the_next_call_for_the_same_activities(
    requirements: Requirements, outcome: DesignOutcome, tmp_path: Path
) -> None:
    with open_memory(tmp_path / "memory.sqlite") as memory:
        remember_correction(
            memory, requirements, Correction(dict.fromkeys(requirements.activities, 1.4), observations=1)
        )
    with open_memory(tmp_path / "memory.sqlite") as memory:
        assert known_correction(memory, random_requirements(2, 10)) == Correction()
        torch.manual_seed(0)
        found = Designer(GraphPolicy().eval(), memory, SMALL).design(requirements, 8, check=True)
    assert found.requirements == longer(requirements, 1.4)
    assert found.notes == ("Based on 1 measurement, durations are multiplied by 1.40.",)
    assert found.analysis is not None
    assert abs(found.analysis.mistakes[0].error) < 0.1


def test_a_correction_that_nothing_can_be_designed_for_is_left_aside_and_said_so(requirements: Requirements) -> None:
    with open_memory(":memory:") as memory:
        remember_correction(
            memory, requirements, Correction(dict.fromkeys(requirements.activities, 19.0), observations=1)
        )
        found = Designer(GraphPolicy().eval(), memory, SMALL).design(requirements, 8)
    assert found.requirements == requirements
    assert "measurements are ignored" in found.notes[0]


# the command


@pytest.fixture
def files(requirements: Requirements, outcome: DesignOutcome, tmp_path: Path) -> tuple[str, str, str]:
    asked, drawn = tmp_path / "requirements.yaml", tmp_path / "design.json"
    asked.write_text(yaml.safe_dump(requirements.model_dump(mode="json", exclude_none=True)))
    write_workflow(outcome.best.design, drawn)
    return str(asked), str(drawn), str(tmp_path / "memory.sqlite")


def test_feedback_is_remembered_and_predicted_from(
    files: tuple[str, str, str], requirements: Requirements, outcome: DesignOutcome, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, drawn, memory = files
    measured = predict(outcome.best.design, requirements).cycle_time * 1.4
    words = ["feedback", asked, drawn, "--cycle-time", str(measured), "--memory", memory]
    assert run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["mistakes"][0]["error"] == pytest.approx(0.4, abs=1e-3)
    assert told["cycle_time_now"] == pytest.approx(measured, rel=1e-3)
    assert run(words) == 0
    again = capsys.readouterr().out
    assert "0.0% " in again
    assert "Based on 2 measurements" in again


def test_feedback_from_a_log_believes_the_times_of_its_activities(
    files: tuple[str, str, str], requirements: Requirements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, drawn, memory = files
    lines, clock = ["case,activity,start,end"], 0.0
    for case in range(6):
        for name, activity in requirements.activities.items():
            lines.append(f"{case},{name},{clock},{clock + 2 * activity.duration.mean}")
            clock += 2 * activity.duration.mean
    log = tmp_path / "log.csv"
    log.write_text("\n".join(lines))
    assert measured_from_log(log).cycle_time == pytest.approx(clock / 6)
    assert run(["feedback", asked, drawn, "--from", str(log), "--memory", memory, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(factor == pytest.approx(2, rel=1e-3) for factor in told["correction"]["durations"].values())


def test_feedback_without_a_measurement_is_refused(files: tuple[str, str, str]) -> None:
    asked, drawn, memory = files
    assert run(["feedback", asked, drawn, "--memory", memory]) == 2
    assert not Path(memory).exists()


def test_the_losses_of_a_design_are_its_prediction_error_and_its_complexity(requirements: Requirements) -> None:
    session = Designer(GraphPolicy().eval(), settings=SMALL).begin(requirements)
    result = next(one for one in session.generation().results if not one.score.broken)
    design, predicted = result.candidate.design, result.score.performance
    assert predicted is not None
    terms = LossTerms(requirements, performance=2.0, structural=3.0, seed=5)
    achieved = evaluate(design, requirements, "simulation", seed=5, cases=FEW)
    errors = [achieved.cycle_time / predicted.cycle_time - 1, achieved.cost / predicted.cost - 1]
    complexity = anatomy(design).metrics.control_flow
    wanted = min((errors[0] ** 2 + errors[1] ** 2) / 2, WORST), complexity / (complexity + 20)
    assert terms.of(design, result.score) == pytest.approx(wanted)
    assert terms.penalty(design, result.score) == pytest.approx(2 * wanted[0] + 3 * wanted[1])
    assert terms.seconds > 0
    without = LossTerms(requirements, performance=0.0, structural=0.0)
    assert without.penalty(design, result.score) == without.seconds == 0, "nothing is simulated for nothing"
