"""The four promises of workflow code that is learned: the data holds the code, advantages compare inside a group, the
loss acts on the code's tokens, and a step from search to weights makes good programs likelier and bad ones less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from groupwise.compat.core import compute_grpo_advantages, compute_grpo_loss
from groupwise.compat.language import TrajectoryDataset
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model
from groupwise.programs.learning.found_programs import trajectories_of
from groupwise.programs.learning.model import code_tokenizer, whole_text
from groupwise.programs.problems import generate
from groupwise.programs.search.program_search import Uniform, explore

PROBLEM = generate("word_problems", 3, "train", 1)
GOOD, BAD = "\n    a = div(x, y)\n    return a", "\n    a = add(x, y)\n    return a"
TRAJECTORIES: list[dict[str, Any]] = [
    {"problem": "share x among y", "workflow_codes": [GOOD, GOOD, BAD], "rewards": [1.0, 1.0, 0.0], "problem_id": 4},
    {"problem": "add x to y", "workflow_codes": [GOOD, BAD], "rewards": [0.0, 1.0], "problem_id": 5},
]


@pytest.fixture
def small() -> tuple[Any, Any]:
    return tiny_model(7, layers=2, width=64, tokenizer=code_tokenizer())


def test_the_dataset_expands_trajectories_into_programs_with_their_code() -> None:
    tokenizer = code_tokenizer()
    dataset = TrajectoryDataset(TRAJECTORIES, tokenizer, template="{problem}")
    rows = [dataset[number] for number in range(len(dataset))]
    assert [float(row["reward"]) for row in rows] == [1, 1, 0, 0, 1]
    assert [int(row["group_id"]) for row in rows] == [0, 0, 0, 1, 1]
    for row, code in zip(rows, (GOOD, GOOD, BAD, GOOD, BAD), strict=True):
        assert tokenizer.decode(row["input_ids"][row["response_mask"]], skip_special_tokens=True) == code


def test_advantages_compare_a_program_with_its_own_group() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0])
    mask = torch.ones(5, 3, dtype=torch.bool)
    found = compute_grpo_advantages(rewards[:, None] * mask, mask, torch.tensor([0, 0, 0, 1, 1]))
    assert found[:, 0].tolist() == pytest.approx([0.7071, 0.7071, -1.4142, -1, 1], abs=1e-3)
    alone = compute_grpo_advantages(rewards[:1, None] * mask[:1], mask[:1], torch.tensor([0]))
    assert alone.abs().max() == 0, "a group of one has nothing to compare itself with"


def test_the_loss_is_the_advantage_times_the_likelihood_of_the_codes_tokens(small: tuple[Any, Any]) -> None:
    model, tokenizer = small
    dataset = TrajectoryDataset(TRAJECTORIES[:1], tokenizer, template="{problem}")
    batch = dataset.collate([dataset[number] for number in range(3)])
    mask, ids = batch["response_mask"], batch["input_ids"]
    advantages = compute_grpo_advantages(batch["reward"][:, None] * mask, mask, batch["group_id"])
    found = _gradient(model, lambda logits: compute_grpo_loss(logits, ids, mask, advantages)["loss"], ids)

    def by_hand(logits: torch.Tensor) -> torch.Tensor:
        logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return -(advantages[:, 1:] * logp * mask[:, 1:]).sum() / mask.sum()

    assert torch.allclose(found, _gradient(model, by_hand, ids), atol=1e-5)
    assert float(found.norm()) > 0.01


def _gradient(model: Any, loss: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss(model(ids).logits).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def test_from_search_to_weights_a_good_program_gets_likelier_and_a_bad_one_less(small: tuple[Any, Any]) -> None:
    model, tokenizer = small
    tree = explore(PROBLEM, Uniform(), 12, seed=1)
    assert tree.solved
    told = trajectories_of(PROBLEM, tree, tokenizer)
    assert all(whole_text(PROBLEM, code).startswith("def solve") for code in told["workflow_codes"])
    dataset = TrajectoryDataset([told], tokenizer, template="{problem}")
    batch = dataset.collate([dataset[number] for number in range(len(dataset))])
    policy = LanguagePolicy(model)
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "action_mask": batch["response_mask"],
    }
    mask = batch["response_mask"]
    before = policy.evaluate(inputs).logp.detach().sum(1)
    advantages = compute_grpo_advantages(batch["reward"][:, None] * mask, mask, batch["group_id"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = compute_grpo_loss(model(batch["input_ids"]).logits, batch["input_ids"], mask, advantages)["loss"]
    loss.backward()
    optimizer.step()
    moved = policy.evaluate(inputs).logp.detach().sum(1) - before
    good = batch["reward"] > 0
    assert float(moved[good].min()) > 0
    assert float(moved[~good].mean()) < 0
