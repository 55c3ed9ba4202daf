"""Combinations suggested by Optuna's tree-structured Parzen estimator, a batch at a time.

A batch is asked for once all earlier ones have scores, and depends on nothing else: not on the number of worker
processes, nor on which run ended first. So a sweep that is interrupted continues as it would have gone.
"""

from collections.abc import Sequence
from typing import Any

from groupwise.control.sweep.axes import Axis
from groupwise.control.sweep.candidates import Values
from groupwise.errors import MissingExtra

# Settings suggested at a time. More keep more processes busy, fewer learn sooner from what was tried.
BATCH = 8
Told = Sequence[tuple[Values, float | None]]


def check_installed() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        hint = "pip install 'groupwise[optuna]', or use --method random."
        raise MissingExtra("--method optuna needs the package optuna, which is not installed", hint=hint) from None


def suggest(axes: Sequence[Axis], told: Told, count: int, seed: int) -> list[Values]:
    """The next `count` combinations, given those tried so far with their scores (None if they failed)."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {axis.name: _distribution(optuna, axis) for axis in axes}
    # The seed differs from batch to batch, or every batch would begin with the same random draws.
    sampler = optuna.samplers.TPESampler(seed=seed + len(told), multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in told:
        kept = {axis.name: _told(axis, value) for axis, value in zip(axes, values, strict=True)}
        state = optuna.trial.TrialState.COMPLETE if score is not None else optuna.trial.TrialState.FAIL
        trial = optuna.trial.create_trial(params=kept, distributions=space, value=score, state=state)
        study.add_trial(trial)
    asked = [study.ask(space) for _ in range(count)]
    return [tuple(_value(axis, trial.params[axis.name]) for axis in axes) for trial in asked]


def _distribution(optuna: Any, axis: Axis) -> Any:
    if axis.values:
        # Values may be lists, which Optuna does not take as categories.
        return optuna.distributions.CategoricalDistribution(range(len(axis.values)))
    if axis.whole:
        return optuna.distributions.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)


def _told(axis: Axis, value: Any) -> Any:
    return axis.values.index(value) if axis.values else value


def _value(axis: Axis, suggested: Any) -> Any:
    if axis.values:
        return axis.values[suggested]
    return suggested if axis.whole else axis.at(axis.place(suggested))
