"""What is checked in a model's folder before Transformers or PEFT look at it: such folders come from strangers.

    check_model(folder)      → FolderWeights   files, JSON, safetensors headers
    check_size(config, …)                  what config.json describes, against the weights that are there
    adapter_settings(folder) → dict        the settings of a LoRA adapter that we support

Nothing here runs code of the folder or allocates what it claims to need. Weights are safetensors only, because a
pickled file can run code when it is loaded. Messages do not name the folder: callers put its name in front.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.machine_memory import in_words, memory_limit
from groupwise.readers import ReadLimits, load_json, opened, read_bytes

CONFIG, ADAPTER, INDEX = "config.json", "adapter_config.json", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
REST = (
    CONFIG, "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "merges.txt", *TOKENIZERS,
)  # fmt: skip
# The largest vocabularies have a quarter of a million tokens and half a million merges.
# Transformers writes int(1e30), of 100 bits, as the length of a tokenizer that has no limit.
LIMITS = ReadLimits(size=64 << 20, depth=100, values=4_000_000, bits=100, memory=768 << 20)
LARGEST_HEADER = 16 << 20
LARGEST_INTEGER = 2**31 - 1
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Settings that count modules, which are made one by one. Up to 1024 may be in a single tensor of the file.
COUNTS = re.compile(r"(layer|expert)(?!.*(size|dim)$)", re.IGNORECASE)
USUAL_COUNT = 1024
# Parameters that a model may have beyond those in its files, as a share of them, and if those are packed.
SLACK, PACKED = 2, 32


@dataclass(frozen=True, slots=True)
class FolderWeights:
    """The tensors of a folder: their shapes by name."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes.values()))

    @property
    def longest(self) -> int:
        """The largest dimension of any tensor."""
        return max((max(shape, default=1) for shape in self.shapes.values()), default=0)


def check_model(folder: Path) -> FolderWeights:
    """Check the files of a model, and return what its weights are."""
    _check_files(folder)
    if (folder / ADAPTER).exists():
        raise ConfigError(
            f"there is both a model ({CONFIG}) and an adapter ({ADAPTER})",
            hint="Put the adapter in a folder of its own.",
        )
    _check_settings(_object(folder / CONFIG))
    for name in REST:
        if name.endswith(".json") and (folder / name).exists():
            _object(folder / name)
    return FolderWeights(dict(_tensors(folder)))


def _check_files(folder: Path) -> None:
    """Refuse pipes and devices, and text files of a size that nobody writes."""
    for path in folder.iterdir():
        try:
            found = path.stat()
        except OSError:  # a link to nowhere is as good as no file
            continue
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise ConfigError(f"{path.name} is not a regular file")
        if path.name in (*REST, ADAPTER, INDEX) and found.st_size > LIMITS.size:
            raise ConfigError(f"{path.name} is larger than {in_words(LIMITS.size)}")


def _object(path: Path) -> dict[str, Any]:
    try:
        value = load_json(read_bytes(path, LIMITS), LIMITS)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error.message}", hint=error.hint) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name} contains {value!r:.60}, not an object")
    return value


def _check_settings(settings: Mapping[str, Any]) -> None:
    for key, value in _numbers(settings):
        if abs(value) > LARGEST_INTEGER:
            raise ConfigError(f"{CONFIG}: {key} = {value} is larger than {LARGEST_INTEGER}")
    for key in ("attn_implementation", "experts_implementation"):
        # With a slash, it would be downloaded from the hub and run.
        for found in (settings.get(key), settings.get(f"_{key}")):
            if found is not None and (not isinstance(found, str) or "/" in found):
                raise ConfigError(f"{CONFIG}: {key} = {found!r:.60} is code from elsewhere, which is never run")


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """The whole numbers in a structure, and the keys they stand under."""
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _numbers(item, str(inner))
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item, key)
    elif type(value) is int:
        yield key, value


# Weights


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in _weight_files(folder):
        try:
            yield from tensor_shapes(path).items()
        except ConfigError as error:
            raise ConfigError(f"{path.name}: {error.message}", hint=error.hint) from None


