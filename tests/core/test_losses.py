"""Policy losses against numbers worked out by hand."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from groupwise.config.rules import CLIP_HIGH
from groupwise.core import LOSSES, ReferenceKl, clip_range, loss_denominator, loss_rule, policy_loss

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
    assert worked("gspo", importance_level="token", clip_low=0.2).item() == pytest.approx(BY_HAND["grpo"])


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


class Token(NamedTuple):
    """What a token is worth in plain numbers: the negated objective, and whether a clip acted below or above."""

    worth: float
    low: bool = False
    high: bool = False


def worth(loss_type: str, logp: float, ratio: float, log_w: float, adv: float) -> Token:
    """The surrogates with their usual parameters; `log_w` is the sum of log ratios of the token's sequence."""
    if loss_type == "cispo":
        return Token(-min(ratio, 5.0) * adv * logp, high=ratio > 5.0)
    if loss_type == "sapo":
        tau = 1.0 if adv > 0 else 1.05
        return Token(-4 / tau / (1 + exp(-tau * (ratio - 1))) * adv)
    if loss_type == "vespo":
        k, lam = (2.0, 3.0) if adv >= 0 else (3.0, 2.0)
        return Token(-exp(lam + k * log_w - lam * exp(log_w)) * adv * logp)
    low, high = {"gspo": (3e-4, 4e-4), "luspo": (2e-3, 2.5e-3)}.get(loss_type, (0.2, 0.2))
    plain, near = ratio * adv, min(max(ratio, 1 - low), 1 + high) * adv
    return Token(-min(plain, near), ratio < 1 - low and adv < 0, ratio > 1 + high and adv > 0)


ESTIMATES = {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: exp(-d) + d - 1}
RAGGED = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()


