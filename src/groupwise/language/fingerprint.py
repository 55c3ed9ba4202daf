"""Whether a model is still the one that a run began with: a few bytes to remember it by."""

from __future__ import annotations

import hashlib
from pathlib import Path

from groupwise.language.extras import extra
from groupwise.language.places import TOKENIZERS, Place

REST = (
    "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "merges.txt", *TOKENIZERS,
)  # fmt: skip
PIECE, PIECES = 2**16, 256

Fingerprint = dict[str, dict[str, str]]


def fingerprint(place: Place) -> Fingerprint:
    """What stands for the model's weights, and what for everything else of it, the tokenizer say; by file.

    A model of the hub is known by its commit. Of a large file count its size and 256 pieces all over it, so that many
    gigabytes take no time; when it was written does not count, so that a copy is as good as the original.
    """
    if place.tiny_seed is not None:
        return {"weights": {"seed": str(place.tiny_seed)}, "rest": {}}
    folder = Path(place.source)
    if not folder.is_dir():
        config = extra("transformers").AutoConfig.from_pretrained(place.source)
        return {"weights": {"commit": str(config._commit_hash)}, "rest": {}}
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")])
    return {
        "weights": {path.name: _digest(path) for path in weights},
        "rest": {name: _digest(folder / name) for name in REST if (folder / name).is_file()},
    }


def _digest(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for place in range(0, size, max(PIECE, -(-size // PIECES))):
            file.seek(place)
            digest.update(file.read(PIECE))
    return digest.hexdigest()
