"""Layers read in few passes give what the model's own modules give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.batch_layout import SharedPrompts
from groupwise.language.cpu_layers import (
    CpuLayers,
    SharedAttention,
    _AddedProduct,
    _NormedProducts,
    _turn,
    find_cpu_layers,
)
from groupwise.language.policy import LanguagePolicy

from .engine.conftest import FAMILIES, make_model
from .engine.test_model_batcher import own_model
from .test_batch_layout import groups, values_and_gradients

KNOWN = ("llama", "llama-biases", "llama-scaled-rope", "qwen2", "qwen3")


def compare_with_modules(policy: LanguagePolicy, inputs: dict[str, torch.Tensor]) -> None:
    assert policy._cpu_layers is not None
    ours = values_and_gradients(policy, inputs)
    policy._cpu_layers = None
    for one, other in zip(ours, values_and_gradients(policy, inputs), strict=True):
        assert (one - other).abs().max() <= 2e-4 * other.abs().max() + 1e-6


@pytest.mark.parametrize("lengths", [(20, 20), (20, 14, 20), (90, 70)], ids=["even", "ragged", "long"])
@pytest.mark.parametrize("family", KNOWN)
def test_values_and_gradients_are_those_of_the_modules(family: str, lengths: tuple[int, ...]) -> None:
    compare_with_modules(LanguagePolicy(make_model(family)), groups(lengths))


def test_an_adapters_gradients_are_those_of_the_modules() -> None:
    model = add_adapter(make_model("llama"), Lora(rank=4, alpha=8), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.2)
    compare_with_modules(LanguagePolicy(model), groups())


def test_frozen_matrices_and_norms_are_left_alone() -> None:
    model = make_model("llama")
    model.model.layers[0].requires_grad_(False)
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[1].mlp.up_proj.weight.requires_grad_(False)
    for norm in (model.model.layers[1].post_attention_layernorm, model.model.layers[2].input_layernorm):
        norm.requires_grad_(False)
    compare_with_modules(LanguagePolicy(model), groups())


def test_several_threads_give_the_same() -> None:
    policy, inputs = LanguagePolicy(make_model("llama")), groups()
    alone, threads = values_and_gradients(policy, inputs), torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))
    try:
        for one, other in zip(alone, values_and_gradients(policy, inputs), strict=True):
            assert (one - other).abs().max() <= 5e-6 * other.abs().max()  # two libraries' rounding
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("prompts_too", [True, False])
def test_gradients_of_short_attention_are_its_derivatives(prompts_too: bool) -> None:
    rows = SharedPrompts(
        prompts=torch.zeros(2, 3, dtype=torch.long),
        rests=torch.zeros(3, 2, dtype=torch.long),
        group=torch.tensor([1, 0, 1]),
        start=torch.tensor([2, 3, 2]),
    )
    mixing, generator = SharedAttention(rows, 4, torch.float64), torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    q, k, v = random(12 if prompts_too else 6, 4, 4), random(12, 2, 4), random(12, 2, 4)
    assert torch.autograd.gradcheck(mixing, (q, k, v))


def test_gradients_of_norm_product_and_rotation_are_their_derivatives() -> None:
    """The values are those of the plain formulas, and the gradients those of finite differences."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    x, weight, one, other, change = random(3, 4), random(4), random(5, 4), random(2, 4), random(3, 5)
    eps = 0.3
    normed = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight
    for found, matrix in zip(_NormedProducts.apply(x, weight, eps, one, other), (one, other), strict=True):
        torch.testing.assert_close(found, normed @ matrix.t())
    assert torch.autograd.gradcheck(lambda *t: _NormedProducts.apply(*t[:2], eps, *t[2:]), (x, weight, one, other))
    matrix = random(4, 5)
    torch.testing.assert_close(_AddedProduct.apply(x, change, matrix), x + change @ matrix.t())
    assert torch.autograd.gradcheck(_AddedProduct.apply, (x, change, matrix))
    heads, angle = random(3, 2, 4), torch.rand(3, 1, 2, generator=generator, dtype=torch.float64)
    turned = _turn(heads, torch.polar(torch.full_like(angle, 2.0), angle)).view(3, 2, 2, 2)
    a, b = heads.view(3, 2, 2, 2).unbind(-1)
    wanted = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    torch.testing.assert_close(turned, 2 * torch.stack(wanted, -1))
    assert torch.autograd.gradcheck(lambda t: _turn(t, torch.polar(torch.full_like(angle, 2.0), angle)), (heads,))


def test_double_precision_is_read_in_double_precision() -> None:
    policy, inputs = LanguagePolicy(make_model("qwen3").double()), groups((20, 14, 20))
    assert policy._cpu_layers is not None
    ours = values_and_gradients(policy, inputs)
    policy._cpu_layers = None
    for one, other in zip(ours, values_and_gradients(policy, inputs), strict=True):
        # The model's own norms compute in single precision.
        assert (one - other).abs().max() <= 1e-5 * other.abs().max() + 1e-9


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - set(KNOWN)))
def test_other_families_keep_their_modules(family: str) -> None:
    model = make_model(family)
    assert find_cpu_layers(model, model.base_model) is None


def test_models_without_a_description_keep_their_modules() -> None:
    model = own_model("experts")
    assert find_cpu_layers(model, model.base_model) is None


def test_half_precision_and_autocast_keep_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = make_model("llama")
    policy, inputs = LanguagePolicy(model), groups()
    assert find_cpu_layers(make_model("llama").bfloat16(), model.base_model) is None
    monkeypatch.setattr(CpuLayers, "hidden", lambda *_: pytest.fail("read without autocast"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert policy.evaluate(inputs).logp.isfinite().all()
