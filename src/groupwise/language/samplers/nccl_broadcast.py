"""The learner's end of the NCCL group that new weights travel through: rank 0, which sends."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor
from torch.cuda import nccl


class NcclBroadcast:
    """Sends tensors from this process's GPU to all members of a group that share its ticket."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._ticket = device, b""
        self._communicator: Any = None

    def ticket(self) -> str:
        """What every member needs to join the same group: NCCL's unique id in base64."""
        self._ticket = nccl.unique_id()
        return base64.b64encode(self._ticket).decode("ascii")

    def join(self, world: int) -> None:
        """Enter the group as rank 0; returns when all `world` members have."""
        with torch.cuda.device(self.device):
            self._communicator = nccl.init_rank(world, self._ticket, 0)
            # vLLM's members add up one number as a first sign of life, and wait for us to do the same.
            nccl.all_reduce([torch.zeros(1, device=self.device)], comms=[self._communicator])
            torch.cuda.synchronize(self.device)

    def send(self, tensor: Tensor) -> None:
        with torch.cuda.device(self.device):
            nccl.broadcast([tensor], root=0, comms=[self._communicator])
            torch.cuda.synchronize(self.device)
