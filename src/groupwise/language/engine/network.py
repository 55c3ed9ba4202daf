"""The forward pass: prompts in one sweep without padding, then one token per row and step.

Both go through the same layers and differ only in attention. `decode` is a pure function of tokens, positions and the
cache, with fixed shapes and without reading from the device: the place to capture a CUDA graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from groupwise.language.engine.cache import Cache
from groupwise.language.engine.families import Architecture, DecoderLayer
from groupwise.language.engine.rotary import RotaryTables, turn
from groupwise.language.engine.weights import Called, Joined, Norm, projection

Attend: TypeAlias = Callable[[int, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Tokens to read into a row of the cache, from position `start` on."""

    row: int
    start: int
    tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PieceBatch:
    """Pieces with equal start and length, which attend together."""

    rows: Tensor
    start: int
    length: int


class NetworkLayer:
    """The modules of a layer, ready to apply."""

    def __init__(self, layer: DecoderLayer, width: int, inner: int, like: Tensor, *, copy: bool) -> None:
        def project(modules: Sequence[nn.Module], inputs: int) -> Joined | Called:
            return projection(modules, inputs, like, copy=copy)

        def norm(module: nn.Module | None) -> Norm | None:
            return None if module is None else Norm(module)

        self.layer = layer
        self.attention_norm = Norm(layer.attention_norm)
        self.qkv = project(layer.qkv, width)
        self.attention_out = project([layer.attention_out], inner)
        self.mlp_in = project(layer.mlp_in, width)
        # Only `_probe` needs the number of inputs, and it is never used without copies.
        inputs = 0 if isinstance(self.mlp_in, Called) else self.mlp_in.outputs // (2 if layer.gated else 1)
        self.mlp_out = project([layer.mlp_out], inputs)
        self.q_norm, self.k_norm, self.mlp_norm = norm(layer.q_norm), norm(layer.k_norm), norm(layer.mlp_norm)
        self.after_attention, self.after_mlp = norm(layer.after_attention), norm(layer.after_mlp)
        if copy:
            fold(self.attention_norm, self.qkv)
            fold(self.mlp_norm, self.mlp_in)

    def pair(self, order: Tensor, a: Architecture) -> None:
        """Reorder queries and keys so that dimensions turned together are neighbours."""
        assert isinstance(self.qkv, Joined)
        heads = torch.arange(a.heads + a.kv_heads, device=order.device)[:, None] * a.head_dim
        rest = torch.arange((a.heads + a.kv_heads) * a.head_dim, self.qkv.outputs, device=order.device)
        self.qkv.reorder(torch.cat(((heads + order).reshape(-1), rest)))
        if self.layer.q_norm is not None and self.layer.k_norm is not None:
            self.q_norm, self.k_norm = Norm(self.layer.q_norm, order), Norm(self.layer.k_norm, order)

    def mlp(self, x: Tensor) -> Tensor:
        inside = self.mlp_in(x)
        if not self.layer.gated:
            return self.layer.activation(inside)
        gate, up = inside.chunk(2, dim=-1)
        return self.layer.activation(gate).mul_(up)


def fold(norm: Norm | None, following: Joined | Called) -> None:
    if norm is not None and isinstance(following, Joined):
        norm.fold_into(following)


