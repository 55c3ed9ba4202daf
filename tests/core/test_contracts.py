"""What every function of core promises beside its numbers: masks of any dtype, shapes checked, no gradient where none
is meant, inputs left as they are, rows that do not touch each other, and the defaults its documentation names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from groupwise import core
from groupwise.core import ReferenceKl

ROWS, STEPS, WORDS = 4, 5, 6
MASKS = ("mask", "alive", "terminated", "truncated", "keep")


class Call(NamedTuple):
    """A function, its tensors by name, the settings beside them, and the tensors its gradient reaches."""

    function: Callable[..., Any]
    tensors: dict[str, Tensor]
    settings: dict[str, Any] = {}  # noqa: RUF012
    reaches: tuple[str, ...] = ()


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def table(seed: int) -> Tensor:
    return numbers(ROWS, STEPS, seed=seed)


# Rows of different lengths, one of them with a hole and one without a step.
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
KEEP = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 1, 1, 0, 1]]).bool()
TERMINATED = torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
TRUNCATED = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
GROUPS = torch.tensor([3, 1, 3, 3])
LOGP = table(1) - 3
STEPWISE = {"rewards": table(2), "values": table(3), "terminated": TERMINATED, "truncated": TRUNCATED, "mask": MASK}
SAMPLED = {
    "logp": LOGP, "behavior_logp": LOGP + 0.3 * table(4), "advantages": numbers(ROWS, seed=5), "mask": MASK,
    "weights": table(6).exp(), "sampler_weights": table(7).exp(), "keep": KEEP,
}  # fmt: skip


def loss_near(reference: Tensor, **arguments: Any) -> core.PolicyLoss:
    return core.policy_loss(reference=ReferenceKl(reference, 0.1), denominator=7, **arguments)


CALLS = {
    "group_advantages": Call(
        core.group_advantages, {"rewards": numbers(ROWS, seed=0), "group_ids": GROUPS, "mask": MASK[:, 1]}
    ),
    "zero_spread_groups": Call(
        core.zero_spread_groups, {"rewards": numbers(ROWS, seed=0), "group_ids": GROUPS, "mask": MASK[:, 1]}
    ),
    "turn_numbers": Call(core.turn_numbers, {"mask": MASK}),
    "turn_advantages": Call(
        core.turn_advantages, {"rewards": table(2), "mask": MASK, "group_ids": GROUPS}, {"gamma": 0.9}
    ),
    "discounted_returns": Call(core.discounted_returns, {"rewards": table(2), "mask": MASK}, {"gamma": 0.9}),
    "gae": Call(core.gae, {**STEPWISE, "next_values": table(8)}, {"gamma": 0.9, "lam": 0.8}),
    "gae_with_one_bootstrap_per_row": Call(
        core.gae, {**STEPWISE, "next_values": numbers(ROWS, seed=8)}, {"gamma": 0.9, "lam": 0.8}
    ),
    "group_return_to_go": Call(
        core.group_return_to_go, {"rewards": table(2), "alive": MASK, "group_ids": GROUPS}, {"gamma": 0.9}
    ),
    "explained_variance": Call(core.explained_variance, {"values": table(3), "returns": table(2), "mask": MASK}),
    "masked_mean": Call(core.masked_mean, {"values": table(3), "mask": MASK}, reaches=("values",)),
    "top_entropy_mask": Call(core.top_entropy_mask, {"entropy": table(3).exp(), "mask": MASK}, {"quantile": 0.4}),
    "overlong_mask": Call(core.overlong_mask, {"truncated": TRUNCATED[:, 1], "mask": MASK}),
    "off_policy_mask": Call(
        core.off_policy_mask,
        {"advantages": -numbers(ROWS, seed=5).abs(), "logp": LOGP, "behavior_logp": LOGP + table(4), "mask": MASK},
        {"threshold": 0.05},
    ),
    "token_logp": Call(
        core.token_logp,
        {"logits": numbers(ROWS, STEPS, WORDS, seed=9), "input_ids": torch.arange(20).view(ROWS, STEPS) % WORDS},
        reaches=("logits",),
    ),
    "token_entropy": Call(core.token_entropy, {"logits": numbers(ROWS, STEPS, WORDS, seed=9)}, reaches=("logits",)),
    "sampler_mismatch": Call(
        core.sampler_mismatch, {"logp": LOGP, "sampler_logp": SAMPLED["behavior_logp"], "mask": MASK}
    ),
    "kl_estimate": Call(core.kl_estimate, {"logp": LOGP, "reference_logp": table(4)}, reaches=("logp",)),
    "entropy_bonus": Call(
        core.entropy_bonus,
        {"entropy": table(3).exp(), "mask": MASK, "advantages": numbers(ROWS, seed=5), "keep": KEEP},
        {"coefficient": 0.1, "denominator": 7},
        reaches=("entropy",),
    ),
    "value_loss": Call(
        core.value_loss,
        {"values": table(3), "returns": table(2), "mask": MASK, "old_values": table(4)},
        {"denominator": 7, "value_clip": 0.2},
        reaches=("values",),
    ),
    **{
        f"policy_loss_{name}": Call(
            loss_near, {**SAMPLED, "reference": table(4)}, {"loss_type": name}, reaches=("logp",)
        )
        for name in core.LOSSES
    },
    "zscore": Call(core.zscore, {"values": numbers(ROWS, seed=5)}, reaches=("values",)),
    "mean_square_by_level": Call(
        core.mean_square_by_level,
        {"squares": numbers(ROWS, seed=5).square(), "counts": GROUPS, "levels": torch.stack([GROUPS * 0, GROUPS])},
        reaches=("squares",),
    ),
}  # fmt: skip


def tensors_of(result: Any) -> Iterator[Tensor]:
    """Every tensor of a result: itself, or those of a tuple or a dataclass."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple):
        yield from result
    else:
        values = (getattr(result, field.name) for field in dataclasses.fields(result))
        yield from (value for value in values if value is not None)


