"""Settings and products: who has which section, which product settings imply, and files of the older shape."""

import logging
import tomllib
from pathlib import Path

import pytest

from groupwise.config import TrainingConfig, check_config, check_settings, load_config
from groupwise.config.fields import settings_of
from groupwise.config.setting_names import OLD_SHAPE, every_setting, layout_of
from groupwise.config.training_config import plain
from groupwise.errors import ConfigError
from groupwise.products import PRODUCTS, find
from groupwise.training.folder import read_config

OLD_RUNS = Path(__file__).parents[1] / "fixtures" / "old_runs"


@pytest.mark.parametrize(
    ("settings", "product"),
    [
        ({}, "control"),
        ({"environment": "CartPole-v1"}, "control"),
        ({"max_new_tokens": 9}, "language"),
        ({"reward": {"name": "sales"}}, "language"),
        ({"product": "code", "max_new_tokens": 9}, "code"),
        ({"batch_size": 8}, "designer"),
        ({"memory": {"decay_factor": 0.5}}, "designer"),
        ({"task": {"product": "ppo"}}, "ppo"),
        ({"task.product": "agent"}, "agent"),
    ],
)
def test_the_product_is_named_or_implied(settings, product):
    cfg = TrainingConfig.from_dict(settings)
    assert cfg.task.product == product
    assert list(cfg.sections) == list(layout_of(product).sections)


def test_the_defaults_of_a_product_hold_once_it_is_named_or_implied():
    general = {name: setting.default for name, setting in every_setting().settings.items()}
    assert all(value == general[name] for name, value in TrainingConfig().flat().items())
    for product in PRODUCTS:
        flat = TrainingConfig(product=product).flat()
        assert {name: flat[name] for name in find(product).defaults} == find(product).defaults
    first = next(iter(PRODUCTS))
    assert TrainingConfig(environment="CartPole-v1") == TrainingConfig(environment="CartPole-v1", product=first)
    assert TrainingConfig(product="control", learning_rate=0.25).optim.learning_rate == 0.25


@pytest.mark.parametrize(
    ("settings", "field", "message", "hint"),
    [
        (
            {"product": "control", "generation": {"batch_size": 8, "tournament_size": 4}},
            "generation",
            "section generation belongs to the product designer, and this run's product is control",
            "remove it, or set task.product = 'designer'",
        ),
        (
            {"product": "control", "batch_size": 8},
            "batch_size",
            "generation.batch_size belongs to the product designer, and this run's product is control",
            "remove it, or set task.product = 'designer'",
        ),
        (
            {"product": "designer", "sampling.temperature": 0.5},
            "sampling.temperature",
            "sampling.temperature belongs to the products language, agent, warm-start, code",
            "set task.product = 'language'",
        ),
        ({"batch_size": 8, "max_new_tokens": 8}, "batch_size", "batch_size belongs to the product designer", ""),
        ({"product": "controll"}, "task.product", "'controll' is not a product", "Did you mean 'control'?"),
        ({"product": "scheduling"}, "task.product", "the product 'scheduling' was removed: learning added", ""),
        ({"product": 3}, "task.product", "task.product = 3 must be text", ""),
    ],
)
def test_what_belongs_to_another_product_is_refused_with_its_name(settings, field, message, hint):
    finding, *_ = check_settings(settings)
    assert finding.field == field
    assert message in finding.message
    assert hint in finding.hint


def test_a_section_of_another_product_is_one_problem(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('environment = "CartPole-v1"\nproduct = "control"\n[memory]\ndecay_factor = 0.5\ndecay_unit = 2\n')
    (finding,) = check_config(path)
    assert finding.message == "section memory belongs to the product designer, and this run's product is control"


@pytest.mark.parametrize("name", ["control", "language", "designer"])
def test_the_settings_of_older_run_folders_are_read_whole(name):
    cfg = read_config(OLD_RUNS / name)
    assert cfg.task.product == name
    recorded = tomllib.loads((OLD_RUNS / name / "config.toml").read_text())
    assert recorded.keys() >= OLD_SHAPE
    for section, values in cfg.to_dict().items():
        left_out = {own: setting.default for own, setting in settings_of(every_setting().sections[section]).items()}
        assert values == {own: plain(value) for own, value in left_out.items()} | recorded.get(section, {})


def old_file(path: Path, **changed: str) -> Path:
    """The settings of an older control run with some lines changed."""
    text = (OLD_RUNS / "control" / "config.toml").read_text()
    for old, new in changed.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{old} =")]
        text = text.replace(line, f"{old} = {new}")
    path.write_text(text)
    return path


def test_a_file_that_lists_every_section_is_read_with_a_notice_of_what_has_no_effect(tmp_path, caplog):
    sections = "sampling, language, reward, memory, scoring, generation"
    idle = f"the sections {sections} have no effect on a run of the product control"
    with caplog.at_level(logging.WARNING):
        load_config(old_file(tmp_path / "old.toml"))
        cfg = load_config(old_file(tmp_path / "old.toml", batch_size="64", temperature="0.5"))
    assert set(cfg.sections) == set(layout_of("control").sections)
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/old.toml: {idle}",
        f"{tmp_path}/old.toml: {idle}, although the file sets sampling.temperature = 0.5, generation.batch_size = 64",
    ]


def test_a_file_that_lists_every_section_is_still_checked(tmp_path):
    with pytest.raises(ConfigError, match="optim.learning_rate = -1 must be > 0"):
        load_config(old_file(tmp_path / "old.toml", learning_rate="-1"))