def _weight_files(folder: Path) -> list[Path]:
    """The files that Transformers loads: one, or those that an index lists."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    if not (folder / INDEX).exists():
        raise _no_weights(folder, "model.safetensors", "AutoModelForCausalLM")
    listed = _object(folder / INDEX).get("weight_map")
    names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
    if not names:
        raise ConfigError(f"{INDEX} lists no files")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ConfigError(f"{INDEX} names the file {name!r:.80}, which is not a safetensors file of this folder")
        if not (folder / name).exists():
            raise ConfigError(f"{INDEX} names the file {name!r:.80}, which is not there", hint="Download it again.")
    return [folder / name for name in names]


def _no_weights(folder: Path, wanted: str, loader: str) -> ConfigError:
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)
    if not pickled:
        return ConfigError(f"there are no weights ({wanted})", hint="Was everything downloaded?")
    return ConfigError(
        f"the weights are only there as {pickled[0]}, a pickled file, which can run code when it is loaded",
        hint=f"If you trust it, save it as safetensors: {loader}.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER).",
    )


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in the header of a safetensors file, which must describe the bytes after it exactly.

    The format: eight bytes with the length of the header, the header in JSON, the data.
    """
    with opened(path, ReadLimits(size=2**63)) as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size - 8 - length
        if length > LARGEST_HEADER or size < 0:
            raise ConfigError(f"not a safetensors file, or cut off: its header would have {length:,} bytes")
        limits = ReadLimits(size=LARGEST_HEADER, depth=10, values=4_000_000)
        header = load_json(file.read(length), limits)
    if not isinstance(header, dict):
        raise ConfigError("its header is not an object")
    found = {name: entry for name, entry in header.items() if name != "__metadata__"}
    end = 0
    for name, entry in sorted(found.items(), key=lambda item: _begin(*item)):
        end = _end(name, entry, end)
    if end != size:
        raise ConfigError(f"its header describes {end:,} bytes of data, but there are {size:,}: was it cut off?")
    return {name: tuple(entry["shape"]) for name, entry in found.items()}


def _begin(name: str, entry: Any) -> int:
    try:
        return int(entry["data_offsets"][0])
    except (TypeError, KeyError, IndexError, ValueError):
        raise ConfigError(f"its header does not say where {name[:80]!r} is") from None


