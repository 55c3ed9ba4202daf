"""Policy losses against numbers worked out by hand."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.core import LOSSES, ReferenceKl, loss_denominator, loss_rule, policy_loss

NAN = float("nan")
# Two sequences: ratios 1.5 and 0.5 with advantage 1; ratio 1.5 with advantage −2, then padding.
PROBABILITIES = torch.tensor([[0.6, 0.2], [0.3, 1.0]], dtype=torch.float64)
RATIOS = torch.tensor([[1.5, 0.5], [1.5, 1.0]], dtype=torch.float64)
LOGP = PROBABILITIES.log()
BEHAVIOR = LOGP - RATIOS.log()
ADVANTAGES = torch.tensor([1.0, -2.0], dtype=torch.float64)
MASK = torch.tensor([[True, True], [True, False]])

SIGMOID_UP = 1 / (1 + exp(-1.05 * 0.5))
BY_HAND = {
    # the three tokens are worth −1.2 (clipped), −0.5 and 3 (not clipped: the pessimistic side)
    "grpo": ((-1.2 - 0.5) / 2 + 3) / 2,
    "bnpo": (-1.2 - 0.5 + 3) / 3,
    "dapo": (-1.2 - 0.5 + 3) / 3,
    "dr_grpo": (-1.2 - 0.5 + 3) / (2 * 4),
    # the first sequence has ratio √(1.5 · 0.5)
    "gspo": (-sqrt(0.75) + 3) / 2,
    "luspo": (-2 * sqrt(0.75) + 3) / 2,
    # the cap of 1.2 acts on both ratios of 1.5, whatever the sign
    "cispo": -(1.2 * log(0.6) + 0.5 * log(0.2) + 1.2 * -2 * log(0.3)) / 3,
    # 4σ(0.5) and 4σ(−0.5) average to 2
    "sapo": (-2.0 + 2 * 4 / 1.05 * SIGMOID_UP) / 2,
    # φ(0.75) = 0.75² e^{3·0.25}, φ(1.5) = 1.5³ e^{−2·0.5}
    "vespo": -(0.75**2 * exp(0.75) * log(0.12) + 1.5**3 * exp(-1.0) * -2 * log(0.3)) / 3,
}


def worked(loss_type: str, **options: Any) -> Tensor:
    denominator = loss_denominator(loss_type, MASK, max_length=4)
    settings = {"cap": 1.2} if loss_type == "cispo" else {}
    result = policy_loss(
        LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=denominator, loss_type=loss_type, **settings | options
    )
    return result.loss


@pytest.mark.parametrize("loss_type", LOSSES)
def test_every_loss_has_the_value_worked_out_by_hand(loss_type: str) -> None:
    assert worked(loss_type).item() == pytest.approx(BY_HAND[loss_type], abs=1e-12)


def test_gspo_has_one_ratio_per_sequence_and_spreads_its_gradient_evenly() -> None:
    logp = LOGP.clone().requires_grad_()
    result = policy_loss(logp, BEHAVIOR, ADVANTAGES, MASK, denominator=2, loss_type="gspo", clip_low=0.6)
    result.loss.backward()
    assert result.ratio.flatten().tolist() == pytest.approx([sqrt(0.75), 1.5])
    # −A s / |y| / sequences for each token of the sequence
    expected = [[-sqrt(0.75) / 4, -sqrt(0.75) / 4], [2 * 1.5 / 2, 0.0]]
    torch.testing.assert_close(logp.grad, torch.tensor(expected, dtype=torch.float64))


def test_clip_higher_lets_a_good_token_rise_further() -> None:
    assert worked("dapo", clip_high=0.4).item() == pytest.approx((-1.4 - 0.5 + 3) / 3)


def test_dual_clip_bounds_the_loss_of_a_bad_token() -> None:
    assert worked("dapo", dual_clip=1.3).item() == pytest.approx((-1.2 - 0.5 + 2 * 1.3) / 3)


def test_dual_clip_inside_the_clip_is_refused() -> None:
    with pytest.raises(ValueError, match=r"above 1 \+ clip_high"):
        worked("dapo", dual_clip=1.1)


def test_a_cispo_cap_below_one_is_refused_and_its_default_is_five() -> None:
    with pytest.raises(ValueError, match="caps the ratio itself"):
        worked("cispo", cap=0.2)
    far = policy_loss(LOGP, LOGP - log(9.0), ADVANTAGES, MASK, denominator=3, loss_type="cispo")
    near = policy_loss(LOGP, LOGP - log(5.0), ADVANTAGES, MASK, denominator=3, loss_type="cispo")
    assert far.loss.item() == pytest.approx(near.loss.item())
    assert far.clip_high_fraction == 1.0


def test_cispo_gives_a_gradient_to_every_token() -> None:
    logp = LOGP.clone().requires_grad_()
    policy_loss(logp, BEHAVIOR, ADVANTAGES, MASK, denominator=1, loss_type="cispo", cap=1.2).loss.backward()
    expected = torch.tensor([[-1.2, -0.5], [2.4, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(logp.grad, expected)


def test_importance_level_overrides_the_rule() -> None:
    assert worked("grpo", importance_level="sequence").item() == pytest.approx(BY_HAND["gspo"])
    assert worked("gspo", importance_level="token").item() == pytest.approx(BY_HAND["grpo"])


@pytest.mark.parametrize(
    ("estimator", "corrected", "expected"),
    [
        ("k3", False, (log(2) + 0.5 - 1) / 3),
        ("k3", True, 1.5 * (log(2) + 0.5 - 1) / 3),
        ("k2", False, log(2) ** 2 / 2 / 3),
        ("k1", True, 1.5 * log(2) / 3),
    ],
)
def test_kl_is_added_with_its_coefficient(estimator: str, corrected: bool, expected: float) -> None:
    reference = LOGP.clone()
    reference[0, 0] -= log(2)  # the policy says this token twice as often as the reference
    result = policy_loss(
        LOGP,
        BEHAVIOR,
        torch.zeros(2, dtype=torch.float64),
        MASK,
        denominator=3,
        reference=ReferenceKl(reference, 0.5, estimator, corrected),
    )
    assert result.loss.item() == pytest.approx(0.5 * expected)
    assert result.reference_kl is not None
    assert result.reference_kl.item() == pytest.approx(expected)


def test_keep_silences_the_surrogate_but_neither_the_kl_nor_the_denominator() -> None:
    keep = torch.tensor([[True, False], [False, False]])
    assert worked("dapo", keep=keep).item() == pytest.approx(-1.2 / 3)
    assert worked("dapo", keep=torch.tensor([[False], [True]])).item() == pytest.approx(3 / 3)
    reference = LOGP - log(2)
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    result = worked("dapo", keep=nothing, reference=ReferenceKl(reference, 1.0, importance_correction=False))
    assert result.item() == pytest.approx(log(2) + 0.5 - 1)


def test_weights_count_a_row_or_a_token_more_than_once() -> None:
    assert worked("dapo", weights=torch.tensor([2.0, 1.0])).item() == pytest.approx((-2.4 - 1.0 + 3) / 3)
    per_token = torch.tensor([[0.5, 1.0], [0.0, NAN]])
    assert worked("dapo", weights=per_token).item() == pytest.approx((-0.6 - 0.5) / 3)


def test_metrics_are_the_shares_and_distances_they_say_and_carry_no_gradient() -> None:
    logp = LOGP.clone().requires_grad_()
    advantages = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    result = policy_loss(logp, BEHAVIOR, advantages, MASK, denominator=3)
    assert result.clip_high_fraction.item() == pytest.approx(2 / 3)
    assert result.clip_low_fraction.item() == pytest.approx(1 / 3)
    k3 = 2 * (0.5 - log(1.5)) + (-0.5 - log(0.5))
    assert result.approx_kl.item() == pytest.approx(k3 / 3)
    assert result.reference_kl is None
    assert result.loss.requires_grad
    for name in ("per_token", "ratio", "clip_low_fraction", "clip_high_fraction", "approx_kl"):
        assert not getattr(result, name).requires_grad


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("grpo", 3),
        ("sapo", 3),
        ("gspo", 3),
        ("luspo", 3),
        ("bnpo", 4),
        ("dapo", 4),
        ("cispo", 4),
        ("vespo", 4),
    ],
)
def test_denominators_count_sequences_or_tokens(loss_type: str, expected: float) -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    assert loss_denominator(loss_type, mask) == expected
    assert loss_denominator(loss_type, torch.zeros(0, 3)) == 1.0


def test_dr_grpo_divides_by_the_longest_length_allowed() -> None:
    mask = torch.ones(3, 5)
    assert loss_denominator("dr_grpo", mask, max_length=100) == 300.0
    with pytest.raises(ValueError, match="max_length"):
        loss_denominator("dr_grpo", mask)


def test_half_precision_is_widened_before_the_difference() -> None:
    result = policy_loss(LOGP.bfloat16(), BEHAVIOR.bfloat16(), ADVANTAGES.bfloat16(), MASK, denominator=3)
    assert result.loss.dtype == torch.float32


def test_a_stray_token_cannot_make_the_loss_infinite() -> None:
    logp = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    behavior = torch.tensor([[-200.0, -1.0]])
    for loss_type in LOSSES:
        for advantage in (-1.0, 0.0, 1.0):
            result = policy_loss(
                logp,
                behavior,
                torch.tensor([advantage]),
                torch.ones(1, 2),
                denominator=1,
                loss_type=loss_type,
            )
            (gradient,) = torch.autograd.grad(result.loss, logp)
            assert result.loss.isfinite()
            assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_type": "gpro"}, "one of grpo, bnpo"),
        ({"importance_level": "word"}, "one of token, sequence"),
        ({"beta": 0.1}, "no parameter 'beta'; it has clip_low, clip_high, dual_clip"),
        ({"loss_type": "sapo", "dual_clip": 2.0}, "no parameter 'dual_clip'; it has temperature_pos"),
        ({"reference": ReferenceKl(LOGP[:1])}, "reference.logp has shape"),
        ({"denominator": 0}, "above 0"),
        ({"advantages": torch.ones(3)}, "advantages has shape"),
        ({"mask": torch.ones(2, 3)}, "mask has shape"),
        ({"keep": torch.ones(2)}, "keep has shape"),
        ({"reference": ReferenceKl(LOGP, estimator="k4")}, "one of k1, k2, k3"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "logp": LOGP, "behavior_logp": BEHAVIOR, "advantages": ADVANTAGES, "mask": MASK, "denominator": 1.0
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        policy_loss(**arguments | change)


def test_bnpo_and_dapo_are_two_names_of_one_rule() -> None:
    assert LOSSES["bnpo"] is LOSSES["dapo"]


def test_rules_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError):
        LOSSES["mine"] = loss_rule("grpo")
