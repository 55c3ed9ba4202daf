"""`groupwise demo | train | sft | resume | stop`."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from groupwise.agents.starting import LANGUAGE_PRODUCTS, pinned
from groupwise.commands.options import RUNS, Common, Overrides, RunName, RunsDir, answer
from groupwise.commands.products import builder, check_product
from groupwise.config import TrainingConfig, apply_overrides, load_config
from groupwise.config.sections import AdvantageSettings, LossSettings
from groupwise.errors import RunError
from groupwise.reporting.console import watch
from groupwise.reporting.curve import course, curve
from groupwise.reporting.export import exporters
from groupwise.reporting.history import History
from groupwise.reporting.report import write_report
from groupwise.training.control import send_command
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, find_run, inspect_run, read_config
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
    return begin(load_config(config, set_), json=common.json)[1]


def sft(config: Path, *, set_: Overrides = (), common: Common = Common()) -> int:
    """Teach a language model the right answers of a task first: supervised, with the settings of `train`.

    A step learns from rollout.tasks_per_step demonstrations. The sections loss and advantage do not apply.

    Parameters
    ----------
    config
        The settings file, the one that `groupwise train` is to have afterwards.
    """
    cfg = supervised(load_config(config, set_))
    path, status = begin(cfg, json=common.json)
    if status == 0 and not common.json:
        words = f"next: groupwise train {config} --set policy.model_name={path}\n      groupwise chat {path}"
        Console(stderr=True, soft_wrap=True).print(words, highlight=False, markup=False)
    return status


def supervised(cfg: TrainingConfig) -> TrainingConfig:
    """The settings of a warm start: one pass of plain likelihood, whatever the loss of the later run is."""
    return cfg.replace(
        product="warm-start", loss=LossSettings(), advantage=AdvantageSettings(), use_reference_model=False,
        num_epochs=1, kl_stop=None,
    )  # fmt: skip


def begin(cfg: TrainingConfig, *, json: bool) -> tuple[Path, int]:
    """Make a run of these settings and follow it to its end: its folder, and the exit status."""
    check_product(cfg)
    if cfg.task.product in LANGUAGE_PRODUCTS:
        cfg = pinned(cfg)
    path = create_run(cfg)
    return path, follow(path, cfg, json=json)


def resume(
    run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), set_: Overrides = (), common: Common = Common()
) -> int:
    """Go on with a run from its last checkpoint, exactly as if it had never stopped."""
    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    if set_:
        cfg = TrainingConfig.from_dict(apply_overrides(cfg.to_dict(), set_))
    elif inspect_run(path).state == "finished" and read_events(path / "events.jsonl")[-1].type == "end":
        raise RunError(
            f"run {path.name} is finished: {cfg.training.num_episodes} steps were asked for",
            hint=f"Train it longer: groupwise resume {path} --set training.num_episodes=…",
        )
    return follow(path, cfg, json=common.json, by_hand=True)


def stop(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Ask a running run to finish its step, save and stop."""
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
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> int:
    """Learn CartPole from nothing with GRPO, in seconds on one core, and write a report."""
    seed = int(time.time()) % 100_000 if seed is None else seed
    cfg = load_config(DEMO, [f"run.seed={seed}", f"run.output_dir={runs_dir}"])
    path = create_run(cfg)
    console = Console()
    if not common.json:
        console.print(f"{OPENING}\nSeed {seed}: `groupwise demo --seed {seed}` repeats this run.\n", highlight=False)
    began = time.perf_counter()
    last = deque(follow_events(path, cfg, quiet=common.json or not console.is_terminal), maxlen=1).pop()
    seconds = time.perf_counter() - began
    report = write_report(path)
    history = History.read(path)
    scores = history.series("eval/reward_mean")[1]
    stopped = last.data["reason"] == "stopped"
    if common.json:
        answer(
            {
                "before": scores[0], "after": scores[-1], "seconds": round(seconds, 2), "seed": seed,
                "finished": not stopped, "run": str(path), "report": str(report),
            }
        )  # fmt: skip
    elif stopped:
        console.print(f"stopped; go on with: groupwise resume {path}", highlight=False, markup=False)
    else:
        if not console.is_terminal:
            steps, rewards = history.series("reward/mean")
            console.print("mean reward of the attempts, by step", style="dim")
            print(curve(course(steps, rewards), min(console.width, 72), 8, steps=(steps[0], steps[-1])))
        episodes = cfg.run.eval_episodes
        console.print(
            f"\nBefore: {scores[0]:.0f} of 500 steps upright.  After: [bold]{scores[-1]:.0f} of 500[/bold].\n"
            f"Means of {episodes} greedy episodes from unseen starts; {seconds:.1f} s on one core.\n",
            highlight=False,
        )
        command = "groupwise" if shutil.which("groupwise") else sys.argv[0]
        words = NEXT.format(report=report, run=path, groupwise=command)
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    return 130 if stopped else 0


OPENING = (
    "Training CartPole with GRPO: 8 attempts from one start form a group, and each attempt learns from "
    "how it did relative to the others. No critic, one core."
)

NEXT = """Look at it:    {report}
Try next:      {groupwise} show {run}
               {groupwise} eval {run} --seed 7
               {groupwise} train {run}/config.toml --set loss.loss_type=sapo
               {groupwise} config show --comments"""


def follow(path: Path, cfg: TrainingConfig, *, json: bool, by_hand: bool = False) -> int:
    """Run to the end while showing it, then write the report; 130 when it was interrupted."""
    last = deque(follow_events(path, cfg, json=json, by_hand=by_hand), maxlen=1).pop()
    report = write_report(path)
    stopped = last.data["reason"] == "stopped"
    if not json:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"report: {report}", highlight=False, markup=False)
        if stopped:
            console.print(f"stopped; go on with: groupwise resume {path}", highlight=False, markup=False)
    return 130 if stopped else 0


def follow_events(
    path: Path, cfg: TrainingConfig, *, json: bool = False, quiet: bool = False, by_hand: bool = False
) -> Iterator[Event]:
    """The events of the run as they happen, shown on the way to whoever asked for them.

    Ctrl-C, or SIGTERM, lets the step in hand finish and saves; a second one insists.
    """
    sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
    try:
        with graceful_stop() as stop:
            events = execute(path, builder(cfg.task.product), cfg, stop, by_hand=by_hand)
            for event in watch(events, json=json, quiet=quiet):
                for sink in sinks:
                    sink.event(event)
                yield event
    finally:
        for sink in sinks:
            sink.close()
