"""`groupwise train | resume | stop | eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.errors import ConfigError, RunError
from groupwise.products import product_of
from groupwise.reporting.command_options import (
    RUNS,
    Common,
    Overrides,
    OwnRunsDir,
    Quiet,
    RunName,
    RunsDir,
    SettingsFile,
    answer,
)
from groupwise.training.control_file import send_command
from groupwise.training.ranks.launcher import RESTARTS

if TYPE_CHECKING:
    from groupwise.config import TrainingConfig
    from groupwise.training.session import Parts

RankCount = Annotated[
    int | None,
    Parameter(
        validator=Number(gte=1, lte=1024),
        help="Train with this many processes on this machine; for several machines use torchrun.",
    ),
]
Restarts = Annotated[
    int,
    Parameter(validator=Number(gte=0), help="With --ranks: how often to start them all again after one has died."),
]


def train(
    config: SettingsFile, *, ranks: RankCount = None, restarts: Restarts = RESTARTS, runs_dir: OwnRunsDir = None,
    set_: Overrides = (), quiet: Quiet = False, common: Common = Common(),
) -> int:  # fmt: skip
    """Train from a settings file, and write a report when it ends."""
    from groupwise.commands.many_ranks import on_present_ranks, train_on_ranks
    from groupwise.config import load_config
    from groupwise.reporting.live_run import ready, start_run
    from groupwise.training.folder import create_run
    from groupwise.training.ranks.communication import check_groups

    overrides = (*set_, *([f"run.output_dir={runs_dir}"] if runs_dir else []))
    cfg = load_config(config, overrides)
    if ranks in (None, 1):
        return on_present_ranks(cfg, lambda present: start_run(cfg, json=common.json, quiet=quiet, ranks=present)[1])
    check_groups(ranks, cfg)
    cfg = ready(cfg)
    return train_on_ranks(create_run(cfg), cfg, ranks, restarts, json=common.json, quiet=quiet)


def resume(
    run: RunName = "latest", *, ranks: RankCount = None, restarts: Restarts = RESTARTS, runs_dir: RunsDir = Path(RUNS),
    set_: Overrides = (), quiet: Quiet = False, common: Common = Common(),
) -> int:  # fmt: skip
    """Continue a run from its last checkpoint, with exactly the result it would have had without the break."""
    from groupwise.commands.many_ranks import on_present_ranks, train_on_ranks
    from groupwise.config import TrainingConfig, apply_overrides
    from groupwise.reporting.live_run import follow_run
    from groupwise.training.events import read_events
    from groupwise.training.folder import find_run, inspect_run, read_config
    from groupwise.training.ranks.communication import check_groups

    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    if set_:
        recorded, cfg = cfg, TrainingConfig.from_dict(apply_overrides(cfg.to_dict(), set_))
        # A start that was pinned before stays pinned, even if the run it came from is gone.
        if cfg.policy.model_name != recorded.policy.model_name:
            cfg = product_of(cfg).prepare(cfg)
    elif inspect_run(path).state == "finished" and [e.type for e in read_events(path / "events.jsonl")][-1:] == ["end"]:
        raise RunError(
            f"run {path.name} has finished its {cfg.training.num_episodes} steps",
            hint=f"To train it longer: groupwise resume {path} --set training.num_episodes=…",
        )
    if ranks in (None, 1):
        return on_present_ranks(
            cfg,
            lambda present: follow_run(path, cfg, json=common.json, quiet=quiet, by_hand=True, ranks=present),
        )
    check_groups(ranks, cfg)
    return train_on_ranks(path, cfg, ranks, restarts, json=common.json, quiet=quiet, by_hand=True)


def stop(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Ask a running run to finish its step, save and stop."""
    from groupwise.training.folder import find_run, inspect_run

    path = find_run(run, str(runs_dir))
    state = inspect_run(path).state
    if state != "running":
        raise RunError(f"run {path.name} is not running ({state})", hint="`groupwise runs` lists the runs.")
    command = send_command(path, "stop")
    if common.json:
        answer({"run": path.name, "id": command.id, "op": "stop"})
    else:
        print(f"{path.name} will stop after its current step; continue it with `groupwise resume {path}`.")


def evaluate(
    run: RunName = "latest",
    *,
    episodes: Annotated[int, Parameter(validator=Number(gte=1), help="How many attempts.")] = 100,
    seed: Annotated[int | None, Parameter(help="First seed; by default the run's own.")] = None,
    samples: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Answers per problem, for pass@k; by default the run's own."),
    ] = None,
    step: Annotated[int | None, Parameter(help="Step of the checkpoint; by default the newest.")] = None,
    gif: Annotated[Path | None, Parameter(help="Also write the episode of the first seed as a GIF.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Evaluate the policy of a run on tasks it has not seen."""
    from groupwise.reporting.console import print_hints
    from groupwise.training.checkpoint import choose_checkpoint
    from groupwise.training.folder import find_run, read_config
    from groupwise.training.loop import pending_hints

    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    cfg = cfg.replace(
        eval_episodes=episodes,
        eval_seed=cfg.run.eval_seed if seed is None else seed,
        eval_samples=samples or cfg.run.eval_samples,
    )
    checkpoint = choose_checkpoint(path, step)
    product = product_of(cfg)
    parts = product.build(product.open_run(path, cfg, learning=False))
    parts.policy.load_state_dict(checkpoint.model)
    assert parts.evaluate is not None
    shown = None if gif is None else film(parts, cfg, gif)
    try:
        metrics = dict(parts.evaluate(parts.policy))
    finally:
        print_hints(pending_hints(parts.source))
    if common.json:
        said = {"run": path.name, "step": checkpoint.step, "seed": cfg.run.eval_seed, "metrics": metrics}
        answer(said if gif is None else {**said, "gif": str(gif)})
        return
    console = Console()
    console.print(f"{path.name} at step {checkpoint.step}, seeds from {cfg.run.eval_seed}", highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in metrics.items():
        table.add_row(name.removeprefix("eval/").replace("_", " "), f"{value:,g}")
    console.print(table)
    if shown:
        console.print(shown, highlight=False)


def film(parts: Parts, cfg: TrainingConfig, path: Path) -> str:
    if parts.film is None:
        raise ConfigError(f"--gif: runs of the product {cfg.task.product!r} have nothing to draw")
    return parts.film(path, cfg.run.eval_seed)
