"""Runs of the code product on the one loop: the form, rounds of search, groups, resuming, and what is refused."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.config import TrainingConfig, load_config
from groupwise.errors import ConfigError
from groupwise.programs.learning.model import load_policy
from groupwise.programs.learning.prior import LanguagePrior
from groupwise.programs.learning.product import build, check
from groupwise.programs.learning.rollout import ProgramJudge
from groupwise.programs.problems import generate
from groupwise.reporting.report import write_report
from groupwise.training.checkpoint import checkpoint_folders, choose_checkpoint
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute
from groupwise.types import SEARCHED, Score

Configure = Callable[..., TrainingConfig]
EXAMPLES = Path(__file__).parents[3] / "examples"
OPTIONS: dict[str, Any] = {
    "families": "word_problems", "problems": 20, "levels": 1, "warm_steps": 2, "search_every": 2,
    "search_problems": 3, "first_search": 2, "imitate_rows": 6,
}  # fmt: skip
CODE: dict[str, Any] = {
    "product": "code", "environment": "programs", "estimator": "outcome", "advantage_scale": "group_std",
    "num_generations": 4, "tasks_per_step": 2, "max_new_tokens": 16, "num_epochs": 1, "num_episodes": 6,
    "eval_steps": 3, "eval_episodes": 3, "eval_samples": 2, "save_steps": 2, "threads": 1,
}  # fmt: skip


@pytest.fixture
def code(small_config: Configure) -> Configure:
    def make(options: dict[str, Any] | None = None, **changes: Any) -> TrainingConfig:
        return small_config(**{**CODE, "options": {**OPTIONS, **(options or {})}, **changes})

    return make


def metrics(path: Path, kind: str = "step") -> list[dict[str, Any]]:
    return [event.data["metrics"] for event in read_events(path / "events.jsonl") if event.type == kind]


def run(cfg: TrainingConfig) -> Path:
    path = create_run(cfg)
    for _ in execute(path, build):
        pass
    return path


def test_a_run_learns_the_form_searches_and_compares_groups(code: Configure, tmp_path: Path) -> None:
    path = run(code({"programs": str(tmp_path / "programs")}))
    form, groups = metrics(path)[:2], metrics(path)[2:]
    assert form[1]["loss/supervised"] < form[0]["loss/supervised"]
    assert groups[0]["search/solved_share"] > 0
    assert groups[0]["search/finds"] > 0
    assert "search/solved_share" not in groups[1], "a round every second step"
    assert groups[3]["programs/evaluations"] > 4 * 8
    kept = sorted((tmp_path / "programs").rglob("*.py"))
    assert len(kept) == groups[-1]["programs/evaluations"] - 4 * 8, "every searched program is a file"
    assert "def solve(" in kept[0].read_text()
    assert {"eval/pass@1", "eval/pass@2", "eval/level_1", "eval/format"} <= set(metrics(path, "eval")[-1])
    assert all(row["prompt"] for row in read_groups(path / "groups" / "000006.parquet"))
    assert "def solve" in write_report(path).read_text()


def test_a_run_that_was_stopped_ends_like_one_that_was_not(
    code: Configure, numbers: Callable[[Path], dict[str, Any]]
) -> None:
    whole = run(code())
    broken = create_run(code())
    events = execute(broken, build)
    for event in events:
        if event.type == "step" and event.step == 5:
            events.close()  # type: ignore[attr-defined]
            break
    assert [folder.name for folder in checkpoint_folders(broken / "checkpoints")] != []
    for _ in execute(broken, build):
        pass
    assert numbers(broken) == numbers(whole)


def test_where_all_rewards_are_equal_no_weight_moves(code: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    start = run(code(num_episodes=3, run_name="start"))
    monkeypatch.setattr(ProgramJudge, "score", lambda self, evaluation: Score(0.5, {"correct": 0.0, "format": 1.0}))
    changes = {"warm_steps": 0, "search_every": 0, "start": str(start)}
    after = run(code(changes, num_episodes=2, run_name="equal", entropy_coef=0.1))
    assert all(step["groups/zero_spread_share"] == 1 for step in metrics(after))
    before, now = (choose_checkpoint(path, None).model for path in (start, after))
    assert all(torch.equal(before[name], now[name]) for name in before)


def test_a_placebo_imitates_programs_by_chance(code: Configure) -> None:
    path = run(code({"placebo": True}))
    assert metrics(path)[2]["search/solved_share"] > 0, "the search itself is not disturbed"


def test_search_samples_may_learn_by_the_ratio_to_their_tree(code: Configure) -> None:
    path = run(code({"search_samples": "ratio"}, importance_level="sequence"))
    assert metrics(path)[2]["policy/ratio_max"] != pytest.approx(1.0, abs=1e-3)


def test_the_policy_of_a_run_is_a_prior(code: Configure) -> None:
    policy, language = load_policy(run(code()))
    lines = LanguagePrior(policy, language.tokenizer).lines(generate("word_problems", 1, "test", 1), ())
    assert len(lines) > 1


@pytest.mark.parametrize(
    ("options", "changes", "said"),
    [
        ({"families": "riddles"}, {}, "riddles"),
        ({"search_evry": 3}, {}, "did you mean search_every"),
        ({"warm_steps": 0}, {}, "does not write programs yet"),
        ({"warm_steps": 7}, {}, "exceeds the number of steps"),
        ({"search_budget": 0}, {}, "search_budget"),
        ({"search_samples": "ratio"}, {}, "importance_level"),
        ({}, {"estimator": "group_rtg"}, "a program has one score"),
    ],
)
def test_what_no_run_can_be_made_of_is_refused(
    code: Configure, options: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(code(options, **changes))


@pytest.mark.parametrize("name", ["code.toml", "code_qwen.toml"])
def test_the_examples_are_settings_of_this_product(name: str) -> None:
    check(load_config(EXAMPLES / name))


def test_the_example_for_a_real_model_runs_with_its_kl_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On random weights in the shape of Qwen3: LoRA, a reference, GRPO, search and imitation, in a chat format."""
    monkeypatch.syspath_prepend(str(EXAMPLES.parent / "benchmarks"))
    benchmark = importlib.import_module("code_qwen")
    options = argparse.Namespace(device="cpu", shape=benchmark.small_shape(1, 16), small=True, scale_steps=2, set=[
        "rollout.num_generations=2", "rollout.tasks_per_step=1", "sampling.max_new_tokens=4",
        "task.options.search_problems=2", "task.options.first_search=1", "task.options.imitate_rows=2",
        "optim.per_device_train_batch_size=4", "optim.gradient_accumulation_steps=1",
    ])  # fmt: skip
    found = benchmark.scale(options, tmp_path)
    first, second = found["claims"]["scale_kl"]
    assert first == pytest.approx(0, abs=1e-6), "the adapter begins as no change"
    assert second > 1e-9
    settings = load_config(EXAMPLES / "code_qwen.toml")
    assert settings.loss.beta > 0
    assert [step["metrics"]["optim/kl_coef"] for step in found["steps"]] == [settings.loss.beta] * 2


def test_searches_can_be_looked_at_with_visits_values_and_the_path_taken(code: Configure) -> None:
    path = run(code({"search_problems": 2, "warm_steps": 1, "first_search": 1}, num_episodes=2, eval_steps=0))
    rows = [row for row in read_groups(path / "groups" / "000002.parquet") if row["version"] == SEARCHED]
    assert rows
    assert all(row["advantage"] == 0 and "search" in row["flags"] for row in rows)
    for row in rows:
        shown = json.loads(row["exhibit"])
        node = shown["tree"]
        assert (shown["kind"], shown["tries"]) == ("search", node["tries"])
        assert max(one["best"] for one in node["branches"]) == node["best"]
        taken = []
        while winners := [one for one in node["branches"] if one["winner"]]:
            (node,) = winners
            taken += node["action"].split("; ")
        assert node["finished"]
        assert all(line in row["text"] for line in taken)
