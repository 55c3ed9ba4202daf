"""Per-token quantities: log-probabilities and entropies from logits, and the masks that select tokens for a loss.

Logits at t − 1 predict token t. A mask never changes a loss's denominator.
"""

import math

import torch
from torch import Tensor

from groupwise.core.shapes import as_columns, at_least_float32, check_positive, check_rank, check_shape

# Entropies that differ by no more than this, or this share of themselves, are taken for equal: norms and kernels round
# to float32, also where the rest is computed in float64.
ROUNDING = 1e-5


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of `values` [B, T] over `mask` [B, T]; 0 if the mask is empty."""
    inside = mask.bool()
    return torch.where(inside, values, 0).sum() / inside.sum().clamp(min=1)


def row_lengths(mask: Tensor) -> Tensor:
    """The number of tokens in each row of `mask` [B, T], as [B, 1]; at least 1, so that one can divide by it."""
    return mask.bool().sum(dim=1, keepdim=True).clamp(min=1)


def top_entropy_mask(entropy: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """True at the share `quantile` of the tokens whose entropy is highest.

    keep_t = H_t >= Q(1 − ρ), where Q is the quantile function of H over the tokens of the mask.
    "Beyond the 80/20 Rule" (arXiv 2506.01939), where ρ = 0.2.

    Args:
      entropy: H, [B, T], of the policy that is being updated. No gradient passes.
      mask: [B, T], the policy's own tokens.
      quantile: ρ in [0, 1]: 1 keeps every token, 0 only the tokens tied for the highest entropy.

    Returns:
      [B, T] bool, false outside `mask`.

    Departures: the threshold is the entropy at rank ⌈(n − 1)(1 − ρ)⌉, not a value interpolated between two
    ranks. Both keep the same tokens; a rank needs no rounding, and torch.quantile has a size limit. Tokens that
    are lower by no more than rounding count as tied: members of a group share the first token's entropy, which
    micro-batches of other sizes round differently.
    """
    check_rank("entropy", entropy, 2)
    check_shape("mask", mask, tuple(entropy.shape))
    if not 0.0 <= quantile <= 1.0:
        raise ValueError(f"quantile is {quantile}; it must lie in [0, 1]")
    inside = mask.bool()
    candidates = entropy.detach()[inside]
    if candidates.numel() == 0:
        return inside
    # 1e-9 below: (n − 1)(1 − ρ) may come out a rounding error above a whole number.
    rank = math.ceil((candidates.numel() - 1) * (1.0 - quantile) - 1e-9)
    threshold = candidates.kthvalue(rank + 1).values
    rounding = ROUNDING * threshold.abs().clamp(min=1.0)
    return inside & (entropy.detach() >= threshold - rounding)


def overlong_mask(truncated: Tensor, mask: Tensor) -> Tensor:
    """True at the tokens of rows that ended on their own, false at rows cut by a length limit.

    "DAPO" (arXiv 2503.14476), section 3.4, overlong filtering: an answer that was cut does not show whether
    it would have been right.

    Args:
      truncated: [B] bool, the rows that were cut.
      mask: [B, T], the policy's own tokens.

    Returns:
      [B, T] bool.

    Departure: given to `policy_loss(keep=…)` the cut rows still count in the denominator and a KL term still
    acts on them; TRL removes them from both.
    """
    check_rank("mask", mask, 2)
    check_shape("truncated", truncated, (mask.shape[0],))
    return mask.bool() & ~truncated.bool().unsqueeze(1)


def off_policy_mask(advantages: Tensor, logp: Tensor, behavior_logp: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """False at rows with a negative advantage from which the policy has moved far away.

    keep_i = A_i >= 0  or  mean_t (log π_b(y_t) − log π(y_t)) <= δ.
    "DeepSeek-V3.2" (arXiv 2512.02556), equation 9.

    Args:
      advantages: A, [B] or [B, T].
      logp: log π, [B, T], under the current policy. No gradient passes.
      behavior_logp: log π_b, [B, T], recorded when sampling. NaN counts as no move.
      mask: [B, T], the policy's own tokens.
      threshold: δ > 0.

    Returns:
      bool, [B, 1] for advantages [B] and [B, T] for advantages [B, T].
    """
    check_rank("logp", logp, 2)
    check_shape("behavior_logp", behavior_logp, tuple(logp.shape))
    check_shape("mask", mask, tuple(logp.shape))
    check_shape("advantages", advantages, tuple(logp.shape), tuple(logp.shape[:1]))
    moved = torch.where(mask.bool(), behavior_logp - logp.detach(), 0).nan_to_num(nan=0.0)
    mean_moved = moved.sum(dim=1, keepdim=True) / row_lengths(mask)
    return (as_columns(advantages) >= 0) | (mean_moved <= threshold)


def _predictions(logits: Tensor, temperature: float) -> Tensor:
    check_rank("logits", logits, 3)
    check_positive("temperature", temperature)
    return at_least_float32(logits[:, :-1]) / temperature


def token_logp(logits: Tensor, input_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-probability of every token but the first, which has no prediction.

    logp[:, t − 1] = log softmax(logits[:, t − 1] / τ)[input_ids[:, t]],  t = 1 … T − 1.

    Args:
      logits: [B, T, V], a causal model's output for `input_ids`.
      input_ids: [B, T].
      temperature: τ, the same as in sampling, so that on policy the ratio to the recorded log-probabilities is 1.

    Returns:
      [B, T − 1], aligned with `input_ids[:, 1:]` and `mask[:, 1:]`.
    """
    scaled = _predictions(logits, temperature)
    check_shape("input_ids", input_ids, tuple(logits.shape[:2]))
    chosen = scaled.gather(-1, input_ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return chosen - scaled.logsumexp(-1)


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Entropy of the distribution that every token but the first was drawn from.

    H[:, t − 1] = −Σ_v p_v log p_v,  p = softmax(logits[:, t − 1] / τ).

    Args:
      logits: [B, T, V].
      temperature: τ, as in `token_logp`.

    Returns:
      [B, T − 1], in nats, aligned with `token_logp`.
    """
    logp = _predictions(logits, temperature).log_softmax(-1)
    # A token ruled out by a logit of −inf adds nothing: p log p is 0 there, not NaN.
    return -(logp.exp() * logp.masked_fill(logp.isneginf(), 0.0)).sum(-1)
