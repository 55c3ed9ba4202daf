"""Scenarios that are written down: which are trained on, which are judged on, and in which order."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from groupwise.errors import ConfigError

T = TypeVar("T")
SHARE = 0.2


class Listed(Generic[T]):
    """A list in two parts that have nothing in common, told apart by what the scenarios say and not by their order.

    One in five, and at least one of two, is held out; `held_out` given takes those instead. Of a single scenario
    there is nothing to hold out: it is then judged on what it is trained on, and `shared` says so.
    """

    def __init__(self, scenarios: Sequence[T], held_out: Sequence[T] | None = None) -> None:
        if not scenarios:
            raise ConfigError("there is no scenario to hold a conversation about", hint="Give at least one.")
        by_text = {_text(scenario): scenario for scenario in scenarios}
        if held_out is not None:
            judged = {_text(scenario): scenario for scenario in held_out}
            self.train = [scenario for text, scenario in by_text.items() if text not in judged]
            self.test = list(judged.values())
        else:
            order = sorted(by_text, key=lambda text: hashlib.sha256(text.encode()).digest())
            count = max(1, round(SHARE * len(order))) if len(order) > 1 else 0
            self.test = [by_text[text] for text in order[:count]]
            self.train = [by_text[text] for text in by_text if text not in order[:count]]
        if not self.train:
            raise ConfigError("every scenario to train on is also one to judge on", hint="Give others to judge on.")
        self.shared = not self.test
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def training(self, seed: int, number: int) -> T:
        epoch, place = divmod(number, len(self.train))
        return self.train[self._epoch(seed, epoch)[place]]

    def held_out(self, seed: int, count: int) -> list[T]:
        """A choice of those to judge on; all of them where there are no more than asked for."""
        test = self.test or self.train
        return test if count >= len(test) else random.Random(seed).sample(test, count)

    def _shuffled(self, seed: int, epoch: int) -> list[int]:
        order = list(range(len(self.train)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        return order


def _text(scenario: Any) -> str:
    if isinstance(scenario, Mapping):
        return json.dumps(dict(scenario), sort_keys=True, default=repr)
    return repr(scenario)
