"""The migration page: every name it promises is there and works, every other one is not there yet."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import groupwise
import groupwise.compat
from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.config import TrainingConfig, load_config
from groupwise.errors import MissingExtra
from groupwise.language.tiny import character_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"


def table(head: str) -> list[list[str]]:
    """The rows of the table whose first column is called `head`."""
    lines = PAGE.read_text("utf8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split(" | ")])
    return rows


HERE = [re.match(r"[\w.]+", row[2]).group().rpartition(".") for row in table("from")]  # type: ignore[union-attr]
CALLS = [row[0] for row in table("call")]
SETTINGS, ELEMENTS = table("setting of document 1"), table("element of document 0")


@pytest.fixture(scope="session")
def xml_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of document 0, put together from the table."""
    sections: dict[str, str] = {}
    for element, value, _ in ELEMENTS:
        section, name = element.split("/")
        sections[section] = sections.get(section, "") + f"<{name}>{value}</{name}>"
    path = tmp_path_factory.mktemp("xml") / "grpo.xml"
    body = "".join(f"<{section}>{inner}</{section}>" for section, inner in sections.items())
    path.write_text(f"<grpo-config>{body}</grpo-config>")
    return path


def trainer_words(tmp_path: Path) -> dict[str, Any]:
    """An agent with something to learn, and settings that make it short."""
    scenarios = [{"topic": "refund", "context": "Order delayed"}, {"topic": "shipping", "context": "Track package"}]
    short = {"output_dir": str(tmp_path), "num_generations": 2, "max_new_tokens": 4, "eval_steps": 0, "threads": 1}
    engine = groupwise.compat.create_computational_engine(
        groupwise.MultiTurnAgent(groupwise.AgentConfig(model_name="tiny")),
        groupwise.ConversationEnvironment(scenarios, max_turns=1), num_workers=2, config=TrainingConfig(**short),
    )  # fmt: skip
    return {
        "engine": engine, "prompts": ["Hello"],
        "agent": groupwise.MultiTurnAgent(groupwise.AgentConfig(model_name="tiny")), "scenarios": scenarios,
        "env": groupwise.ConversationEnvironment(scenarios, max_turns=1), "short": short,
        "config_of_run": TrainingConfig(num_episodes=1, **short),
        "reward_fn": groupwise.compat.create_customer_service_reward(),
    }  # fmt: skip


def memory_words() -> dict[str, Any]:
    """A memory, and what there is to remember."""

    def features(requirements: Any, context: Any) -> list[float]:
        return [1.0, requirements["activities"] / 30]

    return {
        "features": features, "memory_system": groupwise.MemorySystem(features=features, width=2),
        "requirements": {"activities": 30}, "workflow": {"split": "and"}, "performance": {"score": 0.9},
        "context": {"domain": "loans"}, "priority": 0.9, "candidate": SimpleNamespace(), "score": SimpleNamespace(),
    }  # fmt: skip


