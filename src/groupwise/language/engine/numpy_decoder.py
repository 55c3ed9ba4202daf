"""One token for every row in NumPy: the fastest way on a single CPU thread.

A step of a small model is hundreds of calls on small arrays. A call of NumPy costs less than one of PyTorch, and its
BLAS is faster for few rows: nearly twice as fast for a single query times its keys. Matrices and cache are views of the
network's own; softmax and activation stay with PyTorch, which fuses them. Everything else (several threads, a GPU, half
precision, LayerNorm, soft caps) is left to `Network.decode`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.language.engine.cache import Cache
from groupwise.language.engine.families import Activation
from groupwise.language.engine.network import Network, NetworkLayer
from groupwise.language.engine.shared_prompts import SharedPromptCache, scores_of
from groupwise.language.engine.weights import Called, Joined, Norm

Floats: TypeAlias = NDArray[np.float32]
# How much of an MLP's inner width is one slice.
SLICE = 128
# Multiplications up to which OpenBLAS reads matrices in place instead of packing them first.
SMALL = 10**6
NUMPY_2 = hasattr(np, "vecdot")


def decoder(network: Network) -> NumpyDecoder | Network:
    """The faster of the two ways to decode."""
    return NumpyDecoder(network) if torch.get_num_threads() == 1 and suits(network) else network


def suits(network: Network) -> bool:
    """Whether this module can do everything the network needs."""
    a = network.architecture
    return (
        (network.device.type, network.dtype) == ("cpu", torch.float32)
        and network.rotary is not None
        and network.rotary.paired
        and a.final_softcap is None
        and network.final_norm.short
        and all(b.layer.gated and b.layer.softcap is None and b.mlp_norm is not None for b in network.blocks)
    )


class NumpyRmsNorm:
    """An RMSNorm; its weight is None if it is folded into the matrix behind it."""

    def __init__(self, norm: Norm) -> None:
        self.floor = np.float32(norm.floor) ** 2
        self.weight = None if norm.folded else norm.weight.numpy()

    def __call__(self, x: Floats) -> Floats:
        # `Norm` scaled weight and floor by √width, so that no mean is needed: x / √(Σ x² + width · eps).
        size = squares(x)
        size += self.floor
        size = np.sqrt(size, out=size)[..., None]
        return x / size if self.weight is None else x * self.weight / size


def squares(x: Floats) -> Floats:
    # NumPy 2 has a faster way.
    total: Floats = np.vecdot(x, x) if NUMPY_2 else np.einsum("...i,...i->...", x, x)
    return total


class NumpyLinear:
    """`x @ matrix + bias`, perhaps for a stack of matrices."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self.matrix: Floats = matrix.numpy()
        self.bias: Floats | None = None if bias is None else bias.numpy()

    def __call__(self, x: Floats) -> Floats:
        out: Floats = x @ self.matrix
        if self.bias is not None:
            out += self.bias
        return out


class NumpyMlp:
    """A gated MLP. For a narrow model it is a sum of even narrower ones, [slices, rows, inner / slices], whose products
    are small enough that BLAS does not pack them."""

    def __init__(self, activation: Activation, into: Joined, out_of: Joined) -> None:
        width, inner = into.matrix.shape[0], out_of.matrix.shape[0]
        # Judged at 32 rows, as in benchmarks/lm_step.py.
        size = SLICE if inner % SLICE == 0 and 32 * width * SLICE <= SMALL else inner
        # A module's own call takes longer than silu.
        self.activation = getattr(activation, "forward", activation)
        self.into = NumpyLinear(
            into.matrix.view(width, -1, size).transpose(0, 1),
            None if into.bias is None else into.bias.view(-1, 1, size),
        )
        self.out_of = out_of.matrix.view(-1, size, out_of.outputs).numpy()
        self.bias = None if out_of.bias is None else out_of.bias.numpy()

    def __call__(self, x: Floats) -> Floats:
        # [2 · slices, rows, size]: the gate's slices, then those of up.
        both = self.into(x)
        half = len(both) // 2
        inside = self.activation(torch.from_numpy(both[:half])).numpy()
        inside *= both[half:]
        out: Floats = (inside @ self.out_of).sum(0)
        return out if self.bias is None else out + self.bias


