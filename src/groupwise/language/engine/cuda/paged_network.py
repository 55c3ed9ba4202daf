"""The forward pass on pages: prompts packed by tokens without padding, then one token per row and step.

`decode` reads nothing from the host and always works on the same memory: the step that `captured_steps` records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine.cuda import attention_kernels as attention
from groupwise.language.engine.cuda import layer_kernels as layers
from groupwise.language.engine.cuda import sampling_kernels as sampling
from groupwise.language.engine.cuda.attention_kernels import PAGE
from groupwise.language.engine.cuda.live_weights import LiveMatrix, LiveNorm
from groupwise.language.engine.cuda.row_state import RING, RowState
from groupwise.language.engine.families import Architecture, DecoderLayer
from groupwise.language.engine.rotary import RotaryTables

# Tokens of a prompt that one program of the prompt kernel reads, and query rows of a shared beginning.
TILE, MOST_SHARED = 64, 64


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a captured step is for: rows, parts of a row's attention, and whether groups and truncation play a part."""

    rows: int
    splits: int
    shared: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class SlotPiece:
    """Tokens to read into the pages of a slot, from position `start` on."""

    slot: int
    start: int
    tokens: NDArray[np.int64]


class PagedLayer:
    """A layer's matrices and norms."""

    def __init__(self, layer: DecoderLayer, width: int, inner: int, like: Tensor) -> None:
        self.layer = layer
        self.attention_norm, self.mlp_norm = LiveNorm(layer.attention_norm), LiveNorm(layer.mlp_norm)
        self.q_norm = None if layer.q_norm is None else LiveNorm(layer.q_norm)
        self.k_norm = None if layer.k_norm is None else LiveNorm(layer.k_norm)
        self.qkv = LiveMatrix(layer.qkv, width, like)
        self.attention_out = LiveMatrix([layer.attention_out], inner, like)
        self.mlp_in = LiveMatrix(layer.mlp_in, width, like)
        self.mlp_out = LiveMatrix([layer.mlp_out], len(self.mlp_in.weight) // 2, like)

    @property
    def matrices(self) -> list[LiveMatrix]:
        return [self.qkv, self.attention_out, self.mlp_in, self.mlp_out]

    @property
    def norms(self) -> list[LiveNorm]:
        return [n for n in (self.attention_norm, self.mlp_norm, self.q_norm, self.k_norm) if n is not None]


class PagedStore:
    """Keys and values: [layers, 2, pages, kv_heads, PAGE, head_dim]."""

    def __init__(self, architecture: Architecture, like: Tensor) -> None:
        a = architecture
        self.shape, self.like = (len(a.layers), 2, 0, a.kv_heads, PAGE, a.head_dim), like
        self.data = like.new_empty(self.shape)

    @property
    def page_bytes(self) -> int:
        layers, two, _, heads, page, size = self.shape
        return layers * two * heads * page * size * self.data.element_size()

    def grow(self, pages: int, *, keep: bool) -> None:
        layers, two, _, *rest = self.shape
        old = self.data
        if not keep:
            # Free the old memory first: the contents are not wanted.
            old = self.data = self.like.new_empty(self.shape)
        self.data = self.like.new_empty(layers, two, pages, *rest)
        self.data[:, :, : old.shape[2]] = old

    def copy(self, pairs: Tensor) -> None:
        """Copy pages, [pairs, (source, target)]."""
        self.data[:, :, pairs[:, 1]] = self.data[:, :, pairs[:, 0]]


class PagedNetwork:
    """A model's live weights on the pages of a store."""

    def __init__(self, architecture: Architecture, rotary: RotaryTables, store: PagedStore, state: RowState) -> None:
        a = self.architecture = architecture
        self.store, self.state, self.rotary = store, state, rotary
        like = self.like = next(a.embedding.parameters())
        self.width, inner = like.shape[-1], a.heads * a.head_dim
        self.layers = [PagedLayer(layer, self.width, inner, like) for layer in a.layers]
        self.final_norm = LiveNorm(a.final_norm)
        self.head = LiveMatrix([a.head], self.width, like)
        rotary.ensure(state.tables.shape[1] * PAGE)
        cos, sin = rotary.tables[a.layers[0].rope]
        self.cos, self.sin = cos.squeeze(1).contiguous(), sin.squeeze(1).contiguous()
        half = like.dtype != torch.float32
        self.block = max(16, triton.next_power_of_2(a.head_dim))
        self.sizes: dict[str, Any] = {"KV_HEADS": a.kv_heads, "SIZE": a.head_dim, "PAGE": PAGE, "BLOCK": self.block}
        # Without "ieee", products of float32 would be rounded to tf32.
        self.attention: dict[str, Any] = {
            **self.sizes, "GROUP": a.heads // a.kv_heads, "PRECISION": "ieee", "num_stages": 2 if half else 1,
        }  # fmt: skip

    def refresh(self) -> None:
        """Take weights that changed: those merged are merged again, all others are live."""
        for matrix in self.matrices:
            matrix.refresh()

    @property
    def matrices(self) -> list[LiveMatrix]:
        return [self.head, *(matrix for layer in self.layers for matrix in layer.matrices)]

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where everything lies that a captured step reads."""
        norms = [self.final_norm, *(norm for layer in self.layers for norm in layer.norms)]
        tensors = [t for matrix in self.matrices for t in matrix.tensors] + [norm.weight for norm in norms]
        embedding: Any = self.architecture.embedding
        return tuple(t.data_ptr() for t in (*tensors, embedding.weight, self.store.data, self.state.stop_table))

    def prefill(self, pieces: Sequence[SlotPiece]) -> Tensor:
        """Read tokens into pages, and return the logits [pieces, vocabulary] after each piece."""
        lengths = np.array([len(piece.tokens) for piece in pieces])
        ends = lengths.cumsum()
        tiles = _tiles(pieces, ends - lengths)
        send = self.state.to_device
        tokens = send(np.concatenate([piece.tokens for piece in pieces]))
        slots = send(np.repeat(np.array([piece.slot for piece in pieces], np.int32), lengths))
        places = np.concatenate([np.arange(p.start, p.start + len(p.tokens)) for p in pieces]).astype(np.int32)
        positions, where = send(places), send(tiles)

        def attend(q: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
            out = torch.empty_like(q)
            attention.read_prompts[(tiles.shape[1], self.architecture.heads)](
                q, keys, values, out, self.state.tables, where[0], where[1], where[2], where[3], scaling,
                self.state.tables.shape[1], ROWS=TILE, **self.attention,
            )  # fmt: skip
            return out

        x = self._layers(tokens, slots, positions, attend, decoding=False)
        return self.head(self._norm(x.index_select(0, send(ends - 1)), None, self.final_norm))

    def decode(self, shape: StepShape) -> Tensor:
        """One token for every row in `state.order`: logits [rows, vocabulary] in the model's precision."""
        order = self.state.order[: shape.rows]
        tokens = self.state.token.index_select(0, order)

        def attend(q: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
            return self._attend(shape, order, q, keys, values, scaling)

        x = self._layers(tokens, order, self.state.position, attend, decoding=True)
        return self.head(self._norm(x, None, self.final_norm))

    def sample(self, logits: Tensor, order: Tensor, *, truncated: bool) -> None:
        """Choose a token for each of these slots, and advance their state."""
        s, rows = self.state, len(order)
        vocabulary = logits.shape[1]
        stretches = triton.cdiv(vocabulary, sampling.STRETCH)
        most, total, kept = torch.empty(3, rows, stretches, device=logits.device, dtype=torch.float32)
        threshold = torch.empty(rows, device=logits.device, dtype=torch.float32)
        if truncated:
            sampling.find_threshold[(rows,)](
                logits, order, s.sharpness, s.top_k, s.top_p, s.log_min_p, threshold, vocabulary,
                COARSE=logits.dtype == torch.bfloat16, BLOCK=sampling.SEARCH_BLOCK, num_warps=8,
            )  # fmt: skip
        sampling.sum_stretches[(rows, stretches)](
            logits, order, s.sharpness, threshold, most, total, kept, vocabulary, stretches,
            TRUNCATED=truncated, STRETCH=sampling.STRETCH,
        )  # fmt: skip
        sampling.choose[(rows,)](
            logits, order, s.sharpness, threshold, most, total, kept, s.stream, s.greedy, s.token, s.position, s.made,
            s.limit, s.stop_set, s.stop_table, s.alive, s.ring[0], s.ring[1].view(torch.float32), vocabulary, stretches,
            s.slots, RING=RING, TRUNCATED=truncated, STRETCH=sampling.STRETCH, BLOCK=triton.next_power_of_2(stretches),
            num_warps=8,
        )  # fmt: skip

    def _layers(self, tokens: Tensor, slots: Tensor, positions: Tensor, attend: Any, *, decoding: bool) -> Tensor:
        """The residual after all layers, [tokens, width]."""
        a = self.architecture
        x: Tensor = a.embedding(tokens)
        y: Tensor | None = None
        for layer, store in zip(self.layers, self.store.data, strict=True):
            h = self._norm(x, y, layer.attention_norm)
            q = self._rotate(layer, layer.qkv(h), store, slots, positions, decoding=decoding)
            mixed = attend(q, store[0], store[1], layer.layer.scaling)
            h = self._norm(x, layer.attention_out(mixed.view(len(x), -1)), layer.mlp_norm)
            y = layer.mlp_out(self._gated(layer.mlp_in(h)))
        assert y is not None
        return x.add_(y)

    def _norm(self, x: Tensor, y: Tensor | None, norm: LiveNorm) -> Tensor:
        """Add y to x in place, if given, and return the normalised x."""
        out = torch.empty_like(x)
        layers.add_and_norm[(len(x),)](
            x, x if y is None else y, norm.weight, out, self.width, norm.eps, ADD=y is not None,
            BLOCK=triton.next_power_of_2(self.width),
        )  # fmt: skip
        return out

    def _rotate(
        self, layer: PagedLayer, qkv: Tensor, store: Tensor, slots: Tensor, positions: Tensor, *, decoding: bool
    ) -> Tensor:
        a, s = self.architecture, self.state
        q = qkv.new_empty(len(qkv), a.heads, a.head_dim)
        normed = layer.q_norm is not None and layer.k_norm is not None
        q_norm, k_norm = layer.q_norm or layer.attention_norm, layer.k_norm or layer.attention_norm
        layers.rotate_and_store[(len(qkv), a.heads + a.kv_heads)](
            qkv, q, store[0], store[1], slots, positions, s.alive, s.tables, self.cos, self.sin,
            q_norm.weight, k_norm.weight, q_norm.eps, k_norm.eps, s.tables.shape[1],
            HEADS=a.heads, TURNED=self.cos.shape[1], NORM=normed, DECODING=decoding, num_warps=1, **self.sizes,
        )  # fmt: skip
        return q

    def _attend(
        self, shape: StepShape, order: Tensor, q: Tensor, keys: Tensor, values: Tensor, scaling: float
    ) -> Tensor:
        a, s, options = self.architecture, self.state, self.attention
        rows, parts = shape.rows, shape.splits + shape.shared
        whole = parts == 1
        out = torch.empty_like(q)
        mixed = q.new_empty(1 if whole else (parts, *q.shape), dtype=torch.float32)
        most, total = q.new_empty(2, 1 if whole else parts * rows * a.heads, dtype=torch.float32)
        width = s.tables.shape[1]
        attention.decode_rows[(rows, a.kv_heads, shape.splits)](
            q, keys, values, out, mixed, most, total, order, s.position, s.alive, s.tables, s.shared, scaling, width,
            rows, ROWS=max(16, triton.next_power_of_2(options["GROUP"])), SPLITS=shape.splits, WHOLE=whole, **options,
        )  # fmt: skip
        if shape.shared:
            first, members, length = s.groups
            attention.decode_shared[(rows, a.kv_heads)](
                q, keys, values, mixed, most, total, order, s.tables, first, members, length, scaling, width, rows,
                shape.splits, ROWS=shared_rows(options["GROUP"]), **options,
            )  # fmt: skip
        if not whole:
            attention.join_parts[(rows, a.heads)](
                mixed, most, total, out, order, s.alive, s.shared, rows, a.heads, SIZE=a.head_dim, BLOCK=self.block,
                PARTS=parts, SPLITS=shape.splits, SLOTS=triton.next_power_of_2(parts),
            )  # fmt: skip
        return out

    def _gated(self, gate_up: Tensor) -> Tensor:
        rows, both = gate_up.shape
        out = gate_up.new_empty(rows, both // 2)
        block = 1024
        layers.silu_and_multiply[(rows, triton.cdiv(both // 2, block))](gate_up, out, both // 2, BLOCK=block)
        return out


def shared_rows(group: int) -> int:
    """Query rows of one program of the shared kernel: several members, each with all heads of a group."""
    return max(MOST_SHARED, int(triton.next_power_of_2(group)))


def _tiles(pieces: Sequence[SlotPiece], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """First token, slot, position and length of every stretch of up to TILE tokens, [4, tiles]."""
    found = [
        (start + at, piece.slot, piece.start + at, min(TILE, len(piece.tokens) - at))
        for piece, start in zip(pieces, starts.tolist(), strict=True)
        for at in range(0, len(piece.tokens), TILE)
    ]
    return np.ascontiguousarray(np.array(found, np.int32).T)
