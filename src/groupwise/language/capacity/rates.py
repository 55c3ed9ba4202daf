"""Measurements with their sources, and the rates that follow from those meant for it.

    a token        = layers · decode + bytes read · reading
    a micro-batch  = passes · layers · launch (+ launch_lora) + numbers moved · moving + operations · arithmetic
    the peak       = what can be counted + overhead + numbers kept by the layers · activation + logits · head

A pass is a forward pass, or half of a backward pass; checkpointing adds one. The rates are fitted together (least
squares of relative errors, no rate negative) to the measurements marked "fit". Those marked "check" are compared only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from itertools import chain, combinations
from typing import Any

from groupwise.language.capacity.model_shape import shape_of
from groupwise.language.capacity.workload import GIB, HALF, Workload, kept_inputs, kept_layers, known_bytes, slots


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU. `arithmetic`: its speed relative to the measured one's; None where it is the measured one."""

    name: str
    memory: float
    bandwidth: float
    arithmetic: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A run of one kind of steps: seconds of generation (`decode`) and update, GiB at the peak (`memory`); None if it
    was not measured."""

    device: str
    work: Workload
    use: str
    source: str
    decode: float | None = None
    update: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class DecodeRates:
    """Seconds per token and layer, and per byte that is read."""

    decode: float
    reading: float


@dataclass(frozen=True, slots=True)
class UpdateRates:
    """Seconds per pass and layer, more for an adapter, per number that a pass moves, per floating-point operation."""

    launch: float
    launch_lora: float
    moving: float
    arithmetic: float


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """Bytes that every run takes; bytes per number kept by the layers; and per number of the logits."""

    overhead: float
    activation: float
    head: float


@dataclass(frozen=True)
class Measured:
    """What was measured, what data sheets say, and the rates."""

    devices: Mapping[str, Device]
    networks: Mapping[str, float]
    measurements: tuple[Measurement, ...]
    decode: DecodeRates = field(init=False)
    update: UpdateRates = field(init=False)
    memory: MemoryRates = field(init=False)

    def __post_init__(self) -> None:
        known = [m for m in self.measurements if m.use == "fit"]
        decoded = [(decode_terms(m.work), m.decode) for m in known if m.decode]
        updated = [(update_terms(m.work), m.update) for m in known if m.update]
        left = [
            (memory_terms(m.work), m.memory * GIB - known_bytes(m.work) - kept_inputs(m.work))
            for m in known
            if m.memory
        ]
        set_rates = object.__setattr__
        set_rates(self, "decode", DecodeRates(*_fitted(decoded)))
        set_rates(self, "update", UpdateRates(*_fitted(updated)))
        set_rates(self, "memory", MemoryRates(*_fitted(left)))


def decode_terms(work: Workload, gpus: int = 1) -> tuple[float, float]:
    """What `DecodeRates` are multiplied with."""
    rows = -(-work.rows // gpus)
    at_once = min(rows, slots(work, rows))
    # Answers end at different times; a place that is free is taken by the next.
    tokens = -(-rows // at_once) * work.answer
    # On average half of the answer is in the cache.
    read = HALF * work.shape.multiplied + work.shape.cache_bytes(at_once, work.prompt + work.answer // 2, HALF)
    return tokens * work.shape.layers, tokens * read


def update_terms(work: Workload, gpus: int = 1) -> tuple[float, float, float, float]:
    """What `UpdateRates` are multiplied with."""
    rows = -(-work.rows // gpus)
    passes = work.micro_batches(rows) * work.passes * work.shape.layers
    moved = work.tokens(rows) * work.passes * work.shape.layers * work.shape.inner
    return passes, passes if work.lora_rank else 0, moved, work.operations(rows)


def memory_terms(work: Workload) -> tuple[float, float, float]:
    """What `MemoryRates` are multiplied with."""
    return 1.0, kept_layers(work), work.tokens_at_once * work.shape.vocabulary


def times(rates: Any, terms: Sequence[float]) -> float:
    """The sum of rates times terms, in the order of the rates."""
    return sum((float(getattr(rates, part.name)) * term for part, term in zip(fields(rates), terms, strict=True)), 0.0)


def _fitted(known: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """Factors of the terms, none negative, that give the values with the smallest relative errors."""
    # `groupwise plan --help` needs no numbers.
    import numpy as np

    table = np.array([[term / value for term in terms] for terms, value in known])
    # Terms differ by many orders of magnitude.
    scale = np.maximum(np.abs(table).max(axis=0), 1e-300)
    best, smallest = np.zeros(len(scale)), float("inf")
    # Some factors are 0 in the best answer, and the others are that of least squares: which, is tried.
    for used in chain.from_iterable(combinations(range(len(scale)), n) for n in range(1, len(scale) + 1)):
        columns = table[:, used] / scale[list(used)]
        found = np.linalg.lstsq(columns, np.ones(len(known)), rcond=None)[0]
        error = float(((columns @ found - 1) ** 2).sum())
        if (found >= 0).all() and error < smallest:
            best, smallest = np.zeros(len(scale)), error
            best[list(used)] = found
    return [float(factor) for factor in best / scale]


@cache
def measured() -> Measured:
    sheets, found = (_read(name) for name in ("devices.toml", "measured.toml"))
    devices = {
        name: Device(name, given["memory_gib"] * GIB, given["bandwidth"], given.get("arithmetic"))
        for name, given in sheets["devices"].items()
    }
    return Measured(devices, sheets["networks"], tuple(map(measurement, found["measured"])))


def measurement(given: Mapping[str, Any]) -> Measurement:
    """A row of measured.toml."""
    about = {part.name: given[part.name] for part in fields(Measurement) if part.name in given}
    work = {name: value for name, value in given.items() if name not in about}
    return Measurement(work=Workload(**{**work, "shape": shape_of(given["shape"])}), **about)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf8"))
