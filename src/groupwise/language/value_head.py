"""A value head on a causal language model: what a prefix is worth, learned from returns.

    model → last hidden states [B, T, H] → ValueHead → values [B, T] → GAE

The mathematics is `groupwise.core`; here are the module, its optimizer and the way to the hidden states.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from groupwise import core
from groupwise.core import Baseline, Gae


class ValueHead(nn.Module):
    """Linear → ReLU → Dropout → Linear: hidden states [B, T, H] to values [B, T].

    The last layer starts small, so that a fresh head says about 0 everywhere and distorts no advantage.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_size, 1)
        nn.init.normal_(self.out.weight, std=1.0 / (hidden_size + 1))
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        inner = self.dropout(torch.relu(self.hidden(hidden_states.to(self.hidden.weight.dtype))))
        values: Tensor = self.out(inner).squeeze(-1)
        return values


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
        self.model = model
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.value_clip = value_clip
        self.max_grad_norm = max_grad_norm
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
                raise ValueError("a row was cut before its end; give bootstrap, the values after the last tokens")
            bootstrap = values.new_zeros(values.shape[0])
        last = inside & (inside.flip(1).cumsum(1).flip(1) == 1)
        return core.gae(
            rewards,
            values,
            bootstrap,
            terminated=last & ended.unsqueeze(1),
            truncated=last & ~ended.unsqueeze(1),
            mask=inside,
            gamma=self.gamma,
            lam=self.gae_lambda,
        )

    def compute_grpo_advantages(self, group_rewards: Sequence[float], baseline_type: Baseline = "group_mean") -> Tensor:
        """The advantages of one group [n], which need no value head; see `core.compute_grpo_advantages`."""
        return core.compute_grpo_advantages(group_rewards=group_rewards, baseline_type=baseline_type)

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
            loss = core.value_loss(
                self.head(hidden),
                returns,
                inside,
                denominator=denominator,
                old_values=before,
                value_clip=self.value_clip,
            )
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
        raise ValueError(f"{type(model).__name__} has no config.hidden_size; give a Hugging Face language model")
    return size