def run(call: Call, **changed: Tensor) -> list[Tensor]:
    tensors = {name: tensor.clone() for name, tensor in call.tensors.items()} | changed
    return list(tensors_of(call.function(**tensors, **call.settings)))


@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if set(MASKS) & set(call.tensors)])
def test_a_mask_may_be_of_any_dtype(name: str, dtype: torch.dtype) -> None:
    call = CALLS[name]
    masks = {mask: call.tensors[mask].to(dtype) for mask in MASKS if mask in call.tensors}
    for found, expected in zip(run(call, **masks), run(call), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


# The tensor a function takes its shapes from is checked for its rank alone, under its own name.
FIRST = {
    "group_advantages": "rewards", "zero_spread_groups": "rewards", "turn_advantages": "rewards",
    "discounted_returns": "rewards", "gae": "rewards", "gae_with_one_bootstrap_per_row": "rewards",
    "group_return_to_go": "rewards", "explained_variance": "values", "top_entropy_mask": "entropy",
    "overlong_mask": "mask", "off_policy_mask": "logp", "token_logp": "logits", "token_entropy": "logits",
    "sampler_mismatch": "logp", "entropy_bonus": "entropy", "value_loss": "values", "policy_loss_dapo": "logp",
    "zscore": "values", "mean_square_by_level": "squares",
}  # fmt: skip
# What a message calls a tensor that came under another name.
CALLED = {"reference": "reference.logp", "alive": "mask"}


@pytest.mark.parametrize("name", FIRST)
def test_a_tensor_of_the_wrong_rank_is_refused_by_its_name(name: str) -> None:
    call, first = CALLS[name], FIRST[name]
    for wrong in (call.tensors[first][0], call.tensors[first].unsqueeze(-1)):
        with pytest.raises(ValueError, match=rf"{first} has shape .* dimension"):
            run(call, **{first: wrong})


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("kl_estimate", "reference_logp")]
    + [(name, tensor) for name, first in FIRST.items() for tensor in CALLS[name].tensors if tensor != first],
)
def test_a_tensor_of_the_wrong_shape_is_refused_by_its_name(name: str, tensor: str) -> None:
    """A row too many, or a single one, which would broadcast; and a dimension too many."""
    call, given = CALLS[name], CALLS[name].tensors[tensor]
    along = 1 if tensor == "levels" else 0
    rows = (torch.cat([given, given.narrow(along, 0, 1)], along), given.narrow(along, 0, 1))
    for wrong in (*rows, given.unsqueeze(-1)):
        with pytest.raises(ValueError, match=rf"^{CALLED.get(tensor, tensor)} has shape"):
            run(call, **{tensor: wrong})


def test_a_column_too_many_is_refused_too() -> None:
    for name, tensor in (("policy_loss_dapo", "weights"), ("entropy_bonus", "keep"), ("gae", "next_values")):
        given = CALLS[name].tensors[tensor]
        with pytest.raises(ValueError, match=f"^{tensor} has shape"):
            run(CALLS[name], **{tensor: torch.cat([given, given[:, :1]], 1)})


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith(("group_", "turn_", "discounted"))])
def test_a_gradient_reaches_what_it_is_meant_for_and_nothing_else(name: str) -> None:
    call = CALLS[name]
    leaves = {key: t.clone().requires_grad_() for key, t in call.tensors.items() if t.is_floating_point()}
    results = [found for found in run(call, **leaves) if found.requires_grad]
    assert bool(results) == bool(call.reaches)
    if results:
        found = torch.autograd.grad([result.sum() for result in results], list(leaves.values()), allow_unused=True)
        assert tuple(key for key, slope in zip(leaves, found, strict=True) if slope is not None) == call.reaches


