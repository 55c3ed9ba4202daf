"""LoRA through PEFT: a few trainable matrices beside frozen weights, and how to merge or save them.

Without its adapter, a model is the one it started from, so the reference of a KL term needs no second copy.
"""

import copy
import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.errors import ConfigError
from groupwise.foreign_programs import last_matches
from groupwise.language.model_files import adapter_settings
from groupwise.language.model_lookup import import_extra
from groupwise.machine_memory import WEIGHT, in_words, memory_limit

ALL_LINEAR = "all-linear"
# Arguments of `LoraConfig` that other settings decide, and those that say where an adapter comes from.
OURS = {"r": "language.lora_rank", "lora_alpha": "language.lora_alpha"}
FIXED = (
    "task_type", "peft_type", "inference_mode", "base_model_name_or_path", "revision", "auto_mapping", "peft_version",
    "runtime_config", "megatron_config", "megatron_core",
)  # fmt: skip
# First weights that also change the frozen ones below: the adapter alone would no longer describe the model.
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
OPTIONS = "language.lora_options"


@dataclass(frozen=True, slots=True)
class Lora:
    """Settings of an adapter.

    rank: of the added matrices. alpha: their product is scaled by alpha / rank. options: more arguments of PEFT's
    `LoraConfig`. By default, every linear layer but the output head is adapted, whatever the family calls them, and
    there is no dropout.
    """

    rank: int = 16
    alpha: float = 32.0
    options: Mapping[str, Any] = field(default_factory=dict)


def wanted_lora(settings: Any) -> Lora | None:
    """The adapter that `language` settings ask for."""
    options = dict(settings.lora_options)
    if settings.lora_rank:
        return Lora(settings.lora_rank, settings.lora_alpha or 2.0 * settings.lora_rank, options)
    if options:
        message = (
            f"{OPTIONS} sets {', '.join(options)}, but language.lora_rank = 0 trains all weights without an adapter"
        )
        raise ConfigError(message, hint="Set language.lora_rank, for example to 16.", field=OPTIONS)
    return None


def add_adapter(model: Any, lora: Lora, seed: int) -> Any:
    """The model in a fresh adapter, whose weights depend on `seed` alone. At first it does not change the output."""
    peft = import_extra("peft")
    config = lora_config(model, lora)
    _insist_on_room(model, lora, config.target_modules)
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed) if devices else torch.default_generator.manual_seed(seed)
            return peft.get_peft_model(model, config)
    except Exception as error:  # the boundary to PEFT, which raises what it likes about an option or a model
        names = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        message = f"PEFT cannot put this adapter on {type(model).__name__}: {_reason(error)}"
        raise ConfigError(message, hint=f"Its linear layers are called {', '.join(names)}.", field=OPTIONS) from error


def lora_config(model: Any, lora: Lora) -> Any:
    """PEFT's own settings, which PEFT checks."""
    peft = import_extra("peft")
    known = {part.name for part in fields(peft.LoraConfig)} - set(FIXED)
    for name in lora.options:
        if name in OURS:
            raise ConfigError(f"{OPTIONS} sets {name}, which is the setting {OURS[name]}", field=OPTIONS)
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"PEFT {peft.__version__} knows {', '.join(sorted(known))}."
            raise ConfigError(f"{OPTIONS} sets {name}, which is not a setting of an adapter", hint=hint, field=OPTIONS)
    start = str(lora.options.get("init_lora_weights", True))
    if start.startswith(CHANGES_BASE):
        message = (
            f"init_lora_weights = {start!r} changes the frozen weights too, so the adapter could not be saved alone"
        )
        raise ConfigError(message, hint="Use true or 'gaussian'.", field=OPTIONS)
    # GPT-2 stores its matrices transposed, in its own `Conv1D` layer.
    transposed = any(type(module).__name__ == "Conv1D" for module in model.modules())
    usual: dict[str, Any] = {"lora_dropout": 0.0, "fan_in_fan_out": transposed}
    if "target_parameters" not in lora.options:
        usual["target_modules"] = ALL_LINEAR
    given = {name: _value(name, value) for name, value in lora.options.items()}
    try:
        return peft.LoraConfig(task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, **{**usual, **given})
    except Exception as error:  # the boundary to PEFT again
        raise ConfigError(f"PEFT refuses {OPTIONS}: {_reason(error)}", field=OPTIONS) from error


def _value(name: str, value: Any) -> Any:
    """An option as PEFT takes it: settings have tuples for lists, and lists of name=value for tables."""
    if not isinstance(value, tuple):
        return value
    if name.endswith(("_pattern", "_config")) and value and all("=" in str(item) for item in value):
        pairs = (str(item).rsplit("=", 1) for item in value)
        return {key.strip(): json.loads(number) for key, number in pairs}
    return list(value)


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{kind}{(str(error).strip().splitlines() or ['no reason given'])[0]:.300}"


