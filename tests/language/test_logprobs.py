"""Chunked log-probabilities against the plain computation, in value, gradient and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from groupwise.language.logprobs import LogitRule, find_head, logits_of, logprobs_of_logits, token_logprobs

RULES = {
    "plain": LogitRule(),
    "temperature": LogitRule(temperature=0.7),
    "scale": LogitRule(temperature=1.3, scale=0.25),
    "softcap": LogitRule(softcap=3.0),
    "all": LogitRule(temperature=0.6, scale=1.7, softcap=2.0),
}
VOCABULARY, WIDTH, TOKENS = 37, 8, 23
CHUNK = 4 * VOCABULARY * 5  # five tokens: chunks of 5, 5, 5, 5 and 3


def tensors(dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    bias = torch.randn(VOCABULARY, generator=generator, dtype=dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(VOCABULARY, (TOKENS,), generator=generator)


def plainly(hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, rule: LogitRule) -> tuple[Tensor, ...]:
    z = hidden @ weight.T * rule.scale if bias is None else (hidden @ weight.T + bias) * rule.scale
    if rule.softcap is not None:
        z = rule.softcap * torch.tanh(z / rule.softcap)
    logp = torch.log_softmax(z / rule.temperature, -1)
    return logp[torch.arange(len(tokens)), tokens], -(logp.exp() * logp).sum(-1)


def gradients(pair: tuple[Tensor, ...], of: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    weights = [torch.randn(len(pair[0]), generator=generator, dtype=torch.float64).to(pair[0].dtype) for _ in pair]
    return list(torch.autograd.grad(sum((w * p).sum() for w, p in zip(weights, pair, strict=True)), of))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)], ids=["single", "double"]
)
@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", RULES)
def test_values_and_gradients_equal_the_plain_computation(
    name: str, with_bias: bool, dtype: torch.dtype, tolerance: float
) -> None:
    hidden, weight, bias, tokens = tensors(dtype)
    given = [hidden, weight, bias] if with_bias else [hidden, weight]
    chunked = token_logprobs(
        hidden, weight, tokens, bias=bias if with_bias else None, rule=RULES[name], chunk_bytes=CHUNK
    )
    exact = [t.double() for t in given]
    plain = plainly(exact[0], exact[1], exact[2] if with_bias else None, tokens, RULES[name])
    for ours, theirs in zip(chunked, plain, strict=True):
        assert ours.dtype == dtype
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()
    for ours, theirs in zip(gradients(chunked, given), gradients(plain, given), strict=True):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("name", RULES)
def test_gradients_pass_gradcheck(name: str) -> None:
    hidden, weight, bias, tokens = tensors(torch.float64)

    def pair(h: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(h, w, tokens[:7], bias=b, rule=RULES[name], chunk_bytes=CHUNK)

    assert torch.autograd.gradcheck(pair, (hidden[:7].detach().requires_grad_(), weight, bias))


def test_a_tied_embedding_gets_the_gradient_of_both_uses() -> None:
    _, weight, _, tokens = tensors(torch.float64)
    ours = gradients(token_logprobs(torch.tanh(weight[tokens]), weight, tokens, chunk_bytes=CHUNK), [weight])
    theirs = gradients(plainly(torch.tanh(weight[tokens]), weight, None, tokens, LogitRule()), [weight])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_frozen_embedding_costs_no_gradient() -> None:
    hidden, weight, _, tokens = tensors(torch.float32)
    logp, _ = token_logprobs(hidden, weight.detach(), tokens, chunk_bytes=CHUNK)
    logp.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_no_tokens_give_nothing_that_still_has_a_gradient() -> None:
    hidden, weight, _, tokens = tensors(torch.float32)
    logp, entropy = token_logprobs(hidden[:0], weight, tokens[:0])
    assert logp.shape == entropy.shape == (0,)
    (logp.sum() + entropy.sum()).backward()
    assert weight.grad is not None
    assert weight.grad.eq(0).all()


def test_autocast_multiplies_in_half_precision_and_sums_in_single() -> None:
    hidden, weight, _, tokens = tensors(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = token_logprobs(hidden, weight, tokens, chunk_bytes=CHUNK)
        whole = token_logprobs(hidden, weight, tokens)
    rounded = plainly(hidden.bfloat16(), weight.bfloat16(), None, tokens, LogitRule())
    single = plainly(hidden, weight, None, tokens, LogitRule())
    assert {t.dtype for t in half} == {torch.float32}
    torch.testing.assert_close(half, whole)
    error = (half[0] - single[0]).abs().max()
    assert 1e-5 < error < 0.1, "the products must be in half precision"
    assert error < (rounded[0].float() - single[0]).abs().max(), "the softmax must not be"
    ours, theirs = gradients(half, [hidden, weight]), gradients(single, [hidden, weight])
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


def test_half_precision_weights_get_half_precision_gradients() -> None:
    hidden, weight, bias, tokens = (
        t.detach().bfloat16() if t.is_floating_point() else t for t in tensors(torch.float32)
    )
    for t in (hidden, weight, bias):
        t.requires_grad_()
    logp, _ = token_logprobs(hidden, weight, tokens, bias=bias, chunk_bytes=CHUNK)
    assert logp.dtype == torch.float32
    logp.sum().backward()
    exact = [t.detach().float().requires_grad_() for t in (hidden, weight, bias)]
    plainly(exact[0], exact[1], exact[2], tokens, LogitRule())[0].sum().backward()
    for ours, theirs in zip((hidden, weight, bias), exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert ours.grad.dtype == torch.bfloat16
        assert (ours.grad.float() - theirs.grad).norm() < 0.03 * theirs.grad.norm()


def test_gradients_of_many_chunks_are_summed_in_single_precision() -> None:
    """Sums of bfloat16 stop growing at 256: 1024 times 3/4 would be that."""
    hidden = torch.ones(1024, 1, dtype=torch.bfloat16)
    weight, bias = (torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True) for shape in ((4, 1), (4,)))
    logp, _ = token_logprobs(hidden, weight, torch.zeros(1024, dtype=torch.long), bias=bias, chunk_bytes=16)
    logp.sum().backward()
    for parameter in (weight, bias):
        assert parameter.grad is not None
        assert parameter.grad.flatten().tolist() == [768, -256, -256, -256]


class LargestTensor(TorchDispatchMode):
    """Watches every operation and remembers the largest result that was not as large as the weights."""

    def __init__(self, apart_from: int) -> None:
        super().__init__()
        self.apart_from, self.numbers = apart_from, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.numel() != self.apart_from:
                self.numbers = max(self.numbers, tensor.numel())
        return result


@pytest.mark.parametrize("rule", [LogitRule(), LogitRule(softcap=5.0)], ids=["plain", "softcap"])
def test_nothing_ever_holds_the_logits_of_all_tokens(rule: LogitRule) -> None:
    largest = []
    for vocabulary in (256, 4096):
        hidden, tokens = torch.randn(512, WIDTH, requires_grad=True), torch.randint(vocabulary, (512,))
        weight = torch.randn(vocabulary, WIDTH, requires_grad=True)
        with LargestTensor(apart_from=weight.numel()) as seen:
            logp, entropy = token_logprobs(hidden, weight, tokens, rule=rule, chunk_bytes=1 << 16)
            (logp.sum() + entropy.sum()).backward()
        largest.append(seen.numbers)
    assert largest == [1 << 14, 1 << 14], "a chunk of 64 KiB, whatever the vocabulary"


def test_given_logits_are_read_in_chunks_to_the_same_result() -> None:
    hidden, weight, _, tokens = tensors(torch.float64)
    ours = logprobs_of_logits(hidden @ weight.T, tokens, temperature=0.7, chunk_bytes=CHUNK)
    theirs = plainly(hidden, weight, None, tokens, LogitRule(temperature=0.7))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, [hidden, weight]), gradients(theirs, [hidden, weight]))


def test_given_logits_are_widened_one_chunk_at_a_time() -> None:
    largest = []
    for vocabulary in (256, 4096):
        logits = torch.randn(512, vocabulary).bfloat16()
        with LargestTensor(apart_from=logits.numel()) as seen, torch.no_grad():
            logp, _ = logprobs_of_logits(logits, torch.randint(vocabulary, (512,)), chunk_bytes=1 << 16)
        assert logp.dtype == torch.float32
        largest.append(seen.numbers)
    assert largest == [1 << 14, 1 << 14]


def test_without_a_wish_a_chunk_takes_32_mebibytes_on_a_cpu_and_at_least_one_token() -> None:
    hidden, weight, tokens = torch.randn(2100, 2), torch.randn(8192, 2), torch.randint(8192, (2100,))
    with LargestTensor(apart_from=weight.numel()) as seen:
        plenty = token_logprobs(hidden, weight, tokens)
    assert seen.numbers == (32 << 20) // 4
    little = token_logprobs(hidden[:3], weight, tokens[:3], chunk_bytes=1)
    torch.testing.assert_close([part[:3] for part in plenty], list(little))


def test_rows_of_very_different_size_lose_no_digits() -> None:
    """Each row is shifted by its own maximum: that of another row would leave it nothing."""
    hidden, weight, _, tokens = (t.detach() for t in tensors(torch.float32))
    hidden = torch.cat((hidden, torch.ones(TOKENS, 1)), 1)
    hidden[::2, -1] = -1
    weight = torch.cat((weight, torch.full((VOCABULARY, 1), 900.0)), 1)
    ours = token_logprobs(hidden, weight, tokens, chunk_bytes=CHUNK)
    theirs = plainly(hidden.double(), weight.double(), None, tokens, LogitRule())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_double_precision_stays_double_under_autocast() -> None:
    hidden, weight, _, tokens = tensors(torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = token_logprobs(hidden, weight, tokens)
    torch.testing.assert_close(ours, plainly(hidden, weight, None, tokens, LogitRule()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", RULES)
def test_logits_are_scaled_and_capped_but_not_divided_by_the_temperature(name: str, with_bias: bool) -> None:
    hidden, weight, bias, _ = (t.detach() for t in tensors(torch.float64))
    wanted = (hidden @ weight.T + (bias if with_bias else 0)) * RULES[name].scale
    cap = RULES[name].softcap
    wanted = wanted if cap is None else cap * torch.tanh(wanted / cap)
    torch.testing.assert_close(logits_of(hidden, weight, bias if with_bias else None, RULES[name]), wanted)
    assert torch.equal(logits_of(hidden, weight), hidden @ weight.T)


SHAPE = {
    "vocab_size": 31, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip
MAMBA = {"mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}
HEADS: dict[str, tuple[str, dict[str, Any], LogitRule]] = {
    "plain": ("Llama", {}, LogitRule(0.7)),
    "logit_scale": ("Cohere", {"logit_scale": 0.25}, LogitRule(0.7, 0.25)),
    "lm_head_multiplier": ("FalconH1", {"lm_head_multiplier": 0.5, **MAMBA}, LogitRule(0.7, 0.5)),
    "logits_scaling": ("Granite", {"logits_scaling": 4.0}, LogitRule(0.7, 0.25)),
    "final_logit_softcapping": ("Gemma2", {"final_logit_softcapping": 2.0, "head_dim": 8}, LogitRule(0.7, 1.0, 2.0)),
    "logits_soft_cap": ("RecurrentGemma", {"logits_soft_cap": 3.0, "lru_width": 16}, LogitRule(0.7, 1.0, 3.0)),
    "no cap": ("Gemma2", {"final_logit_softcapping": None, "head_dim": 8}, LogitRule(0.7)),
}


def small(family: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SHAPE, **changes)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.mark.parametrize("name", HEADS)
def test_scale_and_cap_are_found_in_the_settings_of_every_family(name: str) -> None:
    family, changes, wanted = HEADS[name]
    head = find_head(small(family, **changes), 0.7)
    assert head is not None
    assert head.rule == wanted


def test_a_head_is_read_at_temperature_1_unless_another_is_named() -> None:
    head = find_head(small("Llama"))
    assert head is not None
    assert head.rule == LogitRule()


class GrowingLinear(nn.Linear):
    """At first an ordinary matrix; what it learns is beside it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.more = nn.Parameter(torch.zeros(outputs))

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden) + self.more


def test_a_head_that_only_begins_as_a_matrix_is_not_read_as_one() -> None:
    model = small("Llama")
    model.lm_head = GrowingLinear(16, 31)
    assert find_head(model) is None
    model.lm_head = nn.Linear(16, 31)
    assert find_head(model) is not None
