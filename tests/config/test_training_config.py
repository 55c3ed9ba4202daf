"""Giving and reading settings: flat, nested, by section, by profile."""

import copy
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from groupwise.config import LossSettings, OptimSettings, TrainingConfig, TrainingProfile, load_config
from groupwise.config.fields import read, settings_of
from groupwise.config.rules import RULES, broken_rules, settings_of_rule
from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.config.training_config import PROFILES
from groupwise.errors import ConfigError, MissingExtra


def test_flat_nested_dotted_and_section_forms_are_the_same_configuration():
    flat = TrainingConfig(entropy_coef=0.1, seed=3)
    assert flat == TrainingConfig(loss={"entropy_coef": 0.1}, run={"seed": 3})
    assert flat == TrainingConfig(loss=LossSettings(entropy_coef=0.1), seed=3)
    assert flat == TrainingConfig.from_dict({"loss.entropy_coef": 0.1, "run": {"seed": 3}, "memory": None})
    assert flat.loss.entropy_coef == flat.entropy_coef == 0.1
    assert flat != TrainingConfig()


def test_names_are_unique_over_all_sections():
    declared = [setting.flat for section in SECTIONS.values() for setting in settings_of(section)]
    names = [*declared, *SECTIONS, "profile"]
    assert len(names) == len(set(names))
    assert not set(declared) & set(dir(TrainingConfig))


def test_a_name_that_says_too_little_alone_is_longer_outside_its_section():
    cfg = TrainingConfig(reward={"name": "sales", "options": {"weight": 0.5, "expected_responses": ["a", "b"]}})
    assert cfg.reward.name == cfg.reward_name == "sales"
    assert cfg.reward_options["expected_responses"] == ("a", "b")
    assert cfg == TrainingConfig(reward_name="sales", reward_options=cfg.reward.options)
    assert cfg == TrainingConfig.from_dict(json.loads(json.dumps(cfg.to_dict())))
    assert cfg.replace(reward={"name": None}).reward.options == cfg.reward.options
    assert cfg.to_dict()["reward"]["options"]["expected_responses"] == ["a", "b"]
    assert tomllib.loads(cfg.to_toml())["reward"]["name"] == "sales"
    assert hash(cfg) != hash(cfg.replace(reward_name="creative"))


def test_the_sections_of_the_class_are_the_sections_there_are():
    assert {f.name: f.type for f in dataclasses.fields(TrainingConfig)} == dict(SECTIONS)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_obeys_its_own_limits(name):
    value, finding = read(SETTINGS[name], SETTINGS[name].default)
    assert finding is None
    assert value == SETTINGS[name].default
    assert type(value) is type(SETTINGS[name].default)
    assert SETTINGS[name].meaning


def test_defaults_and_profiles_break_no_rule():
    assert broken_rules({name: setting.default for name, setting in SETTINGS.items()}) == []
    assert all(set(values) <= set(SETTINGS) for values in PROFILES.values())
    assert all(set(settings_of_rule(rule)) <= set(SETTINGS) for rule in RULES)


def test_a_configuration_cannot_be_changed():
    cfg = TrainingConfig(options={"gravity": 9.8})
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.loss = LossSettings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.loss.beta = 1.0
    with pytest.raises(TypeError):
        cfg.task.options["gravity"] = 1.0


def test_the_callers_mapping_is_copied():
    options = {"gravity": 9.8}
    cfg = TrainingConfig(options=options)
    options["gravity"] = 1.0
    assert cfg.options == {"gravity": 9.8}


def test_it_can_be_pickled_copied_and_hashed():
    cfg = TrainingConfig(options={"gravity": 9.8}, hidden_sizes=[8])
    unpickled = pickle.loads(pickle.dumps(cfg))  # noqa: S301
    assert unpickled == copy.deepcopy(cfg) == cfg
    assert len({cfg, copy.copy(cfg), TrainingConfig()}) == 2


def test_replace_changes_only_what_is_named():
    cfg = TrainingConfig(entropy_coef=0.1, seed=3)
    changed = cfg.replace(loss={"clip_ratio": 0.3}, num_episodes=5)
    assert changed == TrainingConfig(entropy_coef=0.1, seed=3, clip_ratio=0.3, num_episodes=5)
    assert cfg.clip_ratio == 0.2
    assert dataclasses.replace(cfg, loss=LossSettings()) == TrainingConfig(seed=3)
    with pytest.raises(ConfigError, match="clip_ratio = 2 must be > 0 and <= 1"):
        cfg.replace(clip_ratio=2)


def test_what_is_set_explicitly_wins_over_a_profile():
    cfg = TrainingConfig.from_profile("Aggressive", learning_rate=1e-4, loss={"entropy_coef": 0.1})
    assert (cfg.learning_rate, cfg.num_generations, cfg.entropy_coef) == (1e-4, 8, 0.1)
    assert cfg == TrainingConfig.from_dict(
        {"profile": "aggressive", "optim": {"learning_rate": 1e-4}, "entropy_coef": 0.1}
    )


def test_a_section_replaces_a_profiles_values_as_a_whole():
    cfg = TrainingConfig.from_profile(TrainingProfile.AGGRESSIVE, optim=OptimSettings(bf16=True))
    assert (cfg.learning_rate, cfg.num_generations) == (5e-6, 8)


def test_reading_an_unknown_name_suggests_the_right_one():
    with pytest.raises(AttributeError, match="no setting 'clip_ration'; did you mean 'clip_ratio'"):
        _ = TrainingConfig().clip_ration


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
    value = getattr(TrainingConfig(**given), name)
    assert value == read_as
    assert type(value) is type(read_as) or name == "options"


def test_types_inside_the_free_table_are_kept():
    options = TrainingConfig(options={"a": 1, "b": 1.0, "c": True, "d": np.float64(2)}).options
    assert [type(value) for value in options.values()] == [int, float, bool, float]


IMPORT = """
import sys, time
for name in sys.argv[1:]:
    sys.modules[name] = None
begin = time.process_time()
import groupwise.config
print(time.process_time() - begin)
heavy = {"torch", "numpy", "yaml", "defusedxml", "pydantic", "groupwise.core"}
print(sorted(name for name in heavy if sys.modules.get(name)))
"""


def import_config(cache: Path, *missing: str) -> tuple[float, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(cache)
    command = [sys.executable, "-c", IMPORT, *missing]
    seconds, heavy = subprocess.run(command, env=env, text=True, capture_output=True, check=True).stdout.split("\n")[:2]
    return float(seconds), heavy


def test_importing_takes_less_than_50_ms_and_nothing_heavy(tmp_path):
    imports = [import_config(tmp_path) for _ in range(6)]
    assert {heavy for _, heavy in imports} == {"[]"}
    assert min(seconds for seconds, _ in imports) < 0.050


def test_it_imports_and_loads_toml_where_parsers_are_missing(tmp_path, monkeypatch):
    import_config(tmp_path / "cache", "yaml", "defusedxml", "pydantic", "tomli_w")
    for name in ("yaml", "defusedxml", "defusedxml.common", "defusedxml.ElementTree"):
        monkeypatch.setitem(sys.modules, name, None)
    for suffix, package in ((".yaml", "PyYAML"), (".xml", "defusedxml")):
        path = tmp_path / f"config{suffix}"
        path.write_text("seed: 1")
        with pytest.raises(MissingExtra, match=f"needs {package}"):
            load_config(path)
    (tmp_path / "config.toml").write_text("seed = 4")
    assert load_config(tmp_path / "config.toml").seed == 4
