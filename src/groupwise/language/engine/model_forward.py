"""A model's own forward pass and cache: prompts of several rows in one call, then one token per row and call.

Which way of batching is right depends on the model: left padding disturbs some recurrent ones, and a few have no cache
that can be padded or even kept. `find_abilities` tries each way once on a few tokens and compares the result with
plain forward passes.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.language.engine.families import unwrap
from groupwise.language.engine.model_cache import ModelCache, joined, picked
from groupwise.language.engine.weights import at_rest

Ids: TypeAlias = NDArray[np.int64]

log = logging.getLogger(__name__)
# What models call their cache, going in and coming out.
CACHES = ("past_key_values", "cache_params", "state")
# Mean deviation of a trial's logits, as a share of their standard deviation, that is still rounding; and the same for
# weights of half precision or less.
ROUNDING, COARSE_ROUNDING = 2e-4, 0.05


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which ways of batching give a model's own logits.

    cached: one token at a time after the prompt. joins: rows of different lengths decode together. pads: prompts of
    different lengths are read together.
    """

    cached: bool
    joins: bool
    pads: bool


class ModelForward:
    """Calls a model. What a call does not say is never filled in from the model's `generation_config`."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = unwrap(model)
        self.device = next(model.parameters()).device
        self.config = text_config(self.model)
        names = inspect.signature(self.model.forward).parameters
        self.masks, self.places = "attention_mask" in names, "position_ids" in names
        self.options: dict[str, bool | int] = {"use_cache": True, "return_dict": True}
        if "logits_to_keep" in names:
            self.options["logits_to_keep"] = 1
        self.cache_name = next((name for name in CACHES if name in names), None)
        # Models that only keep states take no mask with later tokens.
        self.masks_later = self.masks
        self.padding = getattr(self.config, "pad_token_id", None) or 0

    def read(self, prompts: Sequence[Ids]) -> tuple[ModelCache, Tensor]:
        """Read prompts, the shorter ones padded on the left: their cache, and logits [prompts, vocabulary]."""
        lengths = np.array([len(prompt) for prompt in prompts])
        width = int(lengths.max())
        ids = np.full((len(prompts), width), self.padding)
        for row, prompt in zip(ids, prompts, strict=True):
            row[width - len(prompt) :] = prompt
        columns = np.arange(width) - (width - lengths)[:, None]
        return self._call(ids, columns.clip(0), _mask(lengths, width), self._new_cache())

    def decode(self, cache: ModelCache, tokens: Ids, lengths: Ids, width: int) -> tuple[ModelCache, Tensor]:
        """Read one more token per row after `lengths` real ones in a cache of `width` columns."""
        mask = _mask(lengths + 1, width + 1) if self.masks_later else None
        return self._call(tokens[:, None], lengths[:, None], mask, cache)

    def read_all(self, sequences: Sequence[Ids]) -> Tensor:
        """Logits after each sequence, [sequences, vocabulary], without a cache, one at a time: slow and right."""
        logits = []
        with at_rest([self.model]):
            for sequence in sequences:
                output = self.model(self._tensor(sequence[None]), use_cache=False, return_dict=True)
                logits.append(output.logits[:, -1].float())
        return torch.cat(logits)

    def _call(self, ids: Ids, places: Ids, mask: Ids | None, cache: ModelCache) -> tuple[ModelCache, Tensor]:
        given: dict[str, Any] = dict(self.options)
        if self.masks and mask is not None:
            given["attention_mask"] = self._tensor(mask)
        if self.places:
            given["position_ids"] = self._tensor(places)
        if cache is not None:
            given[str(self.cache_name)] = cache
        with at_rest([self.model]):
            output = self.model(self._tensor(ids), **given)
        return output[self.cache_name], output.logits[:, -1].float()

    def _new_cache(self) -> ModelCache:
        """An empty cache for models that take Transformers' own; others begin theirs themselves."""
        from transformers import DynamicCache

        standard = getattr(self.model, "_supports_default_dynamic_cache", lambda: True)()
        return DynamicCache(config=self.config) if standard and self.cache_name != "state" else None

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def text_config(model: Any) -> Any:
    """The configuration of a model's text decoder, which models of several kinds of input keep inside their own."""
    inner = getattr(model.config, "get_text_config", None)
    return model.config if inner is None else inner(decoder=True)


def _mask(lengths: Ids, width: int) -> Ids | None:
    """1 for real tokens, 0 for padding on the left; None without padding, which saves the model its masks."""
    if int(lengths.min()) == width:
        return None
    mask: Ids = (np.arange(width) >= (width - lengths)[:, None]).astype(np.int64)
    return mask


@torch.inference_mode()
def find_abilities(forward: ModelForward) -> Abilities:
    """Try each way of batching on a short and a longer prompt."""
    long, short, tokens = (_ids(forward, size) for size in (9, 6, 2))
    wanted = {
        name: torch.cat([forward.read_all([np.append(p, t)]) for p, t in zip(pair, tokens, strict=True)])
        for name, pair in {"even": (long, long), "uneven": (short, long)}.items()
    }
    full = all(parameter.dtype == torch.float32 for parameter in forward.model.parameters())
    near = ROUNDING if full else COARSE_ROUNDING

    def works(trial: Callable[[], Tensor], expected: Tensor) -> bool:
        try:
            found = trial()
        except Exception as error:  # any way at all in which a model refuses
            log.debug("%s cannot be batched this way: %s", type(forward.model).__name__, error)
            return False
        return bool((found - expected).abs().mean() <= near * expected.std())

    def even() -> Tensor:
        cache = picked(forward.read([long])[0], torch.zeros(2, dtype=torch.int64, device=forward.device))
        return forward.decode(cache, tokens, np.array([9, 9]), 9)[1]

    def join() -> Tensor:
        cache = joined([forward.read([prompt])[0] for prompt in (short, long)])
        return forward.decode(cache, tokens, np.array([6, 9]), 9)[1]

    def pad() -> Tensor:
        cache, _ = forward.read([short, long])
        return forward.decode(cache, tokens, np.array([6, 9]), 9)[1]

    cached = works(even, wanted["even"])
    joins = cached and works(join, wanted["uneven"])
    if cached and not joins:
        forward.masks_later = False
        joins = works(join, wanted["uneven"])
    return Abilities(cached, joins, joins and works(pad, wanted["uneven"]))


def _ids(forward: ModelForward, size: int) -> Ids:
    return np.random.default_rng(size).integers(0, int(forward.config.vocab_size), size)