class Network:
    """A model's weights as the engine applies them; built again whenever the weights change.

    Activations are [tokens, width]: all tokens of all rows on one axis, without padding.
    """

    reads_shared_prompts = False

    def __init__(self, architecture: Architecture, rotary: RotaryTables | None, *, copy: bool) -> None:
        a = self.architecture = architecture
        like = next(a.embedding.parameters())
        self.dtype, self.device = like.dtype, like.device
        width = like.shape[-1]
        self.rotary = rotary
        self.blocks = [NetworkLayer(layer, width, a.heads * a.head_dim, like, copy=copy) for layer in a.layers]
        if rotary is not None and rotary.paired:
            for block in self.blocks:
                block.pair(rotary.pair_order(a.head_dim).to(self.device), a)
        self.final_norm = Norm(a.final_norm)
        self.head = projection([a.head], width, like, copy=copy)
        if copy:
            fold(self.final_norm, self.head)
        # `baddbmm` wants an addend, even for beta=0.
        self.nothing = torch.zeros(1, dtype=self.dtype, device=self.device)
        self.windows = {layer.window for layer in a.layers}

    def prefill(self, pieces: Sequence[PromptPiece], cache: Cache) -> Tensor:
        """Read tokens into the cache and return the logits [pieces, vocabulary] after each piece's last token."""
        if self.rotary is not None:
            self.rotary.ensure(cache.length)
        order, spans = _piece_batches(pieces, self.device)
        tokens = torch.from_numpy(np.concatenate([pieces[i].tokens for i in order])).to(self.device)
        places = [np.arange(pieces[i].start, pieces[i].start + len(pieces[i].tokens)) for i in order]
        positions = torch.from_numpy(np.concatenate(places)).to(self.device)
        masks = {(w, s): self._mask(span, w) for w in self.windows for s, span in enumerate(spans)}

        def attend(index: int, q: Tensor, kv: Tensor) -> Tensor:
            outputs, at = [], 0
            for number, span in enumerate(spans):
                size = len(span.rows) * span.length
                part = slice(at, at + size)
                mask = masks[self.blocks[index].layer.window, number]
                outputs.append(self._attend_span(index, span, mask, cache, q[part], kv[part]))
                at += size
            return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

        x = self._layers(tokens, positions, attend)
        # The last token of each piece, put back into the order of `pieces`.
        ends = np.cumsum([len(pieces[i].tokens) for i in order]) - 1
        back = np.argsort(order)
        return self._logits(x[torch.from_numpy(ends[back]).to(self.device)])

    def decode(self, tokens: Tensor, positions: Tensor, rows: Tensor, span: int, even: bool, cache: Cache) -> Tensor:
        """One token for the first `len(tokens)` rows of the cache: logits [rows, vocabulary].

        `span` is the number of positions to attend to, more than every position. `even` promises that all rows are at
        position `span - 1`, which saves the mask.
        """
        if self.rotary is not None:
            self.rotary.ensure(cache.length)
        a, count = self.architecture, len(tokens)
        biases = {window: self.bias(positions, span, even, window) for window in self.windows}

        def attend(index: int, q: Tensor, kv: Tensor) -> Tensor:
            if even:
                cache.layers[index][:, :count, :, span - 1] = kv.unflatten(1, (2, -1)).transpose(0, 1)
            else:
                cache.keys[index][rows, :, positions] = kv[:, : a.kv_heads]
                cache.values[index][rows, :, positions] = kv[:, a.kv_heads :]
            layer = self.blocks[index].layer
            return self._attend_rows(q, cache.keys[index], cache.values[index], span, biases[layer.window], layer)

        return self._logits(self._layers(tokens, positions, attend))

    def no_logits(self) -> Tensor:
        return torch.zeros(0, self.architecture.vocabulary, device=self.device)

    def _layers(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        a = self.architecture
        x: Tensor = a.embedding(tokens)
        if a.positions is not None:
            x = x + a.positions(positions)
        angles = {} if self.rotary is None else self.rotary.at(positions)
        for index, block in enumerate(self.blocks):
            h = block.attention_norm(x)
            mixed = self._attention(index, block, h, angles.get(block.layer.rope), attend)
            if block.after_attention is not None:
                x = x + block.after_attention(block.attention_out(mixed))
            else:
                x = block.attention_out.add_to(x, mixed)
            h = h if block.mlp_norm is None else block.mlp_norm(x)
            if block.after_mlp is not None:
                x = x + block.after_mlp(block.mlp_out(block.mlp(h)))
            else:
                x = block.mlp_out.add_to(x, block.mlp(h))
        return x

    def _attention(
        self, index: int, block: NetworkLayer, h: Tensor, angles: tuple[Tensor, ...] | None, attend: Attend
    ) -> Tensor:
        a = self.architecture
        # Heads of queries, then of keys, then of values, side by side.
        qkv = block.qkv(h).view(len(h), a.heads + 2 * a.kv_heads, a.head_dim)
        if block.q_norm is not None and block.k_norm is not None:
            qkv[:, : a.heads] = block.q_norm(qkv[:, : a.heads])
            qkv[:, a.heads : -a.kv_heads] = block.k_norm(qkv[:, a.heads : -a.kv_heads])
        if angles is not None:
            turn(qkv[:, : -a.kv_heads], angles)
        return attend(index, qkv[:, : a.heads], qkv[:, a.heads :])

    def _logits(self, x: Tensor) -> Tensor:
        logits = self.head(self.final_norm(x)).float()
        cap = self.architecture.final_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _attend_rows(
        self, q: Tensor, keys: Tensor, values: Tensor, span: int, bias: Tensor | None, layer: DecoderLayer
    ) -> Tensor:
        """One query per row. Rows and heads are one batch axis, and the cache is read in place."""
        a = self.architecture
        count, batch = len(q), len(q) * a.kv_heads
        # keys [rows, kv_heads, length, head_dim] seen as [rows · kv_heads, head_dim, span]: a row's heads lie
        # `stride` apart, and so do the last head of a row and the first of the next.
        stride = keys.stride(1)
        k = keys.as_strided((batch, a.head_dim, span), (stride, 1, a.head_dim))
        v = values.as_strided((batch, span, a.head_dim), (stride, a.head_dim, 1))
        q = q.reshape(batch, a.heads // a.kv_heads, a.head_dim)
        scores = torch.baddbmm(self.nothing, q, k, beta=0, alpha=layer.scaling)
        if layer.softcap is not None:
            scores = torch.tanh(scores / layer.softcap) * layer.softcap
        if bias is not None:
            scores.view(count, a.heads, span).add_(bias)
        return torch.bmm(_softmax(scores), v).view(count, a.heads * a.head_dim)

    def _attend_span(
        self, index: int, span: PieceBatch, mask: Tensor | None, cache: Cache, q: Tensor, kv: Tensor
    ) -> Tensor:
        layer, stop = self.blocks[index].layer, span.start + span.length
        parts = (q, *kv.chunk(2, dim=1))
        q, k, v = (t.reshape(len(span.rows), span.length, -1, t.shape[-1]).transpose(1, 2) for t in parts)
        cache.keys[index][span.rows, :, span.start : stop] = k
        cache.values[index][span.rows, :, span.start : stop] = v
        # A piece that continues a prompt also attends to what is in the cache already.
        if span.start:
            k, v = cache.keys[index][span.rows, :, :stop], cache.values[index][span.rows, :, :stop]
        if layer.softcap is not None:
            out = _capped_attention(q, k, v, mask, layer)
        else:
            causal = mask is None and span.length > 1
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, scale=layer.scaling, enable_gqa=q.shape[1] != k.shape[1]
            )
        return out.transpose(1, 2).reshape(len(span.rows) * span.length, -1)

    def _mask(self, span: PieceBatch, window: int | None) -> Tensor | None:
        """Which positions the queries of a batch see, [length, stop]; None if plain causal attention is enough."""
        stop = span.start + span.length
        if window is not None and stop <= window:
            window = None
        capped = any(layer.softcap is not None for layer in self.architecture.layers)
        if window is None and not capped and (span.start == 0 or span.length == 1):
            return None
        place = torch.arange(stop, device=self.device)
        seen = place <= place[span.start :, None]
        return seen if window is None else seen & (place > place[span.start :, None] - window)

    def bias(self, positions: Tensor, span: int, even: bool, window: int | None) -> Tensor | None:
        """0 where a row may attend, −inf elsewhere, [rows, 1, span]; None if every row may attend everywhere."""
        if window is not None and span <= window:
            window = None
        if even and window is None:
            return None
        place, at = torch.arange(span, device=self.device), positions[:, None]
        hidden = place > at
        if window is not None:
            hidden |= place <= at - window
        bias = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        return bias.masked_fill_(hidden, float("-inf")).unsqueeze(1)


def _capped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, layer: DecoderLayer) -> Tensor:
    """Attention with Gemma 2's soft cap, which PyTorch's fused kernel does not support."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    assert layer.softcap is not None
    scores = torch.tanh(q @ k.transpose(2, 3) * (layer.scaling / layer.softcap)) * layer.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return _softmax(scores) @ v


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1) if scores.dtype == torch.float32 else scores.softmax(-1, torch.float32).to(scores.dtype)


def _piece_batches(pieces: Sequence[PromptPiece], device: torch.device) -> tuple[list[int], list[PieceBatch]]:
    """The pieces' order with those of equal start and length together, and the batches they form."""
    order = sorted(range(len(pieces)), key=lambda i: (pieces[i].start, len(pieces[i].tokens)))
    spans: list[PieceBatch] = []
    members: list[int] = []
    for place, i in enumerate(order):
        members.append(pieces[i].row)
        shape = pieces[i].start, len(pieces[i].tokens)
        following = pieces[order[place + 1]] if place + 1 < len(order) else None
        if following is None or (following.start, len(following.tokens)) != shape:
            spans.append(PieceBatch(torch.tensor(members, device=device), *shape))
            members = []
    return order, spans
