"""`groupwise demo | train | resume | stop`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from groupwise.commands.options import RUNS, Common, Overrides, answer
from groupwise.commands.products import builder
from groupwise.config import TrainingConfig, apply_overrides, load_config
from groupwise.training.console import watch
from groupwise.training.control import send_command
from groupwise.training.export import exporters
from groupwise.training.report import write_report
from groupwise.training.run import create_run, find_run, inspect_run, read_config
from groupwise.training.session import execute
from groupwise.types import Event


def train(config: Path, *, set_: Overrides = (), common: Common = Common()) -> int:
    """Train from a settings file (TOML, YAML, JSON or XML).

    Parameters
    ----------
    config
        The settings file, for example examples/cartpole.toml.
    """
    cfg = load_config(config, set_)
    return follow(create_run(cfg), cfg, json=common.json)


def resume(
    run: str = "latest", *, runs_dir: Path = Path(RUNS), set_: Overrides = (), common: Common = Common()
) -> int:
    """Go on with a run from its last checkpoint, exactly as if it had never stopped.

    Parameters
    ----------
    run
        A run's name or folder, or "latest".
    runs_dir
        Where runs are kept.
    """
    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    if set_:
        cfg = TrainingConfig.from_dict(apply_overrides(cfg.to_dict(), set_))
    send_command(path, "resume")
    return follow(path, cfg, json=common.json)


def stop(run: str = "latest", *, runs_dir: Path = Path(RUNS), common: Common = Common()) -> None:
    """Ask a running run to finish its step, save and stop.

    Parameters
    ----------
    run
        A run's name or folder, or "latest".
    runs_dir
        Where runs are kept.
    """
    path = find_run(run, str(runs_dir))
    command = send_command(path, "stop")
    state = inspect_run(path).state
    if common.json:
        answer({"run": path.name, "state": state, "id": command.id, "op": "stop"})
    elif state == "running":
        print(
            f"{path.name} will stop after its current step; `groupwise resume {path.name}` goes on with it."
        )
    else:
        print(f"{path.name} is not running ({state}).")


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Any number; a fresh one each time if not given.")] = None,
    runs_dir: Path = Path(RUNS),
    common: Common = Common(),
) -> int:
    """Learn CartPole from nothing with GRPO, in seconds on one core, and write a report.

    Parameters
    ----------
    runs_dir
        Where runs are kept.
    """
    seed = int(time.time()) % 100_000 if seed is None else seed
    source = Path(str(files("groupwise.control") / "cartpole.toml"))
    cfg = load_config(source, [f"run.seed={seed}", f"run.output_dir={runs_dir}", "run.run_name=null"])
    path = create_run(cfg)
    began = time.perf_counter()
    events = list(follow_events(path, cfg, quiet=common.json))
    seconds = time.perf_counter() - began
    scores = [event.data["metrics"]["eval/reward_mean"] for event in events if event.type == "eval"]
    if common.json:
        answer(
            {
                "before": scores[0], "after": scores[-1], "seconds": round(seconds, 2),
                "seed": seed, "run": str(path), "report": str(write_report(path)),
            }
        )  # fmt: skip
        return 0
    _farewell(path, scores, seconds)
    return 0


def follow(path: Path, cfg: TrainingConfig, *, json: bool) -> int:
    """Run to the end while showing it, then write the report."""
    for event in follow_events(path, cfg, json=json):
        last = event
    if last.type == "end" and not json:
        write_report(path)
        console = Console(stderr=True)
        console.print(f"report: {path / 'report.html'}", highlight=False)
        if last.data["reason"] == "stopped":
            console.print(f"stopped; go on with: groupwise resume {path}", highlight=False)
    return 0


def follow_events(
    path: Path, cfg: TrainingConfig, *, json: bool = False, quiet: bool = False
) -> Iterator[Event]:
    """The events of the run as they happen, shown on the way to whoever asked for them."""
    sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
    try:
        events = execute(path, builder(cfg.task.product), cfg)
        for event in watch(events, json=json, quiet=quiet):
            for sink in sinks:
                sink.event(event)
            yield event
    finally:
        for sink in sinks:
            sink.close()
