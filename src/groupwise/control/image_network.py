"""A network for observations with images: convolutions for every image, and the other numbers beside what they give.

image [C, H, W] → "Human-level control through deep reinforcement learning" (Mnih et al., 2015): 32 filters of 8 × 8,
                  64 of 4 × 4, 64 of 3 × 3 with strides 4, 2, 1 → 512 units; small images get 3 × 3 filters
images and numbers side by side → the hidden layers (only with numbers or several images) → outputs
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from groupwise.control.spaces import RowPart

# (filters, size, stride) of each layer; the smallest side that Mnih's filters fit is 36.
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
SMALL = ((16, 3, 1), (32, 3, 2))
NATURE_SIDE = 36
FEATURES = 512


class ImageNetwork(nn.Module):
    """[..., observation_size] → [..., outputs], where `parts` says which numbers of a row are images."""

    def __init__(
        self,
        parts: Sequence[RowPart],
        hidden_sizes: Sequence[int],
        outputs: int,
        head_gain: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.eyes = nn.ModuleList(_eye(part.shape, generator) for part in self.parts if part.is_image)
        numbers = sum(part.size for part in self.parts if not part.is_image)
        width = FEATURES * len(self.eyes) + numbers
        layers: list[nn.Module] = []
        # One image needs no more layers: its 512 units are the hidden layer.
        for size in hidden_sizes if numbers or len(self.eyes) > 1 else ():
            layers += [_ready(nn.Linear(width, size), generator), nn.Tanh()]
            width = size
        self.rest = nn.Sequential(*layers, _ready(nn.Linear(width, outputs), generator, head_gain))

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, rows.shape[-1])
        eyes, seen = iter(self.eyes), []
        for part in self.parts:
            own = flat[:, part.start : part.start + part.size]
            seen.append(next(eyes)(channels_first(own, part.shape)) if part.is_image else own)
        answers: Tensor = self.rest(torch.cat(seen, -1))
        return answers.reshape(*rows.shape[:-1], answers.shape[-1])


def channels_first(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Rows [N, …] as images [N, C, H, W]: of grey levels, with channels first or last, or a stack of frames."""
    images = rows.reshape(-1, *shape)
    if len(shape) == 2:
        return images[:, None]
    if shape[-1] < shape[-2] and shape[-1] < 8:
        images = images.movedim(-1, -3)
    return images.flatten(1, -3)


def _eye(shape: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    channels, *sides = channels_first(torch.zeros(1, math.prod(shape)), shape).shape[1:]
    layers: list[nn.Module] = []
    for filters, size, stride in NATURE if min(sides) >= NATURE_SIDE else SMALL:
        layers += [_ready(nn.Conv2d(channels, filters, size, stride), generator), nn.ReLU()]
        channels, sides = filters, [(side - size) // stride + 1 for side in sides]
    units = _ready(nn.Linear(channels * math.prod(sides), FEATURES), generator)
    return nn.Sequential(*layers, nn.Flatten(), units, nn.ReLU())


def _ready(layer: nn.Linear | nn.Conv2d, generator: torch.Generator, gain: float = math.sqrt(2.0)) -> nn.Module:
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, gain, generator)
        if layer.bias is not None:
            layer.bias.zero_()
    return layer
