"""Whether Triton's kernels can run on a device, said in words where they cannot."""

from __future__ import annotations

from importlib.util import find_spec

import torch

# Ampere: the oldest with bfloat16 and flash attention.
OLDEST = (8, 0)


def why_no_triton(device: torch.device) -> str | None:
    """Why kernels cannot run there, to follow "because"; None if they can."""
    if device.type != "cuda" or torch.version.hip is not None:
        return f"the kernels were written for NVIDIA's GPUs, and this device is {device.type}"
    if find_spec("triton") is None:
        return "Triton is not installed"
    found = torch.cuda.get_device_capability(device)
    if found < OLDEST:
        return f"this GPU has compute capability {found[0]}.{found[1]}, and the kernels need {OLDEST[0]}.{OLDEST[1]}"
    return None
