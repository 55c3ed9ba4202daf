"""The weights that correct for a sampler which is not quite the policy, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from groupwise.core import ReferenceKl, policy_loss, sampler_mismatch

# Ratios 1.5, 3 and 0.5; the last token is nobody's.
LOGP = torch.tensor([[math.log(0.6), math.log(0.3), math.log(0.2), math.nan]], dtype=torch.float64)
SAMPLER = torch.tensor([[math.log(0.4), math.log(0.1), math.log(0.4), 0.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False]])


def test_weights_are_ratios_up_to_the_cap() -> None:
    found = sampler_mismatch(LOGP, SAMPLER, MASK, cap=2.0)
    torch.testing.assert_close(found.weights, torch.tensor([[1.5, 2.0, 0.5, 1.0]], dtype=torch.float64))
    assert (int(found.tokens), int(found.truncated)) == (3, 1)
    assert float(found.gap) == pytest.approx(0.5 + 2.0 + 0.5)
    assert float(found.corrected_gap) == pytest.approx(0.5)
    assert float(found.kl) == pytest.approx(0.5 - math.log(1.5) + 2 - math.log(3) - 0.5 + math.log(2))


def test_without_a_cap_nothing_is_corrected_and_all_is_measured() -> None:
    found = sampler_mismatch(LOGP, SAMPLER, MASK, cap=None)
    assert bool((found.weights == 1).all())
    assert float(found.corrected_gap) == pytest.approx(float(found.gap)) == pytest.approx(3.0)
    assert int(found.truncated) == 0


@pytest.mark.parametrize(("cap", "weights", "truncated"), [(1.0, [1.0, 1.0, 0.5], 1), (2.0, [1.0, 1.5, 0.5], 0)])
def test_a_ratio_equal_to_the_cap_is_not_cut(cap: float, weights: list[float], truncated: int) -> None:
    """Ratios 1, which is exact, 1.5 and 0.5."""
    logp = torch.tensor([[1.0, 1.5, 0.5]], dtype=torch.float64).log()
    found = sampler_mismatch(logp, torch.zeros_like(logp), torch.ones(1, 3), cap=cap)
    torch.testing.assert_close(found.weights, torch.tensor([weights], dtype=torch.float64))
    assert int(found.truncated) == truncated


def test_a_ratio_far_off_stays_finite() -> None:
    """The log of a ratio stays within ±20."""
    found = sampler_mismatch(torch.tensor([[0.0, -90.0]]), torch.tensor([[-90.0, 0.0]]), torch.ones(1, 2), cap=1e30)
    assert found.weights.log()[0].tolist() == pytest.approx([20.0, -20.0])
    assert all(value.isfinite() for value in (found.gap, found.corrected_gap, found.kl))
    assert float(found.corrected_gap) == 0.0


def test_counts_are_whole_numbers_and_nothing_is_measured_without_tokens() -> None:
    for cap in (2.0, None):
        found = sampler_mismatch(LOGP, SAMPLER, torch.zeros(1, 4), cap=cap)
        assert not found.tokens.is_floating_point()
        assert not found.truncated.is_floating_point()
        assert [float(v) for v in (found.gap, found.corrected_gap, found.kl, found.truncated, found.tokens)] == [
            0.0
        ] * 5
        assert found.weights.tolist() == [[1.0] * 4]


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="cap is 0.5; it must be at least 1"):
        sampler_mismatch(LOGP, SAMPLER, MASK, cap=0.5)


@pytest.mark.parametrize("corrected", [True, False])
def test_weights_act_outside_the_clip_and_on_the_kl_only_if_it_is_corrected(corrected: bool) -> None:
    logp = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    old = torch.tensor([[-1.5, -2.0]], dtype=torch.float64)  # the first ratio, 1.65, is clipped at 1.2
    weights = torch.tensor([[1.5, 0.5]], dtype=torch.float64)
    reference = ReferenceKl(logp - 0.1, beta=0.3, estimator="k1", importance_correction=corrected)
    result = policy_loss(
        logp, old, torch.ones(1, dtype=torch.float64), torch.ones(1, 2), denominator=1, clip_low=0.2,
        sampler_weights=weights, reference=reference,
    )  # fmt: skip
    ratios = [math.exp(0.5) * 1.5, 0.5] if corrected else [1.0, 1.0]
    expected = [-1.2 * 1.5 + 0.3 * 0.1 * ratios[0], -0.5 + 0.3 * 0.1 * ratios[1]]
    assert result.per_token[0].tolist() == pytest.approx(expected)
    assert float(result.clip_high_fraction) == 0.5