@pytest.mark.parametrize("name", CALLS)
def test_inputs_are_left_as_they_are(name: str) -> None:
    call = CALLS[name]
    given = {key: tensor.clone() for key, tensor in call.tensors.items()}
    run(call, **given)
    for key, tensor in given.items():
        assert torch.equal(tensor, call.tensors[key]), key


@pytest.mark.parametrize(
    "name",
    ["turn_numbers", "discounted_returns", "gae", "gae_with_one_bootstrap_per_row", "overlong_mask", "off_policy_mask",
     "token_logp", "token_entropy"],
)  # fmt: skip
def test_rows_do_not_touch_each_other(name: str) -> None:
    call = CALLS[name]
    together = run(call)
    for row in range(ROWS):
        alone = run(call, **{key: tensor[row : row + 1] for key, tensor in call.tensors.items()})
        for whole, part in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[row : row + 1], part)


@pytest.mark.parametrize(
    "name", ["gae", "gae_with_one_bootstrap_per_row", "discounted_returns", "group_return_to_go", "turn_advantages"]
)
def test_a_step_outside_the_mask_has_no_effect_and_gets_zero(name: str) -> None:
    call = CALLS[name]
    spoiled = {
        key: tensor.where(MASK, 1e6) if tensor.is_floating_point() else tensor | ~MASK
        for key, tensor in call.tensors.items()
        if tensor.shape == MASK.shape and key not in ("mask", "alive")
    }
    for found, expected in zip(run(call, **spoiled), run(call), strict=True):
        torch.testing.assert_close(found, expected)
        assert not found[~MASK].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_differences_of_log_probabilities_are_taken_in_float32_at_least(dtype: torch.dtype) -> None:
    logp, other, mask = LOGP.to(dtype), SAMPLED["behavior_logp"].to(dtype), MASK
    mismatch = partial(core.sampler_mismatch, mask=mask, cap=None)
    for found, expected in zip(
        tensors_of(mismatch(logp, other)), tensors_of(mismatch(logp.float(), other.float())), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    loss = partial(core.policy_loss, advantages=numbers(ROWS, seed=5), mask=mask, denominator=7)
    assert loss(logp, other).loss == loss(logp.float(), other.float()).loss
    logits, ids = CALLS["token_logp"].tensors.values()
    logits = logits.to(dtype)
    assert torch.equal(core.token_logp(logits, ids), core.token_logp(logits.float(), ids))
    assert torch.equal(core.token_entropy(logits), core.token_entropy(logits.float()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_returns_are_added_in_float64_and_have_the_dtype_of_the_rewards(dtype: torch.dtype) -> None:
    """One sum, a sum of powers, and the recursion where powers underflow."""
    rewards, mask = numbers(2, 300, seed=0).to(dtype), torch.ones(2, 300)
    for gamma in (1.0, 0.99, 0.2):
        found = core.discounted_returns(rewards, mask, gamma)
        assert found.dtype == dtype
        assert torch.equal(found, core.discounted_returns(rewards.double(), mask, gamma).to(dtype))
    pair = torch.tensor([[1.0, 2.0], [3.0, 1.0]], dtype=dtype)
    assert core.group_return_to_go(pair, torch.ones(2, 2), 1.0).dtype == dtype


def test_defaults_are_those_that_the_documentation_names() -> None:
    sampled = (LOGP, LOGP - 1.0, MASK)
    weights = core.sampler_mismatch(*sampled).weights
    assert weights.max() == 2.0
    logp, reference = torch.tensor([[0.5]]), torch.tensor([[0.25]])
    assert core.kl_estimate(logp, reference) == core.kl_estimate(logp, reference, estimator="k3")
    term = ReferenceKl(reference)
    assert (term.beta, term.estimator, term.importance_correction) == (0.0, "k3", True)
    rewards, groups = torch.tensor([0.0, 1.0, 3.0, 9.0]), torch.tensor([0, 0, 1, 1])
    named: dict[str, Any] = {"baseline": "group_mean", "scale": "group_std", "std": "population"}
    assert torch.equal(core.group_advantages(rewards, groups), core.group_advantages(rewards, groups, **named))
    per_turn = partial(core.turn_advantages, torch.tensor([[0.0], [1.0], [5.0]]), torch.ones(3, 1), torch.zeros(3), 0.5)
    assert torch.equal(per_turn(), per_turn(baseline="group_mean"))
    assert not torch.equal(per_turn(), per_turn(baseline="group_median"))
