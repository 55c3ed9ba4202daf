"""`TrajectoryDataset`: what is learned is the answer, all of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from groupwise.compat.core import compute_grpo_advantages, compute_grpo_loss
from groupwise.compat.language import IGNORED, TrajectoryDataset
from groupwise.errors import ContractError
from groupwise.language.tiny import character_tokenizer, tiny_model

TOKENIZER = character_tokenizer()
END = TOKENIZER.eos_token_id
GOOD, BAD = "def solve():\n    return 2 + 2", "def solve():\n    return 5"
TRAJECTORIES: list[dict[str, Any]] = [
    {"problem": "2+2=?", "workflow_codes": [GOOD, BAD], "rewards": [1.0, 0.0], "problem_id": 7},
    {"problem": "3+3=?", "workflow_codes": ["6"], "rewards": [0.5], "problem_id": 9},
]


def text(ids: torch.Tensor) -> str:
    return str(TOKENIZER.decode(ids))


def test_every_answer_is_a_sample_of_its_problems_group() -> None:
    dataset = TrajectoryDataset(TRAJECTORIES, TOKENIZER)
    assert dataset.max_length == 2048
    assert len(dataset) == 3
    rows = [dataset[index] for index in range(3)]
    assert [float(row["reward"]) for row in rows] == [1.0, 0.0, 0.5]
    assert [int(row["group_id"]) for row in rows] == [0, 0, 1]
    prompt = "Generate a workflow to solve this problem:\n2+2=?\n\nWorkflow:"
    assert text(rows[0]["input_ids"]) == f"{prompt}\n{GOOD}<|end|>"


def test_the_answer_and_its_end_are_learned_and_nothing_else() -> None:
    dataset = TrajectoryDataset(TRAJECTORIES, TOKENIZER)
    batch = dataset.collate([dataset[index] for index in range(3)])
    assert {len(values) for values in batch.values()} == {3}
    assert batch["input_ids"].shape[1] == max(len(dataset[i]["input_ids"]) for i in range(3))
    for index, answer in enumerate((GOOD, BAD, "6")):
        inside = batch["response_mask"][index]
        assert text(batch["input_ids"][index][inside]) == answer + "<|end|>"
        assert torch.equal(batch["labels"][index] != IGNORED, inside)
        assert not (inside & (batch["attention_mask"][index] == 0)).any()


def test_a_row_that_is_too_long_loses_the_front_of_its_prompt() -> None:
    dataset = TrajectoryDataset(TRAJECTORIES, TOKENIZER, max_length=len(GOOD) + 11)
    row = dataset[0]
    assert text(row["input_ids"]) == f"\nWorkflow:\n{GOOD}<|end|>"[-(len(GOOD) + 10 + len("<|end|>")) :]
    assert len(row["input_ids"]) == len(GOOD) + 11
    cut = TrajectoryDataset(TRAJECTORIES, TOKENIZER, max_length=6)[0]
    assert text(cut["input_ids"]) == "\ndef s", "it did not end there, so it has no end"
    assert cut["response_mask"].tolist() == [False] + [True] * 5


def test_sampled_tokens_and_their_log_probabilities_are_kept() -> None:
    ids = [*TOKENIZER.encode("ab"), END]
    trajectory = {
        "problem": "x", "workflow_codes": ["ab"], "rewards": [1.0], "token_ids": [ids],
        "behavior_logp": [torch.tensor([-0.5, -1.5, -2.5])],
    }  # fmt: skip
    row = TrajectoryDataset([trajectory], TOKENIZER)[0]
    inside = row["response_mask"]
    assert row["input_ids"][inside].tolist() == ids
    assert row["behavior_logp"][inside].tolist() == [-0.5, -1.5, -2.5]
    assert not row["behavior_logp"][~inside].any()
    cut_off = {**trajectory, "token_ids": None, "behavior_logp": [[-0.5, -1.5]]}
    row = TrajectoryDataset([cut_off], TOKENIZER)[0]
    assert row["input_ids"][row["response_mask"]].tolist() == ids[:2], "an end that was not sampled is not added"
    with pytest.raises(ContractError, match="sample 0 has 1 log-probabilities for 3 tokens"):
        TrajectoryDataset([{**trajectory, "behavior_logp": [[-0.5]]}], TOKENIZER)[0]
    assert "behavior_logp" not in TrajectoryDataset(TRAJECTORIES, TOKENIZER)[0]


@pytest.mark.parametrize(
    ("trajectory", "message"),
    [
        ({"problem": "x", "solutions": ["a"], "rewards": [1]}, "trajectory 0 has no 'workflow_codes'; it has problem"),
        ({"problem": "x", "workflow_codes": ["a", "b"], "rewards": [1]}, "2 workflow_codes but 1 rewards"),
        ({"problem": "x", "workflow_codes": ["a"], "rewards": [float("nan")]}, "a reward of nan"),
        ({"problem": "x", "workflow_codes": ["a"], "rewards": [1], "token_ids": [[1], [2]]}, "but 2 token_ids"),
    ],
)
def test_a_trajectory_that_does_not_fit_together_is_named(trajectory: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        TrajectoryDataset([trajectory], TOKENIZER)


def test_a_tokenizer_without_pad_token_is_fine_and_length_one_is_not() -> None:
    bare = character_tokenizer()
    bare.pad_token = None
    dataset = TrajectoryDataset(TRAJECTORIES, bare)
    assert dataset.collate([dataset[0], dataset[2]])["input_ids"][1, -1] == 0
    with pytest.raises(ContractError, match="max_length is 1 and must be at least 2"):
        TrajectoryDataset(TRAJECTORIES, TOKENIZER, max_length=1)


def test_a_step_makes_the_good_answer_likelier_and_the_bad_one_less_likely() -> None:
    """The whole way of the document: dataset, advantages, loss, step."""
    model, tokenizer = tiny_model()
    trajectory = {"problem": "2+2=?", "workflow_codes": ["return 4", "import os"], "rewards": [1.0, 0.0]}
    dataset = TrajectoryDataset([trajectory], tokenizer)
    (batch,) = DataLoader(dataset, batch_size=2, collate_fn=dataset.collate)

    def likelihoods() -> torch.Tensor:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].mT, batch["labels"][:, 1:], reduction="none")
        return -loss.sum(1)

    before = likelihoods().detach()
    mask = batch["response_mask"]
    advantages = compute_grpo_advantages(batch["reward"], mask, batch["group_id"])
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    compute_grpo_loss(logits, batch["input_ids"], mask, advantages)["loss"].backward()
    torch.optim.SGD(model.parameters(), lr=0.02).step()
    after = likelihoods().detach()
    assert after[0] > before[0]
    assert after[1] < before[1]
