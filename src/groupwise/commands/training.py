"""`groupwise train | resume | stop`."""

from pathlib import Path

from groupwise.config import TrainingConfig, apply_overrides, load_config
from groupwise.errors import RunError
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
from groupwise.reporting.live_run import follow_run, start_run
from groupwise.training.control_file import send_command
from groupwise.training.events import read_events
from groupwise.training.folder import find_run, inspect_run, read_config


def train(
    config: SettingsFile, *, runs_dir: OwnRunsDir = None, set_: Overrides = (), quiet: Quiet = False,
    common: Common = Common(),
) -> int:  # fmt: skip
    """Train from a settings file, and write a report when it ends."""
    overrides = (*set_, *([f"run.output_dir={runs_dir}"] if runs_dir else []))
    return start_run(load_config(config, overrides), json=common.json, quiet=quiet)[1]


def resume(
    run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), set_: Overrides = (), quiet: Quiet = False,
    common: Common = Common(),
) -> int:  # fmt: skip
    """Continue a run from its last checkpoint, with exactly the result it would have had without the break."""
    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    if set_:
        recorded, cfg = cfg, TrainingConfig.from_dict(apply_overrides(cfg.to_dict(), set_))
        # A start that was pinned before stays pinned, even if the run it came from is gone.
        if cfg.policy.model_name != recorded.policy.model_name:
            cfg = product_of(cfg).prepare(cfg)
    elif inspect_run(path).state == "finished" and read_events(path / "events.jsonl")[-1].type == "end":
        raise RunError(
            f"run {path.name} has finished its {cfg.training.num_episodes} steps",
            hint=f"To train it longer: groupwise resume {path} --set training.num_episodes=…",
        )
    return follow_run(path, cfg, json=common.json, quiet=quiet, by_hand=True)


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
        print(f"{path.name} will stop after its current step; continue it with `groupwise resume {path}`.")
