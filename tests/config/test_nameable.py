"""The table of what text settings may name: it is complete, and it is an allow list."""

import inspect
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from groupwise import products
from groupwise.agents.data.dataset import DataOptions
from groupwise.agents.environments.orders import Orders
from groupwise.config import TrainingConfig
from groupwise.config.fields import settings_of
from groupwise.config.nameable import NotAllowed, Reach, permitted, row_of
from groupwise.config.setting_names import layout_of
from groupwise.control.environments import OWN
from groupwise.programs.declaration import CodeOptions
from groupwise.rewards.registry import KNOWN

BUILT_IN = tuple(products.PRODUCTS)


@pytest.mark.parametrize("product", BUILT_IN)
def test_every_text_setting_has_a_row(product: str) -> None:
    missing = [one.path for one in layout_of(product).settings.values() if one.kind is str]
    assert [path for path in missing if row_of(product, path) is None] == []


def takes_text(parameter: inspect.Parameter) -> bool:
    # Annotations are texts where a module postpones them.
    told = parameter.annotation if isinstance(parameter.annotation, str) else inspect.formatannotation(
        parameter.annotation
    )  # fmt: skip
    return any(word in told for word in ("str", "Path", "Any", "Reward", "Rubric"))


def options_that_take_text() -> list[tuple[str, str]]:
    """(product, option) of everything of ours that reads a text from a free table."""
    found = [("language", f"task.options.{one.name}") for one in fields(DataOptions) if isinstance(one.default, str)]
    found += [("code", f"task.options.{one.name}") for one in settings_of(CodeOptions).values() if one.kind is str]
    found += [("designer", f"task.options.{name}") for name in ("requirements", "memory", "start")]
    found += [("agent", f"task.options.{name}") for name, one in inspect.signature(Orders).parameters.items()
              if takes_text(one)]  # fmt: skip
    found += [("control", f"task.options.{name}") for make in OWN.values()
              for name, one in inspect.signature(make).parameters.items() if takes_text(one)]  # fmt: skip
    places = [f"groupwise.rewards.{place}" for place in KNOWN.values()]
    for place in (*places, "groupwise.agents.program_reward:ProgramTestReward"):
        module, _, name = place.partition(":")
        parameters = inspect.signature(getattr(import_module(module), name)).parameters
        found += [("language", f"reward.options.{key}") for key, one in parameters.items() if takes_text(one)]
    return sorted(set(found))