@pytest.mark.parametrize("full", [False, True], ids=["plain", "with everything"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("loss_type", LOSSES)
def test_every_field_is_the_formula_token_by_token(
    loss_type: str, by_token: bool, estimator: str, corrected: bool, full: bool
) -> None:
    """Every loss, in loops over rows and tokens, with NaN at every place that the mask leaves out."""
    g = torch.Generator().manual_seed(len(loss_type))
    noise, shift, far, weights, sampler = torch.randn(5, 4, 5, generator=g, dtype=torch.float64)
    logp = -noise.abs() - 0.1
    behavior, reference = logp + 0.6 * shift, logp + 0.4 * far
    weights, sampler = weights.exp(), (0.5 * sampler).exp()
    keep = torch.rand(4, 5, generator=g) < 0.7
    advantages = torch.randn(4, 5 if by_token else 1, generator=g, dtype=torch.float64).expand(4, 5).clone()
    rule, denominator, beta = LOSSES[loss_type], 7.0, 0.3
    tokens: dict[tuple[int, int], Token] = {}
    penalties, ratios, moved, total, pulled = {}, {}, [], 0.0, 0.0
    for i in range(4):
        places = [t for t in range(5) if RAGGED[i, t]]
        logs = {t: float(logp[i, t] - behavior[i, t]) for t in places}
        for t in places:
            log_ratio = sum(logs.values()) / len(places) if rule.importance == "sequence" else logs[t]
            ratios[i, t] = exp(log_ratio)
            token = worth(loss_type, float(logp[i, t]), ratios[i, t], sum(logs.values()), float(advantages[i, t]))
            kl = ESTIMATES[estimator](float(logp[i, t] - reference[i, t])) * (ratios[i, t] if corrected else 1.0)
            share = 1.0 / (len(places) if rule.aggregation == "mean_of_means" else 1)
            if full:
                token = token._replace(worth=token.worth * float(sampler[i, t]) * bool(keep[i, t]))
                kl *= float(sampler[i, t]) if corrected else 1.0
                share *= float(weights[i, t])
            tokens[i, t], penalties[i, t] = token, kl
            total += share * token.worth / denominator
            pulled += share * beta * kl / denominator
            moved.append(exp(logs[t]) - 1 - logs[t])

    def outside(values: Tensor) -> Tensor:
        return values.where(RAGGED, torch.nan)

    given = {"weights": outside(weights), "sampler_weights": outside(sampler), "keep": keep} if full else {}
    found = policy_loss(
        outside(logp), outside(behavior), outside(advantages) if by_token else advantages[:, 0], RAGGED,
        denominator=denominator, loss_type=loss_type,
        reference=ReferenceKl(outside(reference), beta, estimator, corrected), **given,
    )  # fmt: skip
    assert found.kl is not None
    assert found.reference_kl is not None
    assert float(found.policy) == pytest.approx(total)
    assert float(found.kl) == pytest.approx(pulled)
    assert float(found.loss) == pytest.approx(total + pulled)
    per_token = torch.zeros(4, 5, dtype=torch.float64)
    for place, token in tokens.items():
        per_token[place] = token.worth + beta * penalties[place]
    torch.testing.assert_close(found.per_token, per_token)
    for (i, t), ratio in ratios.items():
        assert float(found.ratio.expand(4, 5)[i, t]) == pytest.approx(ratio)
    assert float(found.clip_low_fraction) == pytest.approx(sum(token.low for token in tokens.values()) / len(tokens))
    assert float(found.clip_high_fraction) == pytest.approx(sum(token.high for token in tokens.values()) / len(tokens))
    assert float(found.approx_kl) == pytest.approx(sum(moved) / len(moved))
    assert float(found.reference_kl) == pytest.approx(sum(penalties.values()) / len(penalties))


def test_a_coefficient_of_zero_measures_the_kl_and_adds_nothing() -> None:
    found = policy_loss(LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=3, reference=ReferenceKl(LOGP - 0.5, 0.0))
    assert found.kl is None
    assert float(found.loss) == pytest.approx(BY_HAND["dapo"])
    assert float(found.reference_kl) > 0
    plain = policy_loss(LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=3)
    assert torch.equal(found.per_token, plain.per_token)


def test_the_loss_is_dapos_and_the_denominator_may_be_a_tensor() -> None:
    plain = policy_loss(LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=3)
    named = policy_loss(LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=torch.tensor(3.0), loss_type="dapo")
    assert float(plain.loss) == pytest.approx(float(named.loss)) == pytest.approx(BY_HAND["dapo"])


@pytest.mark.parametrize(
    ("loss_type", "surrogate", "importance", "aggregation"),
    [
        ("grpo", "clipped", "token", "mean_of_means"), ("bnpo", "clipped", "token", "tokens"),
        ("dapo", "clipped", "token", "tokens"), ("dr_grpo", "clipped", "token", "fixed_length"),
        ("gspo", "clipped", "sequence", "mean_of_means"), ("luspo", "clipped", "sequence", "sequences"),
        ("cispo", "cispo", "token", "tokens"), ("sapo", "sapo", "token", "mean_of_means"),
        ("vespo", "vespo", "token", "tokens"),
    ],
)  # fmt: skip
def test_each_rule_is_its_papers(loss_type: str, surrogate: str, importance: str, aggregation: str) -> None:
    rule = loss_rule(loss_type)
    assert (rule.surrogate.__name__, rule.importance, rule.aggregation) == (surrogate, importance, aggregation)
    assert set(LOSSES) == {"grpo", "bnpo", "dapo", "dr_grpo", "gspo", "luspo", "cispo", "sapo", "vespo"}


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
    assert loss_denominator("dr_grpo", torch.zeros(0, 5), max_length=100) == 100.0
    assert loss_denominator("dr_grpo", mask, max_length=1) == 3.0
    with pytest.raises(ValueError, match="max_length"):
        loss_denominator("dr_grpo", mask)
    with pytest.raises(ValueError, match="max_length is 0; it must be above 0"):
        loss_denominator("dr_grpo", mask, max_length=0)
    with pytest.raises(ValueError, match="mask has shape"):
        loss_denominator("dapo", mask[0])
    assert loss_denominator("dapo", mask * 2.5) == 15.0


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


def test_a_loss_of_sequence_ratios_has_the_clip_of_its_paper_unless_another_is_given() -> None:
    assert {name: clip_range(name) for name in ("gspo", "luspo", "grpo", "dapo")} == {
        "gspo": (3e-4, 4e-4), "luspo": (2e-3, 2.5e-3), "grpo": (0.2, 0.2), "dapo": (0.2, 0.2),
    }  # fmt: skip
    assert clip_range("gspo", 0.1) == (0.1, 0.1)
    assert clip_range("gspo", 0.1, 0.3) == (0.1, 0.3)
    assert clip_range("gspo", None, 0.3) == (3e-4, 0.3)
    assert {name: rule.clip[1] for name, rule in LOSSES.items() if rule.clip[1] != 0.2} == CLIP_HIGH


@pytest.mark.parametrize(
    ("given", "low", "high"), [({}, 3e-4, 4e-4), ({"clip_low": 0.01, "clip_high": 0.02}, 0.01, 0.02)]
)
def test_gspo_clips_there(given: dict[str, float], low: float, high: float) -> None:
    """Ratios of whole sequences just inside and just outside the clip, on the side where it acts."""
    ratios = torch.tensor([1 + 0.9 * high, 1 + 1.1 * high, 1 - 0.9 * low, 1 - 1.1 * low], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    logp = ratios.log()[:, None].expand(4, 3).clone().requires_grad_()
    mask = torch.ones(4, 3)
    result = policy_loss(logp, torch.zeros(4, 3).double(), advantages, mask, denominator=4, loss_type="gspo", **given)
    result.loss.backward()
    assert (logp.grad.abs().sum(1) > 0).tolist() == [True, False, True, False]
    assert (float(result.clip_low_fraction), float(result.clip_high_fraction)) == (0.25, 0.25)


def test_the_loss_is_the_sum_of_its_terms() -> None:
    reference = ReferenceKl(LOGP - 0.5, beta=0.3)
    whole, plain = (
        policy_loss(LOGP, BEHAVIOR, ADVANTAGES, MASK, denominator=2, loss_type="grpo", reference=given)
        for given in (reference, None)
    )
    assert whole.kl is not None
    assert plain.kl is None
    assert float(whole.policy) == float(plain.loss) == float(plain.policy)
    assert float(whole.loss) == pytest.approx(float(whole.policy + whole.kl))
    assert float(whole.kl) > 0
