"""From logits to the log-probability and entropy of sampled tokens. Logits at t − 1 predict token t."""

from __future__ import annotations

from torch import Tensor

from groupwise.core.shapes import at_least_float32, check_positive, check_rank, check_shape


def _predictions(logits: Tensor, temperature: float) -> Tensor:
    check_rank("logits", logits, 3)
    check_positive("temperature", temperature)
    return at_least_float32(logits[:, :-1]) / temperature


def token_logp(logits: Tensor, input_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-probability of every token but the first, which nothing predicts.

    logp[:, t − 1] = log softmax(logits[:, t − 1] / τ)[input_ids[:, t]],  t = 1 … T − 1.

    Args:
      logits: [B, T, V], a causal model's output for `input_ids`.
      input_ids: [B, T].
      temperature: τ, that of sampling, so that the ratio to the recorded log-probabilities is 1 on policy.

    Returns:
      [B, T − 1], in line with `input_ids[:, 1:]` and with a mask shifted as `mask[:, 1:]`.
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
      [B, T − 1], in nats, in line with `token_logp`.
    """
    logp = _predictions(logits, temperature).log_softmax(-1)
    # A token ruled out by a logit of −inf adds nothing: p log p is 0 there, and not NaN.
    return -(logp.exp() * logp.masked_fill(logp.isneginf(), 0.0)).sum(-1)
