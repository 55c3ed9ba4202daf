"""Where a model is: what a name like `tiny`, `./model` or `Qwen/Qwen3-0.6B` stands for, or what to do instead."""

from __future__ import annotations

import difflib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.language.extras import extra

ADAPTER = "adapter_config.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


@dataclass(frozen=True, slots=True)
class Place:
    """A model that can be loaded: from `source` (a folder or a hub name), or made from `tiny_seed`.

    `adapter` is the folder of an adapter that belongs on top.
    """

    name: str
    source: str = ""
    tiny_seed: int | None = None
    adapter: Path | None = None


def find_place(name: str, seed: int = 0) -> Place:
    """Where the model called `name` is; `seed` is the tiny model's unless its name says so."""
    kind, _, number = name.partition("@")
    if kind == "tiny" and (number.isdecimal() or not number):
        seed = int(number) if number else seed
        return Place(f"tiny@{seed}" if seed else "tiny", tiny_seed=seed)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _folder(name, folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ConfigError(f"there is no model folder '{name}'", hint=_advice(name))
    _look_on_hub(name)
    return Place(name, source=name)


def is_model(folder: Path) -> bool:
    """Whether there is a model or an adapter in `folder`, by the file of its settings."""
    return any((folder / file).is_file() for file in ("config.json", ADAPTER))


def _folder(name: str, folder: Path) -> Place:
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        base = json.loads((folder / ADAPTER).read_text()).get("base_model_name_or_path") or ""
        if not base:
            raise ConfigError(f"the adapter in '{name}' does not say which model it belongs to")
        return replace(find_place(base), name=name, adapter=folder)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"folder '{name}' holds no model: it has no config.json", hint=_advice(name))
    if not any((folder / file).is_file() for file in TOKENIZERS):
        raise ConfigError(
            f"folder '{name}' holds a model but no tokenizer",
            hint=f"Save the tokenizer there too: tokenizer.save_pretrained('{name}').",
        )
    return Place(name, source=str(folder))


def _look_on_hub(name: str) -> None:
    """Pass if the hub's model is in the local cache or the hub answers for it."""
    transformers, hub = extra("transformers"), extra("huggingface_hub")
    try:
        transformers.AutoConfig.from_pretrained(name, local_files_only=True)
        return
    except (OSError, ValueError, KeyError):
        pass
    if hub.constants.HF_HUB_OFFLINE or not _answers(hub.constants.ENDPOINT):
        raise ConfigError(
            f"model '{name}' is not on this machine and the Hugging Face hub is out of reach", hint=_advice(name)
        )
    try:
        transformers.AutoConfig.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model '{name}' cannot be had from the Hugging Face hub: {first}", hint=_advice(name)
        ) from error


def _answers(endpoint: str) -> bool:
    """Ask once: the hub's own client would retry for half a minute."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _advice(name: str) -> str:
    near = difflib.get_close_matches(Path(name).name, dict.fromkeys(p.name for p in _nearby(name)), n=3, cutoff=0.4)
    found = {path.name: str(path) for path in _nearby(name)}
    meant = f"Did you mean {' or '.join(repr(found[n]) for n in near)}? " if near else ""
    return f"{meant}Give the folder of a downloaded model, or model_name='tiny', which needs no download."


def _nearby(name: str) -> Iterator[Path]:
    """Model folders where the name points to, and here."""
    for parent in dict.fromkeys((Path(name).expanduser().parent, Path(name).expanduser(), Path("."))):
        if parent.is_dir():
            yield from (p for p in sorted(parent.iterdir()) if is_model(p))
