"""Settings files that drive a design call: what they change, what is noted, what is refused; and z-scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.cli import run
from groupwise.config import load_config
from groupwise.config.sections import ScoringSettings, TrainingSettings
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.design_call import DesignSettings
from groupwise.designer.generations import standings
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import load_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import random_requirements
from groupwise.errors import ConfigError
from groupwise.workflows.requirements import Weights

EXAMPLES = Path(__file__).parents[2] / "examples"
GRPO = EXAMPLES / "grpo.xml"
ORDERS = EXAMPLES / "workflows" / "order_fulfilment.yaml"
ENDLESS = TrainingSettings(early_stopping=False)


def changed(path: Path, **values: str) -> Path:
    text = GRPO.read_text()
    for name, value in values.items():
        tag = name.replace("_", "-")
        before, _, rest = text.partition(f"<{tag}>")
        text = f"{before}<{tag}>{value}<{rest.partition('<')[2]}"
    path.write_text(text)
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    assert run([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_xml_sets_generations_their_size_and_when_to_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path / "grpo.xml", batch_size="8", epochs="3")
    found = answer(capsys, "design", ORDERS, "--config", path)
    assert [one["judged"] for one in found["generations"]] == [8, 8, 8]
    for one in found["generations"]:
        assert sum(one["origins"].values()) == sum(one["modes"].values()) == 8
        assert set(one["met"]) <= {"structural", "temporal", "resource", "novelty"}
        assert list(one["actions"]) == ["branch", "synchronization", "timing", "resource"]
    notes = " ".join(found["notes"])
    assert "act only with --learn: loss.clip_ratio, optim.learning_rate" in notes
    assert "act only with --memory: memory.pattern_memory_size" in notes
    stops = changed(tmp_path / "stops.xml", batch_size="8", early_stopping_threshold="1.0")
    found = answer(capsys, "design", ORDERS, "--config", stops, "--set", "early_stopping_patience=1")
    assert len(found["generations"]) == 2


def test_every_value_of_the_xml_reaches_the_call(tmp_path: Path) -> None:
    values = {
        "batch_size": "7", "epsilon_greedy": "0.05", "elite_percentage": "0.2", "tournament_size": "3",
        "learning_rate": "0.004", "clip_range": "0.3", "epochs": "77", "early_stopping_threshold": "0.02",
        "pattern_memory_size": "5", "experience_memory_size": "6", "decay_factor": "0.5", "recall_threshold": "0.9",
        "performance_weight": "0.1", "structural_weight": "0.2", "maintainability_weight": "0.3",
        "resource_weight": "0.4",
    }  # fmt: skip
    read = DesignSettings.read(changed(tmp_path / "grpo.xml", **values))
    requirements = random_requirements(3, 8)
    problem = DesignProblem(requirements)
    assert read.generation(problem) == GenerationSettings(
        batch_size=7, epsilon_greedy=0.05, elite_percentage=0.2, tournament_size=3
    )
    assert read.learning == {"learning_rate": 0.004, "clip_ratio": 0.3}
    assert (read.generations, read.stopping.early_stopping, read.stopping.early_stopping_threshold) == (77, True, 0.02)
    memory = read.cfg.memory
    assert (memory.pattern_memory_size, memory.experience_memory_size) == (5, 6)
    assert (memory.decay_factor, memory.recall_threshold) == (0.5, 0.9)
    with Designer(load_policy(), scoring=read.scoring(requirements), learn=True, **read.learning) as designer:
        assert designer.weights == Weights(performance=0.1, structure=0.2, maintainability=0.3, resources=0.4)
        assert designer.improvement is not None
        assert designer.improvement.cfg.optim.learning_rate == 0.004


def test_toml_says_the_same_and_what_has_no_effect_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grpo.toml"
    path.write_text(
        "[generation]\nbatch_size = 9\n[run]\nsave_steps = 3\nseed = 8\n[rollout]\nnum_generations = 4\n"
        '[scoring]\nnormalization = "zscore"\n[task.options]\nrequirements = "a.yaml"\n'
    )
    read = DesignSettings.read(path)
    requirements = random_requirements(3, 8)
    (note,) = read.notes(requirements, learn=False, memory=False)
    assert note == (
        "These settings have no effect on a design call: run.save_steps, rollout.num_generations, "
        "task.options.requirements."
    )
    scoring = read.scoring(requirements)
    assert scoring is not None
    assert isinstance(requirements.objective, Weights)
    assert scoring.performance_weight == requirements.objective.performance, "weights were not given"
    assert (read.seed, read.generations, read.stopping.early_stopping) == (8, None, True)


def test_unknown_elements_and_settings_of_another_product_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tournament_sise"):
        DesignSettings.read(changed_tag(tmp_path / "a.xml"))
    with pytest.raises(ConfigError, match=r"task.product is 'control'"):
        DesignSettings.read(EXAMPLES / "cartpole.toml")


def changed_tag(path: Path) -> Path:
    path.write_text(GRPO.read_text().replace("tournament-size", "tournament-sise"))
    return path


def test_the_xml_trains_the_designer_and_says_what_has_no_part_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(GRPO).task.product == "designer"
    small = ["num_episodes=1", "num_generations=4", "tasks_per_step=1", "eval_episodes=1", "threads=1"]
    assert run(["train", str(GRPO), *(word for one in small for word in ("--set", one))]) == 0
    told = " ".join("".join(capfd.readouterr()).split())
    assert "This run trains the designer's policy on synthetic requirements, 4 designs for each at a time" in told
    assert "groupwise design --config" in told


# z-scores


def test_z_scores_compare_the_candidates_of_a_generation_and_scores_stay_absolute() -> None:
    requirements = random_requirements(3, 8)
    relative = Designer(
        load_policy(), settings=GenerationSettings(batch_size=12), stopping=ENDLESS,
        scoring=ScoringSettings(normalization="zscore"),
    )  # fmt: skip
    session = relative.begin(requirements)
    bests = []
    for _ in range(4):
        session.generation()
        bests.append(session.history[-1].best)
    assert bests == sorted(bests), "the best score is never lost, whatever is compared"
    parents = session.generations.parents
    legal = [one for one in parents if one.score is not None and not one.score.broken]
    compared = standings(legal, "zscore")
    assert abs(compared.mean()) < 1e-9
    shares = np.array([[share or 0.0 for share in one.score.groups] for one in legal if one.score is not None])
    spread = shares.std(0)
    scaled = np.where(spread > 1e-12, (shares - shares.mean(0)) / np.where(spread > 1e-12, spread, 1), 0)
    weights = np.array([0.4, 0.25, 0.2, 0.15])
    assert np.allclose(compared, scaled @ weights)
    outcome = session.outcome()
    assert 0 < outcome.best.total < 1
    assert outcome.best.score is not None
    assert outcome.best.score.relative is None


def test_z_scores_change_which_candidates_become_parents() -> None:
    def parents(normalization: str, seed: int) -> list[int]:
        requirements = random_requirements(seed, 12).model_copy(update={"objective": Weights()})
        scoring = ScoringSettings.model_validate({"normalization": normalization})
        session = Designer(load_policy(), scoring=scoring).begin(requirements)
        session.generation()
        return [one.key for one in session.generations.parents]

    assert any(parents("reference", seed) != parents("zscore", seed) for seed in range(3))


def test_designs_that_break_a_rule_stay_below_all_others() -> None:
    requirements = random_requirements(3, 8)
    work = sum(one.duration.mean for one in requirements.activities.values())
    rules = requirements.rules.model_copy(update={"deadline": work * 0.95})
    session = Designer(load_policy()).begin(requirements.model_copy(update={"rules": rules}))
    metrics = session.generation()
    candidates = [result.candidate for result in metrics.results]
    broken = np.array([bool(result.score.broken) for result in metrics.results])
    assert 0 < broken.sum() < len(broken)
    found = standings(candidates, "zscore")
    assert found[broken].max() < found[~broken].min()
