"""The table of policy losses: what makes one differ from another, and the denominator each divides by."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from torch import Tensor

from groupwise.core.shapes import check_choice, check_positive, check_rank
from groupwise.core.surrogates import ImportanceLevel, Surrogate, cispo, clipped, sapo, vespo

Aggregation: TypeAlias = Literal["mean_of_means", "tokens", "sequences", "fixed_length"]


@dataclass(frozen=True, slots=True)
class LossRule:
    """What makes one loss differ from another.

    surrogate: the function of the sampled tokens; its keyword arguments are the loss's own parameters.
    aggregation: "mean_of_means" averages the tokens of a sequence, then the sequences; "tokens" averages all
    tokens; "sequences" sums the tokens of a sequence and averages the sequences; "fixed_length" divides the
    sum of all tokens by sequences × the longest length allowed.
    """

    surrogate: Callable[..., Surrogate]
    importance: ImportanceLevel
    aggregation: Aggregation
    paper: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the loss's own parameters."""
        return tuple(inspect.signature(self.surrogate).parameters)[1:]


# TRL calls the clipped surrogate averaged over all tokens of a batch BNPO (arXiv 2506.02864): it is DAPO's loss.
_DAPO = LossRule(clipped, "token", "tokens", "DAPO, arXiv 2503.14476")

LOSSES: Mapping[str, LossRule] = MappingProxyType(
    {
        "grpo": LossRule(clipped, "token", "mean_of_means", "DeepSeekMath, arXiv 2402.03300"),
        "bnpo": _DAPO,
        "dapo": _DAPO,
        "dr_grpo": LossRule(clipped, "token", "fixed_length", "Dr. GRPO, arXiv 2503.20783"),
        "gspo": LossRule(clipped, "sequence", "mean_of_means", "GSPO, arXiv 2507.18071"),
        "luspo": LossRule(clipped, "sequence", "sequences", "LUSPO, arXiv 2602.05261"),
        "cispo": LossRule(cispo, "token", "tokens", "MiniMax-M1, arXiv 2506.13585"),
        "sapo": LossRule(sapo, "token", "mean_of_means", "SAPO, arXiv 2511.20347"),
        "vespo": LossRule(vespo, "token", "tokens", "VESPO, arXiv 2602.10693"),
    }
)


def loss_rule(loss_type: str) -> LossRule:
    """The rule of that name; a `ValueError` that lists all names if there is none."""
    check_choice("loss_type", loss_type, LOSSES)
    return LOSSES[loss_type]


def loss_denominator(loss_type: str, mask: Tensor, *, max_length: int | None = None) -> float:
    """What `policy_loss` divides by, counted on the mask of the WHOLE batch, before it is split.

    grpo, gspo, sapo, luspo: sequences.  bnpo, dapo, cispo, vespo: tokens.  dr_grpo: sequences × max_length.

    Args:
      mask: [B, T]. Rows without a token count as sequences, so that leaving out an attempt does not
        make the step of the others larger.
      max_length: the longest sequence allowed, for dr_grpo.

    Returns:
      At least 1.
    """
    check_rank("mask", mask, 2)
    aggregation = loss_rule(loss_type).aggregation
    if aggregation == "tokens":
        return float(max(int(mask.bool().sum()), 1))
    if aggregation != "fixed_length":
        return float(max(mask.shape[0], 1))
    if max_length is None:
        raise ValueError(f"{loss_type} divides by the maximum length; pass max_length")
    check_positive("max_length", max_length)
    return float(max(mask.shape[0], 1) * max_length)
