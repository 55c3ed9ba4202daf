"""KL estimators, the adaptive coefficient and the entropy bonus."""

from __future__ import annotations

from math import log

import pytest
import torch

from groupwise.core import adapt_kl_coefficient, entropy_bonus, kl_estimate
from groupwise.core.divergence import KL_ESTIMATORS, KlEstimator


@pytest.mark.parametrize(("estimator", "expected"), [("k1", log(2)), ("k2", log(2) ** 2 / 2), ("k3", log(2) - 0.5)])
def test_estimators_by_hand(estimator: KlEstimator, expected: float) -> None:
    logp, reference = torch.tensor([log(0.5)]).double(), torch.tensor([log(0.25)]).double()
    assert kl_estimate(logp, reference, estimator=estimator).item() == pytest.approx(expected)
    ratio = torch.tensor([3.0])
    assert kl_estimate(logp, reference, estimator=estimator, ratio=ratio).item() == pytest.approx(3 * expected)


def exact(logits: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    logp = logits.log_softmax(-1)
    return (logp.exp() * (logp - reference)).sum()


def test_values_are_unbiased_and_corrected_gradients_are_those_of_the_reverse_kl() -> None:
    """Expectations over a small vocabulary, taken exactly, with samples of another policy."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, generator=g, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1)
    behavior = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1)
    target = exact(logits, reference)
    (gradient,) = torch.autograd.grad(target, logits)
    for estimator in ("k1", "k3"):
        logp = logits.log_softmax(-1)
        kl = kl_estimate(logp, reference, estimator=estimator, ratio=(logp - behavior).exp())
        estimate = (behavior.exp() * kl).sum()
        assert estimate.item() == pytest.approx(target.item())
        torch.testing.assert_close(torch.autograd.grad(estimate, logits)[0], gradient)


def test_on_policy_and_uncorrected_k1_does_not_pull_k2_pulls_backward_and_k3_forward() -> None:
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(5, generator=g, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1)
    reverse = torch.autograd.grad(exact(logits, reference), logits)[0]
    forward = torch.autograd.grad(-(reference.exp() * logits.log_softmax(-1)).sum(), logits)[0]
    pulls = {}
    for estimator in KL_ESTIMATORS:
        logp = logits.log_softmax(-1)
        samples = logp.detach().exp()
        pulls[estimator] = torch.autograd.grad(
            (samples * kl_estimate(logp, reference, estimator=estimator)).sum(), logits
        )[0]
    assert pulls["k1"].abs().max() < 1e-15
    torch.testing.assert_close(pulls["k2"], reverse)
    torch.testing.assert_close(pulls["k3"], forward)


def test_the_reference_is_frozen_and_far_away_is_finite() -> None:
    reference = torch.tensor([-300.0, 0.0], requires_grad=True)
    logp = torch.tensor([0.0, -300.0], requires_grad=True)
    for estimator in KL_ESTIMATORS:
        kl = kl_estimate(logp, reference, estimator=estimator)
        assert kl.isfinite().all()
        kl.sum().backward()
    assert reference.grad is None


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (6.0, 0.1),
        (6.6, 0.1 * (1 + 0.1 * 64 / 1000)),
        (60.0, 0.1 * (1 + 0.2 * 64 / 1000)),
        (0.0, 0.1 * (1 - 0.2 * 0.064)),
    ],
)
def test_the_coefficient_follows_the_target_in_bounded_steps(observed: float, expected: float) -> None:
    assert adapt_kl_coefficient(0.1, observed, 6.0, 1000, 64) == pytest.approx(expected)


def test_a_batch_larger_than_the_horizon_cannot_make_the_coefficient_negative() -> None:
    assert adapt_kl_coefficient(0.1, 0.0, 0.01, 10, 10_000) == pytest.approx(0.08)


def test_a_target_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="target is 0"):
        adapt_kl_coefficient(0.1, 1.0, 0.0, 1000, 64)


def test_entropy_bonus_by_hand() -> None:
    entropy = torch.tensor([[1.0, 2.0], [4.0, float("nan")], [8.0, 16.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    advantages = torch.tensor([1.0, -1.0, 0.0])
    bonus = entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=5)
    assert bonus.item() == pytest.approx(0.1 * (1 + 2 + 4) / 5)
    keep = torch.tensor([[False, True], [True, True], [True, True]])
    bonus = entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=5, keep=keep)
    assert bonus.item() == pytest.approx(0.1 * (2 + 4) / 5)


def test_an_advantage_outside_the_mask_does_not_make_a_row_learn() -> None:
    mask = torch.tensor([[1, 0]])
    advantages = torch.tensor([[0.0, 3.0]])
    assert entropy_bonus(torch.ones(1, 2), mask, advantages, coefficient=1.0, denominator=1) == 0
