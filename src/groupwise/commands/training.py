"""`groupwise demo | train | resume | stop`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from groupwise.commands.options import RUNS, Common, Overrides, answer
from groupwise.commands.products import builder
from groupwise.config import TrainingConfig, apply_overrides, load_config
from groupwise.errors import RunError
from groupwise.reporting.console import watch
from groupwise.reporting.curve import curve
from groupwise.reporting.export import exporters
from groupwise.reporting.history import History
from groupwise.reporting.report import write_report
from groupwise.training.control import send_command
from groupwise.training.events import read_events
from groupwise.training.run import create_run, find_run, inspect_run, read_config
from groupwise.training.session import execute
from groupwise.training.stopping import graceful_stop
from groupwise.types import Event

DEMO = Path(str(files("groupwise.control"))) / "cartpole.toml"


def train(config: Path, *, set_: Overrides = (), common: Common = Common()) -> int:
    """Train from a settings file (TOML, YAML, JSON or XML).

    Parameters
    ----------
    config
        The settings file, for example examples/cartpole.toml.
    """
    cfg = load_config(config, set_)
    return follow(create_run(cfg), cfg, json=common.json)


def resume(run: str = "latest", *, runs_dir: Path = Path(RUNS), set_: Overrides = (), common: Common = Common()) -> int:
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
    elif inspect_run(path).state == "finished" and read_events(path / "events.jsonl")[-1].type == "end":
        raise RunError(
            f"run {path.name} is finished: {cfg.training.num_episodes} steps were asked for",
            hint=f"Train it longer: groupwise resume {path} --set training.num_episodes=…",
        )
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
    state = inspect_run(path).state
    if state != "running":
        raise RunError(f"run {path.name} is not running ({state})", hint="`groupwise runs` lists the runs.")
    command = send_command(path, "stop")
    if common.json:
        answer({"run": path.name, "id": command.id, "op": "stop"})
    else:
        print(f"{path.name} stops after its current step; `groupwise resume {path}` goes on with it.")


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Any number; a fresh one each time if not given.")] = None,
    runs_dir: Path = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Learn CartPole from nothing with GRPO, in seconds on one core, and write a report.

    Parameters
    ----------
    runs_dir
        Where runs are kept.
    """
    seed = int(time.time()) % 100_000 if seed is None else seed
    cfg = load_config(DEMO, [f"run.seed={seed}", f"run.output_dir={runs_dir}"])
    path = create_run(cfg)
    console = Console()
    if not common.json:
        console.print(f"{OPENING} Seed {seed}.\n", highlight=False)
    began = time.perf_counter()
    list(follow_events(path, cfg, quiet=common.json or not console.is_terminal))
    seconds = time.perf_counter() - began
    report = write_report(path)
    history = History.read(path)
    scores = history.series("eval/reward_mean")[1]
    if common.json:
        answer(
            {
                "before": scores[0], "after": scores[-1], "seconds": round(seconds, 2),
                "seed": seed, "run": str(path), "report": str(report),
            }
        )  # fmt: skip
        return
    steps, rewards = history.series("reward/mean")
    console.print("mean reward of the attempts, by step", style="dim")
    print(curve(rewards, min(console.width, 72), 8, steps=(steps[0], steps[-1])))
    episodes = cfg.run.eval_episodes
    console.print(
        f"\nBefore: {scores[0]:.0f} of 500 steps upright.  After: [bold]{scores[-1]:.0f} of 500[/bold], "
        f"mean of {episodes} greedy episodes from unseen starts, in {seconds:.1f} s.\n",
        highlight=False,
    )
    console.print(NEXT.format(report=report, run=path), highlight=False, markup=False)


OPENING = (
    "Training CartPole with GRPO: 8 attempts from one start form a group, and each attempt learns from "
    "how it did relative to the others. No critic, one core."
)

NEXT = """Look at it:    {report}
Try next:      groupwise show {run}
               groupwise eval {run} --seed 7
               groupwise train examples/cartpole.toml --set loss.loss_type=sapo
               groupwise config show --comments"""


def follow(path: Path, cfg: TrainingConfig, *, json: bool) -> int:
    """Run to the end while showing it, then write the report."""
    last = deque(follow_events(path, cfg, json=json), maxlen=1).pop()
    report = write_report(path)
    if not json:
        console = Console(stderr=True)
        console.print(f"report: {report}", highlight=False)
        if last.data["reason"] == "stopped":
            console.print(f"stopped; go on with: groupwise resume {path}", highlight=False)
    return 0


def follow_events(path: Path, cfg: TrainingConfig, *, json: bool = False, quiet: bool = False) -> Iterator[Event]:
    """The events of the run as they happen, shown on the way to whoever asked for them."""
    sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
    try:
        with graceful_stop() as stop:
            events = execute(path, builder(cfg.task.product), cfg, stop)
            for event in watch(events, json=json, quiet=quiet):
                for sink in sinks:
                    sink.event(event)
                yield event
    finally:
        for sink in sinks:
            sink.close()