def _end(name: str, entry: Mapping[str, Any], before: int) -> int:
    """Where a tensor ends: it begins right behind the one before it, and is as long as its shape says."""
    shape: Any = entry.get("shape")
    kind, offsets = entry.get("dtype"), entry["data_offsets"]
    plain = isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)
    if not plain or not isinstance(kind, str) or kind not in BITS:
        raise ConfigError(f"its header gives {name[:80]!r} the shape {shape!r:.60} and type {kind!r:.20}")
    size: int = -(-prod(shape) * BITS[kind] // 8)
    if offsets != [before, before + size]:
        raise ConfigError(f"its header puts {name[:80]!r} at {offsets!r:.60} instead of {[before, before + size]}")
    return before + size


# Sizes


def check_counts(settings: Mapping[str, Any], layers: Any, weights: FolderWeights) -> None:
    """Refuse more modules than the weights can fill: making them would take for ever, even without memory."""
    tensors = len(weights.shapes)
    found = [(key, value) for key, value in _numbers(settings) if COUNTS.search(key) and value > USUAL_COUNT]
    # Every layer has a tensor of its own.
    found += [("num_hidden_layers", layers)] if type(layers) is int else []
    for key, value in found:
        if value > tensors:
            raise ConfigError(
                f"{CONFIG}: {key} = {value:,}, but the weights have only {tensors:,} tensors",
                hint="Does this config.json belong to these weights?",
            )


def check_size(parameters: int, weights: FolderWeights, width: int, quantized: bool) -> None:
    """Refuse a model that is much larger than its weights, or than the machine; `width` is the bytes of a weight."""
    here = weights.parameters
    if parameters > here * (PACKED if quantized else SLACK) + 1_000_000:
        raise ConfigError(
            f"{CONFIG} describes a model of {parameters:,} parameters, but the weights have {here:,}",
            hint="Does this config.json belong to these weights?",
        )
    if not quantized and parameters * width > memory_limit():
        raise ConfigError(
            f"the model needs {in_words(parameters * width)} of memory; this machine allows {in_words(memory_limit())}",
            hint="Use a smaller model, or language.dtype = 'bfloat16'.",
        )


# Adapters

# Of PEFT's many settings, those with a meaning for us; names of modules are plain names, not patterns.
NAME = re.compile(r"[\w.]{1,200}")
# PEFT itself writes ranks of the experts of a mixture for "any module, then this name".
ENDING = re.compile(r"(?:\.\*\\\.)?[\w.]{1,200}")
KEPT = (
    "r", "lora_alpha", "lora_dropout", "target_modules", "fan_in_fan_out", "use_rslora", "modules_to_save",
    "rank_pattern", "alpha_pattern", "exclude_modules", "layers_to_transform", "layers_pattern", "use_dora", "bias",
    "lora_bias", "target_parameters", "trainable_token_indices",
)  # fmt: skip
BIASES = ("none", "all", "lora_only")
# What says where an adapter comes from, or how it was first made.
IDLE = (
    "peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version",
    "init_lora_weights", "megatron_core", "qalora_group_size",
)  # fmt: skip


def adapter_settings(folder: Path, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LoraConfig` in an adapter's folder, whose files are checked. `usual` are the defaults."""
    _check_files(folder)
    given = _object(folder / ADAPTER)
    if given.get("peft_type") != "LORA":
        raise ConfigError(
            f"{ADAPTER}: peft_type = {given.get('peft_type')!r:.60}; only LORA is supported",
            hint="Merge it into its model with PEFT first.",
        )
    for name, value in given.items():
        if name in usual and name not in (*KEPT, *IDLE) and value != usual[name] and value:
            raise ConfigError(f"{ADAPTER}: {name} = {value!r:.60} is not supported", hint="Merge it with PEFT first.")
    if not (folder / "adapter_model.safetensors").exists():
        raise _no_weights(folder, "adapter_model.safetensors", "PeftModel")
    try:
        weights = FolderWeights(tensor_shapes(folder / "adapter_model.safetensors"))
    except ConfigError as error:
        raise ConfigError(f"adapter_model.safetensors: {error.message}", hint=error.hint) from None
    kept = {name: given[name] for name in KEPT if given.get(name) is not None}
    _check_adapter(kept, weights)
    return kept


def base_of(folder: Path) -> str:
    """The name of the model that an adapter belongs to."""
    base = _object(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ConfigError("the adapter does not name its base model (base_model_name_or_path)")
    return base


def _check_adapter(given: Mapping[str, Any], weights: FolderWeights) -> None:
    ranks = [given.get("r"), *_table(given, "rank_pattern").values()]
    for rank in ranks:
        if type(rank) is not int or not 1 <= rank <= max(weights.longest, 1):
            raise ConfigError(f"{ADAPTER}: the rank {rank!r:.60} does not belong to its weights")
    for scale in (given.get("lora_alpha", 1), given.get("lora_dropout", 0), *_table(given, "alpha_pattern").values()):
        if isinstance(scale, bool) or not isinstance(scale, int | float):
            raise ConfigError(f"{ADAPTER}: {scale!r:.60} is not a number")
    for name in ("use_dora", "use_rslora", "lora_bias", "fan_in_fan_out"):
        if not isinstance(given.get(name, False), bool):
            raise ConfigError(f"{ADAPTER}: {name} = {given[name]!r:.60} is neither true nor false")
    if given.get("bias", "none") not in BIASES:
        raise ConfigError(f"{ADAPTER}: bias = {given['bias']!r:.60} is not one of {', '.join(BIASES)}")
    tokens = given.get("trainable_token_indices", [])
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise ConfigError(f"{ADAPTER}: trainable_token_indices = {tokens!r:.60} is not a list of tokens")
    for name in ("target_modules", "modules_to_save", "exclude_modules", "layers_pattern", "target_parameters"):
        value = given.get(name, [])
        names = [value] if isinstance(value, str) and name == "layers_pattern" else value
        # A target may be a pattern, which is then matched within limits.
        if not isinstance(value, str) or name != "target_modules":
            _check_names(name, names)
    layers = given.get("layers_to_transform", [])
    if not all(type(layer) is int for layer in (layers if isinstance(layers, list) else [layers])):
        raise ConfigError(f"{ADAPTER}: layers_to_transform = {layers!r:.60} is not a list of numbers")


def _table(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = given.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{ADAPTER}: {name} = {table!r:.60} is not a table")
    _check_names(name, list(table), ENDING)
    return table


def _check_names(setting: str, names: Any, form: re.Pattern[str] = NAME) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) and form.fullmatch(name) for name in names):
        raise ConfigError(f"{ADAPTER}: {setting} = {names!r:.80} is not a list of names of modules")
