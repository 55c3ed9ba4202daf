"""Find a model by name (`tiny`, `./model`, `Qwen/Qwen3-0.6B`), and later recognise its weights by a fingerprint."""

import difflib
import hashlib
import importlib
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, MissingExtra
from groupwise.files import open_regular
from groupwise.language.model_files import ADAPTER, CONFIG, REST, TOKENIZERS, base_of

# tqdm says in every notebook without widgets that its bars will be text; ours need none.
warnings.filterwarnings("ignore", message="IProgress not found")


def import_extra(module: str, install: str = "pip install 'groupwise[language]'") -> Any:
    """The module of that name, or `MissingExtra` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"language models need the package {package}, which cannot be imported: {error}"
        raise MissingExtra(message, hint=install) from error


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Where to load a model from: `source` (a folder or a hub name), or `tiny_seed` to make one.

    `adapter` is the folder of an adapter to put on top.
    """

    name: str
    source: str = ""
    tiny_seed: int | None = None
    adapter: Path | None = None


def find_model(name: str, seed: int = 0) -> ModelLocation:
    """Where the model called `name` is; `seed` is the tiny model's, unless its name has one (`tiny@7`)."""
    kind, _, number = name.partition("@")
    if kind == "tiny" and (number.isdecimal() or not number):
        seed = int(number) if number else seed
        return ModelLocation(f"tiny@{seed}" if seed else "tiny", tiny_seed=seed)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _folder(name, folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ConfigError(f"model folder '{name}' does not exist", hint=_advice(name))
    _look_on_hub(name)
    return ModelLocation(name, source=name)


def is_model(folder: Path) -> bool:
    """Whether `folder` has the settings file of a model or an adapter."""
    return any((folder / file).is_file() for file in (CONFIG, ADAPTER))


def _folder(name: str, folder: Path) -> ModelLocation:
    if (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file():
        try:
            base = base_of(folder)
        except ConfigError as error:
            raise ConfigError(f"the adapter in '{name}' cannot be used: {error.message}", hint=error.hint) from None
        below = Path(base).expanduser()
        if is_model(below) and not (below / CONFIG).is_file():
            raise ConfigError(
                f"the base model of the adapter in '{name}' is '{base}', which is an adapter itself",
                hint="Merge that one into its model first, for example with groupwise export.",
            )
        return replace(find_model(base), name=name, adapter=folder)
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"folder '{name}' is not a model: it has no config.json", hint=_advice(name))
    if not any((folder / file).is_file() for file in TOKENIZERS):
        hint = f"Save the tokenizer there too: tokenizer.save_pretrained('{name}')."
        raise ConfigError(f"folder '{name}' has a model but no tokenizer", hint=hint)
    return ModelLocation(name, source=str(folder))


def _look_on_hub(name: str) -> None:
    """Return if the model is in the local cache of the hub, or on the hub itself."""
    transformers, hub = import_extra("transformers"), import_extra("huggingface_hub")
    try:
        transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
        return
    except (OSError, ValueError, KeyError):
        pass
    if hub.constants.HF_HUB_OFFLINE or not _answers(hub.constants.ENDPOINT):
        message = f"model '{name}' is not on this machine, and the Hugging Face hub cannot be reached"
        raise ConfigError(message, hint=_advice(name))
    try:
        transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        hint = _advice(name)
        raise ConfigError(f"model '{name}' cannot be loaded from the Hugging Face hub: {first}", hint=hint) from error


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
    return f"{meant}Name the folder of a downloaded model, or use model_name='tiny', which needs no download."


def _nearby(name: str) -> Iterator[Path]:
    """Model folders beside the named folder, inside it, and in the current folder."""
    for parent in dict.fromkeys((Path(name).expanduser().parent, Path(name).expanduser(), Path("."))):
        if parent.is_dir():
            yield from (p for p in sorted(parent.iterdir()) if is_model(p))


# Bytes read at a time, and how many times: at most 16 MiB of a file.
PIECE, PIECES = 2**16, 256

Fingerprint = dict[str, dict[str, str]]


def fingerprint(place: ModelLocation) -> Fingerprint:
    """Digests, by file, of the model's weights and of the rest of it (its tokenizer, for example).

    For a model on the hub only its commit is known before it is loaded. For a large file, the digest covers its size
    and 256 pieces spread over it, so that many gigabytes take no time. Dates do not count: a copy is the same model.
    """
    if place.tiny_seed is not None:
        return {"weights": {"seed": str(place.tiny_seed)}, "rest": {}}
    folder = Path(place.source)
    if not folder.is_dir():
        config = import_extra("huggingface_hub").try_to_load_from_cache(place.source, "config.json")
        return {"weights": {}, "rest": {}, "commit": {place.source: Path(str(config)).parent.name}}
    weights = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    return {
        "weights": {path.name: _digest(path) for path in weights},
        "rest": {name: _digest(folder / name) for name in REST if (folder / name).is_file()},
    }


def _digest(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open_regular(path) as file:
        for place in range(0, size, max(PIECE, -(-size // PIECES))):
            file.seek(place)
            digest.update(file.read(PIECE))
    return digest.hexdigest()
