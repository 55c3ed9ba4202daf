"""What one token contributes, against the formulas in plain Python, with ratios at and around every edge."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from groupwise.core.surrogates import SampledTokens, cispo, clipped, importance_ratio, sapo, vespo

# Ratios and edges are exact in binary, so that "equal to the edge" is what it says.
RATIOS = (0.25, 0.75, 0.875, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0)
ADVANTAGES = (-2.0, 0.0, 3.0)
GRID = list(product(RATIOS, ADVANTAGES))


def tokens(grid: list[tuple[float, float]]) -> SampledTokens:
    """One token per row; the log-probability of each is −0.5, −1, −1.5 and so on."""
    ratio, advantages = torch.tensor(grid, dtype=torch.float64).T.unsqueeze(-1)
    logp = -0.5 * torch.arange(1, len(grid) + 1, dtype=torch.float64).unsqueeze(-1)
    return SampledTokens(logp, ratio.log(), ratio.clone().requires_grad_(), advantages)


def flags(found: Tensor | None) -> list[bool]:
    assert found is not None
    return found.flatten().tolist()


@pytest.mark.parametrize("dual_clip", [None, 2.0, 1.625])
@pytest.mark.parametrize(("clip_low", "clip_high"), [(0.25, 0.5), (0.25, None), (0.125, 0.25), (0.5, 0.25)])
def test_the_clipped_surrogate_and_where_its_clips_act(
    clip_low: float, clip_high: float | None, dual_clip: float | None
) -> None:
    sampled = tokens(GRID)
    high = clip_low if clip_high is None else clip_high
    found = clipped(sampled, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    bound = math.inf if dual_clip is None else dual_clip
    expected = [-min(min(r, bound) * a, min(max(r, 1 - clip_low), 1 + high) * a) for r, a in GRID]
    assert found.per_token.flatten().tolist() == pytest.approx(expected)
    assert flags(found.clipped_low) == [r < 1 - clip_low and a < 0 for r, a in GRID]
    assert flags(found.clipped_high) == [r > 1 + high and a > 0 for r, a in GRID]
    (slope,) = torch.autograd.grad(found.per_token.sum(), sampled.ratio)
    silent = [(r > 1 + high and a > 0) or (r < 1 - clip_low and a < 0) or (r > bound and a < 0) for r, a in GRID]
    inside = [r not in (1 - clip_low, 1 + high, bound) for r, _ in GRID]  # a kink has no one slope
    steep = slope.flatten().tolist()
    for smooth, quiet, found_slope, (_, advantage) in zip(inside, silent, steep, GRID, strict=True):
        if smooth:
            assert found_slope == (0.0 if quiet else -advantage)


def test_the_clipped_surrogate_clips_at_a_fifth_unless_told() -> None:
    sampled = tokens(GRID)
    found, named = clipped(sampled), clipped(sampled, clip_low=0.2, clip_high=0.2)
    assert torch.equal(found.per_token, named.per_token)


def test_a_dual_clip_must_lie_above_the_clip() -> None:
    sampled = tokens(GRID)
    with pytest.raises(ValueError, match=r"dual_clip is 1\.5; it must be above 1 \+ clip_high = 1\.5"):
        clipped(sampled, clip_low=0.25, clip_high=0.5, dual_clip=1.5)
    with pytest.raises(ValueError, match=r"dual_clip is 1\.25; it must be above 1 \+ clip_high = 1\.25"):
        clipped(sampled, clip_low=0.25, dual_clip=1.25)
    clipped(sampled, clip_low=0.25, clip_high=0.5, dual_clip=1.5625)


@pytest.mark.parametrize("cap", [1.0, 1.5, 2.0])
def test_cispo_caps_the_weight_and_says_where(cap: float) -> None:
    sampled = tokens(GRID)
    found = cispo(sampled, cap=cap)
    logp = sampled.logp.flatten().tolist()
    expected = [-min(r, cap) * a * lp for (r, a), lp in zip(GRID, logp, strict=True)]
    assert found.per_token.flatten().tolist() == pytest.approx(expected)
    assert not found.per_token.requires_grad
    assert flags(found.clipped_high) == [r > cap for r, _ in GRID]
    assert found.clipped_low is None
    with pytest.raises(ValueError, match=r"cap is 0\.99"):
        cispo(sampled, cap=0.99)


@pytest.mark.parametrize(("pos", "neg"), [(1.0, 1.05), (3.0, 0.5)])
def test_sapo_closes_its_gate_at_the_temperature_of_the_sign(pos: float, neg: float) -> None:
    sampled = tokens(GRID)
    found = sapo(sampled, temperature_pos=pos, temperature_neg=neg)
    taus = [pos if a > 0 else neg for _, a in GRID]
    expected = [-4 / tau / (1 + math.exp(-tau * (r - 1))) * a for tau, (r, a) in zip(taus, GRID, strict=True)]
    assert found.per_token.flatten().tolist() == pytest.approx(expected)
    assert (found.clipped_low, found.clipped_high) == (None, None)
    if (pos, neg) == (1.0, 1.05):
        assert torch.equal(sapo(sampled).per_token, found.per_token)


# Log ratios of a sequence, and the log of w that comes of them: each token within ±20, the sum within [log 1e-8, 20].
SEQUENCES = [
    ([0.1, -0.3], -0.2),
    ([0.0, 0.0], 0.0),
    ([30.0, -25.0], 0.0),
    ([-30.0, 19.0], -1.0),
    ([0.4, 0.2], 0.6),
    ([-15.0, -15.0], math.log(1e-8)),
    ([15.0, 15.0], 20.0),
]


@pytest.mark.parametrize(
    ("k_pos", "lambda_pos", "k_neg", "lambda_neg"),
    [(2.0, 3.0, 3.0, 2.0), (1.0, 0.5, 2.0, 0.25), (0.5, 0.0, 1.5, 0.0)],
)
def test_vespo_weighs_a_sequence_by_the_product_of_its_ratios(
    k_pos: float, lambda_pos: float, k_neg: float, lambda_neg: float
) -> None:
    log_ratio = torch.tensor([row for row, _ in SEQUENCES], dtype=torch.float64)
    logp = torch.tensor([[-0.5, -2.0]], dtype=torch.float64).expand_as(log_ratio)
    for advantage in (-2.0, 0.5, 1.0):
        adv = torch.full_like(logp, advantage)
        sampled = SampledTokens(logp, log_ratio, torch.full_like(logp, torch.nan), adv)
        found = vespo(sampled, k_pos=k_pos, lambda_pos=lambda_pos, k_neg=k_neg, lambda_neg=lambda_neg)
        k, lam = (k_pos, lambda_pos) if advantage >= 0 else (k_neg, lambda_neg)
        lam = max(lam, 1e-4)
        for row, (_, log_w) in zip(found.per_token.tolist(), SEQUENCES, strict=True):
            phi = math.exp(lam + k * log_w - lam * math.exp(log_w))
            assert row == pytest.approx([phi * advantage * 0.5, phi * advantage * 2.0], rel=1e-9, abs=0)
        if (k_pos, lambda_pos, k_neg, lambda_neg) == (2.0, 3.0, 3.0, 2.0):
            assert torch.equal(vespo(sampled).per_token, found.per_token)


def test_an_importance_ratio_is_of_a_token_or_the_geometric_mean_of_a_sequence() -> None:
    """The exponent stays within ±20: for a sequence, that of its mean, not of its tokens."""
    log_ratio = torch.tensor([[0.5, -1.5, 0.0], [25.0, -25.0, 6.0], [90.0, 0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    by_token = importance_ratio(log_ratio, mask, "token")
    within = torch.tensor([[0.5, -1.5, 0.0], [20.0, -20.0, 6.0], [20.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(by_token.log(), within)
    by_sequence = importance_ratio(log_ratio, mask, "sequence")
    assert by_sequence.shape == (3, 1)
    assert by_sequence.log().flatten().tolist() == pytest.approx([-0.5, 2.0, 20.0])
    nothing = importance_ratio(torch.zeros(1, 3), torch.zeros(1, 3), "sequence")
    assert nothing.tolist() == [[1.0]]
