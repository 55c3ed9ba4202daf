"""The kernels over logits give what the plain formulas give, whatever stands between product and logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.language import logprobs
from groupwise.language.logprobs import LogitRule, token_logprobs

TOKENS, WIDTH, VOCABULARY = 5, 8, 37
RULES = {
    "plain": LogitRule(),
    "temperature and scale": LogitRule(temperature=0.7, scale=0.3),
    "soft cap": LogitRule(temperature=1.3, scale=0.5, softcap=2.0),
}


def found(device: torch.device, rule: LogitRule, *, biased: bool, frozen: bool, with_entropy: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator).to(device)
        for shape in ((TOKENS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    )
    leaves = [hidden.requires_grad_(), *([] if frozen else [weight.requires_grad_()])]
    if biased and not frozen:
        leaves.append(bias.requires_grad_())
    tokens = torch.arange(TOKENS, device=device) * 7
    # Two chunks, of which one is not full.
    logp, entropy = token_logprobs(
        hidden, weight, tokens, bias=bias if biased else None, rule=rule, chunk_bytes=4 * 3 * VOCABULARY
    )
    pull = torch.linspace(-1, 2, TOKENS, device=device)
    loss = (logp * pull).sum() + (0.4 * entropy.square().sum() if with_entropy else 0.0)
    return [logp.detach(), entropy.detach(), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("with_entropy", [True, False], ids=["entropy", "no entropy"])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "learning"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_values_and_gradients_are_those_of_the_formulas(
    rule: LogitRule,
    biased: bool,
    frozen: bool,
    with_entropy: bool,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from groupwise.language.fused import head_kernels

    asked = {"biased": biased, "frozen": frozen, "with_entropy": with_entropy}
    monkeypatch.setattr(logprobs, "_kernels_for", lambda _: None)
    wanted = found(device, rule, **asked)
    monkeypatch.setattr(logprobs, "_kernels_for", lambda _: head_kernels)
    for one, other in zip(found(device, rule, **asked), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("with_entropy", [True, False])
def test_a_frozen_heads_hidden_states_get_the_gradient_of_a_learning_ones(with_entropy: bool) -> None:
    cpu, rule = torch.device("cpu"), RULES["soft cap"]
    frozen = found(cpu, rule, biased=True, frozen=True, with_entropy=with_entropy)
    learning = found(cpu, rule, biased=True, frozen=False, with_entropy=with_entropy)
    for one, other in zip(frozen, learning[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)
