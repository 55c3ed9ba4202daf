"""KL estimators, the adaptive coefficient and the entropy bonus."""

from __future__ import annotations

import itertools
from math import exp, log

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
    for estimator, source in itertools.product(KL_ESTIMATORS, (behavior, logits.detach().log_softmax(-1))):
        logp = logits.log_softmax(-1)
        kl = kl_estimate(logp, reference, estimator=estimator, ratio=(logp - source).exp())
        estimate = (source.exp() * kl).sum()
        if estimator != "k2":  # whose value is biased
            assert estimate.item() == pytest.approx(target.item())
        torch.testing.assert_close(torch.autograd.grad(estimate, logits)[0], gradient, rtol=0, atol=1e-14)


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


@pytest.mark.parametrize("far", [20.5, 25.0, 300.0])
def test_beyond_twenty_the_estimates_stay_where_they_are_and_no_longer_pull(far: float) -> None:
    expected = {
        "k1": (20.0, -20.0), "k2": (200.0, 200.0), "k3": (exp(-20.0) + 19.0, exp(20.0) - 21.0)
    }  # fmt: skip
    for estimator in KL_ESTIMATORS:
        logp = torch.tensor([far, -far], dtype=torch.float64, requires_grad=True)
        kl = kl_estimate(logp, torch.zeros(2, dtype=torch.float64), estimator=estimator)
        assert kl.tolist() == pytest.approx(expected[estimator])
        assert torch.autograd.grad(kl.sum(), logp)[0].tolist() == [0.0, 0.0]
    near = torch.tensor([19.5, -19.5], dtype=torch.float64)
    assert kl_estimate(near, torch.zeros_like(near), estimator="k1").tolist() == [19.5, -19.5]


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


def test_a_target_or_horizon_of_zero_or_less_is_refused() -> None:
    for value in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"target is {value}"):
            adapt_kl_coefficient(0.1, 1.0, value, 1000, 64)
        with pytest.raises(ValueError, match=f"horizon is {value}"):
            adapt_kl_coefficient(0.1, 1.0, 6.0, value, 64)


@pytest.mark.parametrize(
    ("observed", "samples", "factor"),
    [(4.0, 50, 1.0), (4.5, 50, 1.0625), (3.5, 50, 0.9375), (4.8, 50, 1.1), (5.0, 50, 1.1), (3.2, 50, 0.9),
     (1.0, 50, 0.9), (8.0, 100, 1.2), (8.0, 101, 1.2), (8.0, 99, 1.198), (8.0, 0, 1.0)],
)  # fmt: skip
def test_the_coefficient_at_and_around_its_bounds(observed: float, samples: int, factor: float) -> None:
    """A target of 4 and a horizon of 100: errors are bounded at a fifth, samples at the horizon."""
    assert adapt_kl_coefficient(2.0, observed, 4.0, 100, samples) == pytest.approx(2.0 * factor)


def test_entropy_bonus_by_hand() -> None:
    entropy = torch.tensor([[1.0, 2.0], [4.0, float("nan")], [8.0, 16.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    advantages = torch.tensor([1.0, -1.0, 0.0])
    bonus = entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=5)
    assert bonus.item() == pytest.approx(0.1 * (1 + 2 + 4) / 5)
    keep = torch.tensor([[False, True], [True, True], [True, True]])
    bonus = entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=5, keep=keep)
    assert bonus.item() == pytest.approx(0.1 * (2 + 4) / 5)
    by_row = torch.tensor([[True], [False], [True]])
    bonus = entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=5, keep=by_row)
    assert bonus.item() == pytest.approx(0.1 * (1 + 2) / 5)
    with pytest.raises(ValueError, match="denominator is 0"):
        entropy_bonus(entropy, mask, advantages, coefficient=0.1, denominator=0)


def test_an_advantage_outside_the_mask_does_not_make_a_row_learn() -> None:
    mask = torch.tensor([[1, 0]])
    advantages = torch.tensor([[0.0, 3.0]])
    assert entropy_bonus(torch.ones(1, 2), mask, advantages, coefficient=1.0, denominator=1) == 0


def test_all_tokens_of_a_row_that_learns_are_rewarded_for_exploring() -> None:
    """With an advantage for each token, one of them is enough: the others explored on the way there."""
    entropy, mask = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    advantages = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert entropy_bonus(entropy, mask, advantages, coefficient=1.0, denominator=1).item() == 1 + 2
