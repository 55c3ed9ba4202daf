"""The table of what text settings may name: it is complete, and it is an allow list."""

import inspect
import os
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from groupwise import products
from groupwise.agents.data.dataset import DataOptions
from groupwise.agents.environments.orders import Orders
from groupwise.config import TrainingConfig
from groupwise.config.fields import settings_of
from groupwise.config.nameable import (
    COMMON,
    DataFile,
    GivenModel,
    Known,
    NotAllowed,
    Numbered,
    OwnRun,
    Reach,
    Row,
    _allowed,
    permitted,
    plain,
    row_of,
)
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
    {"product": "ppo", "environment": "os:Foo-v0"}, {"product": "ppo", "environment": "suite.toml"},
    {"product": "control", "environment": "os:system"}, {"product": "control", "environment": "given:CartPole-v1"},
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
    {**LANGUAGE, "backend": "ray"}, {"product": "control", "environment": "CartPole-v1", "backend": "ray"},
    {**LANGUAGE, "backend": "processes", "num_workers": 17},
    {**LANGUAGE, "backend": "processes", "max_workers": 100_000}, {"product": "designer", "generation.workers": 256},
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


@pytest.mark.parametrize(("name", "known"), [
    ("tiny", True), ("tiny@0", True), ("tiny@123456789", True), ("tiny@1234567890", False), ("tiny@", False),
    ("tiny@-1", False), ("tiny@1.0", False), ("tiny@1 ", False), ("tiny@\u0663", False), ("tiny@\u00b2", False),
    ("tiny7", False), ("Tiny", False), ("@7", False), ("", False), ("tiny@7@7", False), (" tiny", False),
])  # fmt: skip
def test_a_numbered_name_is_the_name_alone_or_with_a_number(name: str, known: bool) -> None:
    assert Numbered("tiny").resolved(name, Reach()) == (name if known else None)


def test_known_names_are_those_listed_and_those_of_a_registry_behind_its_prefix() -> None:
    assert Known(("a", "b")).resolved("a", Reach()) == "a"
    for wrong in ("", "c", "A", " a", "a ", "ab"):
        assert Known(("a", "b")).resolved(wrong, Reach()) is None
    registry = Known(("first",), "groupwise.products:PRODUCTS", "x:")
    assert registry.resolved("first", Reach()) == "first"
    assert registry.resolved("x:control", Reach()) == "x:control"
    for wrong in ("control", "x:first", "x:", "x:nothing"):
        assert registry.resolved(wrong, Reach()) is None
    functions = Known(registry="groupwise.products:names")
    assert functions.resolved("control", Reach()) == "control"
    missing = Known(("first",), "a_package_that_is_not_there:NAMES", "x:")
    assert (missing.resolved("first", Reach()), missing.resolved("x:any", Reach())) == ("first", None)


def test_a_model_is_one_that_was_given_and_a_run_one_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    reach = Reach(run=lambda name: tmp_path / name if name in ("run", "link") else None, models=("a/b",))
    assert [GivenModel().resolved(name, reach) for name in ("a/b", "a", "", "run")] == ["a/b", None, None, None]
    assert GivenModel().resolved("a/b", Reach()) is None
    found = [OwnRun().resolved(name, reach) for name in ("run", "link", "a/b")]
    assert found == [str(tmp_path / "run"), str(tmp_path / "run"), None]
    assert OwnRun().resolved("run", Reach()) is None


