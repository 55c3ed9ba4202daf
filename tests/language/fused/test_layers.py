"""Fused layers and the fused head give the values and gradients of the model's own modules, in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.language import logprobs
from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.engine.families import describe
from groupwise.language.fused import layers as fused_layers_file
from groupwise.language.policy import LanguagePolicy

from ..engine.conftest import FAMILIES, make_model
from ..test_batch_layout import groups, values_and_gradients

KNOWN = ("llama", "llama-biases", "llama-scaled-rope", "qwen2", "qwen3")


@pytest.fixture(autouse=True)
def kernels_on_this_device(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU too, where policies would not choose them."""
    from groupwise.language.fused import head_kernels

    monkeypatch.setattr(logprobs, "_kernels_for", lambda _: head_kernels)


def fused_policy(model: Any, device: torch.device, **options: Any) -> LanguagePolicy:
    policy = LanguagePolicy(model.to(device), **options)
    found = describe(policy.model)
    assert found is not None
    made = fused_layers_file.fuse(found)
    assert isinstance(made, fused_layers_file.FusedLayers), made
    policy._fused = made
    return policy


def compare_with_modules(policy: LanguagePolicy, inputs: dict[str, torch.Tensor]) -> None:
    assert policy._fused is not None
    # A GPU's attention adds up in another order than its products do.
    tolerance = 3e-5 if policy.model.device.type == "cuda" else 1e-5
    ours = values_and_gradients(policy, inputs)
    policy._fused = policy._cpu_layers = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logprobs, "_kernels_for", lambda _: None)
        wanted = values_and_gradients(policy, inputs)
    for one, other in zip(ours, wanted, strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max() + 1e-7


def with_strong_adapter(model: Any) -> Any:
    model = add_adapter(model, Lora(rank=4, alpha=8), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.2)
    return model


# The interpreter takes a few seconds for each.
@pytest.mark.parametrize(
    ("family", "lengths"),
    [
        ("qwen3", (24, 24)),
        ("llama-biases", (18, 3)),
        pytest.param("llama-scaled-rope", (20, 20), marks=pytest.mark.long),
        pytest.param("qwen2", (3,), marks=pytest.mark.long),
    ],
)
def test_values_and_gradients_are_those_of_the_modules(
    family: str, lengths: tuple[int, ...], device: torch.device
) -> None:
    compare_with_modules(fused_policy(make_model(family, num_hidden_layers=2), device), groups(lengths, members=2))


@pytest.mark.parametrize("family", [pytest.param("llama-biases", marks=pytest.mark.long), "qwen3"])
def test_an_adapters_gradients_are_those_of_the_modules(family: str, device: torch.device) -> None:
    compare_with_modules(
        fused_policy(with_strong_adapter(make_model(family, num_hidden_layers=2)), device), groups((24, 5), members=2)
    )


def test_recomputed_layers_give_the_same(device: torch.device) -> None:
    model = make_model("qwen3", num_hidden_layers=2)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    compare_with_modules(fused_policy(model, device), groups((20, 20), members=2))


@pytest.mark.long
def test_frozen_matrices_and_norms_are_left_alone(device: torch.device) -> None:
    model = make_model("llama")
    model.model.layers[0].requires_grad_(False)
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[1].mlp.up_proj.weight.requires_grad_(False)
    for norm in (model.model.layers[1].post_attention_layernorm, model.model.layers[2].input_layernorm):
        norm.requires_grad_(False)
    compare_with_modules(fused_policy(model, device), groups((20, 14), members=2))


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - set(KNOWN)))
def test_other_families_say_why_they_keep_their_modules(family: str, device: torch.device) -> None:
    found = describe(make_model(family))
    assert found is not None
    assert isinstance(fused_layers_file.fuse(found), str)
