"""Every loss TRL 1.16 has, against ours: value and gradient, in float64, to 1e-10.

TRL's loss is the real `GRPOTrainer._compute_loss`, called on a stand-in for the trainer that holds its
settings and hands it our tensors in place of a model's. Run as a script, this file prints what is compared.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

from groupwise.core import (
    ReferenceKl,
    entropy_bonus,
    group_advantages,
    loss_denominator,
    off_policy_mask,
    policy_loss,
    top_entropy_mask,
)

TRL_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
LEVELS = ("token", "sequence")

# Pairs that TRL computes but warns about when a trainer is built. The numbers agree all the same.
WARNED_BY_TRL = {
    ("bnpo", "sequence"): "weights each sequence by its length",
    ("dr_grpo", "sequence"): "weights each sequence by its length",
    ("dapo", "sequence"): "weights each sequence by its length",
    ("cispo", "sequence"): "weights each sequence by its length",
    ("luspo", "token"): "the paper's ratio is per sequence",
    ("vespo", "sequence"): "has its own sequence weight; the level only touches the KL",
}
# Settings that TRL accepts for a loss and silently ignores; we refuse them.
IGNORED_BY_TRL = {("cispo", "delta"), ("sapo", "delta"), ("vespo", "delta")}

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "beta": {"beta": 0.3},
    "beta_uncorrected": {"beta": 0.3, "correct_kl": False},
    "clip_higher": {"clip_low": 0.1, "clip_high": 0.45},
    "delta": {"delta": 1.5},
    "entropy_mask": {"top_entropy": 0.3},
    "off_policy_mask": {"off_policy": 0.05},
    "entropy_bonus": {"entropy_coef": 0.07},
    "sampler_weights": {"sampler": True},
    "sampler_weights_and_kl": {"sampler": True, "beta": 0.3, "correct_kl": False},
    "token_advantages": {"token_advantages": True},
    "tool_mask": {"tools": True},
    "all_at_once": {
        "beta": 0.2,
        "clip_low": 0.1,
        "clip_high": 0.3,
        "top_entropy": 0.5,
        "off_policy": 0.05,
        "entropy_coef": 0.07,
        "tools": True,
    },
}
CISPO_CAP = 1.2
# TRL rounds these two to float32, also in float64; these are exact in both.
SAPO_POS, SAPO_NEG = 0.875, 1.3125
MAX_LENGTH = 11
DEFAULTS: dict[str, Any] = {
    "beta": 0.0,
    "correct_kl": True,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "delta": None,
    "top_entropy": 1.0,
    "off_policy": None,
    "entropy_coef": 0.0,
    "sampler": False,
    "token_advantages": False,
    "tools": False,
}


def support_table() -> str:
    """Which pairs of loss and importance level are compared, and what TRL says of them, in Markdown."""
    lines = ["| loss | token | sequence |", "|---|---|---|"]
    for loss in TRL_LOSSES:
        cells = [WARNED_BY_TRL.get((loss, level), "equal") for level in LEVELS]
        lines.append(f"| {loss} | " + " | ".join(c if c == "equal" else f"equal; {c}" for c in cells) + " |")
    return "\n".join(lines)


def make_case(seed: int, settings: dict[str, Any]) -> SimpleNamespace:
    """Six ragged rows, one of them without tokens, with ratios well outside the clip on both sides."""
    g = torch.Generator().manual_seed(seed)
    rows, columns = 6, 9
    normal = partial(torch.randn, rows, columns, generator=g, dtype=torch.float64)
    lengths = torch.tensor([9, 4, 1, 0, 7, 6])
    completion = (torch.arange(columns) < lengths.unsqueeze(1)).long()
    tools = (torch.rand(rows, columns, generator=g) < 0.7).long() if settings["tools"] else completion
    logp = -normal().abs() - 0.1
    row_shift = torch.randn(rows, 1, generator=g, dtype=torch.float64)
    shape = (rows, columns) if settings["token_advantages"] else (rows,)
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0, 1.0]).view(-1, *[1] * (len(shape) - 1))
    return SimpleNamespace(
        completion=completion,
        tools=tools,
        mask=completion * tools,
        logp=logp,
        behavior=logp + 0.4 * row_shift + 0.4 * normal(),
        reference=logp + 0.4 * normal(),
        # TRL takes the entropy quantile in float32; values on that grid make it exact.
        entropy=torch.rand(rows, columns, generator=g).double() * 2,
        advantages=torch.randn(shape, generator=g, dtype=torch.float64).abs() * signs,
        sampler=(0.3 * normal()).exp(),
    )


def trl_loss(loss: str, level: str, s: dict[str, Any], case: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    logp, entropy = case.logp.clone().requires_grad_(), case.entropy.clone().requires_grad_()
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, entropy, None),
        accelerator=SimpleNamespace(
            num_processes=1,
            sync_gradients=True,
            gather=lambda x: x,
            gather_for_metrics=lambda x: x,
            reduce=lambda x, reduction: x,
            pad_across_processes=lambda x, dim, pad_index: x,
        ),
        args=SimpleNamespace(
            use_bias_correction_kl=s["correct_kl"],
            delta=s["delta"],
            sapo_temperature_pos=SAPO_POS,
            sapo_temperature_neg=SAPO_NEG,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
            steps_per_generation=1,
        ),
        loss_type=loss,
        importance_sampling_level=level,
        beta=s["beta"],
        epsilon_low=s["clip_low"],
        epsilon_high=CISPO_CAP if loss == "cispo" else s["clip_high"],
        top_entropy_quantile=s["top_entropy"],
        off_policy_mask_threshold=s["off_policy"],
        use_vllm=s["sampler"],
        vllm_importance_sampling_correction=True,
        _entropy_bonus_enabled=s["entropy_coef"] != 0.0,
        use_adaptive_entropy=False,
        entropy_coef=s["entropy_coef"],
        aux_loss_enabled=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=MAX_LENGTH,
        _metrics=defaultdict(lambda: defaultdict(list)),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
    )
    trainer.get_high_entropy_mask = partial(GRPOTrainer.get_high_entropy_mask, trainer)
    ids = torch.zeros_like(case.completion)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": case.completion,
        "advantages": case.advantages,
        "old_per_token_logps": case.behavior,
        "ref_per_token_logps": case.reference,
        "num_items_in_batch": case.mask.sum(),
    }
    if s["tools"]:
        inputs["tool_mask"] = case.tools
    if s["sampler"]:
        inputs["importance_sampling_ratio"] = case.sampler.where(case.mask.bool(), 1)
    value = GRPOTrainer._compute_loss(trainer, None, inputs)
    value.backward()
    return value.detach(), _gradient(logp), _gradient(entropy)


def our_loss(loss: str, level: str, s: dict[str, Any], case: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    logp, entropy = case.logp.clone().requires_grad_(), case.entropy.clone().requires_grad_()
    keep = torch.ones_like(case.mask, dtype=torch.bool)
    bonus_keep = None
    if s["top_entropy"] < 1.0:
        keep = bonus_keep = top_entropy_mask(entropy, case.mask, s["top_entropy"])
    if s["off_policy"] is not None:
        keep = keep & off_policy_mask(case.advantages, logp, case.behavior, case.mask, s["off_policy"])
    behavior, weights = case.behavior, None
    if s["sampler"]:
        # TRL folds the sampler's ratio into vespo's weight. Recording what the sampler said does the same.
        behavior = behavior - case.sampler.log() if loss == "vespo" else behavior
        weights = None if loss == "vespo" else case.sampler
    own: dict[str, dict[str, Any]] = {
        "cispo": {"cap": CISPO_CAP},
        "sapo": {"temperature_pos": SAPO_POS, "temperature_neg": SAPO_NEG},
        "vespo": {},
    }
    parameters = own.get(loss, {"clip_low": s["clip_low"], "clip_high": s["clip_high"]})
    if s["delta"] is not None:
        parameters = parameters | {"dual_clip": s["delta"]}
    result = policy_loss(
        logp,
        behavior,
        case.advantages,
        case.mask,
        denominator=loss_denominator(loss, case.mask, max_length=MAX_LENGTH),
        loss_type=loss,
        importance_level=level,
        sampler_weights=weights,
        keep=keep,
        reference=ReferenceKl(case.reference, s["beta"], importance_correction=s["correct_kl"]) if s["beta"] else None,
        **parameters,
    )
    tokens = case.mask if bonus_keep is None else bonus_keep
    value = result.loss - entropy_bonus(
        entropy,
        case.mask,
        case.advantages,
        coefficient=s["entropy_coef"],
        denominator=tokens.sum().clamp(min=1),
        keep=bonus_keep,
    )
    value.backward()
    return value.detach(), _gradient(logp), _gradient(entropy)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def assert_equal(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_loss_and_gradient_equal_trl(loss: str, level: str, variant: str) -> None:
    asked = accepted = DEFAULTS | VARIANTS[variant]
    if (loss, variant) in IGNORED_BY_TRL:
        with pytest.raises(ValueError, match="dual_clip"):
            our_loss(loss, level, asked, make_case(0, asked))
        accepted = asked | {"delta": None}
    for seed in range(3):
        case = make_case(seed, asked)
        theirs = trl_loss(loss, level, asked, case)
        assert theirs[1].abs().sum() > 0
        assert_equal(our_loss(loss, level, accepted, case), theirs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gspo_is_what_trl_calls_grpo_with_a_sequence_ratio(variant: str) -> None:
    settings = DEFAULTS | VARIANTS[variant]
    case = make_case(5, settings)
    assert_equal(our_loss("gspo", "sequence", settings, case), trl_loss("grpo", "sequence", settings, case))


def test_the_cases_clip_on_both_sides_and_drop_rows_and_tokens() -> None:
    """The comparison would be idle if no case reached what it compares."""
    cases = [make_case(seed, DEFAULTS) for seed in range(3)]
    for level in LEVELS:
        results = [
            policy_loss(c.logp, c.behavior, c.advantages, c.mask, denominator=1, importance_level=level) for c in cases
        ]
        assert sum(r.clip_low_fraction for r in results) > 0
        assert sum(r.clip_high_fraction for r in results) > 0
        assert any(
            ((r.ratio > 1.5) & (c.advantages < 0).unsqueeze(1)).any() for r, c in zip(results, cases, strict=True)
        )
    for c in cases:
        kept = off_policy_mask(c.advantages, c.logp, c.behavior, c.mask, 0.05)
        assert 0 < int(kept.sum()) < 6
        assert 0 < int(top_entropy_mask(c.entropy, c.mask, 0.3).sum()) < int(c.mask.sum())


def test_masks_equal_trl() -> None:
    for seed in range(20):
        case = make_case(seed, DEFAULTS)
        for share in (0.0, 0.2, 0.5, 0.77, 1.0):
            stand_in = SimpleNamespace(
                accelerator=SimpleNamespace(gather=lambda x: x, pad_across_processes=lambda x, dim, pad_index: x)
            )
            theirs = GRPOTrainer.get_high_entropy_mask(stand_in, case.entropy, case.mask, 1 - share)
            assert torch.equal(top_entropy_mask(case.entropy, case.mask, share), theirs)
        for threshold in (0.01, 0.1, 0.5):
            theirs = GRPOTrainer.get_off_policy_mask(
                case.advantages.unsqueeze(1), case.logp, case.behavior, case.mask, threshold
            )
            ours = off_policy_mask(case.advantages, case.logp, case.behavior, case.mask, threshold)
            assert torch.equal(ours, theirs.bool())


def test_advantages_are_those_of_trl_but_for_what_it_adds_to_the_deviation() -> None:
    g = torch.Generator().manual_seed(0)
    rewards = torch.rand(4, 8, generator=g, dtype=torch.float64)
    rewards[1, 3] = rewards[2, 0] = torch.nan
    ours = group_advantages(rewards.flatten(), torch.arange(4).repeat_interleave(8), std="sample").view(4, 8)
    deviation = nanstd(rewards, dim=1).unsqueeze(1)
    theirs = (rewards - rewards.nanmean(1, keepdim=True)) / (deviation + 1e-4)
    torch.testing.assert_close(ours * deviation / (deviation + 1e-4), theirs.nan_to_num(0.0))


if __name__ == "__main__":
    print(support_table())
