"""Giving and reading settings: flat names in, sections out, profiles and products between."""

import copy
import json
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Unpack, get_type_hints

import numpy as np
import pytest
from pydantic import ValidationError

from groupwise.config import LossSettings, TrainingConfig, TrainingProfile, load_config
from groupwise.config.fields import read_section, settings_of
from groupwise.config.flat_names import SettingNames
from groupwise.config.rules import RULES, broken_rules, settings_of_rule
from groupwise.config.setting_names import PROFILES, every_setting, layout_of
from groupwise.errors import ConfigError, MissingExtra
from groupwise.products import PRODUCTS, find

SECTIONS, SETTINGS = every_setting().sections, every_setting().settings


def read(cfg: TrainingConfig, name: str):
    """The value of a setting by its flat name."""
    return cfg.flat()[name]


def test_flat_nested_and_dotted_forms_are_the_same_configuration():
    flat = TrainingConfig(entropy_coef=0.1, seed=3)
    assert flat == TrainingConfig.from_dict({"loss": {"entropy_coef": 0.1}, "run": {"seed": 3}})
    assert flat == TrainingConfig.from_dict({"loss": LossSettings(entropy_coef=0.1), "seed": 3})
    assert flat == TrainingConfig.from_dict({"loss.entropy_coef": 0.1, "run": {"seed": 3}, "loss": None})
    assert flat.loss.entropy_coef == flat.flat()["entropy_coef"] == 0.1
    assert flat != TrainingConfig()


def test_the_constructor_takes_flat_names_only():
    with pytest.raises(ConfigError, match="loss is a section; the constructor takes settings by their flat names"):
        TrainingConfig(loss={"beta": 0.1})


def test_the_constructor_is_typed():
    """An editor completes the names that `TrainingConfig(…)`, `replace` and `from_profile` take."""
    for method in (TrainingConfig.__init__, TrainingConfig.replace, TrainingConfig.from_profile):
        assert get_type_hints(method)["settings"] == Unpack[SettingNames]
    assert set(SettingNames.__annotations__) == set(SETTINGS)


def test_names_are_unique_over_all_sections():
    declared = [setting.flat for section in SECTIONS.values() for setting in settings_of(section).values()]
    names = [*declared, *SECTIONS, "profile"]
    assert len(names) == len(set(names))
    assert not set(SECTIONS) & (set(dir(TrainingConfig)) - set(TrainingConfig.model_fields))


def test_a_name_that_says_too_little_alone_is_longer_outside_its_section():
    cfg = TrainingConfig(reward_name="sales", reward_options={"weight": 0.5, "expected_responses": ["a", "b"]})
    assert cfg.reward.name == "sales"
    assert cfg.reward.options["expected_responses"] == ("a", "b")
    assert cfg == TrainingConfig.from_dict(json.loads(json.dumps(cfg.to_dict())))
    assert cfg.replace(reward_name=None).reward.options == cfg.reward.options
    assert cfg.to_dict()["reward"]["options"]["expected_responses"] == ["a", "b"]
    assert tomllib.loads(cfg.to_toml())["reward"]["name"] == "sales"
    assert cfg != cfg.replace(reward_name="creative")


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_obeys_its_own_limits(name):
    declared = SETTINGS[name]
    values, findings = read_section(SECTIONS[declared.section], {declared.name: declared.default})
    assert findings == []
    assert values[declared.name] == declared.default
    assert type(values[declared.name]) is type(declared.default)
    assert declared.meaning


@pytest.mark.parametrize("product", PRODUCTS)
def test_defaults_and_profiles_break_no_rule(product):
    layout = layout_of(product)
    general = {name: setting.default for name, setting in layout.settings.items()}
    assert broken_rules(general) == broken_rules({**general, **find(product).defaults}) == []
    assert all(set(values) <= set(layout.settings) for values in PROFILES.values())
    assert all(set(settings_of_rule(rule)) <= set(SETTINGS) for rule in RULES)


def test_a_configuration_cannot_be_changed():
    cfg = TrainingConfig(options={"gravity": 9.8})
    with pytest.raises(ValidationError, match="frozen"):
        cfg.loss = LossSettings()
    with pytest.raises(ValidationError, match="frozen"):
        cfg.loss.beta = 1.0
    with pytest.raises(TypeError):
        cfg.task.options["gravity"] = 1.0


def test_the_callers_mapping_is_copied():
    options = {"gravity": 9.8}
    cfg = TrainingConfig(options=options)
    options["gravity"] = 1.0
    assert cfg.task.options == {"gravity": 9.8}


def test_it_can_be_pickled_copied_and_hashed():
    cfg = TrainingConfig(options={"gravity": 9.8}, hidden_sizes=[8])
    unpickled = pickle.loads(pickle.dumps(cfg))  # noqa: S301
    assert unpickled == copy.deepcopy(cfg) == cfg
    assert len({cfg, copy.copy(cfg), TrainingConfig()}) == 2


def test_replace_changes_only_what_is_named():
    cfg = TrainingConfig(entropy_coef=0.1, seed=3)
    changed = cfg.replace(clip_ratio=0.3, num_episodes=5)
    assert changed == TrainingConfig(entropy_coef=0.1, seed=3, clip_ratio=0.3, num_episodes=5)
    assert cfg.loss.clip_ratio is None
    assert cfg.loss.replace(clip_ratio=0.3) == changed.loss
    with pytest.raises(ConfigError, match="clip_ratio = 2 must be > 0 and <= 1"):
        cfg.replace(clip_ratio=2)


