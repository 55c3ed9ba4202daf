"""The combinations of a grid or a random draw. All are checked before anything runs.

A draw depends only on its seed and its number, so asking for more settings keeps those that were drawn before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.config.overrides import apply_overrides
from groupwise.control.sweep.axes import Axis, override, shown
from groupwise.errors import ConfigError
from groupwise.products import product_of

MOST = 10_000
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Combination:
    """One combination of values for an algorithm: its number in the sweep, its values by axis, and all its settings.

    `refused` says why no run can be made of it; only Optuna suggests such, during the sweep.
    """

    algorithm: str
    number: int
    values: Values
    cfg: TrainingConfig
    refused: str = ""

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.number:04d}"


def grid(axes: Sequence[Axis]) -> list[Values]:
    """Every combination of the axes' values."""
    sides = [axis.grid() for axis in axes]
    count = math.prod(map(len, sides))
    if count > MOST:
        sizes = " × ".join(str(len(side)) for side in sides)
        raise ConfigError(
            f"the grid has {sizes} = {count:,} settings; at most {MOST:,} are possible",
            hint="Use fewer values (LOW:HIGH:log:4 has four), or --method random --settings 64.",
        )
    return list(product(*sides))


def random_draw(axes: Sequence[Axis], count: int, seed: int) -> list[Values]:
    """`count` different combinations drawn independently of each other."""
    room = math.prod(axis.size for axis in axes)
    if count > room:
        message = f"--settings {count} is more than the {room:,.0f} that the ranges have"
        raise ConfigError(message, hint="Ask for fewer, or use --method grid, which has them all.")
    found: dict[Values, None] = {}
    attempt = 0
    while len(found) < count:
        rng = np.random.default_rng([seed, attempt])
        found.setdefault(tuple(axis.draw(rng) for axis in axes))
        attempt += 1
        # A range of real numbers is rounded to four digits, so a tiny one can run out of numbers.
        if attempt > 1000 + 100 * count:
            raise ConfigError(f"the ranges have only {len(found)} different settings, and {count} were asked for")
    return list(found)


def make_candidate(
    algorithm: str, base: TrainingConfig, number: int, axes: Sequence[Axis], values: Values
) -> Combination:
    """A combination with all its settings; one that no run can be made of is refused with its values."""
    overrides = [override(axis.name, value) for axis, value in zip(axes, values, strict=True)]
    try:
        cfg = TrainingConfig.from_dict(apply_overrides(base.to_dict(), overrides))
        product_of(cfg).check(cfg)
    except ConfigError as error:
        where = in_words(axes, values)
        raise ConfigError(f"{algorithm} with {where}: {error.message}", hint=error.hint, field=error.field) from None
    return Combination(algorithm, number, values, cfg)


def in_words(axes: Sequence[Axis], values: Values) -> str:
    return ", ".join(f"{axis.name} = {shown(value)}" for axis, value in zip(axes, values, strict=True))


def check_bases(bases: Mapping[str, TrainingConfig], axes: Sequence[Axis]) -> None:
    """Refuse algorithms that cannot be swept together, or that lack a swept setting."""
    places = {name: cfg.task.environment for name, cfg in bases.items()}
    if len(set(places.values())) > 1:
        listed = "; ".join(f"{name} in {place}" for name, place in places.items())
        hint = "Sweep them one by one, or set one environment for all: --set task.environment=CartPole-v1."
        raise ConfigError(f"the algorithms have different environments: {listed}", hint=hint, field="task.environment")
    for name, cfg in bases.items():
        if cfg.run.eval_steps == 0:
            message = f"{name} is never evaluated (run.eval_steps = 0), so its settings have no score"
            raise ConfigError(message, hint="Add --set run.eval_steps=10.", field="run.eval_steps")
        known = cfg.to_dict()
        for axis in axes:
            section, _, rest = axis.name.partition(".")
            if rest.partition(".")[0] not in known.get(section, {}):
                message = f"{name} has no setting {axis.name}: its product is {cfg.task.product}"
                raise ConfigError(message, hint="Sweep it in a command of its own.", field=axis.name)
