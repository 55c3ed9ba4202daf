"""Measurements with their sources, and the rates that follow from those meant for it.

Generation on one GPU is bound by launching kernels until the reading of weights and cache takes longer:

    seconds a token = max(layers · decode, (weights + cache) / bandwidth)

An update pays a fixed time per layer and pass of every micro-batch, and its arithmetic:

    seconds a micro-batch = passes · layers · launch + operations / arithmetic

where a full update has a forward pass and a backward pass twice as long, an adapter's backward pass is as long as its
forward pass, and checkpointing adds one more forward pass. `decode`, `launch` and `arithmetic` are fitted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from statistics import fmean
from typing import Any

from groupwise.language.capacity.model_shape import ModelShape, shape_of

GIB = 2**30
HALF = 2  # bytes of a bfloat16 number


@dataclass(frozen=True, slots=True)
class Workload:
    """One step of a run: `tasks` × `group` answers of `answer` tokens to prompts of `prompt` tokens."""

    shape: ModelShape
    tasks: int = 8
    group: int = 8
    prompt: int = 128
    answer: int = 256
    micro_batch: int = 16
    lora_rank: int = 0
    checkpointing: bool = False

    @property
    def rows(self) -> int:
        return self.tasks * self.group

    @property
    def passes(self) -> int:
        """Passes through the layers, each about as long as a forward pass in launches."""
        return 3 + self.checkpointing

    def operations(self, rows: int) -> float:
        """Floating-point operations to learn from that many rows."""
        tokens = rows * (self.prompt + self.answer)
        shape = self.shape
        # Multiplications and additions; causal attention reads half of the row on average, twice (scores and values).
        attention = 2 * shape.layers * shape.heads * shape.head_dim * (self.prompt + self.answer)
        forward = tokens * (2 * shape.multiplied + attention)
        # The gradient of frozen weights is not computed.
        return forward * ((2 if self.lora_rank else 3) + self.checkpointing)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number, how it was made, and whether rates are made from it or compared with it."""

    device: str
    what: str
    value: float
    work: Workload
    use: str
    source: str
    trainer: str = "groupwise"


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """decode, launch, launch_lora: seconds per layer. arithmetic: operations a second. overhead: bytes that every run
    takes. activation, activation_lora: bytes per layer, token and unit of width that a backward pass keeps."""

    decode: float
    launch: float
    launch_lora: float
    arithmetic: float
    overhead: float
    activation: float


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU. `arithmetic`: its speed relative to the measured one's; None where it is the measured one."""

    name: str
    memory: float
    bandwidth: float
    arithmetic: float | None = None


@dataclass(frozen=True)
class Measured:
    """The file of measurements."""

    devices: Mapping[str, Device]
    networks: Mapping[str, float]
    measurements: tuple[Measurement, ...]
    rates: MeasuredRates = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", fitted([m for m in self.measurements if m.use == "fit"]))


@cache
def measured() -> Measured:
    text = resources.files(__package__).joinpath("measured.toml").read_text("utf8")
    found = tomllib.loads(text)
    devices = {
        name: Device(name, given["memory_gib"] * GIB, given["bandwidth"], given.get("arithmetic"))
        for name, given in found["devices"].items()
    }
    return Measured(devices, found["networks"], tuple(map(_measurement, found["measured"])))


def fitted(given: list[Measurement]) -> MeasuredRates:
    """The rates that explain the measurements."""

    def those(what: str, lora: bool | None = None) -> list[Measurement]:
        return [m for m in given if m.what == what and lora in (None, bool(m.work.lora_rank))]

    decode = fmean(m.value / (m.work.answer * m.work.shape.layers) for m in those("decode"))
    # Two sizes of micro-batch tell launches from arithmetic: value = launch · a + b / arithmetic.
    (a1, b1, v1), (a2, b2, v2) = sorted(map(_terms, those("update", False)), key=lambda terms: terms[1] / terms[0])
    launch = (v1 * b2 - v2 * b1) / (a1 * b2 - a2 * b1)
    arithmetic = b2 / (v2 - launch * a2)
    launch_lora = fmean((v - b / arithmetic) / a for a, b, v in map(_terms, those("update", True)))
    # A full run with checkpointing keeps next to no activations, so the rest of its memory is the overhead.
    full, adapter = those("memory", False)[0], those("memory", True)[0]
    overhead = full.value * GIB - known_bytes(full.work) - kept_activations(full.work, 0.0)
    left = adapter.value * GIB - known_bytes(adapter.work) - overhead
    tokens = adapter.work.micro_batch * (adapter.work.prompt + adapter.work.answer)
    activation = left / (tokens * adapter.work.shape.layers * adapter.work.shape.width)
    return MeasuredRates(decode, launch, launch_lora, arithmetic, overhead, activation)


def known_bytes(work: Workload, gpus: int = 1, sharded: bool = False) -> float:
    """Weights, gradients, the optimiser's moments, the engine's joined matrices, and its cache, on one GPU."""
    shape = work.shape
    trained = shape.adapter_parameters(work.lora_rank) if work.lora_rank else shape.parameters
    # A gradient and two moments for what is trained, all in bfloat16.
    learner = HALF * (shape.parameters + 3 * trained)
    joined = HALF * shape.layers * shape.layer_parameters
    # The engine copies small models' matrices; shards are gathered into a whole model to sample from.
    engine = HALF * shape.parameters if sharded else joined if HALF * shape.parameters <= 2 * GIB else 0
    rows = -(-work.rows // gpus)
    cache = shape.cache_bytes(min(rows, slots(work, rows)), work.prompt + work.answer, HALF)
    return (learner / gpus if sharded else learner) + engine + cache


def kept_activations(work: Workload, activation: float) -> float:
    """What a micro-batch keeps for its backward pass: everything, or only the layers' inputs."""
    tokens = work.micro_batch * (work.prompt + work.answer)
    inputs = tokens * work.shape.layers * work.shape.width * HALF
    per_layer = tokens * work.shape.width * activation
    return inputs + per_layer if work.checkpointing else per_layer * work.shape.layers


def slots(work: Workload, rows: int) -> int:
    """Answers that the engine generates at once, as the language product asks for."""
    return max(64, work.group, min(rows, 16_384 // work.answer))


def _terms(m: Measurement) -> tuple[float, float, float]:
    """Passes through layers, operations, and seconds of a measured update."""
    count = -(-m.work.rows // m.work.micro_batch)
    return count * m.work.passes * m.work.shape.layers, m.work.operations(m.work.rows), m.value


def _measurement(given: dict[str, Any]) -> Measurement:
    about = {name: given.pop(name) for name in ("device", "what", "value", "use", "source", "trainer") if name in given}
    return Measurement(work=Workload(**{**given, "shape": shape_of(given["shape"])}), **about)
