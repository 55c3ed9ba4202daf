"""The two halves of a causal language model: the decoder that makes hidden states, and the head over them.

Log-probabilities without [B, T, V] need the head's weights rather than its output. Whether weights, bias, scale
and soft cap were read rightly is not believed but tried: on a few tokens the model's own logits must come out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.language.logprobs import LogitRule, logits_of, logprobs_of_logits, token_logprobs

logger = logging.getLogger(__name__)

MULTIPLIERS = ("logit_scale", "lm_head_multiplier")
DIVISORS = ("logits_scaling",)
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap")


@dataclass(frozen=True, slots=True)
class LinearHead:
    """A head that is a matrix, perhaps with a bias, a scale or a soft cap: the usual one."""

    decoder: Any
    linear: nn.Linear
    rule: LogitRule

    def hidden(self, ids: Tensor) -> Tensor:
        states: Tensor = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def logprobs(self, hidden: Tensor, tokens: Tensor, chunk_bytes: int | None) -> tuple[Tensor, Tensor]:
        return token_logprobs(
            hidden, self.linear.weight, tokens, bias=self.linear.bias, rule=self.rule, chunk_bytes=chunk_bytes
        )


def base_model(model: Any) -> Any:
    """The Hugging Face model itself, below an adapter if there is one; the adapter's layers stay in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def find_head(model: Any, temperature: float = 1.0) -> LinearHead | None:
    """The model's head as a matrix; None, with a notice, where it is something else."""
    inner = base_model(model)
    linear = inner.get_output_embeddings()
    if type(linear) is nn.Linear:
        head = LinearHead(inner.base_model, linear, _rule(inner.config.get_text_config()))
        if _agrees(inner, head):
            return replace(head, rule=replace(head.rule, temperature=temperature))
    logger.warning(
        "the output head of %s is not a plain linear layer: its full logits are computed, which takes more memory",
        type(inner).__name__,
    )
    return None


def full_logprobs(
    model: Any, ids: Tensor, places: tuple[Tensor, Tensor], tokens: Tensor, temperature: float, chunk_bytes: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """For any other head: log-probabilities, entropies [N] and hidden states [N, H] from the model's own logits."""
    seen = model(input_ids=ids, use_cache=False, output_hidden_states=True)
    logp, entropy = logprobs_of_logits(seen.logits[places], tokens, temperature=temperature, chunk_bytes=chunk_bytes)
    return logp, entropy, seen.hidden_states[-1][places]


def _rule(config: Any) -> LogitRule:
    scale = 1.0
    for name in MULTIPLIERS:
        scale *= getattr(config, name, None) or 1.0
    for name in DIVISORS:
        scale /= getattr(config, name, None) or 1.0
    caps = [cap for cap in (getattr(config, name, None) for name in SOFT_CAPS) if cap]
    return LogitRule(scale=scale, softcap=caps[0] if caps else None)


@torch.no_grad()
def _agrees(model: Any, head: LinearHead) -> bool:
    weight = head.linear.weight
    ids = torch.arange(min(4, weight.shape[0]), device=weight.device)[None]
    wanted = model(input_ids=ids, use_cache=False).logits[0].float()
    hidden = head.hidden(ids)[0]
    if hidden.shape[-1] != weight.shape[1]:
        return False
    found = logits_of(hidden, weight, head.linear.bias, head.rule).float()
    tolerance = 1e-3 if weight.dtype in (torch.float32, torch.float64) else 5e-2
    return found.shape == wanted.shape and bool((found - wanted).abs().max() <= tolerance * wanted.abs().max())