def _insist_on_room(model: nn.Module, lora: Lora, targets: Any) -> None:
    """Refuse a rank whose matrices, gradients and moments cannot fit into memory."""
    names = None if isinstance(targets, str) else set(targets or ())
    sides = sum(sum(m.weight.shape) for name, m in model.named_modules() if _is_target(name, m, names))
    need, most = lora.rank * sides * WEIGHT, memory_limit()
    if sides and need > most:
        message = f"language.lora_rank = {lora.rank} needs at least {in_words(need)} of memory; this machine allows "
        hint = f"Set it to at most {max(1, most // (sides * WEIGHT))}; 8 to 64 is usual."
        raise ConfigError(message + in_words(most), hint=hint, field="language.lora_rank")


def _is_target(name: str, module: nn.Module, targets: Collection[str] | None) -> bool:
    adaptable = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    return adaptable and (targets is None or name.rpartition(".")[2] in targets)


def load_adapter(model: Any, folder: Path) -> Any:
    """The model in the adapter saved in `folder`, ready for more training."""
    peft = import_extra("peft")
    try:
        settings = adapter_settings(folder, peft.LoraConfig().to_dict())
        targets = settings.get("target_modules")
        if isinstance(targets, str) and targets != ALL_LINEAR:
            settings["target_modules"] = _matching(model, targets)
        config = peft.LoraConfig(task_type="CAUSAL_LM", **settings)
        with warnings.catch_warnings():
            # PEFT would go on with random numbers in their place.
            warnings.filterwarnings("error", message=".*missing adapter keys")
            return peft.PeftModel.from_pretrained(model, str(folder), config=config, is_trainable=True)
    except Exception as error:  # the boundary to PEFT, which raises what it likes about a strange folder
        hint = error.hint if isinstance(error, ConfigError) else ""
        said = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"the adapter in '{folder}' cannot be used: {said:.300}", hint=hint) from error


def _matching(model: nn.Module, pattern: str) -> list[str]:
    """The names of the modules that a regular expression matches completely, as PEFT would find them."""
    names = [name for name, _ in model.named_modules() if name]
    found = last_matches(rf"\A(?:{pattern})\Z", names)
    return [name for name, groups in zip(names, found, strict=True) if groups is not None]


def has_adapter(model: Any) -> bool:
    return hasattr(model, "disable_adapter")


def adapter_dropout(model: nn.Module) -> list[nn.Module]:
    """The dropout layers of the model's adapter."""
    inside = (part for name, part in model.named_modules() if ".lora_dropout." in name)
    return [part for part in inside if isinstance(part, nn.Dropout) and part.p > 0]


def lora_of(model: Any) -> Lora | None:
    """Rank and alpha of the model's adapter; None for a plain model."""
    if not has_adapter(model):
        return None
    config = model.peft_config[model.active_adapter]
    return Lora(config.r, float(config.lora_alpha))


def insist_on_frozen_base(model: Any) -> None:
    """Refuse a reference below an adapter that also trains weights of the model itself."""
    config = model.peft_config[model.active_adapter]
    if config.bias != "none":
        message = f"bias = {config.bias!r} trains the model's own biases, so it cannot be its own reference"
        raise ConfigError(
            message, hint="Set bias = 'none' in language.lora_options, or train without KL.", field=OPTIONS
        )


def without_adapter(model: Any) -> Any:
    """The model below the adapter, as separate modules over the same tensors: nothing is copied or switched.

    Switching the adapter off instead would switch it off for everyone, including an engine in another thread.
    """
    # A memo of a tensor to itself makes deepcopy share it.
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    for module in twin.modules():
        # `unload` would leave the trained copy of a module in `modules_to_save`.
        if hasattr(module, "original_module") and hasattr(module, "modules_to_save"):
            module.modules_to_save[model.active_adapter] = module.original_module
    return twin.unload().eval()


@torch.no_grad()
def merged_state(model: Any) -> dict[str, Tensor]:
    """The weights with the adapter merged, under the plain model's names, on the CPU.

    The model itself is not touched: merging in place and undoing it would not restore the last bits.
    """
    if getattr(model, "is_quantized", False) or getattr(model.get_base_model(), "is_quantized", False):
        hint = "Save the adapter alone (merged=False) and merge it into the model in full precision."
        raise ConfigError("an adapter cannot be merged into quantised weights", hint=hint)
    kinds = {_plain_name(name): tensor.dtype for name, tensor in model.get_base_model().state_dict().items()}
    apart = {id(tensor): _apart(tensor) for tensor in (*model.parameters(), *model.buffers())}
    merged = copy.deepcopy(model, apart).merge_and_unload()
    return {name: tensor.to(kinds.get(name, tensor.dtype)) for name, tensor in merged.state_dict().items()}


def _plain_name(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def _apart(tensor: Tensor) -> Tensor:
    """A copy on the CPU, in full precision: a sum in half precision would lose most of a small change."""
    made = tensor.detach().to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)
    return nn.Parameter(made, requires_grad=False) if isinstance(tensor, nn.Parameter) else made
