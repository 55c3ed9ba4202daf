"""Whatever valid configuration there is, it is written and read back exactly."""

import json
import math
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from groupwise.config import TrainingConfig, check_settings, load_config
from groupwise.config.fields import Options, Setting
from groupwise.config.setting_names import every_setting, layout_of
from groupwise.products import PRODUCTS, find

SECTIONS, SETTINGS = every_setting().sections, every_setting().settings

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SCALARS = TEXT | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PATTERNS = {"run_name": r"[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,99}", "device": r"(cpu|cuda|mps|xpu)(:[0-9]+)?"}
WEIGHTS = ("performance_weight", "structural_weight", "maintainability_weight", "resource_weight")


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """Valid values of one setting, from its own declaration."""
    limits = setting.limits
    lowest = limits.get("ge", limits.get("gt"))
    highest = limits.get("le", limits.get("lt"))
    if setting.choices:
        one: st.SearchStrategy[Any] = st.sampled_from(setting.choices)
    elif setting.kind is bool:
        one = st.booleans()
    elif setting.kind is int:
        one = st.integers(lowest, highest if highest is not None else 2**63 - 1)
    elif setting.kind is float:
        one = st.floats(
            lowest,
            highest,
            exclude_min="gt" in limits,
            exclude_max="lt" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
    elif setting.kind is Options:
        one = st.dictionaries(TEXT | st.just(""), SCALARS, max_size=3)
    else:
        one = st.from_regex(PATTERNS[setting.name], fullmatch=True) if setting.shape else TEXT
    one = st.lists(one, max_size=3).map(tuple) if setting.many else one
    return st.none() | one if setting.nullable else one


@st.composite
def configs(draw: st.DrawFn) -> TrainingConfig:
    """Configurations of any product with about a quarter of their settings changed, made to keep the rules."""
    product = draw(st.sampled_from(list(PRODUCTS)))
    known = layout_of(product).settings
    names = draw(st.sets(st.sampled_from(sorted(known)), max_size=30)) - {*WEIGHTS, "product"}
    values = {**find(product).defaults, **{name: draw(values_of(known[name])) for name in sorted(names)}}
    if set(WEIGHTS) <= set(known):
        parts = draw(st.lists(st.integers(0, 100), min_size=4, max_size=4).filter(any))
        values |= {name: part / sum(parts) for name, part in zip(WEIGHTS, parts, strict=True)}
    if values.get("kl_target") is not None:
        values["beta"] = values.get("beta") or 0.1
    values |= {"use_reference_model": True} if values.get("beta") else {}
    values |= {"fp16": False} if values.get("bf16") or values.get("sharding") == "fsdp" else {}
    values |= {"importance_level": None} if values.get("loss_type") == "gspo" else {}
    values |= {"max_completion_length": 9} if values.get("loss_type") == "dr_grpo" else {}
    if values.get("dual_clip") is not None:
        values["dual_clip"] = 2 + (values.get("clip_ratio") or 0) + (values.get("clip_ratio_high") or 0)
    if values.get("loss_type") in ("cispo", "sapo", "vespo"):
        values |= {"dual_clip": None, "clip_ratio_high": None}
    values |= {"eval_steps": 1} if values.get("eval_steps") == 0 else {}
    if values.get("replay_size") or values.get("replay_groups"):
        values |= {"replay_groups": values.get("replay_groups") or 1}
        values |= {"replay_size": max(values["replay_groups"], values.get("replay_size", 0))}
    if values.get("dynamic_sampling") or values.get("replay_groups"):
        values |= {"estimator": "outcome", "baseline_type": "group_mean"}
    if values.get("baseline_group", "start") != "start":
        values |= {"allow_outcome_baseline": True, "estimator": "outcome", "dynamic_sampling": False}
    if "gae" not in values.get("estimator", "outcome"):
        values |= {"gae_backend": "torch"}
    if product not in ("control", "ppo") or values.get("sharding") == "fsdp":
        values |= {"gradient_surgery": "none"}
    if values.get("max_workers") is not None:
        values |= {"backend": "processes", "max_workers": max(values["max_workers"], values.get("num_workers") or 2)}
    if values.get("sampler") == "vllm":
        values |= (
            {"vllm_servers": values.get("vllm_servers") or ("x",)} if "vllm_servers" in known else {"sampler": "own"}
        )
    return TrainingConfig(**{**values, "product": product})


def exactly(cfg: TrainingConfig) -> str:
    """Equality that tells 1 from 1.0 and True, and -0.0 from 0.0."""
    return repr(cfg.to_dict())


@QUICK
@given(configs())
def test_through_a_dictionary_and_json(cfg):
    again = TrainingConfig.from_dict(json.loads(json.dumps(cfg.to_dict(), allow_nan=False)))
    assert again == cfg
    assert exactly(again) == exactly(cfg)
    assert hash(again) == hash(cfg)


@QUICK
@given(configs(), st.booleans())
def test_through_toml(cfg, comments):
    again = TrainingConfig.from_dict(tomllib.loads(cfg.to_toml(comments=comments)))
    assert again == cfg
    assert exactly(again) == exactly(cfg)


@settings(QUICK, max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(configs())
def test_through_files(cfg):
    with tempfile.TemporaryDirectory() as folder:
        contents = {
            "a.toml": cfg.to_toml(comments=True),
            "a.json": json.dumps(cfg.to_dict()),
            "a.yaml": yaml.safe_dump(cfg.to_dict(), sort_keys=False),
        }
        for name, content in contents.items():
            path = Path(folder) / name
            path.write_bytes(content.encode())
            assert exactly(load_config(path)) == exactly(cfg), name


@QUICK
@given(configs())
def test_flat_and_nested_agree(cfg):
    flat = cfg.flat()
    assert TrainingConfig(**flat) == TrainingConfig.from_dict(cfg.sections) == cfg
    assert TrainingConfig().replace(**flat) == cfg


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@settings(QUICK, max_examples=200)
@given(st.dictionaries(st.sampled_from([*SETTINGS, *SECTIONS, "profile", "", ".", "x", 3, None]), ANYTHING, max_size=4))
def test_whatever_is_given_is_accepted_or_found_wrong_and_never_crashes(given_settings):
    findings = check_settings(given_settings)
    assert all(finding.message and "\n" not in finding.message for finding in findings)
    if not findings:
        cfg = TrainingConfig.from_dict(given_settings)
        assert all(math.isfinite(value) for value in cfg.flat().values() if isinstance(value, float))


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "\\",
        "\x00",
        "\x1f",
        "\x7f",
        "\x85",
        "\r\n",
        "\u2028",
        "\ufeff",
        "é",
        "😀",
        "'''",
        '"""',
        "#",
        "\\u0041",
    ],
)
def test_awkward_characters_survive_toml(text):
    cfg = TrainingConfig(environment=text, options={text: text})
    assert TrainingConfig.from_dict(tomllib.loads(cfg.to_toml())) == cfg


@pytest.mark.parametrize("number", [5e-324, 1e16, 1e22, 0.1 + 0.2, 1.7976931348623157e308, 123456789.0])
def test_awkward_numbers_survive_toml(number):
    cfg = TrainingConfig(target_reward=-number, options={"x": number})
    again = TrainingConfig.from_dict(tomllib.loads(cfg.to_toml()))
    assert (again.training.target_reward, again.task.options["x"]) == (-number, number)
    assert type(again.task.options["x"]) is float


def test_off_survives_toml_where_the_default_is_on():
    cfg = TrainingConfig(reward_clip=None, value_clip=None, n_groups=None)
    assert TrainingConfig.from_dict(tomllib.loads(cfg.to_toml())) == cfg


def test_a_commented_file_explains_every_setting():
    for product in PRODUCTS:
        text = TrainingConfig(product=product).to_toml(comments=True)
        settings = layout_of(product).settings.values()
        assert all(setting.meaning in text and setting.name in text for setting in settings)
        assert "# run_name =\n" in text
