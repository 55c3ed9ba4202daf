"""Language models by name: `tiny`, a local folder, or a name on the Hugging Face hub.

    load_model(name) → LanguageModel(model, tokenizer, name) → LanguagePolicy → save_model

Whatever is wrong with a name, a folder, or a pair of model and tokenizer is refused here, in one sentence.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from groupwise.errors import ConfigError, MissingExtra
from groupwise.language.adapters import Lora, add_adapter, has_adapter, load_adapter, merged_state
from groupwise.language.logprobs import base_model
from groupwise.language.model_files import INDEX, REST, FolderWeights, check_counts, check_model, check_size
from groupwise.language.model_lookup import ModelLocation, find_model, import_extra
from groupwise.language.tiny import tiny_model

logger = logging.getLogger(__name__)

Quantization = Literal["8bit", "4bit"]


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal language model (in a PEFT adapter if it has one), its tokenizer, and the name they were loaded by."""

    model: Any
    tokenizer: Any
    name: str


def load_model(
    name: str | ModelLocation,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    lora: Lora | None = None,
    quantization: Quantization | Mapping[str, Any] | None = None,
    gradient_checkpointing: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """A model ready to act and to learn, in evaluation mode.

    Args:
      name: "tiny" (or "tiny@7" for seed 7), a folder, a hub name, or a `ModelLocation` that was looked up already.
        For a folder with an adapter, the base model is loaded too.
      dtype: of the weights. Training all weights in bfloat16 loses small updates: keep float32 there and let
        autocast compute in bfloat16. A frozen model under an adapter may be bfloat16.
      device: where it runs.
      lora: settings of a fresh adapter; None trains all weights.
      quantization: "8bit", "4bit", or the arguments of `BitsAndBytesConfig`; needs `lora`.
      gradient_checkpointing: recompute activations in the backward pass.
      seed: of the tiny model's and a fresh adapter's weights.
    """
    device = _device(device)
    quantized = _quantization(quantization, lora, dtype)
    place = find_model(name, seed) if isinstance(name, str) else name
    language = _load(place, dtype, quantized, device)
    if place.adapter is not None:
        with _quiet_bars():
            language = replace(language, model=load_adapter(language.model, place.adapter))
    return prepare(
        language, device=None if quantized else device, lora=lora, gradient_checkpointing=gradient_checkpointing,
        seed=seed,
    )  # fmt: skip


def prepare(
    language: LanguageModel,
    *,
    device: str | torch.device | None,
    lora: Lora | None = None,
    gradient_checkpointing: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """The model as training wants it: in an adapter (unless it has one), on its device (None: unchanged), and with
    activations recomputed. In evaluation mode.
    """
    model = language.model
    if lora is not None and not has_adapter(model):
        model = add_adapter(model, lora, seed)
    if device is not None:
        model = model.to(_device(device))
    if gradient_checkpointing:
        base_model(model).gradient_checkpointing_enable({"use_reentrant": False})
    return replace(language, model=model.eval())


def merged(language: LanguageModel) -> LanguageModel:
    """The plain model, with its adapter (if it has one) merged into the weights for good."""
    if not has_adapter(language.model):
        return language
    return replace(language, model=language.model.merge_and_unload())


def save_model(language: LanguageModel, folder: str | Path, *, merged: bool = True) -> Path:
    """Write model and tokenizer to `folder`.

    Args:
      language: from `load_model`, perhaps trained since.
      folder: created if it does not exist.
      merged: write complete weights, with any adapter merged, for `AutoModelForCausalLM.from_pretrained`; False
        writes the adapter only.
    """
    folder, model = Path(folder), language.model
    if not merged and not has_adapter(model):
        raise ConfigError(f"model '{language.name}' has no adapter to save", hint="Save it with merged=True.")
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet_bars():
        if not merged:
            model.save_pretrained(str(folder), save_embedding_layers=False)
        elif has_adapter(model):
            base_model(model).save_pretrained(str(folder), state_dict=merged_state(model))
        else:
            model.save_pretrained(str(folder))
        language.tokenizer.save_pretrained(str(folder))
    return folder


def _load(place: ModelLocation, dtype: torch.dtype, quantized: Any, device: torch.device) -> LanguageModel:
    if place.tiny_seed is not None:
        if quantized is not None:
            raise ConfigError("the tiny model cannot be quantised", hint="Leave quantization out.")
        model, tokenizer = tiny_model(place.tiny_seed)
        model.name_or_path = model.config.name_or_path = place.name
        return LanguageModel(model.to(dtype), tokenizer, place.name)
    transformers = import_extra("transformers")
    folder = _local(place)
    with _refusals(f"the model '{place.name}' cannot be used"):
        weights = check_model(folder)
    with _refusals(f"the tokenizer of '{place.name}' cannot be read"):
        tokenizer = _tokenizer(transformers, folder)
    with _refusals(f"the model '{place.name}' cannot be used"):
        config = _config(transformers, folder, weights, dtype)
    model = _model(transformers, place.name, folder, config, dtype, quantized, device)
    _check_vocabulary(place.name, model, tokenizer)
    _ensure_pad(place.name, model, tokenizer)
    return LanguageModel(model, tokenizer, place.name)


def _local(place: ModelLocation) -> Path:
    """The model's folder; of a model on the hub, the cache's, into which only what we read is downloaded."""
    if Path(place.source).is_dir():
        return Path(place.source)
    with _refusals(f"the model '{place.name}' cannot be downloaded"):
        wanted = [*REST, INDEX, "model*.safetensors"]
        return Path(import_extra("huggingface_hub").snapshot_download(place.source, allow_patterns=wanted))


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """The boundary to libraries that read a folder of strangers: whatever they raise becomes one sentence."""
    try:
        yield
    except MissingExtra:
        raise
    except ConfigError as error:
        raise ConfigError(f"{what}: {error.message}", hint=error.hint) from error
    except Exception as error:
        raise ConfigError(f"{what}: {_reason(error)}") from error
    except BaseException as error:
        # A panic in a library written in Rust, which is not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise ConfigError(f"{what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if "trust_remote_code" in str(error):
        return "it needs Python code of its own (auto_map), which is never run"
    kind = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: "
    return f"{kind}{_first_line(error)}"[:400]


def _tokenizer(transformers: Any, folder: Path) -> Any:
    kind = transformers.PreTrainedTokenizerFast if _is_generic(folder) else transformers.AutoTokenizer
    tokenizer = kind.from_pretrained(str(folder), padding_side="right", trust_remote_code=False)
    # Used once here, where what a wrong setting makes it raise is refused.
    tokenizer.decode(tokenizer.encode("Hello"))
    return tokenizer


def _is_generic(folder: Path) -> bool:
    """Whether a folder's tokenizer is complete in tokenizer.json; AutoTokenizer may add rules of the model family."""
    settings = folder / "tokenizer_config.json"
    if not (folder / "tokenizer.json").is_file() or not settings.is_file():
        return False
    return json.loads(settings.read_bytes()).get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")


def _config(transformers: Any, folder: Path, weights: FolderWeights, dtype: torch.dtype) -> Any:
    """The settings in config.json, if a model of that shape can be filled by its weights and fits into memory."""
    config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    check_counts(config.to_dict(), getattr(config.get_text_config(), "num_hidden_layers", None), weights)
    # Without memory: on the meta device, tensors have shapes only.
    with torch.device("meta"), _quiet_bars():
        empty = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    quantized = getattr(config, "quantization_config", None) is not None
    check_size(sum(parameter.numel() for parameter in empty.parameters()), weights, dtype.itemsize, quantized)
    return config


def _model(
    transformers: Any, name: str, folder: Path, config: Any, dtype: torch.dtype, quantized: Any, device: torch.device
) -> Any:  # fmt: skip
    options = {} if quantized is None else {"quantization_config": quantized, "device_map": {"": str(device)}}
    with _refusals(f"the model '{name}' cannot be read"), _quiet_bars():
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), config=config, dtype=dtype, output_loading_info=True, use_safetensors=True,
            trust_remote_code=False, **options,
        )  # fmt: skip
    for module in model.modules():
        # On some CPUs, bitsandbytes would pack weights of 4 bits for products that pass no gradient back.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    missing = sorted(report["missing_keys"])
    # Transformers would continue with random numbers.
    if missing:
        raise ConfigError(
            f"the weights of '{name}' are incomplete: {len(missing)} are missing, for example {missing[0]}",
            hint="Save the model again, or check whether its config.json belongs to other weights.",
        )
    return model


