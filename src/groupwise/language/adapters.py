"""LoRA through PEFT: a few trainable matrices beside frozen weights, and how to merge or save them.

Without its adapter, a model is the one it started from, so the reference of a KL term needs no second copy.
"""

import copy
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Lora:
    """Settings of an adapter. It has no dropout: a policy's log-probabilities must not be random.

    rank: of the added matrices. alpha: their product is scaled by alpha / rank. targets: names of the layers to adapt;
    None for every linear layer but the output head, whatever the family calls them.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] | None = None


def add_adapter(model: Any, lora: Lora, seed: int) -> Any:
    """The model in a fresh adapter, whose weights depend on `seed` alone. At first it does not change the output."""
    peft = import_extra("peft")
    # GPT-2 stores its matrices transposed, in its own `Conv1D` layer.
    transposed = any(type(module).__name__ == "Conv1D" for module in model.modules())
    targets = ALL_LINEAR if lora.targets is None else list(lora.targets)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=targets,
        fan_in_fan_out=transposed,
    )  # fmt: skip
    _insist_on_room(model, lora)
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed) if devices else torch.default_generator.manual_seed(seed)
            return peft.get_peft_model(model, config)
    except ValueError as error:
        names = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        message = f"LoRA found no layer named {' or '.join(lora.targets or ())} in {type(model).__name__}: {error}"
        raise ConfigError(message, hint=f"Its linear layers are called {', '.join(names)}.") from error


def _insist_on_room(model: nn.Module, lora: Lora) -> None:
    """Refuse a rank whose matrices, gradients and moments cannot fit into memory."""
    sides = sum(sum(m.weight.shape) for name, m in model.named_modules() if _is_target(name, m, lora.targets))
    need, most = lora.rank * sides * WEIGHT, memory_limit()
    if need > most:
        message = f"language.lora_rank = {lora.rank} needs at least {in_words(need)} of memory; this machine allows "
        hint = f"Set it to at most {max(1, most // (sides * WEIGHT))}; 8 to 64 is usual."
        raise ConfigError(message + in_words(most), hint=hint, field="language.lora_rank")


def _is_target(name: str, module: nn.Module, targets: tuple[str, ...] | None) -> bool:
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


def lora_of(model: Any) -> Lora | None:
    """Rank and alpha of the model's adapter; None for a plain model."""
    if not has_adapter(model):
        return None
    config = model.peft_config[model.active_adapter]
    return Lora(config.r, float(config.lora_alpha))


def without_adapter(model: Any) -> Any:
    """The model below the adapter, as separate modules over the same tensors: nothing is copied or switched.

    Switching the adapter off instead would switch it off for everyone, including an engine in another thread.
    """
    # A memo of a tensor to itself makes deepcopy share it.
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).unload().eval()


@torch.no_grad()
def merged_state(model: Any) -> dict[str, Tensor]:
    """The weights with the adapter merged, under the plain model's names, on the CPU.

    The model itself is not touched: merging in place and undoing it would not restore the last bits.
    """
    inner = model.get_base_model()
    layers = {name: m for name, m in inner.named_modules() if hasattr(m, "get_delta_weight") and m.active_adapters}
    deltas = {f"{name}.weight": _delta(module) for name, module in layers.items()}
    state = {}
    for name, tensor in inner.state_dict().items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        delta = deltas.get(plain)
        state[plain] = tensor.cpu() if delta is None else (tensor.float() + delta).to(tensor.dtype).cpu()
    return state


def _delta(module: Any) -> Tensor:
    parts = [module.get_delta_weight(name).float() for name in module.active_adapters if name in module.lora_A]
    return torch.stack(parts).sum(0)