def test_a_data_file_is_a_file_or_folder_that_holds_nothing_else_and_leads_nowhere_else(tmp_path: Path) -> None:
    data, beside = tmp_path / "data", tmp_path / "data-beside"
    for folder in (data / "good" / "deep", data / "piped", data / "linked", data / "inner", beside):
        folder.mkdir(parents=True)
    for file in (data / "a.jsonl", data / "good" / "deep" / "b", beside / "secret", data / "inner" / "c"):
        file.write_text("{}")
    os.mkfifo(data / "pipe")
    os.mkfifo(data / "piped" / "pipe")
    (data / "linked" / "out").symlink_to(beside / "secret")
    (data / "inner" / "in").symlink_to(data / "a.jsonl")
    (data / "beside").symlink_to(beside)
    (data / "gone").symlink_to(data / "nothing")
    reach = Reach(data)
    for name in ("a.jsonl", "good", "good/deep/b", "inner", str(data / "a.jsonl")):
        assert DataFile().resolved(name, reach) == str(data / name), name
    for name in (
        "", ".", "..", "good/..", "../data", "../data-beside/secret", str(beside / "secret"), "beside", "beside/secret",
        "linked", "linked/out", "pipe", "piped", "gone", "none", "a.jsonl\0", "x" * 5000, "/",
    ):  # fmt: skip
        assert DataFile().resolved(name, reach) is None, name
        assert DataFile("p:").resolved(f"p:{name}", reach) is None, name
    for name in ("", ".", "deep/.."):
        assert DataFile().resolved(name, Reach(data / "good")) is None, "all there is"
    assert DataFile("p:").resolved("p:a.jsonl", reach) == f"p:{data / 'a.jsonl'}"
    assert DataFile("p:").resolved("a.jsonl", reach) is None
    assert DataFile().resolved("a.jsonl", Reach()) is None
    assert DataFile().resolved("a.jsonl", Reach(tmp_path / "none")) is None
    linked = tmp_path / "link"
    linked.symlink_to(data)
    assert DataFile().resolved("a.jsonl", Reach(linked)) == str(data / "a.jsonl")