def test_replacing_the_product_replaces_its_sections():
    cfg = TrainingConfig(product="language", max_new_tokens=7, seed=3)
    assert cfg.replace(product="warm-start").sampling.max_new_tokens == 7
    control = cfg.replace(product="control")
    assert control.run.seed == 3
    assert "sampling" not in control.sections


def test_the_profile_for_stability_stays_near_its_reference():
    cfg = TrainingConfig.from_profile("conservative")
    assert (cfg.loss.beta, cfg.policy.use_reference_model) == (0.04, True)
    assert [TrainingConfig.from_profile(bolder).loss.beta for bolder in ("balanced", "aggressive")] == [0.0, 0.0]


def test_what_is_set_explicitly_wins_over_a_profile():
    cfg = TrainingConfig.from_profile("Aggressive", learning_rate=1e-4, entropy_coef=0.1)
    assert (cfg.optim.learning_rate, cfg.rollout.num_generations, cfg.loss.entropy_coef) == (1e-4, 8, 0.1)
    assert cfg == TrainingConfig.from_dict(
        {"profile": TrainingProfile.AGGRESSIVE, "optim": {"learning_rate": 1e-4}, "entropy_coef": 0.1}
    )


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("profile", TrainingProfile)
def test_a_profile_wins_over_the_defaults_of_a_product_and_loses_to_what_is_given(product, profile):
    general = {name: setting.default for name, setting in layout_of(product).settings.items()}
    usual = {**general, **find(product).defaults, **PROFILES[profile], "product": product}
    assert TrainingConfig.from_dict({"product": product, "profile": profile}).flat() == usual
    given = {"num_generations": 6, "max_grad_norm": 0.75, "seed": 5}
    assert TrainingConfig.from_dict({**given, "profile": profile, "product": product}).flat() == {**usual, **given}


def test_a_changed_configuration_keeps_its_values_where_a_default_would_differ():
    usual = find("control").defaults
    name = next(name for name, value in usual.items() if isinstance(value, float))
    cfg = TrainingConfig(product="control", **{name: usual[name] / 2})
    assert cfg.replace(seed=3).flat() == {**cfg.flat(), "seed": 3}
    # A product that is named anew brings its defaults only for what the configuration did not have.
    renamed = cfg.replace(product="control", seed=3)
    assert renamed.flat() == {**cfg.flat(), "seed": 3}


def test_reading_an_unknown_name_suggests_the_right_one():
    with pytest.raises(AttributeError, match="no section 'clip_ration'; did you mean loss.clip_ratio?"):
        _ = TrainingConfig().clip_ration
    with pytest.raises(AttributeError, match="a control run has no section 'memory'; it belongs to designer"):
        _ = TrainingConfig().memory


def test_a_section_shows_only_what_was_changed():
    assert repr(LossSettings(entropy_coef=0.5)) == "LossSettings(entropy_coef=0.5)"


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ({"learning_rate": 1}, 1.0),
        ({"learning_rate": "5e-6"}, 5e-6),
        ({"learning_rate": np.float32(0.5)}, 0.5),
        ({"num_episodes": 3.0}, 3),
        ({"num_episodes": "1e3"}, 1000),
        ({"num_episodes": np.int64(7)}, 7),
        ({"hidden_sizes": [32, "16", 8.0]}, (32, 16, 8)),
        ({"hidden_sizes": "32, 16"}, (32, 16)),
        ({"hidden_sizes": []}, ()),
        ({"report_to": "wandb"}, ("wandb",)),
        ({"bf16": "True"}, True),
        ({"reward_clip": None}, None),
        ({"reward_clip": "null"}, None),
        ({"importance_level": "null"}, None),
        ({"run_name": "null"}, "null"),
        ({"output_dir": Path("some/where")}, "some/where"),
        ({"options": {"a": 1, "b": 1.0, "c": True, "d": "1"}}, {"a": 1, "b": 1.0, "c": True, "d": "1"}),
    ],
)
def test_values_are_read_into_the_type_of_their_setting(given, read_as):
    (name,) = given
    value = read(TrainingConfig(**given), name)
    assert value == read_as
    assert type(value) is type(read_as) or name == "options"


def test_types_inside_the_free_table_are_kept():
    options = TrainingConfig(options={"a": 1, "b": 1.0, "c": True, "d": np.float64(2)}).task.options
    assert [type(value) for value in options.values()] == [int, float, bool, float]


IMPORT = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import groupwise.config
groupwise.config.TrainingConfig(environment="CartPole-v1")
heavy = {"torch", "numpy", "yaml", "transformers", "groupwise.core"}
print(sorted(name for name in heavy if sys.modules.get(name)))
"""


def heavy_imports(*missing: str) -> str:
    """What importing the package and making a configuration imports, with some packages missing."""
    command = [sys.executable, "-c", IMPORT, *missing]
    return subprocess.run(command, env=os.environ, text=True, capture_output=True, check=True).stdout.strip()


def test_importing_it_imports_nothing_heavy():
    assert heavy_imports() == "[]"


def test_it_imports_and_loads_toml_where_parsers_are_missing(tmp_path, monkeypatch):
    assert heavy_imports("yaml", "tomli_w", "numpy", "torch") == "[]"
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "config.yaml").write_text("seed: 1")
    with pytest.raises(MissingExtra, match="needs PyYAML"):
        load_config(tmp_path / "config.yaml")
    (tmp_path / "config.toml").write_text("seed = 4")
    assert load_config(tmp_path / "config.toml").run.seed == 4
