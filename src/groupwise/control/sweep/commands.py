"""`groupwise sweep`: train many settings with several seeds, and report which of them matter."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from groupwise.errors import ConfigError
from groupwise.reporting.command_options import Common, Overrides, answer

if TYPE_CHECKING:
    from groupwise.config import TrainingConfig

Words = tuple[str, ...]


def sweep(
    configs: Annotated[Words, Parameter(help="Settings files, or NAME=FILE: one for each algorithm.")] = (),
    *,
    over: Annotated[
        Words,
        Parameter(
            help="A setting and its range: optim.learning_rate=1e-4:1e-2:log, rollout.num_generations=4,8,16, or a "
            "TOML file with a table [sweep]."
        ),
    ] = (),
    method: Annotated[str, Parameter(help="How settings are chosen: grid, random or optuna.")] = "grid",
    settings: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Number of settings; default: 32, or all of a grid.")
    ] = None,
    draw_seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of random and optuna.")] = 0,
    seeds: Annotated[int, Parameter(validator=Number(gte=1), help="Number of training seeds of each setting.")] = 3,
    first: Annotated[int, Parameter(validator=Number(gte=0), help="First training seed.")] = 0,
    out: Annotated[
        Path, Parameter(name=["--out", "-o"], help="Output folder; an interrupted sweep continues there.")
    ] = Path("sweep"),
    jobs: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Worker processes; default: one per core.")
    ] = None,
    threshold: Annotated[Words, Parameter(help="Score that solves a task: CartPole-v1=475.")] = (),
    set_: Overrides = (),
    common: Common = Common(),
) -> None:
    """Train many settings with several seeds and report which matter, how many solve, and which to take.

    Repeat an interrupted command to continue it. The folder gets report.html, the figures with their data, trials.csv,
    and all numbers in sweep.json.
    """
    from groupwise.control.commands import named, thresholds
    from groupwise.control.sweep.findings import findings_of
    from groupwise.control.sweep.page import additions, sweep_view, write_sweep
    from groupwise.control.sweep.running import Sweep, as_json, make_plan
    from groupwise.reporting.comparison_table import progress_bar

    files = [named(word) for word in configs]
    bases = _bases(files, set_)
    plan = make_plan(
        bases, over, method=method, settings=settings, seeds=range(first, first + seeds), draw_seed=draw_seed,
        thresholds=thresholds(threshold), files={name: str(path) for name, path in files},
    )  # fmt: skip
    command = shlex.join(["groupwise", *sys.argv[1:]])
    under_way = Sweep(out, plan)
    try:
        with progress_bar(quiet=common.json) as bar:
            result = under_way.run(jobs, bar)
    except KeyboardInterrupt:
        # What is finished is worth a report, too; a second Ctrl-C skips it.
        write_sweep(under_way, findings_of(under_way.result()), command)
        raise
    found = findings_of(result)
    path = write_sweep(under_way, found, command)
    if common.json:
        answer({**as_json(result, **additions(found, command)), "report": str(path)})
        return
    Console().print(sweep_view(result, found))
    Console(stderr=True, soft_wrap=True).print(f"report: {path}", highlight=False, markup=False)


def _bases(files: list[tuple[str, Path]], overrides: Words) -> dict[str, TrainingConfig]:
    """The settings of every file by its given name, or by the file's."""
    from groupwise.config import load_config

    if not files:
        hint = "groupwise sweep grpo.toml --over optim.learning_rate=1e-4:1e-2:log"
        raise ConfigError("no settings file was given", hint=hint)
    names = [name for name, _ in files]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name!r} is given twice", hint="Name them: NAME=FILE.")
    return {name: load_config(path, overrides) for name, path in files}
