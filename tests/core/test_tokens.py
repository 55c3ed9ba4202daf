"""Log-probabilities and entropies of tokens: logits at t − 1 predict token t."""

from __future__ import annotations

from math import exp, log

import pytest
import torch

from groupwise.core import token_entropy, token_logp, top_entropy_mask

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
    assert token_entropy(LOGITS.bfloat16()).dtype == token_entropy(LOGITS.half()).dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_every_token_of_every_row_has_its_own_distribution(temperature: float) -> None:
    """A batch of several rows and words, some of which are ruled out, against the softmax written out."""
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3, 4, 5, generator=g, dtype=torch.float64)
    logits[1, 2, 3] = logits[0, 0, 1] = -torch.inf
    ids = torch.randint(5, (3, 4), generator=g)
    ids[1, 3], ids[0, 1] = 3, 0
    logp, entropy = token_logp(logits, ids, temperature=temperature), token_entropy(logits, temperature=temperature)
    assert logp.shape == entropy.shape == (3, 3)
    for row in range(3):
        for t in range(1, 4):
            powers = [exp(float(value) / temperature) for value in logits[row, t - 1]]
            shares = [power / sum(powers) for power in powers]
            chosen = shares[int(ids[row, t])]
            assert float(logp[row, t - 1]) == pytest.approx(log(chosen) if chosen else -torch.inf)
            assert float(entropy[row, t - 1]) == pytest.approx(-sum(p * log(p) for p in shares if p))


@pytest.mark.parametrize("step", [1e-7, -1e-7])
def test_tokens_of_equal_entropy_are_kept_together_however_it_is_rounded(step: float) -> None:
    entropy = torch.tensor([[4.0, 1.0], [4.0 + step, 3.0], [4.0, 4.5]], dtype=torch.float64)
    kept = top_entropy_mask(entropy, torch.ones(3, 2, dtype=torch.bool), 0.5)
    assert kept.tolist() == [[True, False], [True, False], [True, True]]