@pytest.fixture
def words(
    small_config: Callable[..., TrainingConfig], tiny_language: ModuleType, finished_analyzer: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:  # fmt: skip
    """What the calls on the page take for granted: a model, a policy, a batch and a few tensors."""
    torch.manual_seed(0)
    # As when the analyzer was made: the runs of PPO are missing, and must not be trained here.
    monkeypatch.setattr("groupwise.control.comparison.campaign.available", lambda product: not product.endswith("ppo"))
    cfg = small_config(estimator="outcome", advantage_scale="group_std")
    parts = tiny_language.build(cfg)
    model = tiny_language.qwen2()
    return {
        "analyzer": finished_analyzer, "model": model, "value_fn": groupwise.compat.create_value_function(model),
        "policy": parts.policy, "cfg": cfg, "batch": parts.source.next(),
        "input_ids": torch.randint(32, (4, 6)), "attention_mask": torch.ones(4, 6),
        "hidden_size": 32, "hidden_states": torch.randn(4, 6, 32), "logits": torch.randn(4, 6, 32),
        "response_mask": torch.arange(6).expand(4, 6) >= 2, "group_ids": torch.tensor([0, 0, 1, 1]),
        "rewards": torch.tensor([1.0, 0.0, 1.0, 3.0]), "advantages": torch.tensor([1.0, -1.0, -1.0, 1.0]),
        "tokenizer": character_tokenizer(), "config": groupwise.AgentConfig(model_name="tiny"),
        "dialogue_db": DialogueDatabase(), **trainer_words(tmp_path), **memory_words(),
        "trajectories": [{"problem": "2+2=?", "workflow_codes": ["4", "5"], "rewards": [1.0, 0.0], "problem_id": 0}],
        "rollouts": [
            SimpleNamespace(obs=np.full((n, 4), n), actions=np.arange(n) % 2, rewards=np.ones(n)) for n in range(2, 8)
        ],
        "grouped_rollouts": {0: [SimpleNamespace(obs=np.ones((2, 4)), actions=np.zeros(2, int), rewards=np.ones(2))]},
        "group_advantages": {0: np.ones(2)}, "group_id": 0,
        "step_values": np.ones(4), "step_rewards": np.ones(4), "dones": np.zeros(4), "groups": np.array([0, 1, 0, 1]),
        "token_rewards": torch.randn(4, 6), "token_values": torch.randn(4, 6), "returns": torch.randn(4, 6),
    }  # fmt: skip


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, _, name in HERE])
def test_every_name_is_where_the_page_says_and_at_the_root_or_in_compat(module: str, name: str) -> None:
    also = groupwise if name in groupwise.__all__ else groupwise.compat
    assert getattr(importlib.import_module(module), name) is getattr(also, name)


@pytest.mark.filterwarnings("ignore:group_strategy")
@pytest.mark.parametrize("call", CALLS)
def test_every_call_answers(words: dict[str, Any], xml_file: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(xml_file.parent)
    named = {name: getattr(importlib.import_module(module), name) for module, _, name in HERE}
    try:
        answer = eval(call, {**words, **named})  # noqa: S307
        assert (asyncio.run(answer) if inspect.iscoroutine(answer) else answer) is not None
    except MissingExtra as missing:
        pytest.skip(missing.hint)


def test_every_name_that_is_here_is_called() -> None:
    assert {name for _, _, name in HERE} <= {word for call in CALLS for word in re.findall(r"\w+", call)}


def test_the_answers_are_what_the_page_says(words: dict[str, Any]) -> None:
    given = [words[name] for name in ("logits", "input_ids", "response_mask", "advantages")]
    loss = groupwise.compat.compute_grpo_loss(*given)
    assert set(loss) == {"loss", "pg_loss", "entropy"}
    found = groupwise.compat.compute_grpo_advantages(group_rewards=[1, 1, 0])
    assert found.tolist() == pytest.approx([0.707, 0.707, -1.414], abs=1e-3)
    assert groupwise.compat.compute_grpo_advantages(group_rewards=[1, 0]).tolist() == [1.0, -1.0]
    sample = groupwise.group_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), std="sample")
    assert sample.tolist() == pytest.approx([0.707, -0.707], abs=1e-3)
    with pytest.raises(ValueError, match="use_reference_model"):
        TrainingConfig(beta=0.1)


@pytest.mark.parametrize(("flat", "path"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_every_setting_is_kept_where_the_page_says(flat: str, path: str) -> None:
    cfg = TrainingConfig()
    section, name = path.split(".")
    assert name == flat
    assert getattr(getattr(cfg, section), name) == cfg.flat()[flat]


@pytest.mark.parametrize(("element", "value", "path"), ELEMENTS, ids=[row[0] for row in ELEMENTS])
def test_every_xml_element_is_read_into_the_setting_the_page_names(
    element: str, value: str, path: str, xml_file: Path, tmp_path: Path
) -> None:
    section, name = path.split(".")
    assert getattr(getattr(load_config(xml_file), section), name) == float(value)
    if section == "scoring":  # these four sum to 1: none can be changed alone
        return
    other = tmp_path / "other.xml"
    tag = element.split("/")[1]
    changed = str(int(value) + 1) if value.isdigit() else str(float(value) / 2)
    other.write_text(xml_file.read_text().replace(f"<{tag}>{value}<", f"<{tag}>{changed}<"))
    assert getattr(getattr(load_config(other), section), name) == float(changed)


def test_the_xml_threshold_switches_early_stopping_on(xml_file: Path) -> None:
    assert load_config(xml_file).training.early_stopping is True
