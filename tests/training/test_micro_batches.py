"""Micro-batches by rows and by tokens, and what happens when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.agents import language_product as answers
from groupwise.config import TrainingConfig
from groupwise.control import grpo as control
from groupwise.errors import ContractError, ResourceError
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run, inspect_run
from groupwise.training.learner import Learner
from groupwise.training.micro_batches import (
    MicroBatches,
    acting_rows,
    at_least_single,
    autocast,
    check_batch,
    is_out_of_memory,
    row_ends,
    slices_by_tokens,
)
from groupwise.training.session import Parts, execute
from groupwise.types import Batch, Event, Task, Tensors, Trajectory

Configure = Callable[..., TrainingConfig]
Numbers = Callable[[Path], dict[str, Any]]

LANGUAGE = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 12,
    "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 6, "tasks_per_step": 2,
    "per_device_train_batch_size": 12, "num_epochs": 1, "num_episodes": 4, "eval_steps": 0,
    "beta": 0.1, "use_reference_model": True,
}  # fmt: skip
CONTROL = {"per_device_train_batch_size": 1000, "num_epochs": 1}
PLAIN_STEP = {  # with these, Adam's first step is the gradient itself where it is small
    "learning_rate": 1.0, "adam_epsilon": 1.0, "max_grad_norm": 1e9, "warmup_ratio": 0.0,
    "lr_scheduler_type": "constant",
}  # fmt: skip
KINDS = ("language", "control")


def varied(task: Task, attempt: Trajectory) -> float:
    return float(attempt.actions[attempt.mask].sum() % 11)


def make(cfg: TrainingConfig) -> Parts:
    """An untrained language model gets every sum wrong; this reward tells its answers apart all the same."""
    return answers.build(cfg, per_attempt(varied)) if cfg.task.product == "language" else control.build(cfg)


def settings(small_config: Configure, kind: str, **changes: Any) -> TrainingConfig:
    return small_config(**{**(LANGUAGE if kind == "language" else CONTROL), **PLAIN_STEP, **changes})


def allow(policy: Any, tokens: int, refuse: BaseException | None = None) -> list[int]:
    """From now on `policy` has memory for `tokens` padded tokens at once. What it was asked is noted."""
    inner, asked = policy.evaluate, []

    def evaluate(inputs: Tensors) -> Any:
        size = padded_tokens(inputs)
        asked.append(size)
        if size > tokens:
            raise refuse or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return inner(inputs)

    policy.evaluate = evaluate
    return asked


def padded_tokens(inputs: Tensors) -> int:
    if "attention_mask" not in inputs:
        return len(inputs["actions"])
    return int(inputs["attention_mask"].sum(1).max()) * len(inputs["attention_mask"])


def next_batch(parts: Parts) -> Batch:
    """A batch whose rows end at different places: an untrained model hardly ever ends an answer by itself."""
    batch = parts.source.next()
    if "attention_mask" not in batch.inputs:
        return batch
    beyond = torch.arange(batch.rows)[:, None] * 5 % 12 < batch.mask.cumsum(1) - 1
    inputs = {name: value * ~beyond for name, value in batch.inputs.items()}
    return replace(batch, mask=batch.mask & ~beyond, inputs=inputs, advantages=batch.advantages * ~beyond)


def one_update(cfg: TrainingConfig, tokens: int | None = None) -> tuple[torch.Tensor, dict[str, float], Learner]:
    """The weights and metrics after one step, with memory for `tokens` tokens."""
    parts = make(cfg)
    batch = next_batch(parts)
    if tokens is not None:
        allow(parts.policy, tokens)
    learner = Learner(parts.policy, cfg)
    metrics = learner.update(batch)
    parts.source.close()
    return torch.cat([p.detach().flatten() for p in parts.policy.actor_parameters()]), metrics, learner


def agree(first: dict[str, float], second: dict[str, float]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [1, 40, 100])
def test_a_token_budget_leaves_loss_and_gradient_unchanged(small_config: Configure, kind: str, budget: int) -> None:
    whole, metrics, _ = one_update(settings(small_config, kind))
    split, again, _ = one_update(settings(small_config, kind, micro_batch_tokens=budget))
    assert (whole - split).abs().max() < 1e-6
    agree(metrics, again)


def test_no_micro_batch_of_several_rows_is_over_the_budget(small_config: Configure) -> None:
    cfg = settings(small_config, "language", micro_batch_tokens=100)
    parts = make(cfg)
    batch = next_batch(parts)
    asked = allow(parts.policy, 10**9)
    Learner(parts.policy, cfg).update(batch)
    assert max(asked) <= 100
    assert len(asked) >= int(batch.inputs["attention_mask"].sum()) / 100
    parts.source.close()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 200))
def test_slices_by_tokens_cover_every_row_once_and_keep_to_the_budget(lengths: list[int], budget: int) -> None:
    slices = list(slices_by_tokens(lengths, budget))
    assert [n for part in slices for n in range(len(lengths))[part]] == list(range(len(lengths)))
    parts = [lengths[part] for part in slices]
    assert all(len(part) == 1 or len(part) * max(part) <= budget for part in parts)
    joined = [a + b[:1] for a, b in pairwise(parts)]
    assert all(len(part) * max(part) > budget for part in joined), "every micro-batch is as large as it may be"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_tokens", [False, True])
def test_out_of_memory_halves_the_micro_batches_and_changes_nothing_else(
    small_config: Configure, kind: str, by_tokens: bool
) -> None:
    extra = {"micro_batch_tokens": 400 if kind == "language" else 1000} if by_tokens else {}
    cfg = settings(small_config, kind, **extra)
    whole, metrics, _ = one_update(cfg)
    split, again, learner = one_update(cfg, tokens=60)
    assert (whole - split).abs().max() < 1e-6
    agree(metrics, again)
    before = learner.micro_batches.configured
    assert learner.micro_batches.size <= before // 2
    (hint,) = learner.take_hints()
    assert hint.code == "out_of_memory"
    assert f"of {before} " in hint.message
    assert f"they have {learner.micro_batches.size}." in hint.message
    name = "micro_batch_tokens" if by_tokens else "per_device_train_batch_size"
    assert f"optim.{name}={learner.micro_batches.size}" in hint.remedy
    assert learner.take_hints() == ()


def test_the_remedy_keeps_the_rows_of_an_optimiser_step(small_config: Configure) -> None:
    micro = MicroBatches(small_config(per_device_train_batch_size=64, gradient_accumulation_steps=2), "learning")
    micro.size = 16
    (hint,) = micro.take_hints()
    assert "optim.per_device_train_batch_size=16 and optim.gradient_accumulation_steps=8" in hint.remedy


def test_out_of_memory_in_the_reference_is_met_in_the_same_way(small_config: Configure) -> None:
    cfg = settings(small_config, "language")
    expected = make(cfg).source.next()
    parts = make(cfg)
    allow(parts.policy.reference, 60)  # type: ignore[attr-defined]
    batch = parts.source.next()
    assert batch.reference_logp is not None
    assert expected.reference_logp is not None
    assert (batch.reference_logp - expected.reference_logp).abs().max() < 1e-5
    assert [(hint.code, "asking the reference" in hint.message) for hint in batch.hints] == [("out_of_memory", True)]
    assert make(cfg).source.next().hints == ()


def test_a_single_row_that_does_not_fit_ends_the_run_in_one_clear_sentence(small_config: Configure) -> None:
    path = create_run(settings(small_config, "language"))

    def starved(cfg: TrainingConfig) -> Parts:
        parts = make(cfg)
        allow(parts.policy, 3)
        return parts

    with pytest.raises(ResourceError, match=r"out of memory while learning on a single row of \d+ tokens") as raised:
        list(execute(path, starved))
    assert all(word in raised.value.hint for word in ("gradient_checkpointing", "lora_rank", "max_new_tokens"))


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory."), MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to"),
    RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
])  # fmt: skip
def test_every_allocator_is_understood(error: BaseException) -> None:
    assert is_out_of_memory(error)


def test_a_real_refusal_of_the_cpu_allocator_is_understood() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(refused.value)


def test_other_errors_are_not_mistaken_for_it(small_config: Configure) -> None:
    cfg = settings(small_config, "control")
    parts = make(cfg)
    allow(parts.policy, 0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        Learner(parts.policy, cfg).update(make(cfg).source.next())


def test_partial_gradients_are_dropped_before_the_second_try(small_config: Configure) -> None:
    """The first micro-batch fits and the second, of longer rows, does not."""
    cfg = settings(small_config, "language", per_device_train_batch_size=6, gradient_accumulation_steps=2)
    sizes = _sizes(cfg)
    assert min(sizes) < max(sizes)
    whole, metrics, _ = one_update(cfg)
    split, again, learner = one_update(cfg, tokens=max(sizes) - 1)
    assert learner.micro_batches.size == 3
    assert (whole - split).abs().max() < 1e-6
    agree(metrics, again)


def _sizes(cfg: TrainingConfig) -> list[int]:
    parts = make(cfg)
    batch = next_batch(parts)
    asked = allow(parts.policy, 10**9)
    Learner(parts.policy, cfg).update(batch)
    return asked


def starved_later(cfg: TrainingConfig) -> Parts:
    parts = make(cfg)
    allow(parts.policy, 60)
    return parts


def test_an_interrupted_run_goes_on_with_the_size_that_fitted(small_config: Configure, numbers: Numbers) -> None:
    cfg = settings(small_config, "language", save_steps=1, num_episodes=3, learning_rate=1e-3)
    whole, broken = (create_run(cfg.replace(run_name=name)) for name in ("whole", "broken"))
    events = finish(execute(whole, starved_later))
    finish(execute(broken, starved_later), steps=1)
    resumed = finish(execute(broken, starved_later))
    assert numbers(broken) == numbers(whole)
    said = [event.data["message"] for event in events if event.data.get("code") == "out_of_memory"]
    assert len(said) == 1
    assert not [event for event in resumed if event.data.get("code") == "out_of_memory"]


def test_memory_that_no_micro_batch_can_save_ends_the_run_in_one_sentence(small_config: Configure) -> None:
    """The keys and values of generation, for instance: there is nothing to halve."""

    def without_memory(cfg: TrainingConfig) -> Parts:
        parts = make(cfg)

        def starved() -> Batch:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has 139.80 GiB.")

        parts.source.next = starved  # type: ignore[method-assign]
        return parts

    run = create_run(settings(small_config, "control"))
    with pytest.raises(ResourceError, match=r"Tried to allocate 1\.75 GiB") as refused:
        finish(execute(run, without_memory))
    assert "lora_rank" in refused.value.hint
    assert inspect_run(run).state == "failed"


def finish(events: Iterator[Event], steps: int | None = None) -> list[Event]:
    seen = []
    for event in events:
        seen.append(event)
        if event.type == "checkpoint" and event.step == steps:
            break
    return seen


def test_a_size_set_by_hand_wins_over_the_one_that_fitted(small_config: Configure) -> None:
    micro = MicroBatches(small_config(per_device_train_batch_size=64), "learning")
    micro.size = 16
    same = MicroBatches(small_config(per_device_train_batch_size=64), "learning")
    same.load_state_dict(micro.state_dict())
    assert (same.size, same.take_hints()) == (16, ())
    changed = MicroBatches(small_config(per_device_train_batch_size=48), "learning")
    changed.load_state_dict(micro.state_dict())
    assert changed.size == 48


def test_the_reference_is_asked_in_the_learners_precision(small_config: Configure) -> None:
    """Else the KL term would measure rounding and pull the policy towards it."""
    kl = {}
    for precision in ("fp32", "bf16"):
        cfg = settings(small_config, "language", bf16=precision == "bf16")
        parts = make(cfg)
        batch = parts.source.next()
        kl[precision] = Learner(parts.policy, cfg).update(batch)["policy/reference_kl"]
        parts.source.close()
    assert abs(kl["bf16"]) < 1e-9
    assert abs(kl["fp32"]) < 1e-9
    with torch.no_grad():
        plain = replace(batch, reference_logp=make(cfg).policy.evaluate(batch.inputs).logp)
    assert Learner(make(cfg).policy, cfg).update(plain)["policy/reference_kl"] > 1e-7


def test_batches_of_one_column_need_no_sorting(small_config: Configure) -> None:
    batch = Batch({}, torch.ones(5, 1, dtype=torch.bool), torch.zeros(5, 1), torch.ones(5, 1), 5.0)
    micro = MicroBatches(small_config(micro_batch_tokens=2), "learning")
    assert [part.rows for part in micro.split(batch)] == [2, 2, 1]


def small_batch(**changes: Any) -> Batch:
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.bool)
    ones = torch.ones(5, 4)
    return replace(Batch({"row": torch.arange(5)}, mask, ones, ones, denominator=1.0), **changes)


def test_a_row_ends_with_its_last_action() -> None:
    batch = small_batch()
    assert row_ends(batch.mask).tolist() == [2, 4, 0, 1, 3]


def test_the_loss_acts_on_rows_with_an_advantage_at_an_action_that_is_kept() -> None:
    advantages = torch.tensor([[0, 2.0, 9, 9], [9, 0, 9, 0], [9, 9, 9, 9], [-1, 0, 0, 0], [0, 0, -3, 0]])
    assert acting_rows(small_batch(advantages=advantages)).tolist() == [True, False, False, True, True]
    keep = torch.ones(5, 4, dtype=torch.bool)
    keep[0, 1] = keep[4] = False
    keep[3, 1:] = False
    assert acting_rows(small_batch(advantages=advantages, keep=keep)).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("name", ["behavior_logp", "advantages", "versions", "old_logp", "reference_logp", "returns",
                                  "values"])  # fmt: skip
@pytest.mark.parametrize("shape", [(5,), (5, 3), (4, 4), (5, 4, 1)])
def test_every_table_of_a_batch_must_have_the_shape_of_its_mask(name: str, shape: tuple[int, ...]) -> None:
    check_batch(small_batch(**{name: torch.zeros(5, 4)}))
    with pytest.raises(ContractError, match=rf"a batch's {name} has shape \(5|4.*; the mask's is \(5, 4\)"):
        check_batch(small_batch(**{name: torch.zeros(shape)}))


@pytest.mark.parametrize("denominator", [0.0, -1.0, float("nan")])
def test_a_denominator_is_above_0_unless_there_is_nothing_to_divide(denominator: float) -> None:
    with pytest.raises(ContractError, match="denominator is .*; it must be above 0"):
        check_batch(small_batch(denominator=denominator))
    check_batch(small_batch(denominator=denominator).select(slice(0, 0)))
    check_batch(small_batch(denominator=1e-9))


@pytest.mark.parametrize("name", ["mask", "keep"])
def test_masks_are_boolean(name: str) -> None:
    check_batch(small_batch(keep=torch.ones(5, 4, dtype=torch.bool)))
    with pytest.raises(ContractError, match=f"a batch's {name} is torch.int64; it must be torch.bool"):
        check_batch(small_batch(**{name: torch.ones(5, 4, dtype=torch.long)}))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), (None, None)])
def test_the_precision_of_a_pass_is_that_of_the_settings(
    small_config: Configure, precision: str | None, dtype: torch.dtype | None
) -> None:
    cfg = small_config(**({precision: True} if precision else {}))
    with autocast(cfg):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (dtype or torch.float32)


@pytest.mark.parametrize(("given", "expected"), [
    (torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float32),
    (torch.float64, torch.float64),
])  # fmt: skip
def test_a_loss_is_never_in_half_precision(given: torch.dtype, expected: torch.dtype) -> None:
    assert at_least_single(torch.ones(1, dtype=given)).dtype == expected


@pytest.mark.parametrize(("changes", "expected"), [
    ({"per_device_train_batch_size": 1}, [1] * 5), ({"per_device_train_batch_size": 2}, [2, 2, 1]),
    ({"per_device_train_batch_size": 5}, [5]), ({"per_device_train_batch_size": 6}, [5]),
    # Lengths 2, 4, 0, 1, 3: 2 × 4 padded tokens fit into 8, 3 × 4 do not.
    ({"micro_batch_tokens": 8}, [2, 2, 1]), ({"micro_batch_tokens": 11}, [2, 3]), ({"micro_batch_tokens": 12}, [3, 2]),
    ({"micro_batch_tokens": 2}, [1, 1, 2, 1]), ({"micro_batch_tokens": 20}, [5]),
])  # fmt: skip
def test_micro_batches_by_hand(small_config: Configure, changes: dict[str, int], expected: list[int]) -> None:
    parts = list(MicroBatches(small_config(**changes), "learning").split(small_batch()))
    assert [part.rows for part in parts] == expected
    assert torch.cat([part.inputs["row"] for part in parts]).tolist() == [0, 1, 2, 3, 4]
    assert list(MicroBatches(small_config(**changes), "learning").split(small_batch().select(slice(0, 0)))) == []


@pytest.mark.parametrize(("changes", "fits", "size", "tries"), [
    # 64 rows were allowed, but 5 did not fit: half of those, not of the limit.
    ({"per_device_train_batch_size": 64}, 2, 2, [5, 2, 2, 1]),
    ({"per_device_train_batch_size": 4}, 1, 1, [4, 2, 1, 1, 1, 1, 1]),
    ({"per_device_train_batch_size": 2}, 2, 2, [2, 2, 1]),
    ({"micro_batch_tokens": 1000}, 3, 10, [5, 2, 3]),
])  # fmt: skip
def test_what_did_not_fit_is_halved_until_it_fits_and_every_row_is_done_once(
    small_config: Configure, changes: dict[str, int], fits: int, size: int, tries: list[int]
) -> None:
    micro, asked, undone = MicroBatches(small_config(**changes), "learning"), [], []

    def work(part: Batch) -> list[int]:
        asked.append(part.rows)
        if part.rows > fits:
            raise MemoryError
        return part.inputs["row"].tolist()

    done = micro.over(small_batch(), work, lambda: undone.append(len(asked)))
    assert [row for rows in done for row in rows] == [0, 1, 2, 3, 4]
    assert (asked, micro.size) == (tries, size)
    assert len(undone) == sum(rows > fits for rows in tries)
    again: list[int] = []
    micro.over(small_batch(), lambda part: again.append(part.rows))
    assert max(again) <= fits, "the size that fitted stays"


def test_an_activity_announces_each_size_once(small_config: Configure) -> None:
    micro = MicroBatches(small_config(micro_batch_tokens=64), "asking the reference")
    assert micro.take_hints() == ()
    micro.size = 16
    (hint,) = micro.take_hints()
    assert hint.message.startswith("Out of memory while asking the reference with micro-batches of 64 padded tokens; ")
    micro.size = 8
    (hint,) = micro.take_hints()
    assert "micro-batches of 16 padded tokens; from now on they have 8." in hint.message
    assert hint.remedy == "Set optim.micro_batch_tokens=8 to start there."
    assert micro.take_hints() == ()


def test_a_size_in_tokens_is_not_taken_for_one_in_rows(small_config: Configure) -> None:
    micro = MicroBatches(small_config(micro_batch_tokens=64), "learning")
    micro.size = 16
    rows = MicroBatches(small_config(per_device_train_batch_size=64), "learning")
    rows.load_state_dict(micro.state_dict())
    assert rows.size == 64