def test_a_folder_of_too_many_files_is_not_searched_for_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.config.nameable.MOST_FILES", 3)
    for count in (3, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        for n in range(count):
            (folder / str(n)).touch()
    assert DataFile().resolved("3", Reach(tmp_path)) == str(tmp_path / "3")
    assert DataFile().resolved("4", Reach(tmp_path)) is None


NAMES = Row("s", "a name", (Known(("a", "b")),))
SEVERAL = Row("s", "names", (Known(("a", "b", "c,d")),), separator=",")


@pytest.mark.parametrize(("row", "value", "allowed"), [
    (None, 3, 3), (None, True, True), (None, (1, 2.5), (1, 2.5)), (None, (), ()),
    (plain("s")[0], "anything:at_all", "anything:at_all"), (plain("s")[0], 3, 3), (plain("s")[0], ("x", 1), ("x", 1)),
    (NAMES, "a", "a"), (NAMES, ("a", "b"), ("a", "b")), (NAMES, (), ()),
    (SEVERAL, "a", "a"), (SEVERAL, "a,b", "a,b"), (SEVERAL, " a , b ", "a,b"), (SEVERAL, ("a,b", "b"), ("a,b", "b")),
])  # fmt: skip
def test_what_a_row_allows_comes_back_by_what_it_stands_for(row: Row | None, value: object, allowed: object) -> None:
    assert _allowed("s", row, value, Reach()) == allowed


@pytest.mark.parametrize(("row", "value", "words"), [
    (None, "a", "text in this option needs scope 'admin'"), (None, (1, "a"), "text in this option"),
    (NAMES, "c", "may only name a name"), (NAMES, ("a", "c"), "may only name"), (NAMES, 3, "may only name"),
    (NAMES, True, "may only name"), (NAMES, " a", "may only name"), (NAMES, "a,b", "may only name"),
    (NAMES, ("a", 3), "may only name"), (SEVERAL, "a,x", "may only name"), (SEVERAL, "a,", "may only name"),
    (SEVERAL, "", "may only name"), (SEVERAL, "c,d", "may only name"), (SEVERAL, 3, "may only name"),
    (Row("s", "a secret"), "a", r"this setting \(a secret\) needs scope 'admin'"),
    (Row("s", "a secret"), 3, r"this setting \(a secret\) needs scope 'admin'"),
])  # fmt: skip
def test_what_a_row_does_not_allow_is_refused(row: Row | None, value: object, words: str) -> None:
    with pytest.raises(NotAllowed, match=words) as refused:
        _allowed("s", row, value, Reach())
    assert refused.value.field == "s"


def test_a_path_with_the_separator_in_it_is_not_read_as_two(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b,c").touch()
    (tmp_path / "link").symlink_to("b,c")
    files = Row("s", "files", (DataFile(),), separator=",")
    assert _allowed("s", files, "a,a", Reach(tmp_path)) == f"{tmp_path / 'a'},{tmp_path / 'a'}"
    with pytest.raises(NotAllowed):
        _allowed("s", files, "a,link", Reach(tmp_path))


@pytest.mark.parametrize("name", [
    "base_url", "cache_path", "record_path", "api_key", "fallback", "heuristic", "rubric", "preferences", "model",
    "teacher", "components", "unheard_of",
])  # fmt: skip
def test_no_option_of_a_reward_that_loads_something_is_free(name: str) -> None:
    cfg = TrainingConfig.from_dict({**LANGUAGE, "reward_name": "ruler", "reward_options": {name: "os:system"}})
    with pytest.raises(NotAllowed, match=f"reward.options.{name} = 'os:system'"):
        permitted(cfg, Reach(models=("a/b",)))
    assert {row.setting for row in COMMON if not row.train and not row.is_plain} == {
        *(f"reward.options.{own}" for own in (
            "base_url", "cache_path", "record_path", "api_key", "fallback", "heuristic",
        )),
        "vllm.servers", "vllm.folder", "rollout.ray_address",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [("vllm_servers", ["http://10.0.0.1:8000"]), ("vllm_folder", "/srv/weights")]
)
def test_only_an_administrator_says_where_samplers_and_their_weights_are(name: str, value: object) -> None:
    with pytest.raises(NotAllowed, match=f"vllm.{name.removeprefix('vllm_')} = .* needs scope 'admin'"):
        permitted(TrainingConfig.from_dict({**LANGUAGE, name: value}), Reach(models=("a/b",)))


def test_what_the_service_made_itself_is_not_checked_and_everything_else_is(reach: Reach) -> None:
    cfg = TrainingConfig.from_dict({**LANGUAGE, "environment": "/etc/passwd", "model_name": "mine"})
    assert permitted(cfg, reach, ours=("task.environment",)).task.environment == "/etc/passwd"
    for ours in ((), ("environment",), ("policy.model_name",)):
        with pytest.raises(NotAllowed, match="task.environment"):
            permitted(cfg, reach, ours=ours)
    with pytest.raises(NotAllowed, match="policy.model_name"):
        permitted(cfg.replace(model_name="victim"), reach, ours=("task.environment",))


def test_a_products_own_row_comes_before_the_common_one() -> None:
    for product in BUILT_IN:
        for row in products.find(product).nameable:
            assert row_of(product, row.setting) is row
    assert row_of("control", "reward.name") is next(row for row in COMMON if row.setting == "reward.name")
    assert row_of("control", "nothing") is None


def test_the_row_of_a_whole_table_holds_for_each_of_its_options_that_has_none_of_its_own() -> None:
    options = {"target_modules": ["q_proj"], "use_dora": True}
    free = {"chat_template_kwargs": {"style": "any:text"}, "lora_options": options}
    cfg = TrainingConfig.from_dict({**LANGUAGE, **free})
    assert permitted(cfg, Reach()) == cfg
    with pytest.raises(NotAllowed, match="language.lora_options.megatron_core = 'os': text in this option"):
        permitted(cfg.replace(lora_options={"megatron_core": "os"}), Reach())
    with pytest.raises(NotAllowed, match="task.options.loader = 'os': text in this option"):
        permitted(TrainingConfig.from_dict({"environment": "CartPole-v1", "options": {"loader": "os"}}), Reach())


def test_a_text_without_a_row_may_only_be_what_it_would_be_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.config.nameable.COMMON", ())
    usual = TrainingConfig(product="control")  # its estimator is the product's own default, not the general one
    assert usual.advantage.estimator != TrainingConfig().advantage.estimator
    assert permitted(usual, Reach(), ours=("task.product",)) == usual
    for change in ({"device": "cuda"}, {"estimator": "outcome"}, {"run_name": "mine"}, {"report_to": ["wandb"]}):
        with pytest.raises(NotAllowed, match="text in this option needs scope 'admin'"):
            permitted(usual.replace(**change), Reach(), ours=("task.product",))
