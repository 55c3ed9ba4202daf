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

    Of a model of the hub only its commit is known before it is loaded. Of a large file count its size and 256 pieces
    all over it, so that many gigabytes take no time; its date does not, so that a copy is as good as the original.
    """
    if place.tiny_seed is not None:
        return {"weights": {"seed": str(place.tiny_seed)}, "rest": {}}
    folder = Path(place.source)
    if not folder.is_dir():
        config = extra("huggingface_hub").try_to_load_from_cache(place.source, "config.json")
        return {"weights": {}, "rest": {}, "commit": {place.source: Path(str(config)).parent.name}}
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
