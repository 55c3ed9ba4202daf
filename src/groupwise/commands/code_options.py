"""Options that the searches for programs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from groupwise.training.folder import find_run
from groupwise.workflows.search.priors import Prior, Uniform

PolicyRun = Annotated[
    str | None,
    Parameter(name="--policy", help="A run of `groupwise train code.toml`: its model says which lines to try first."),
]


def chosen_prior(policy: str | None, runs_dir: Path) -> Prior:
    """The prior of a run's model, or one that knows nothing."""
    if policy is None:
        return Uniform()
    # Only a model needs torch, which takes seconds to load.
    from groupwise.workflows.code.learning.prior import prior_of_run

    return prior_of_run(find_run(policy, str(runs_dir)))
