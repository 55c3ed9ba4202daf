"""Problems and the answers found for them, as rows of tokens to learn from.

    trajectories → one sample per answer → input_ids, response_mask, labels, reward, group_id → collate → a batch

Departures from the usual way, which tokenises prompt and answer as one text padded to `max_length`:
- prompt and answer are tokenised apart, so the mask begins exactly where the answer does;
- an answer made from text ends with the end-of-text token, which is learned too;
- a row that is too long loses the front of its prompt, never the end of its answer;
- rows are padded by `collate`, and only as far as the longest of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from groupwise.errors import ContractError

TEMPLATE = "Generate a workflow to solve this problem:\n{problem}\n\nWorkflow:"
IGNORED = -100  # the label that cross-entropy leaves out


@dataclass(frozen=True, slots=True)
class TrajectorySample:
    """One answer to a problem, what it earned, and the tokens it was sampled as, if they are known."""

    problem: str
    workflow_code: str
    reward: float
    group_id: int
    token_ids: tuple[int, ...] | None = None
    behavior_logp: tuple[float, ...] | None = None


class TrajectoryDataset(Dataset[dict[str, Tensor]]):
    """Every answer of every trajectory as its own sample.

    Args:
      trajectories: tables with `problem` (text), `workflow_codes` (texts) and `rewards` (one per text); perhaps
        `problem_id` (what makes a group; the trajectory's number unless given), `token_ids` (per text, the tokens as
        they were sampled, so that they are not made again) and `behavior_logp` (per text, their log-probabilities
        when sampled).
      tokenizer: a Hugging Face tokenizer.
      max_length: longest row, prompt and answer together.
      template: the prompt; `{problem}` stands for the problem.
    """

    def __init__(
        self,
        trajectories: Sequence[Mapping[str, Any]],
        tokenizer: Any,
        max_length: int = 2048,
        *,
        template: str = TEMPLATE,
    ) -> None:
        if max_length < 2:
            raise ContractError(f"max_length is {max_length} and must be at least 2: one token before an answer of one")
        self.tokenizer, self.max_length, self.template = tokenizer, max_length, template
        groups: dict[Hashable, int] = {}
        self.samples: list[TrajectorySample] = []
        for number, trajectory in enumerate(trajectories):
            group = groups.setdefault(trajectory.get("problem_id", ("number", number)), len(groups))
            self.samples.extend(_samples(trajectory, number, group))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """The tokens [T] of prompt and answer; `response_mask` is true, and `labels` are set, on the answer's.

        `behavior_logp` [T] is there where the sample has it, 0 outside the answer. An answer that does not fit is
        cut, and then has no end-of-text token: it did not end there.
        """
        sample = self.samples[index]
        prompt, answer = self._tokens(index, sample)
        ids = torch.tensor(prompt + answer)
        mask = torch.arange(len(ids)) >= len(prompt)
        row = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "response_mask": mask,
            "labels": ids.masked_fill(~mask, IGNORED),
            "reward": torch.tensor(sample.reward),
            "group_id": torch.tensor(sample.group_id),
        }
        if sample.behavior_logp is not None:
            row["behavior_logp"] = torch.zeros(len(ids))
            row["behavior_logp"][len(prompt) :] = torch.tensor(sample.behavior_logp[: len(answer)])
        return row

    def collate(self, rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Rows as a batch [B, T], padded behind; give it to a `DataLoader` as `collate_fn`."""
        pad = self.tokenizer.pad_token_id
        fill = {"input_ids": 0 if pad is None else pad, "labels": IGNORED}
        width = max(len(row["input_ids"]) for row in rows)
        names = [name for name in rows[0] if all(name in row for row in rows)]
        return {name: torch.stack([_padded(row[name], width, fill.get(name, 0)) for row in rows]) for name in names}

    def _tokens(self, index: int, sample: TrajectorySample) -> tuple[list[int], list[int]]:
        text = self.template.replace("{problem}", sample.problem) + "\n"
        prompt = self.tokenizer.encode(text, add_special_tokens=True)
        end = self.tokenizer.eos_token_id
        if end is not None and prompt[-1:] == [end]:  # some tokenizers close every text
            prompt = prompt[:-1]
        whole = self._answer(sample)
        if sample.behavior_logp is not None and len(sample.behavior_logp) != len(whole):
            raise ContractError(
                f"sample {index} has {len(sample.behavior_logp)} log-probabilities for {len(whole)} tokens",
                hint="Give token_ids too: the tokens as they were sampled.",
            )
        answer = whole[: self.max_length - 1]
        return prompt[-(self.max_length - len(answer)) :], answer

    def _answer(self, sample: TrajectorySample) -> list[int]:
        """The answer's tokens: as they were sampled, or made from its text and ended."""
        if sample.token_ids is not None:
            return list(sample.token_ids)
        ids: list[int] = self.tokenizer.encode(sample.workflow_code, add_special_tokens=False)
        end = self.tokenizer.eos_token_id
        sampled = None if sample.behavior_logp is None else len(sample.behavior_logp)
        return ids if end is None or sampled == len(ids) else [*ids, end]


def _samples(trajectory: Mapping[str, Any], number: int, group: int) -> Iterator[TrajectorySample]:
    missing = [name for name in ("problem", "workflow_codes", "rewards") if name not in trajectory]
    if missing:
        raise ContractError(f"trajectory {number} has no {missing[0]!r}; it has {', '.join(map(str, trajectory))}")
    codes = trajectory["workflow_codes"]
    columns = {name: trajectory.get(name) or [None] * len(codes) for name in ("token_ids", "behavior_logp")}
    for name, values in {"rewards": trajectory["rewards"], **columns}.items():
        if len(values) != len(codes):
            raise ContractError(f"trajectory {number} has {len(codes)} workflow_codes but {len(values)} {name}")
    for code, reward, ids, logp in zip(codes, trajectory["rewards"], *columns.values(), strict=True):
        if not math.isfinite(reward):
            raise ContractError(f"trajectory {number} has a reward of {reward}; leave failed attempts out")
        yield TrajectorySample(str(trajectory["problem"]), code, float(reward), group, _tuple(ids), _tuple(logp))


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(getattr(values, "tolist", lambda: values)())


def _padded(values: Tensor, width: int, fill: int) -> Tensor:
    if values.dim() == 0:
        return values
    return torch.cat([values, values.new_full((width - len(values),), fill)])
