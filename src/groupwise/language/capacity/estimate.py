"""What a step of a run will take, and how far that is from anything that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from groupwise.errors import ConfigError
from groupwise.language.capacity.rates import (
    Device,
    Measured,
    Measurement,
    decode_terms,
    measured,
    memory_terms,
    times,
    update_terms,
)
from groupwise.language.capacity.workload import GIB, HALF, Workload, kept_inputs, known_bytes, slots

NEAR_BEST = 0.95  # share of the highest throughput at which it counts as saturated
MOST_TASKS = 4096


@dataclass(frozen=True, slots=True)
class Machines:
    """`gpus` of one kind, and what connects them. `sharded`: FSDP2 and not DDP."""

    gpus: int = 1
    gpu: str = "h200"
    network: str = "nvlink"
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: GiB per GPU, seconds, sampled tokens a second, and what of it is extrapolated.

    `memory` names its parts; `fits` says whether they fit into the GPU. `saturates_at` are the tasks of a step from
    which more hardly raise the tokens a second; `largest_micro_batch` is 0 if not even one row fits.
    """

    parameters: int
    memory: Mapping[str, float]
    memory_gib: float
    available_gib: float
    fits: bool
    largest_micro_batch: int
    generation_seconds: float
    update_seconds: float
    communication_seconds: float
    step_seconds: float
    tokens_per_second: float
    saturates_at: int
    bound_by: str
    extrapolated: tuple[str, ...]


def plan(work: Workload, machines: Machines) -> Plan:
    """Estimate a step."""
    known = measured()
    device = _named(known.devices, machines.gpu, "gpu")
    _named(known.networks, machines.network, "network")
    for name in ("tasks", "group", "prompt", "answer", "micro_batch"):
        if getattr(work, name) < 1:
            raise ConfigError(f"{name} is {getattr(work, name)}; it must be at least 1", field=name)
    if machines.gpus < 1:
        raise ConfigError(f"gpus is {machines.gpus}; it must be at least 1", field="gpus")
    memory = _memory(work, machines)
    generation, bound = _generation(work, machines, device)
    update, traffic = _update(work, machines, device), _traffic(work, machines)
    step = generation + update + traffic
    total = sum(memory.values())
    return Plan(
        parameters=work.shape.parameters,
        memory={name: size / GIB for name, size in memory.items()},
        memory_gib=total / GIB,
        available_gib=device.memory / GIB,
        fits=total <= device.memory,
        largest_micro_batch=_largest_micro_batch(work, machines, device),
        generation_seconds=generation,
        update_seconds=update,
        communication_seconds=traffic,
        step_seconds=step,
        tokens_per_second=work.rows * work.answer / step,
        saturates_at=_saturation(work, machines, device),
        bound_by=bound,
        extrapolated=tuple(_extrapolations(work, machines, device, bound)),
    )


def predicted(measurement: Measurement) -> dict[str, float]:
    """What the rates say about something that was measured: seconds of generation and update, GiB at the peak."""
    work, machines = measurement.work, Machines(gpu=measurement.device)
    device = measured().devices[measurement.device]
    return {
        "decode": _generation(work, machines, device)[0],
        "update": _update(work, machines, device),
        "memory": sum(_memory(work, machines).values()) / GIB,
    }


