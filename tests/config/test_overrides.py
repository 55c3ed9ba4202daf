"""`--set name=value`."""

import pytest

from groupwise.config import LossSettings, TrainingConfig, apply_overrides
from groupwise.config.overrides import parse_value
from groupwise.errors import ConfigError


def config(settings, *overrides: str) -> TrainingConfig:
    return TrainingConfig.from_dict(apply_overrides(settings, overrides))


def test_flat_and_nested_names_are_put_into_their_sections():
    overrides = ["loss.beta=0.1", "learning_rate=1e-3", "policy.hidden_sizes=[32,32]", "run.run_name=null"]
    assert apply_overrides({}, overrides) == {
        "loss": {"beta": 0.1},
        "optim": {"learning_rate": 1e-3},
        "policy": {"hidden_sizes": [32, 32]},
        "run": {"run_name": None},
    }


@pytest.mark.parametrize("form", [{"gamma": 0.5}, {"advantage": {"gamma": 0.5}}, {"advantage.gamma": 0.5}])
@pytest.mark.parametrize("name", ["gamma", "advantage.gamma"])
def test_an_override_wins_whichever_form_the_setting_had(form, name):
    before = str(form)
    assert config(form, f"{name}=0.25").advantage.gamma == 0.25
    assert str(form) == before


def test_the_last_override_wins():
    assert config({}, "seed=1", "run.seed=2").run.seed == 2


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("bf16=true", True),
        ("learning_rate=5e-6", 5e-6),
        ("learning_rate= .5 ", 0.5),
        ("num_episodes=1_000", 1000),
        ("n_groups=null", None),
        ("baseline_type=none", "none"),
        ("environment=LunarLander-v3", "LunarLander-v3"),
        ("environment='quoted name'", "quoted name"),
        ("environment=a=b", "a=b"),
        ("output_dir=2024-01-01", "2024-01-01"),
        ("run_name=12", "12"),
        ("run_name=true", "true"),
        ("report_to=wandb", ("wandb",)),
        ('report_to=["wandb", "tensorboard"]', ("wandb", "tensorboard")),
        ("hidden_sizes=[]", ()),
        ("environment=1\nseed = 5", "1\nseed = 5"),
        ("environment=" + "[" * 5000, "[" * 5000),
    ],
)
def test_values_are_toml_or_else_plain_text(override, value):
    assert config({}, override).flat()[override.partition("=")[0]] == value


def test_the_free_table_is_added_to():
    file = {"task": {"options": {"gravity": 9.8}}}
    cfg = config(file, "task.options.wind=1.5", "options.name=a b", "task.options.deep.name=true")
    assert cfg.task.options == {"gravity": 9.8, "wind": 1.5, "name": "a b", "deep.name": True}
    assert config({"options": {"gravity": 9.8}}, "options.wind=1").task.options == {"gravity": 9.8, "wind": 1}
    assert config(file, "task.options={wind=1}").task.options == {"wind": 1}
    assert config({"reward": {"options": {"a": 1}}}, "reward_options.b=[1, 2]").reward.options == {"a": 1, "b": (1, 2)}
    assert config({"reward_options": {"a": 1}}, "reward.options.b=2", "reward.name=12").reward.name == "12"
    assert config({"reward": {"reward_name": "a"}}, "reward_name=b").reward.name == "b"
    assert file == {"task": {"options": {"gravity": 9.8}}}


def test_a_whole_section_can_be_given_as_a_table():
    cfg = config({"clip_ratio": 0.3, "entropy_coef": 0.5}, "loss={clip_ratio=0.1}")
    assert (cfg.loss.clip_ratio, cfg.loss.entropy_coef) == (0.1, 0.5)
    assert config({"loss": LossSettings(entropy_coef=0.5)}, "clip_ratio=0.1").loss.entropy_coef == 0.5


@pytest.mark.parametrize("override", ["beta", "", "=3", "loss.=3", ".beta=3", "loss..beta=3"])
def test_what_is_no_override_is_refused(override):
    with pytest.raises(ConfigError, match="must have the form name=value"):
        apply_overrides({}, [override])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("clip_ration=1", "did you mean loss.clip_ratio?"),
        ("loss.learning_rate=1", "write optim.learning_rate"),
        ("los.beta=1", "unknown section 'los'"),
        ("loss=3", "section loss must contain settings, not 3"),
        ("beta.x=1", "loss.beta = {'x': 1} must be a number"),
        ("seed=-1", "run.seed = -1 must be >= 0"),
        ("learning_rate=nan", "must be a finite number"),
        ("seed=1\ngamma = 0.5", "must be a whole number"),
        ("profile=fast", "profile = 'fast' must be one of"),
    ],
)
def test_a_wrong_override_is_told_like_any_other_setting(override, words):
    with pytest.raises(ConfigError) as caught:
        config({}, override)
    assert words in str(caught.value)


def test_an_override_does_not_hide_a_section_that_is_none():
    with pytest.raises(ConfigError, match="section loss must contain settings, not 3"):
        config({"loss": 3}, "loss.clip_ratio=0.1")


def test_a_name_of_endless_parts_is_text_and_takes_no_time():
    text = "1\na" + ".a" * 200_000 + " = 1"
    assert parse_value(text) == text