class NumpyLayer:
    """A layer's matrices and norms as arrays."""

    def __init__(self, block: NetworkLayer, heads: int, kv_heads: int, head_dim: int) -> None:
        def joined(projection: Joined | Called) -> Joined:
            # A paired rotary table comes with copies.
            assert isinstance(projection, Joined)
            return projection

        def root(norm: Norm | None) -> NumpyRmsNorm | None:
            return None if norm is None else NumpyRmsNorm(norm)

        assert block.mlp_norm is not None
        qkv = joined(block.qkv)
        widths = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        biases = [None] * 3 if qkv.bias is None else qkv.bias.split(widths)
        self.q, self.k, self.v = (NumpyLinear(*pair) for pair in zip(qkv.matrix.split(widths, 1), biases, strict=True))
        self.out = NumpyLinear(joined(block.attention_out).matrix, joined(block.attention_out).bias)
        self.mlp = NumpyMlp(block.layer.activation, joined(block.mlp_in), joined(block.mlp_out))
        self.attention_norm, self.mlp_norm = NumpyRmsNorm(block.attention_norm), NumpyRmsNorm(block.mlp_norm)
        self.q_norm, self.k_norm = root(block.q_norm), root(block.k_norm)
        self.after_attention, self.after_mlp = root(block.after_attention), root(block.after_mlp)
        self.rope, self.window, self.scaling = block.layer.rope, block.layer.window, np.float32(block.layer.scaling)


class NumpyDecoder:
    """Decodes like the network it is built from; built again with it whenever weights change."""

    reads_shared_prompts = True

    def __init__(self, network: Network) -> None:
        a = network.architecture
        self.network = network
        self.heads, self.kv_heads, self.head_dim = a.heads, a.kv_heads, a.head_dim
        self.blocks = [NumpyLayer(block, a.heads, a.kv_heads, a.head_dim) for block in network.blocks]
        self.final_norm = NumpyRmsNorm(network.final_norm)
        assert isinstance(network.head, Joined)
        self.head = NumpyLinear(network.head.matrix, network.head.bias)
        embedding = a.embedding
        self.table = embedding.weight.detach().numpy() if type(embedding) is nn.Embedding else None

    def decode(self, tokens: Tensor, positions: Tensor, rows: Tensor, span: int, even: bool, cache: Cache) -> Tensor:
        """The same as `Network.decode`."""
        network, rotary = self.network, self.network.rotary
        assert rotary is not None
        rotary.ensure(cache.length)
        angles = {kind: table[0].numpy() for kind, table in rotary.at(span - 1 if even else positions).items()}
        biases = {window: network.bias(positions, span, even, window) for window in network.windows}
        place = (slice(len(tokens)), slice(None), span - 1) if even else (rows.numpy(), slice(None), positions.numpy())
        embedding = network.architecture.embedding
        x: Floats = embedding(tokens).numpy() if self.table is None else self.table[tokens.numpy()]
        store = cache.store.numpy()
        # `RunningRows.not_finite` notices when tokens are chosen.
        with np.errstate(all="ignore"):
            for index, (block, (keys, values)) in enumerate(zip(self.blocks, store, strict=True)):
                q, k, v = self._qkv(block, block.attention_norm(x), angles[block.rope])
                keys[place], values[place] = k, v
                bias = biases[block.window]
                kept = keys[: len(x), :, :span], values[: len(x), :, :span]
                mixed = block.out(self._attend(index, q, *kept, bias, cache.shared_prompts))
                x += mixed if block.after_attention is None else block.after_attention(mixed)
                inside = block.mlp(block.mlp_norm(x))
                x += inside if block.after_mlp is None else block.after_mlp(inside)
            return torch.from_numpy(self.head(self.final_norm(x)))

    def _qkv(self, block: NumpyLayer, h: Floats, angles: NDArray[np.complex64]) -> tuple[Floats, Floats, Floats]:
        """Queries, keys and values, [rows, heads, head_dim] each."""
        q, k, v = (part(h).reshape(len(h), -1, self.head_dim) for part in (block.q, block.k, block.v))
        if block.q_norm is not None and block.k_norm is not None:
            q, k = block.q_norm(q), block.k_norm(k)
        # Neighbours are turned together (`rotary.paired`): each pair is one complex number. The rest is not turned.
        turned = 2 * angles.shape[-1]
        for part in (q, k):
            pairs = part[..., :turned].view(np.complex64)
            pairs *= angles
        q *= block.scaling
        return q, k, v

    def _attend(
        self, layer: int, q: Floats, keys: Floats, values: Floats, bias: Tensor | None, shared: SharedPromptCache | None
    ) -> Floats:
        """One query per row and head; query heads that share keys form one matrix."""
        grouped = q.reshape(len(q), self.kv_heads, -1, self.head_dim)
        scores = torch.from_numpy(scores_of(grouped, keys) if shared is None else shared.scores(layer, grouped, keys))
        if bias is not None:
            scores += bias.unsqueeze(1)
        weights = scores.softmax(-1).numpy()
        mixed = weights @ values if shared is None else shared.mixed(layer, weights, values)
        return mixed.reshape(len(q), -1)