def _memory(work: Workload, machines: Machines) -> dict[str, float]:
    """Bytes on one GPU, by what takes them."""
    rates = measured().memory
    _, kept, logits = memory_terms(work)
    rows = -(-work.rows // machines.gpus)
    cache = work.shape.cache_bytes(min(rows, slots(work, rows)), work.prompt + work.answer, HALF)
    return {
        "weights, gradients, optimiser and engine": known_bytes(work, machines.gpus, machines.sharded) - cache,
        "keys and values": float(cache),
        "activations": kept_inputs(work) + rates.activation * kept + rates.head * logits,
        "everything else": rates.overhead,
    }


def _generation(work: Workload, machines: Machines, device: Device) -> tuple[float, str]:
    """Seconds, and what a token waits for."""
    rates = measured().decode
    terms = decode_terms(work, machines.gpus)
    slower = measured().devices["h200"].bandwidth / device.bandwidth
    layers, reading = rates.decode * terms[0], rates.reading * terms[1] * slower
    bound = "launching kernels" if layers >= reading else "reading weights and cache"
    return layers + reading, bound


def _update(work: Workload, machines: Machines, device: Device) -> float:
    rates = measured().update
    terms = update_terms(work, machines.gpus)
    slower = measured().devices["h200"].bandwidth / device.bandwidth
    return times(rates, (*terms[:2], terms[2] * slower, terms[3] / (device.arithmetic or 1.0)))


def _traffic(work: Workload, machines: Machines) -> float:
    """Seconds for gradients (DDP) or for weights and gradients (FSDP2) to travel, nothing of it hidden."""
    if machines.gpus == 1:
        return 0.0
    share = (machines.gpus - 1) / machines.gpus
    trained = work.shape.adapter_parameters(work.lora_rank) if work.lora_rank else work.shape.parameters
    size = 2 * HALF * trained * share
    if machines.sharded:
        rows = -(-work.rows // machines.gpus)
        # Weights are gathered for the forward and the backward pass of every micro-batch.
        size = (2 * -(-rows // work.micro_batch) * work.shape.parameters + trained) * HALF * share
    return size / measured().networks[machines.network]


def _saturation(work: Workload, machines: Machines, device: Device) -> int:
    """The fewest tasks a step, in powers of two, that reach nearly the highest tokens a second."""

    def speed(tasks: int) -> float:
        more = replace(work, tasks=tasks)
        seconds = _generation(more, machines, device)[0] + _update(more, machines, device) + _traffic(more, machines)
        return more.rows * more.answer / seconds

    counts = [1 << n for n in range(MOST_TASKS.bit_length())]
    speeds = [speed(count) for count in counts]
    return next(count for count, found in zip(counts, speeds, strict=True) if found >= NEAR_BEST * max(speeds))


def _largest_micro_batch(work: Workload, machines: Machines, device: Device) -> int:
    fits = [
        size
        for size in (1 << n for n in range(13))
        if sum(_memory(replace(work, micro_batch=size), machines).values()) <= device.memory
    ]
    return max(fits, default=0)


def _extrapolations(work: Workload, machines: Machines, device: Device, bound: str) -> list[str]:
    """In words, where this leaves what was measured."""
    known = measured().measurements
    found = []
    if device.arithmetic is not None:
        found.append(f"nothing was measured on a {device.name}: data sheets compare it with the H200")
    if machines.gpus > 1:
        found.append("nothing was measured on several GPUs: traffic is counted from data sheets, none of it hidden")
    for name, words in (("layers", "layers"), ("width", "width")):
        sizes = [getattr(m.work.shape, name) for m in known]
        value = getattr(work.shape, name)
        if not min(sizes) <= value <= max(sizes):
            found.append(f"{words} {value}: measured from {min(sizes)} to {max(sizes)}")
    longest = max(m.work.prompt + m.work.answer for m in known)
    if work.prompt + work.answer > longest:
        found.append(f"rows of {work.prompt + work.answer} tokens: measured up to {longest}")
    largest = max(m.work.micro_batch for m in known)
    if work.micro_batch > largest:
        found.append(f"micro-batches of {work.micro_batch} rows: measured up to {largest}")
    if bound != "launching kernels":
        found.append("generation bound by reading memory: measured where launching kernels took longer")
    rows = -(-work.rows // machines.gpus)
    most = max(min(m.work.rows, slots(m.work, m.work.rows)) for m in known)
    if min(rows, slots(work, rows)) > most:
        found.append(f"{min(rows, slots(work, rows))} answers at once: measured up to {most}")
    return found


def _named(table: Mapping[str, Measured | Device | float], name: str, field: str) -> Device:
    if name not in table:
        raise ConfigError(f"{field} {name!r:.40} is not known here", hint=f"Known: {', '.join(table)}.", field=field)
    return table[name]  # type: ignore[return-value]