def _check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    known, rows = max(tokenizer.get_vocab().values()) + 1, model.get_input_embeddings().weight.shape[0]
    if known > rows:
        raise ConfigError(
            f"tokenizer and model of '{name}' do not belong together: {known} tokens, but {rows} rows of embeddings",
            hint="Save the model's own tokenizer in the folder, or call model.resize_token_embeddings.",
        )
    # A few unused rows are usual padding.
    if rows > 1.1 * known + 128:
        logger.warning("model '%s' has %d tokens, but its tokenizer only knows %d of them", name, rows, known)


def _ensure_pad(name: str, model: Any, tokenizer: Any) -> None:
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            hint = "Set tokenizer.eos_token and save it again."
            raise ConfigError(f"the tokenizer of '{name}' has neither a pad nor an end token", hint=hint)
        tokenizer.pad_token = tokenizer.eos_token
        logger.warning("the tokenizer of '%s' has no pad token; using %r instead", name, tokenizer.eos_token)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _quantization(wanted: Quantization | Mapping[str, Any] | None, lora: Lora | None, dtype: torch.dtype) -> Any:
    if wanted is None:
        return None
    if lora is None:
        raise ConfigError("quantised weights cannot be trained", hint="Train an adapter on top of them: set lora too.")
    if find_spec("bitsandbytes") is None:
        raise MissingExtra(f"loading in {wanted!r} needs bitsandbytes", hint="pip install bitsandbytes accelerate")
    # It would say for every product of 8 bits that numbers are rounded.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    # nf4 is QLoRA's data type; products run in the model's own.
    kinds: dict[str, dict[str, Any]] = {
        "8bit": {"load_in_8bit": True},
        "4bit": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype},
    }
    if isinstance(wanted, str) and wanted not in kinds:
        raise ConfigError(f"quantization must be '8bit', '4bit' or a table of arguments, not {wanted!r}")
    return import_extra("transformers").BitsAndBytesConfig(**(kinds[wanted] if isinstance(wanted, str) else wanted))


@contextmanager
def _quiet_bars() -> Iterator[None]:
    """Without Transformers' own progress bars. A download from the hub still shows its bar on a terminal."""
    settings = import_extra("transformers.utils.logging")
    if not settings.is_progress_bar_enabled():
        yield
        return
    settings.disable_progress_bar()
    if sys.stderr.isatty():
        # The line above also silenced the hub's bars.
        import_extra("huggingface_hub.utils").enable_progress_bars()
    try:
        yield
    finally:
        settings.enable_progress_bar()


def _device(wanted: str | torch.device) -> torch.device:
    device = torch.device(wanted)
    if device.type == "cuda" and not torch.cuda.is_available():
        hint = "Use device='cpu'."
        raise ConfigError("device 'cuda' is not available: torch finds no GPU", hint=hint, field="device")
    return device


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
