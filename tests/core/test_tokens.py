"""Log-probabilities and entropies of tokens: logits at t − 1 predict token t."""

from __future__ import annotations

from math import log

import pytest
import torch

from groupwise.core import token_entropy, token_logp

# Position 0 predicts token 1 with probability 3/4; position 1 is even; position 2 predicts nothing we have.
LOGITS = torch.tensor([[[0.0, log(3.0)], [5.0, 5.0], [100.0, -100.0]]])
IDS = torch.tensor([[0, 1, 0]])


def test_each_token_is_predicted_by_the_position_before_it() -> None:
    assert token_logp(LOGITS, IDS)[0].tolist() == pytest.approx([log(0.75), log(0.5)])
    even = -0.75 * log(0.75) - 0.25 * log(0.25)
    assert token_entropy(LOGITS)[0].tolist() == pytest.approx([even, log(2)])


def test_temperature_is_that_of_sampling() -> None:
    cold = token_logp(LOGITS, IDS, temperature=0.5)
    assert cold[0, 0].item() == pytest.approx(log(0.9))
    assert token_entropy(LOGITS, temperature=0.5)[0, 0].item() == pytest.approx(-0.9 * log(0.9) - 0.1 * log(0.1))
    with pytest.raises(ValueError, match="temperature is 0"):
        token_logp(LOGITS, IDS, temperature=0.0)


def test_forbidden_tokens_leave_entropy_and_gradient_finite() -> None:
    logits = torch.tensor([[[0.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]]], requires_grad=True)
    entropy = token_entropy(logits)
    entropy.sum().backward()
    assert entropy.item() == pytest.approx(log(2))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_half_precision_logits_are_widened() -> None:
    assert token_logp(LOGITS.bfloat16(), IDS).dtype == torch.float32
    assert token_logp(LOGITS.double(), IDS).dtype == torch.float64
