"""Language-model names of the seed documents: `TrajectoryDataset` and `ValueFunction`.

`TrajectoryDataset` turns problems and the answers found for them into rows of tokens to learn from:

    trajectories → one sample per answer → input_ids, response_mask, labels, reward, group_id → collate → a batch

Departures from the usual way, which tokenises prompt and answer as one text padded to `max_length`:
- prompt and answer are tokenised separately, so the mask begins exactly where the answer does;
- an answer made from text ends with the end-of-text token, which is learned too;
- a row that is too long loses the front of its prompt, never the end of its answer;
- `collate` pads the rows, and only to the longest of a batch.

`ValueFunction` is a value head on a causal language model, and its training:

    model → last hidden states [B, T, H] → ValueHead → values [B, T] → GAE
"""

import inspect
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from groupwise import core
from groupwise.compat.core import compute_grpo_advantages
from groupwise.core import Baseline, Gae
from groupwise.errors import ContractError
from groupwise.language.policy import ValueHead

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
            raise ContractError(f"max_length is {max_length} and must be at least 2, prompt and answer together")
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
        """Pad rows on the right into a batch [B, T]; pass this to a `DataLoader` as `collate_fn`."""
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
            message = f"sample {index} has {len(sample.behavior_logp)} log-probabilities for {len(whole)} tokens"
            raise ContractError(message, hint="Also pass token_ids, the tokens as they were sampled.")
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


class ValueFunction:
    """Values of a language model's prefixes, advantages from them, and the training of the head.

    Args:
      model: a Hugging Face causal language model. It is read, never changed: only the head is trained.
      gamma: discount per token.
      gae_lambda: λ of GAE.
      dropout: of the head, while it is trained.
      learning_rate: of the head.
      value_clip: bound on how far an update may move a value from where it stood; None for no bound.
      max_grad_norm: bound on the norm of the head's gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        *,
        dropout: float = 0.1,
        learning_rate: float = 1e-3,
        value_clip: float | None = None,
        max_grad_norm: float = 1.0,
    ) -> None:
        self.model, self.gamma, self.gae_lambda = model, gamma, gae_lambda
        self.value_clip, self.max_grad_norm = value_clip, max_grad_norm
        self.head = ValueHead(_hidden_size(model), dropout).to(next(model.parameters()).device).eval()
        self.optimizer = torch.optim.Adam(self.head.parameters(), lr=learning_rate)

    def compute_values(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """V of every prefix, [B, T]: values[:, t] has seen the tokens up to and including t.

        A token sampled at t was chosen in the state ending at t − 1, so its V(s) is values[:, t − 1]. The
        gradient reaches the head and stops before the model.
        """
        values: Tensor = self.head(self._hidden_states(input_ids, attention_mask))
        return values

    def compute_gae(
        self,
        rewards: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        terminated: Tensor | None = None,
        bootstrap: Tensor | None = None,
    ) -> Gae:
        """GAE of token rewards [B, T] and values [B, T], both in line with the sampled tokens.

        Args:
          rewards, values: [B, T].
          mask: [B, T], the sampled tokens; None for all.
          terminated: [B] bool, the rows that ended by themselves; None for all. The others were cut.
          bootstrap: [B], the value after the last token of a row that was cut; needed where there is one.
        """
        inside = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask.bool()
        ended = inside.new_ones(inside.shape[0]) if terminated is None else terminated.bool()
        if bootstrap is None:
            if not ended.all():
                raise ValueError("a row was truncated; pass `bootstrap`, the values after the last tokens")
            bootstrap = values.new_zeros(values.shape[0])
        last = inside & (inside.flip(1).cumsum(1).flip(1) == 1)
        return core.gae(
            rewards, values, bootstrap, terminated=last & ended.unsqueeze(1), truncated=last & ~ended.unsqueeze(1),
            mask=inside, gamma=self.gamma, lam=self.gae_lambda,
        )  # fmt: skip

    def compute_grpo_advantages(self, group_rewards: Sequence[float], baseline_type: Baseline = "group_mean") -> Tensor:
        """The advantages of one group [n], which need no value head; see `compat.core.compute_grpo_advantages`."""
        return compute_grpo_advantages(group_rewards=group_rewards, baseline_type=baseline_type)

    def update_value_function(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        returns: Tensor,
        mask: Tensor | None = None,
        *,
        steps: int = 1,
    ) -> dict[str, float]:
        """Takes `steps` optimizer steps of the head towards `returns` [B, T], in line with `compute_values`.

        Args:
          input_ids, attention_mask: [B, T].
          returns: [B, T], the targets.
          mask: [B, T], the positions to learn; None for those of the attention mask, or all.
          steps: full passes over the batch. The hidden states are computed once.

        Returns:
          "value_loss_before", "value_loss" and "explained_variance" (after), measured without dropout.
        """
        wanted = attention_mask if mask is None else mask
        inside = torch.ones_like(input_ids).bool() if wanted is None else wanted.bool()
        denominator = float(max(int(inside.sum()), 1))
        hidden = self._hidden_states(input_ids, attention_mask)
        with torch.no_grad():
            before: Tensor = self.head(hidden)
        self.head.train()
        for _ in range(steps):
            bounds: dict[str, Any] = {"old_values": before, "value_clip": self.value_clip}
            loss = core.value_loss(self.head(hidden), returns, inside, denominator=denominator, **bounds)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.head.parameters(), self.max_grad_norm)
            self.optimizer.step()
        self.head.eval()
        with torch.no_grad():
            after: Tensor = self.head(hidden)
        return {
            "value_loss_before": float(core.value_loss(before, returns, inside, denominator=denominator)),
            "value_loss": float(core.value_loss(after, returns, inside, denominator=denominator)),
            "explained_variance": float(core.explained_variance(after, returns, inside)),
        }

    @torch.no_grad()
    def _hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        inputs = {"input_ids": input_ids}
        if attention_mask is not None:
            inputs["attention_mask"] = attention_mask
            # Not every model derives positions from the mask; without them left padding would shift the text.
            if _takes_positions(self.model):
                inputs["position_ids"] = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        hidden: Tensor = self.model(**inputs, output_hidden_states=True).hidden_states[-1]
        return hidden


def create_value_function(model: nn.Module, gamma: float = 0.99, gae_lambda: float = 0.95) -> ValueFunction:
    """A `ValueFunction` with the usual settings."""
    return ValueFunction(model, gamma, gae_lambda)


def _takes_positions(model: nn.Module) -> bool:
    get_base_model = getattr(model, "get_base_model", None)
    inner = model if get_base_model is None else get_base_model()  # an adapter's forward is only *args, **kwargs
    return "position_ids" in inspect.signature(inner.forward).parameters


def _hidden_size(model: nn.Module) -> int:
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = getattr(text, "hidden_size", None)
    if not isinstance(size, int):
        raise ValueError(f"{type(model).__name__} has no config.hidden_size; pass a Hugging Face language model")
    return size
