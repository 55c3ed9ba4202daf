"""The shape of a model, as far as memory and time depend on it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.readers import load_json, read_bytes

LARGEST = 10**9  # of any part of a shape


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of `layers` blocks; `mlp` is the inner width of its gated MLP. `tied`: the head is the embedding."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool = True

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name != "tied" and not 1 <= value <= LARGEST:
                raise ConfigError(f"{part.name} = {value!r:.40} is not between 1 and {LARGEST:,}")

    @property
    def layer_parameters(self) -> int:
        """The matrices of one block: queries, keys, values, output, and the three of the MLP."""
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.width * self.mlp

    @property
    def inner(self) -> int:
        """Numbers between the matrices of one block, for a token."""
        return self.width + self.mlp + self.head_dim * (self.heads + self.kv_heads)

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.embedding_parameters * (1 if self.tied else 2)

    @property
    def multiplied(self) -> int:
        """Parameters that a token is multiplied with: all but the embedding, the head included."""
        return self.layers * self.layer_parameters + self.embedding_parameters

    def adapter_parameters(self, rank: int) -> int:
        """An adapter on every matrix of every block."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = [queries, keys, keys, queries, self.mlp, self.mlp, self.mlp]
        return self.layers * rank * sum(self.width + side for side in sides)

    def cache_bytes(self, rows: int, length: int, itemsize: int) -> int:
        """Keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * rows * length * itemsize


KNOWN: Mapping[str, ModelShape] = {
    "tiny": ModelShape(4, 128, 4, 4, 32, 384, 104),
    "qwen3-0.6b": ModelShape(28, 1024, 16, 8, 128, 3072, 151_936),
    "qwen3-1.7b": ModelShape(28, 2048, 16, 8, 128, 6144, 151_936),
    "qwen3-4b": ModelShape(36, 2560, 32, 8, 128, 9728, 151_936),
    "qwen3-8b": ModelShape(36, 4096, 32, 8, 128, 12_288, 151_936, False),
    "qwen3-14b": ModelShape(40, 5120, 40, 8, 128, 17_408, 151_936, False),
    "qwen3-32b": ModelShape(64, 5120, 64, 8, 128, 25_600, 151_936, False),
}
SHAPE_HINT = (
    "Name a folder with a config.json, one of "
    f"{', '.join(KNOWN)}, or a shape such as layers=28,width=1024,heads=16,kv_heads=8,head_dim=128,mlp=3072,"
    "vocabulary=151936."
)


def shape_of(model: str) -> ModelShape:
    """The shape of a model: a folder's, a known one's, or one spelt out as `layers=28,width=1024,…`."""
    if "=" in model:
        return _spelt(model)
    if Path(model).expanduser().is_dir():
        return _of_folder(Path(model).expanduser())
    name = model.rpartition("/")[2].lower()
    if name in KNOWN:
        return KNOWN[name]
    near = difflib.get_close_matches(name, KNOWN, 1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"{model!r:.80} is not a model whose shape is known here", hint=meant + SHAPE_HINT)


def _spelt(text: str) -> ModelShape:
    given: dict[str, Any] = {}
    names = [part.name for part in fields(ModelShape)]
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in names:
            raise ConfigError(f"{name!r:.40} is not part of a shape", hint=f"Its parts are {', '.join(names)}.")
        if name == "tied" and value in ("true", "false"):
            given[name] = value == "true"
        elif value.isdecimal() and len(value) < 12:
            given[name] = int(value)
        else:
            raise ConfigError(f"{name} = {value!r:.40} is not a whole number", hint=SHAPE_HINT)
    given.setdefault("kv_heads", given.get("heads"))
    if given.get("heads") and given.get("width"):
        given.setdefault("head_dim", given["width"] // given["heads"])
    missing = [name for name in names if given.get(name) is None and name != "tied"]
    if missing:
        raise ConfigError(f"the shape lacks {', '.join(missing)}", hint=SHAPE_HINT)
    return ModelShape(**given)


def _of_folder(folder: Path) -> ModelShape:
    try:
        config = load_json(read_bytes(folder / "config.json"))
        config = config.get("text_config", config)
        heads, width = (int(config[name]) for name in ("num_attention_heads", "hidden_size"))
        return ModelShape(
            layers=int(config["num_hidden_layers"]),
            width=width,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or width // max(heads, 1)),
            mlp=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"{folder}/config.json does not say the model's shape: {what:.200}", hint=SHAPE_HINT
        ) from error
