"""Log-probability and entropy of given tokens, from hidden states and the output embedding.

    z = softcap(scale · (W h + b)) / temperature      logp = z[y] − log Σ exp z      entropy = log Σ exp z − Σ p z

With a vocabulary of 150,000 the logits of a batch need more memory than the model. Here they exist for a chunk of
tokens at a time, in the forward pass and again, recomputed, in the backward pass; a chunk has a fixed number of bytes,
so the peak does not grow with the vocabulary. Only the hidden states of wanted tokens come in: prompts and padding
cost no matrix product.

This needs the weights of the model's head rather than its output. Whether weight, bias, scale and soft cap were read
correctly is tried, not assumed: on a few tokens they must give the model's own logits.
"""

import functools
import importlib
import logging
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from groupwise.language.triton_support import why_no_triton

# A GPU needs larger chunks to be busy.
CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}


@dataclass(frozen=True, slots=True)
class LogitRule:
    """What turns `W h + b` into the model's logits, and the temperature of sampling."""

    temperature: float = 1.0
    scale: float = 1.0
    softcap: float | None = None


def token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    tokens: Tensor,
    *,
    bias: Tensor | None = None,
    rule: LogitRule | None = None,
    chunk_bytes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The log-probability [N] of `tokens` and the entropy [N] of the distributions they were sampled from.

    Args:
      hidden: [N, H], the last hidden state before each token.
      weight: [V, H], the output embedding. Gradients reach it (a second time if it is tied), `bias` and `hidden`.
      tokens: [N].
      bias: [V] or None.
      rule: scale, soft cap and temperature; None for plain logits.
      chunk_bytes: the most that the logits of a chunk may take. The backward pass needs two such chunks.

    Returns:
      Both in float32 (float64 for float64 hidden states). Matrix products run in the autocast type if there is
      one, else in the type of `weight`; everything after them runs in float32.
    """
    chunk = _chunk(weight.shape[0], hidden.device.type, chunk_bytes)
    pair: tuple[Tensor, Tensor] = _ChunkedLogProbs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, tokens, rule or LogitRule(), chunk, _product_type(weight)
    )
    return pair


def logprobs_of_logits(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, chunk_bytes: int | None = None
) -> tuple[Tensor, Tensor]:
    """The same from logits [N, V] that only the model can compute; float32 copies exist for one chunk at a time."""
    chunk = _chunk(logits.shape[1], logits.device.type, chunk_bytes)
    parts = zip(logits.split(chunk), tokens.split(chunk), strict=True)
    pairs = [checkpoint(_plain, z, y, temperature, use_reentrant=False) for z, y in parts]
    logp, entropy = zip(*pairs, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def logits_of(hidden: Tensor, weight: Tensor, bias: Tensor | None = None, rule: LogitRule | None = None) -> Tensor:
    """The logits [N, V] themselves, at temperature 1: for a few tokens."""
    rule = rule or LogitRule()
    plain = LogitRule(1.0, rule.scale, rule.softcap)
    return _logits(hidden.to(_product_type(weight)), weight, bias, plain, _product_type(weight))


def _plain(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    full = torch.log_softmax(_full(logits) / temperature, dim=-1)
    return full.gather(1, tokens[:, None]).squeeze(1), -(full.exp() * full).sum(-1)


class _ChunkedLogProbs(torch.autograd.Function):
    """Saves two numbers per token, log Σ exp z and the entropy; the backward pass recomputes the logits of each chunk.

    ∂logp/∂z = onehot(y) − p and ∂entropy/∂z = −p (log p + entropy).

    Below a frozen head, ∂logp/∂hidden is saved too: it costs one product while the logits are there, and unless the
    entropy has a gradient, the backward pass needs no logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        rule: LogitRule,
        chunk: int,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        # Rows: logp, entropy, log Σ exp z.
        total = _full(hidden[:0]).new_empty(3, hidden.shape[0])
        head = _Head(weight.detach().to(dtype), bias, rule, dtype)
        frozen = ctx.needs_input_grad[0] and not any(ctx.needs_input_grad[1:3])
        slope = torch.empty_like(hidden, dtype=dtype) if frozen else None
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                here = slice(start, start + chunk)
                z = head.logits(hidden[here])
                total[:, here] = head.measure(z, tokens[here], again=frozen)
                if slope is not None:
                    one = torch.ones_like(total[0, here])
                    dz = head.gradient(z, tokens[here], total[1, here], total[2, here], one, None)
                    slope[here] = dz.to(dtype) @ head.weight
                    del dz
                # Free this chunk before the next one is made.
                del z
        ctx.save_for_backward(hidden, weight, bias, tokens, total[1], total[2], slope)
        ctx.rule, ctx.chunk, ctx.dtype = rule, chunk, dtype
        return total[0].clone(), total[1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, entropy, normaliser, slope = ctx.saved_tensors
        grad_logp = torch.zeros_like(entropy) if grad_logp is None else grad_logp
        if slope is not None and grad_entropy is None:
            return (slope * grad_logp[:, None]).to(hidden.dtype), *[None] * 6
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        d_hidden = torch.empty_like(hidden) if for_hidden else None
        d_weight = torch.zeros_like(weight, dtype=entropy.dtype) if for_weight else None
        d_bias = torch.zeros_like(bias, dtype=entropy.dtype) if for_bias else None
        head = _Head(weight.detach().to(ctx.dtype), bias, ctx.rule, ctx.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], ctx.chunk):
                here = slice(start, start + ctx.chunk)
                dz = head.gradient(
                    head.logits(hidden[here]), tokens[here], entropy[here], normaliser[here], grad_logp[here],
                    None if grad_entropy is None else grad_entropy[here],
                )  # fmt: skip
                if d_bias is not None:
                    d_bias += dz.sum(0, dtype=d_bias.dtype)
                # The products below run in the model's type.
                dz = dz.to(ctx.dtype)
                if d_hidden is not None:
                    d_hidden[here] = dz @ head.weight
                if d_weight is not None:
                    _add_product(d_weight, dz.T, hidden[here].to(ctx.dtype))
                del dz
        return (
            d_hidden,
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None else d_bias.to(bias.dtype),
            None, None, None, None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Head:
    """What is done with the logits of one chunk: by Triton's kernels where they run, else by torch."""

    weight: Tensor
    bias: Tensor | None
    rule: LogitRule
    dtype: torch.dtype

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [n, V], which `measure` and `gradient` read; by kernels, the rule is applied there."""
        if self._kernels is not None:
            return _product(hidden.to(self.dtype), self.weight)
        return _logits(hidden, self.weight, self.bias, self.rule, self.dtype)

    def measure(self, z: Tensor, tokens: Tensor, again: bool) -> Tensor:
        """Log-probabilities, entropies and log Σ exp z, [3, n]; overwrites `z` if it is not needed again."""
        out = torch.empty(3, len(z), dtype=z.dtype, device=z.device)
        if self._kernels is None:
            _measure(z.clone() if again else z, tokens, out)
        else:
            self._kernels.measure(z, self.bias, tokens, out, self._kernel_rule)
        return out

    def gradient(
        self, z: Tensor, tokens: Tensor, entropy: Tensor, normaliser: Tensor, g_logp: Tensor, g_entropy: Tensor | None
    ) -> Tensor:
        """The gradient with respect to `W h + b`, [n, V]; may overwrite `z`. A bias gets its own in full precision."""
        if self._kernels is None:
            g_entropy = torch.zeros_like(g_logp) if g_entropy is None else g_entropy
            return _logit_gradient(z, tokens, entropy, normaliser, g_logp, g_entropy, self.rule)
        dtype = self.dtype if self.bias is None else z.dtype
        return self._kernels.gradient(  # type: ignore[no-any-return]
            z, self.bias, tokens, entropy, normaliser, g_logp, g_entropy, self._kernel_rule, dtype
        )

    @property
    def _kernels(self) -> Any:
        return _kernels_for(self.weight.device) if self.dtype != torch.float64 else None

    @property
    def _kernel_rule(self) -> tuple[float, float | None, float]:
        return self.rule.scale, self.rule.softcap, self.rule.temperature


@functools.cache
def _kernels_for(device: torch.device) -> Any:
    """The module of kernels over logits; None where they cannot run. It needs Triton even to be imported."""
    if why_no_triton(device) is not None:
        return None
    return importlib.import_module("groupwise.language.fused.head_kernels")


def _measure(z: Tensor, tokens: Tensor, out: Tensor) -> None:
    """Write log-probabilities, entropies and log Σ exp z to `out` [3, n]; `z` [n, V] is overwritten."""
    # With the maximum subtracted, every exponential is at most 1 and their sum at least 1.
    top = z.amax(-1, keepdim=True)
    z -= top
    chosen = z.gather(1, tokens[:, None]).squeeze(1)
    mass = z.exp()
    total = mass.sum(-1)
    out[0] = chosen - total.log()
    out[1] = total.log() - mass.mul_(z).sum(-1) / total
    out[2] = total.log() + top.squeeze(1)


def _logit_gradient(
    z: Tensor, tokens: Tensor, entropy: Tensor, normaliser: Tensor, g_logp: Tensor, g_entropy: Tensor, rule: LogitRule
) -> Tensor:
    """The gradient with respect to `W h + b` from the logits `z`, which it overwrites."""
    factor = rule.scale / rule.temperature
    slope = None
    if rule.softcap is not None:
        # z = cap · tanh(u) / temperature, so the derivative of tanh, 1 − tanh², comes from z itself.
        slope = 1 - (z * (rule.temperature / rule.softcap)).square_()
    # dz = −p (g_logp + g_entropy (log p + entropy)), plus g_logp at the sampled token.
    z -= normaliser[:, None]
    dz = z.exp().neg_()
    dz *= z.add_(entropy[:, None]).mul_(g_entropy[:, None]).add_(g_logp[:, None])
    dz.scatter_add_(1, tokens[:, None], g_logp[:, None])
    if slope is not None:
        dz *= slope
    return dz if factor == 1.0 else dz.mul_(factor)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, rule: LogitRule, dtype: torch.dtype) -> Tensor:
    """The logits of a chunk, at least in float32, divided by the temperature."""
    z = _product(hidden.to(dtype), weight)
    if bias is not None:
        z += bias
    if rule.softcap is not None:
        return z.mul_(rule.scale / rule.softcap).tanh_().mul_(rule.softcap / rule.temperature)
    factor = rule.scale / rule.temperature
    return z if factor == 1.0 else z.mul_(factor)


def _product(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden weightᵀ with a float32 result: half-precision logits would be off by several hundredths."""
    if hidden.dtype in (torch.float32, torch.float64):
        return hidden @ weight.T
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return (hidden @ weight.T).float()


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, with `total` at least in float32."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    elif left.is_cuda:
        torch.ops.aten.addmm.dtype_out(total, left, right, total.dtype, out=total)
    else:
        total += left @ right


def _chunk(vocabulary: int, device: str, chunk_bytes: int | None) -> int:
    return max(1, (chunk_bytes or CHUNK_BYTES.get(device, CHUNK_BYTES["cuda"])) // (4 * vocabulary))


def _product_type(weight: Tensor) -> torch.dtype:
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype


def _full(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


logger = logging.getLogger(__name__)

MULTIPLIERS = ("logit_scale", "lm_head_multiplier")
DIVISORS = ("logits_scaling",)
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap")


@dataclass(frozen=True, slots=True)
class LinearHead:
    """The usual head: a matrix, perhaps with a bias, a scale or a soft cap."""

    decoder: Any
    linear: nn.Linear
    rule: LogitRule

    def hidden(self, ids: Tensor) -> Tensor:
        states: Tensor = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def logprobs(self, hidden: Tensor, tokens: Tensor, chunk_bytes: int | None) -> tuple[Tensor, Tensor]:
        weight, bias = self.linear.weight, self.linear.bias
        return token_logprobs(hidden, weight, tokens, bias=bias, rule=self.rule, chunk_bytes=chunk_bytes)


def base_model(model: Any) -> Any:
    """The Hugging Face model itself, without the adapter's wrapper; the adapter's layers stay in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def find_head(model: Any, temperature: float = 1.0) -> LinearHead | None:
    """The model's head as a matrix; None, with a warning, if it is something else."""
    inner = base_model(model)
    linear = inner.get_output_embeddings()
    if type(linear) is nn.Linear:
        head = LinearHead(inner.base_model, linear, _rule(inner.config.get_text_config()))
        if _agrees(inner, head):
            return replace(head, rule=replace(head.rule, temperature=temperature))
    words = "the output head of %s is not a plain linear layer; computing its full logits takes more memory"
    logger.warning(words, type(inner).__name__)
    return None


def full_logprobs(
    model: Any, ids: Tensor, places: tuple[Tensor, Tensor], tokens: Tensor, temperature: float, chunk_bytes: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """For any other head: log-probabilities and entropies [N] and hidden states [N, H], from the model's own logits."""
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
    # Some models project once more between decoder and head.
    if hidden.shape[-1] != weight.shape[1]:
        return False
    found = logits_of(hidden, weight, head.linear.bias, head.rule).float()
    tolerance = 1e-3 if weight.dtype in (torch.float32, torch.float64) else 5e-2
    return found.shape == wanted.shape and bool((found - wanted).abs().max() <= tolerance * wanted.abs().max())
