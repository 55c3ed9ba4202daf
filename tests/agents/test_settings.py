"""`AgentConfig`: checks itself, and says it to the engine and to a run."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import ValidationError

from groupwise.agents.settings import SAMPLING, AgentConfig
from groupwise.config import TrainingConfig
from groupwise.config.sections import SETTINGS
from groupwise.errors import ConfigError
from groupwise.language.engine import SamplingParams
from groupwise.products import product_of


def test_the_guides_call() -> None:
    config = AgentConfig(model_name="gpt2")
    assert config.model_name == "gpt2"
    assert config == pickle.loads(pickle.dumps(config)) == copy.deepcopy(config)  # noqa: S301
    with pytest.raises(ValidationError):
        config.temperature = 0.5  # type: ignore[misc]
    assert config.replace(temperature=0.5).temperature == 0.5


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="AgentConfig has no setting 'temprature'") as caught:
        AgentConfig(temprature=0.5)  # type: ignore[call-arg]
    assert caught.value.hint == "did you mean temperature?"
    assert caught.value.field == "agent.temprature"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "agent.temperature = -0.1 must be >= 0"),
        ({"temperature": float("nan")}, "agent.temperature = nan must be a finite number >= 0"),
        ({"top_p": 0}, "agent.top_p = 0 must be > 0 and <= 1"),
        ({"max_new_tokens": 0}, "agent.max_new_tokens = 0 must be >= 1"),
        ({"max_new_tokens": 2.5}, "agent.max_new_tokens = 2.5 must be a whole number"),
        ({"model_name": ""}, "agent.model_name = '' must be text of at least one character"),
        ({"dtype": "float64"}, "agent.dtype = 'float64' must be one of float32, bfloat16"),
        ({"top_k": -1, "min_p": 1}, "2 problems"),
    ],
)
def test_a_value_out_of_bounds_is_quoted_with_its_limit(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentConfig(**settings)  # type: ignore[arg-type]


def test_it_becomes_sampling_params_and_settings_of_a_run() -> None:
    config = AgentConfig(model_name="tiny@4", temperature=0.7, top_p=0.9, max_new_tokens=33, stop=("END",), lora_rank=8)
    assert config.sampling_params() == SamplingParams(temperature=0.7, top_p=0.9, max_new_tokens=33, stop=("END",))
    cfg = TrainingConfig(**config.training_settings(), num_episodes=3)
    assert (cfg.policy.model_name, cfg.language.lora_rank) == ("tiny@4", 8)
    assert (cfg.sampling.temperature, cfg.sampling.max_new_tokens) == (0.7, 33)
    assert AgentConfig(temperature=0).sampling_params().temperature == 0


def test_settings_of_the_same_name_have_the_same_meaning_and_kind() -> None:
    shared = set(AgentConfig.model_fields) & set(SETTINGS)
    assert set(SAMPLING) < shared
    assert len(shared) == 15


@pytest.mark.parametrize(("product", "task"), [("language", "addition"), ("agent", "orders"), ("warm-start", "orders")])
def test_a_tool_format_that_nobody_knows_is_refused_before_a_run(product: str, task: str) -> None:
    cfg = TrainingConfig.from_dict(
        {"product": product, "environment": task, "model_name": "tiny", "tool_format": "smoke signals"}
    )
    with pytest.raises(ConfigError, match="there is no tool-call format 'smoke signals'; there are action, apertus"):
        product_of(cfg).check(cfg)
