"""A run from the outside: start or resume it, watch its events, and leave the folder in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError, StorageError
from groupwise.training.learner import Learner
from groupwise.training.loop import Evaluate, train
from groupwise.training.randomness import seed_everything
from groupwise.training.run import Run, inspect_run, read_config, write_config
from groupwise.training.stopping import graceful_stop
from groupwise.types import Event, Policy, Source


@dataclass(frozen=True)
class Parts:
    """What a product contributes to a run: who acts, where batches come from, how it is judged."""

    policy: Policy
    source: Source
    evaluate: Evaluate | None = None


Build = Callable[[TrainingConfig], Parts]


def execute(path: Path, build: Build, cfg: TrainingConfig | None = None) -> Iterator[Event]:
    """Run or resume the run at `path`, with `cfg` in place of its recorded settings if given."""
    with graceful_stop() as stop:
        run = Run(path)
        try:
            if cfg is not None:
                write_config(path, cfg)
            cfg = cfg or read_config(path)
            seed_everything(cfg.run.seed)
            if cfg.run.threads is not None:
                torch.set_num_threads(cfg.run.threads)
            parts = build(cfg)
            learner = Learner(parts.policy, cfg)
            yield from train(parts.policy, parts.source, learner, cfg, run, evaluate=parts.evaluate, stop=stop)
        except GroupwiseError as error:
            yield from _failed(run, error)
            raise
        except Exception as error:
            yield from _failed(run, GroupwiseError(f"{type(error).__name__}: {error}"))
            raise
        finally:
            run.close()


def _failed(run: Run, error: GroupwiseError) -> Iterator[Event]:
    """Say in the run folder why it stopped, if the disk still takes it."""
    step = run.checkpoint.step if run.checkpoint else 0
    try:
        info = inspect_run(run.path)
        yield run.emit("error", info.step, error.as_dict())
        run.set_status("failed", info.step, info.total, error=error.as_dict()["error"], resumable_from=step)
    except StorageError:
        return
