"""The state of a sharded optimiser in a checkpoint, by torch's distributed checkpoints (DCP) in safetensors files.

Each rank writes its parts with their place in the complete tensors. Any number of ranks, or one process, reads what it
needs of them. Nothing in the files is a pickle, so that a checkpoint from elsewhere cannot run code.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Parameter

from groupwise.files import disk

# The entry of a saved optimiser that lists which tensors of which parameters are in shards.
IN_SHARDS = "in_shards"


def small_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimiser without its sharded tensors, and the names of those."""
    saved = optimizer.state_dict()
    states: Mapping[int, Mapping[str, Any]] = saved["state"]
    sharded = {n: sorted(name for name, v in own.items() if isinstance(v, DTensor)) for n, own in states.items()}
    rest = {n: {name: v for name, v in own.items() if name not in sharded[n]} for n, own in states.items()}
    return {**saved, "state": rest, IN_SHARDS: sharded}


def empty_folder(folder: Path) -> None:
    with disk(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)


def write_shards(optimizer: torch.optim.Optimizer, folder: Path, group: Any) -> None:
    """Write this rank's parts of the sharded tensors; every rank calls this."""
    tensors = {
        f"{n}.{name}": value
        for n, own in optimizer.state_dict()["state"].items()
        for name, value in own.items()
        if isinstance(value, DTensor)
    }
    if tensors:
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        dcp.save(tensors, storage_writer=writer, process_group=group)


def read_state(saved: Mapping[str, Any], folder: Path, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """A saved optimiser's state as these parameters have it: whole or in shards, whichever way it was written."""
    rest: dict[str, Any] = {name: value for name, value in saved.items() if name != IN_SHARDS}
    wanted = {
        f"{n}.{name}": torch.zeros_like(parameters[n], requires_grad=False)
        for n, names in saved.get(IN_SHARDS, {}).items()
        for name in names
    }
    if wanted:
        # Every rank reads for itself.
        dcp.load(wanted, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    states = {n: {name: _like(parameters[n], value) for name, value in own.items()} for n, own in rest["state"].items()}
    for key, value in wanted.items():
        number, _, name = key.partition(".")
        states[int(number)][name] = value
    return {**rest, "state": states}


def _like(parameter: Parameter, value: Any) -> Any:
    """A complete tensor in the shards of its parameter; what has another shape, such as a count of steps, as it is."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    value = value.to(parameter.device)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
