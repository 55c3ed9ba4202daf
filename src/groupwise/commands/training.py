"""`groupwise train | sft | resume | stop`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from groupwise.commands.options import RUNS, Common, Overrides, Quiet, RunName, RunsDir, answer
from groupwise.commands.runs import write_run_report
from groupwise.config import TrainingConfig, apply_overrides, load_config
from groupwise.errors import RunError
from groupwise.products import product_of
from groupwise.reporting.console import watch
from groupwise.reporting.trackers import exporters
from groupwise.training.control_file import send_command
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, find_run, inspect_run, read_config
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import graceful_stop
from groupwise.types import Event


def train(config: Path, *, set_: Overrides = (), quiet: Quiet = False, common: Common = Common()) -> int:
    """Train from a settings file (TOML, YAML, JSON or XML).

    Parameters
    ----------
    config
        The settings file, for example examples/cartpole.toml.
    """
    return begin(load_config(config, set_), json=common.json, quiet=quiet)[1]


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
        later = config if load_config(config).task.product == "language" else "SETTINGS.toml"
        words = f"next: groupwise train {later} --set policy.model_name={path}\n      groupwise chat {path}"
        Console(stderr=True, soft_wrap=True).print(words, highlight=False, markup=False)
    return status


def supervised(cfg: TrainingConfig) -> TrainingConfig:
    """The settings of a warm start: one pass of plain likelihood, whatever the loss of the later run is."""
    kept = {name: section for name, section in cfg.to_dict().items() if name not in ("loss", "advantage")}
    return TrainingConfig.from_dict(kept).replace(
        product="warm-start", use_reference_model=False, num_epochs=1, kl_stop=None
    )


def begin(cfg: TrainingConfig, *, json: bool, quiet: bool = False) -> tuple[Path, int]:
    """Make a run of these settings and follow it to its end: its folder, and the exit status."""
    product = product_of(cfg)
    product.check(cfg)
    cfg = product.prepare(cfg)
    path = create_run(cfg)
    return path, follow(path, cfg, json=json, quiet=quiet)


def resume(
    run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), set_: Overrides = (), quiet: Quiet = False,
    common: Common = Common(),
) -> int:  # fmt: skip
    """Go on with a run from its last checkpoint, exactly as if it had never stopped."""
    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    if set_:
        recorded, cfg = cfg, TrainingConfig.from_dict(apply_overrides(cfg.to_dict(), set_))
        if cfg.policy.model_name != recorded.policy.model_name:
            cfg = product_of(cfg).prepare(cfg)
    elif inspect_run(path).state == "finished" and read_events(path / "events.jsonl")[-1].type == "end":
        raise RunError(
            f"run {path.name} is finished: {cfg.training.num_episodes} steps were asked for",
            hint=f"Train it longer: groupwise resume {path} --set training.num_episodes=…",
        )
    return follow(path, cfg, json=common.json, quiet=quiet, by_hand=True)


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


def follow(path: Path, cfg: TrainingConfig, *, json: bool, quiet: bool = False, by_hand: bool = False) -> int:
    """Run to the end while showing it, then write the report; 130 when it was interrupted."""
    last = deque(follow_events(path, cfg, json=json, quiet=quiet, by_hand=by_hand), maxlen=1).pop()
    report = write_run_report(path)
    stopped = last.data["reason"] == "stopped"
    if not json and not quiet:
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
    product = product_of(cfg)

    def build(cfg: TrainingConfig) -> Parts:
        return product.build(product.open_run(path, cfg, learning=True))

    sinks = exporters(cfg.run.report_to, path, cfg.to_dict())
    try:
        with graceful_stop() as stop:
            events = execute(path, build, cfg, stop, by_hand=by_hand)
            for event in watch(events, json=json, quiet=quiet):
                for sink in sinks:
                    sink.event(event)
                yield event
    finally:
        for sink in sinks:
            sink.close()
