"""How a single value is read: at its limits, in every form it may be given, and in every place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from groupwise.config import Finding, Section, TrainingConfig, apply_overrides, check_settings, load_config, setting
from groupwise.config.fields import INTEGER_LIMIT, Options, Setting, raise_findings, read_section, settings_of
from groupwise.config.files import line_of
from groupwise.config.overrides import parse_value
from groupwise.config.setting_names import FOREIGN, every_setting
from groupwise.errors import ConfigError

SETTINGS = every_setting().settings
LIMITED = [one for one in SETTINGS.values() if one.limits]


def accepts(declared: Setting, value: Any) -> bool:
    value = [value] if declared.many else value
    return not read_section(every_setting().sections[declared.section], {declared.name: value})[1]


@pytest.mark.parametrize("declared", LIMITED, ids=lambda one: one.flat)
def test_every_setting_is_accepted_up_to_its_limits_and_no_further(declared: Setting) -> None:
    for sign, bound in declared.limits.items():
        inside = 1 if sign in ("ge", "gt") else -1
        if declared.kind is int:
            assert accepts(declared, bound) is (sign in ("ge", "le"))
            assert not accepts(declared, bound - inside)
            assert accepts(declared, bound + inside)
            continue
        assert accepts(declared, float(bound)) is (sign in ("ge", "le"))
        assert accepts(declared, math.nextafter(bound, inside * math.inf))
        assert not accepts(declared, math.nextafter(bound, -inside * math.inf))


@pytest.mark.parametrize(("value", "number"), [
    (INTEGER_LIMIT, INTEGER_LIMIT), (str(INTEGER_LIMIT), INTEGER_LIMIT), ("9007199254740993", 9007199254740993),
    (9007199254740992.0, 9007199254740992), ("1e3", 1000), (" 7 ", 7), (np.int8(7), 7), (np.float32(7), 7),
    (INTEGER_LIMIT + 1, None), (str(INTEGER_LIMIT + 1), None), (1.5, None), ("1.5", None), (True, None),
    (np.bool_(True), None), ("", None), ([1], None), (math.nan, None), (math.inf, None), ("0x10", None),
])  # fmt: skip
def test_whole_numbers_are_read_exactly(value: Any, number: int | None) -> None:
    declared = SETTINGS["num_episodes"]
    values, findings = read_section(every_setting().sections["training"], {"num_episodes": value})
    assert (values.get("num_episodes"), len(findings)) == (number, number is None)
    if number is not None:
        assert type(values["num_episodes"]) is int
    assert declared.kind is int


@pytest.mark.parametrize(("value", "kept"), [
    (INTEGER_LIMIT, INTEGER_LIMIT), (-INTEGER_LIMIT, -INTEGER_LIMIT), (2.0, 2.0), (True, True), ("null", "null"),
    ("", ""), ([1, "a", False], (1, "a", False)), ([], ()), (np.int64(3), 3), (np.float32(0.5), 0.5),
    (INTEGER_LIMIT + 1, None), (-INTEGER_LIMIT - 1, None), (math.inf, None), (-math.inf, None), (math.nan, None),
    ([math.inf], None), (None, None), ([None], None), ({"b": 1}, None), ([[1]], None), ("\ud800", None),
    (b"bytes", None), (10**400, None),
])  # fmt: skip
def test_a_free_table_keeps_plain_values_and_refuses_others(value: Any, kept: Any) -> None:
    values, findings = read_section(every_setting().sections["task"], {"options": {"a": value}})
    if kept is None:
        (finding,) = findings
        assert finding.field == "task.options"
        return
    assert findings == []
    assert values["options"] == {"a": kept}
    assert type(values["options"]["a"]) is type(kept)


def test_names_of_a_free_table_can_be_written_to_a_file() -> None:
    for name in (3, None, "\ud800"):
        assert len(check_settings({"options": {name: 1}})) == 1
    assert check_settings({"options": {"": 1, "é": 2}}) == []


def test_a_free_table_is_a_value_whatever_the_order_of_its_names() -> None:
    given = {"a": 1, "b": 2}
    one, other = Options(given), Options({"b": 2, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    given["a"] = 9
    assert one["a"] == 1
    assert Options() == Options(None) == {}
    assert Options({"a": 1}) != Options({"a": 2})


class OddSettings(Section):
    """Settings that are there for this test."""

    letter: str = setting("a", "a letter", pattern="a|b", shape="a or b")
    size: int = setting(2, "a size", ge=1, lt=10)
    sizes: tuple[int, ...] = setting((1,), "sizes")
    share: float | None = setting(None, "a share", gt=0, le=1)
    word: str | None = setting(None, "a word")
    flag: bool | None = setting(None, "a flag")


@pytest.mark.parametrize("letter", ["ab", "xb", "ax", "a\n", "", "A"])
def test_a_pattern_covers_the_whole_text(letter: str) -> None:
    with pytest.raises(ConfigError, match="odd.letter = .* must be"):
        OddSettings(letter=letter)
    assert OddSettings(letter="b").letter == "b"


def test_a_section_is_changed_and_checked_again() -> None:
    odd = OddSettings(size=5, word="x")
    assert dict(odd.replace(size=6).items()) == {**dict(odd.items()), "size": 6}
    with pytest.raises(ConfigError, match="odd.size = 10 must be >= 1 and < 10"):
        odd.replace(size=10)
    with pytest.raises(ConfigError, match="OddSettings has no setting 'sise'") as refused:
        odd.replace(sise=3)
    assert (refused.value.hint, refused.value.field) == ("did you mean size?", "odd.sise")


@pytest.mark.parametrize(("name", "given", "value"), [
    ("share", "null", None), ("share", None, None), ("flag", "null", None), ("flag", "TRUE", True),
    ("flag", "false", False), ("word", "null", "null"), ("word", None, None), ("sizes", "1,2, 3,", (1, 2, 3)),
    ("sizes", "", ()), ("sizes", (4, "5"), (4, 5)), ("sizes", [6.0], (6,)), ("share", "1", 1.0), ("share", 1, 1.0),
])  # fmt: skip
def test_each_form_of_a_value_is_read_into_its_type(name: str, given: Any, value: Any) -> None:
    found = getattr(OddSettings(**{name: given}), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("name", "given", "words"), [
    ("size", "null", "a whole number >= 1 and < 10"), ("size", None, "a whole number >= 1 and < 10"),
    ("flag", 1, "true or false, or null"), ("flag", "yes", "true or false, or null"),
    ("share", 0, "> 0 and <= 1, or null"), ("share", 1.1, "> 0 and <= 1, or null"),
    ("share", math.inf, "a finite number > 0 and <= 1, or null"), ("share", -math.inf, "a finite number"),
    ("sizes", 3, "a list of whole numbers"), ("sizes", [1, "x"], "a list of whole numbers"),
    ("sizes", [True], "a list of whole numbers"), ("word", 3, "text, or null"),
    ("word", "", "text of at least one character"),
])  # fmt: skip
def test_what_a_setting_demands_is_said(name: str, given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"odd.{name} = .* must be {words}"):
        OddSettings(**{name: given})


def test_right_settings_are_read_beside_wrong_ones() -> None:
    values, findings = read_section(OddSettings, {"size": 0, "word": "x", "sizes": [1, "a", "b"]})
    assert [finding.field for finding in findings] == ["odd.size", "odd.sizes"]
    assert values == {"letter": "a", "share": None, "word": "x", "flag": None}
    assert list(settings_of(OddSettings)) == ["letter", "size", "sizes", "share", "word", "flag"]


def test_one_problem_is_told_alone_and_several_in_a_list() -> None:
    raise_findings([])
    with pytest.raises(ConfigError) as refused:
        raise_findings([Finding("a", "is wrong", "mend it", 3)], "file")
    assert (refused.value.message, refused.value.hint, refused.value.field) == (
        "file: line 3: is wrong",
        "mend it",
        "a",
    )
    with pytest.raises(ConfigError) as refused:
        raise_findings([Finding("a", "is wrong", "mend it", 3), Finding("b", "too")])
    lines = "2 problems in the configuration:\n  - line 3: is wrong; mend it\n  - too"
    assert (refused.value.message, refused.value.field) == (lines, "a")


@pytest.mark.parametrize(("foreign", "ours"), [
    ("lr", "optim.learning_rate"), ("epsilon", "loss.clip_ratio"), ("epsilon_high", "loss.clip_ratio_high"),
    ("clip_range", "loss.clip_ratio"), ("delta", "loss.dual_clip"), ("group_size", "rollout.num_generations"),
    ("kl_coef", "loss.beta"), ("ent_coef", "loss.entropy_coef"), ("vf_coef", "loss.value_coef"),
    ("max_steps", "training.num_episodes"), ("n_envs", "rollout.num_envs"), ("n_steps", "rollout.num_steps"),
    ("total_timesteps", "training.total_samples"), ("n_epochs", "optim.num_epochs"),
    ("num_iterations", "optim.num_epochs"), ("scale_rewards", "advantage.advantage_scale"),
    ("importance_sampling_level", "loss.importance_level"), ("max_turns", "rollout.max_conversation_turns"),
    ("env", "task.environment"), ("env_id", "task.environment"), ("model", "policy.model_name"),
])  # fmt: skip
def test_the_names_of_other_libraries_are_answered_with_ours(foreign: str, ours: str) -> None:
    assert foreign in FOREIGN
    (finding,) = check_settings({foreign: 1})
    assert finding.hint == f"did you mean {ours}?"


def test_what_is_given_wins_over_a_profile_and_that_over_the_product() -> None:
    cfg = TrainingConfig.from_profile("conservative", product="control", warmup_ratio=0.3)
    assert (cfg.optim.learning_rate, cfg.rollout.num_generations, cfg.loss.beta) == (1e-6, 32, 0.04)
    assert cfg.optim.warmup_ratio == 0.3
    assert (cfg.optim.num_epochs, cfg.advantage.estimator) == (8, "group_rtg")  # the product's
    assert TrainingConfig.from_profile("conservative").optim.num_epochs == 1  # no product was meant
    # A configuration that is changed keeps its values, whatever the product's defaults.
    changed = TrainingConfig(product="control", learning_rate=0.5).replace(product="ppo")
    assert (changed.optim.learning_rate, changed.advantage.estimator) == (0.5, "group_rtg")


@pytest.mark.parametrize(("text", "value"), [
    ("null", None), ("1", 1), ("1.5", 1.5), ("true", True), ('"a"', "a"), ("[1, 2]", [1, 2]), ("{a = 1}", {"a": 1}),
    ("a", "a"), ("", ""), ("1\nb = 2", "1\nb = 2"), ("null ", "null "), ("NULL", "NULL"),
    ("x" * 500, "x" * 500), ("1 # comment", 1),
])  # fmt: skip
def test_a_text_is_read_as_toml_would_read_it(text: str, value: Any) -> None:
    assert parse_value(text) == value


FORMS = ({"reward_name": "a"}, {"reward.reward_name": "a"}, {"reward.name": "a"}, {"reward": {"name": "a"}},
         {"reward": {"reward_name": "a"}})  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("override", ["reward_name=b", "reward.name=b", "reward.reward_name=b", "reward={name='b'}"])
def test_an_override_replaces_a_setting_of_two_names_in_any_form(form: dict[str, Any], override: str) -> None:
    settings = apply_overrides(form, [override])
    assert TrainingConfig.from_dict(settings).reward.name == "b"


@pytest.mark.parametrize("form", [
    {"reward_options": {"a": 1}}, {"reward.options": {"a": 1}}, {"reward": {"options": {"a": 1}}},
    {"reward": {"reward_options": {"a": 1}}}, {"reward.reward_options": {"a": 1}},
], ids=str)  # fmt: skip
def test_an_option_is_added_to_a_table_in_any_form(form: dict[str, Any]) -> None:
    before = str(form)
    cfg = TrainingConfig.from_dict(apply_overrides(form, ["reward.options.b=2", "reward_options.c.d=3"]))
    assert cfg.reward.options == {"a": 1, "b": 2, "c.d": 3}
    assert str(form) == before


def test_texts_stay_texts_and_lists_of_texts_stay_lists() -> None:
    cfg = TrainingConfig.from_dict(apply_overrides({}, ["run_name=1.50", "report_to=['wandb']", "output_dir=[1]"]))
    assert (cfg.run.run_name, cfg.run.report_to, cfg.run.output_dir) == ("1.50", ("wandb",), "[1]")
    assert TrainingConfig.from_dict(apply_overrides({"run_name": "x"}, ["run_name=null"])).run.run_name is None
    assert TrainingConfig.from_dict(apply_overrides({}, ["environment='1'"])).task.environment == "1"


@pytest.mark.parametrize(("inside", "values"), [
    ("<epochs>7</epochs>", {"num_episodes": 7, "num_epochs": 1}), ("<clip-range>0.3</clip-range>", {"clip_ratio": 0.3}),
    ("<early-stopping-threshold>0.5</early-stopping-threshold>",
     {"early_stopping": True, "early_stopping_threshold": 0.5}),
    ("<learning-rate>0.5</learning-rate>", {"learning_rate": 0.5, "early_stopping": False}),
    ("<early-stopping-threshold>0.5</early-stopping-threshold><early-stopping>false</early-stopping>",
     {"early_stopping": False}),
])  # fmt: skip
def test_the_learning_part_of_an_xml_file_is_spread_over_the_sections(
    tmp_path: Any, inside: str, values: dict[str, Any]
) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f"<grpo-config><learning>{inside}</learning></grpo-config>")
    flat = load_config(path).flat()
    assert {name: flat[name] for name in values} == values


@pytest.mark.parametrize("elsewhere", [
    "<early-stopping>false</early-stopping>", "<training><early-stopping>false</early-stopping></training>",
])  # fmt: skip
def test_a_threshold_does_not_switch_on_what_is_switched_off_elsewhere(tmp_path: Any, elsewhere: str) -> None:
    path = tmp_path / "a.xml"
    inside = "<learning><early-stopping-threshold>0.5</early-stopping-threshold></learning>"
    path.write_text(f"<grpo-config>{inside}{elsewhere}</grpo-config>")
    assert load_config(path).training.early_stopping is False


def test_the_free_tables_of_an_xml_file_have_plain_values(tmp_path: Any) -> None:
    path = tmp_path / "a.xml"
    path.write_text(
        "<grpo-config><product>language</product><language><lora-options><use-dora> true </use-dora>"
        "<target-modules>['q', 'v']</target-modules></lora-options></language>"
        "<reward-options><weight>0.5</weight></reward-options></grpo-config>"
    )
    cfg = load_config(path)
    assert cfg.language.lora_options == {"use_dora": True, "target_modules": ("q", "v")}
    assert cfg.reward.options == {"weight": 0.5}


@pytest.mark.parametrize(("text", "line"), [
    ("seed = 1\nbeta = 2", 2), ("beta = 1\nbeta = 2", None), ("alphabeta = 1", None), ("beta_x = 1\n  beta: 3", 2),
    ("# beta = 1\nbeta = 2", 2), ('{\n"beta": 1}', 2), ("<beta>1</beta>", 1), ("loss.beta = 1", 1), ("x = beta", None),
    ("", None),
])  # fmt: skip
def test_a_line_is_named_if_it_is_the_only_one_that_gives_a_setting(text: str, line: int | None) -> None:
    assert line_of(text, "beta") == line


def test_only_settings_files_are_named_as_neighbours(tmp_path: Any) -> None:
    for name in ("a.txt", *(f"{n}.toml" for n in range(7))):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "none.yaml")
    assert refused.value.hint == f"in {tmp_path} there is 0.toml, 1.toml, 2.toml, 3.toml, 4.toml"