def test_every_option_that_our_code_reads_as_text_has_a_row() -> None:
    pytest.importorskip("torch")
    found = options_that_take_text()
    assert len(found) > 20
    assert [(product, option) for product, option in found if row_of(product, option) is None] == []


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "sums.jsonl").write_text("{}\n")
    (tmp_path / "secret.jsonl").write_text("{}\n")
    (data / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (data / "in.jsonl").symlink_to("sums.jsonl")
    (data / "sub" / "out").symlink_to(tmp_path)
    (data / "loop").symlink_to("loop")
    own = tmp_path / "runs" / "mine"
    own.mkdir(parents=True)
    return Reach(data, lambda name: own if name == "mine" else None, ("Qwen/Qwen3-0.6B",))


LANGUAGE = {"product": "language", "environment": "addition"}
REFUSED = [
    {"environment": "evilmod:Foo-v0"}, {"environment": "evilmod:CartPole-v1"}, {"environment": "CartPole-v1 "},
    {"environment": "cartpole-v1"}, {"environment": "CartPole-v1\u200b"}, {"environment": "ＣartPole-v1"},
    {"environment": "CartPole"}, {"options": {"xml_file": "/etc/passwd"}}, {"options": {"kwargs": ["a:b"]}},
    {"report_to": ["wandb"]}, {"output_dir": "/tmp"},
    {"product": "ppo", "environment": "os:Foo-v0"},
    {**LANGUAGE, "environment": "../secret.jsonl"}, {**LANGUAGE, "environment": "out.jsonl"},
    {**LANGUAGE, "environment": "sub/out/secret.jsonl"}, {**LANGUAGE, "environment": "sub"},
    {**LANGUAGE, "environment": "."}, {**LANGUAGE, "environment": "loop"}, {**LANGUAGE, "environment": "nothing.jsonl"},
    {**LANGUAGE, "environment": "sums.jsonl\0"}, {**LANGUAGE, "environment": "/etc/passwd"},
    {**LANGUAGE, "environment": "~/x.jsonl"}, {**LANGUAGE, "environment": "conversation:sums.jsonl"},
    {**LANGUAGE, "environment": "python:os:system"}, {**LANGUAGE, "environment": "reasoning_gym:os"},
    {**LANGUAGE, "environment": "sums.jsonl", "options": {"check": "os:system"}},
    {**LANGUAGE, "environment": "sums.jsonl", "options": {"eval_file": "../secret.jsonl"}},
    {**LANGUAGE, "reward_name": "python:os:system"}, {**LANGUAGE, "reward_name": "Customer_Service"},
    {**LANGUAGE, "reward_name": "multi_objective", "reward_options": {"components": ["exact", "python:os:system"]}},
    {**LANGUAGE, "reward_name": "neural", "reward_options": {"teacher": "python:os:system"}},
    {**LANGUAGE, "reward_name": "neural", "reward_options": {"preferences": "../secret.jsonl"}},
    {**LANGUAGE, "reward_name": "ruler", "reward_options": {"base_url": "http://127.0.0.1/"}},
    {**LANGUAGE, "reward_name": "ruler", "reward_options": {"model": "local/x"}},
    {**LANGUAGE, "reward_name": "ruler", "reward_options": {"record_path": "x"}},
    {**LANGUAGE, "reward_name": "program", "reward_options": {"tests": "assert True"}},
    {**LANGUAGE, "model_name": "victim"}, {**LANGUAGE, "model_name": "./mine"}, {**LANGUAGE, "model_name": "tiny@٣"},
    {**LANGUAGE, "model_name": "tiny@"}, {**LANGUAGE, "model_name": "Qwen/Qwen3-0.6B "},
    {"product": "agent", "environment": "python:x.py:y"}, {"product": "agent", "environment": "textarena:Wordle-v0"},
    {"product": "agent", "environment": "conversation:/etc/passwd"},
    {"product": "designer", "options": {"requirements": "sums.jsonl,../secret.jsonl"}},
    {"product": "designer", "options": {"requirements": 3}}, {"product": "designer", "options": {"memory": "x.sqlite"}},
    {"product": "designer", "options": {"start": "../secret.jsonl"}},
    {"product": "code", "options": {"programs": "out"}}, {"product": "code", "options": {"start": "victim"}},
    {"product": "code", "options": {"families": "tables,os"}},
]  # fmt: skip


@pytest.mark.parametrize("config", REFUSED, ids=str)
def test_a_train_key_may_not_name(config: dict[str, object], reach: Reach) -> None:
    with pytest.raises(NotAllowed, match="scope '(train|admin)'"):
        permitted(TrainingConfig.from_dict(config), reach)


def test_what_may_be_named_is_replaced_by_what_it_stands_for(reach: Reach, tmp_path: Path) -> None:
    file = str(tmp_path / "data" / "sums.jsonl")
    for name in ("sums.jsonl", "./sums.jsonl", "sub/../in.jsonl", file):
        cfg = permitted(TrainingConfig.from_dict({**LANGUAGE, "environment": name, "model_name": "mine"}), reach)
        assert (cfg.task.environment, cfg.policy.model_name) == (file, str(tmp_path / "runs" / "mine"))
    talk = TrainingConfig.from_dict({"product": "agent", "environment": "conversation:in.jsonl"})
    assert permitted(talk, reach).task.environment == f"conversation:{file}"
    plans = TrainingConfig.from_dict({"product": "designer", "options": {"requirements": "sums.jsonl, in.jsonl"}})
    assert permitted(plans, reach).task.options["requirements"] == f"{file},{file}"


@pytest.mark.parametrize("config", [
    {}, {"environment": "LunarLander-v3", "options": {"gravity": -3.0}}, {"environment": "classic"},
    {**LANGUAGE, "model_name": "tiny@7"}, {**LANGUAGE, "model_name": "Qwen/Qwen3-0.6B"},
    {**LANGUAGE, "environment": "reasoning_gym:chain_sum", "options": {"min_terms": 2}},
    {**LANGUAGE, "reward_name": "exact", "reward_options": {"expected": "python:os:system"}},
    {"product": "agent", "environment": "orders", "options": {"kinds": ["buyer"]}}, {"product": "designer"},
    {"product": "code", "options": {"families": "tables"}}, {"report_to": ["tensorboard"]},
], ids=str)  # fmt: skip
def test_what_comes_with_the_package_may_be_named(config: dict[str, object], reach: Reach) -> None:
    for package in ("gymnasium", "reasoning_gym"):
        pytest.importorskip(package)
    cfg = TrainingConfig.from_dict(config)
    assert permitted(cfg, reach) == cfg


def test_without_a_data_folder_no_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text("{}\n")
    with pytest.raises(NotAllowed):
        permitted(TrainingConfig.from_dict({**LANGUAGE, "environment": "sums.jsonl"}), Reach())


def test_a_wrong_name_is_answered_with_the_nearest(reach: Reach) -> None:
    with pytest.raises(NotAllowed, match="Did you mean 'CartPole-v1'"):
        permitted(TrainingConfig.from_dict({"environment": "CartPoll-v1"}), reach)
