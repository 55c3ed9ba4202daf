"""A run from outside: start or resume it, watch its events, and leave its folder in order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError, ResourceError, StorageError
from groupwise.training.checkpoint import seed_everything
from groupwise.training.folder import inspect_run, read_config
from groupwise.training.learner import Learner
from groupwise.training.loop import Evaluate, Samples, pending_hints, say, train
from groupwise.training.machine import keep_freed_memory
from groupwise.training.micro_batches import is_out_of_memory
from groupwise.training.ranks.communication import ALONE, Ranks, local_settings
from groupwise.training.ranks.first_rank_source import joined_source
from groupwise.training.run import FollowedRun, Run
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Event, Failure, Policy, Source


@dataclass(frozen=True)
class Parts:
    """What a product contributes to a run: the policy, the source of batches, and the evaluation.

    `samples` returns a few attempts of the last evaluation as text. `film` writes a picture of one attempt from a seed
    to a file, if there is anything to see, and returns its caption. `inspect` looks for broken promises of the
    environment. `notes` are things a person should know before the start; they become hints.
    """

    policy: Policy
    source: Source
    evaluate: Evaluate | None = None
    samples: Samples | None = None
    film: Callable[[Path, int], str] | None = None
    inspect: Callable[[], list[Failure]] | None = None
    notes: tuple[str, ...] = ()


Build = Callable[[TrainingConfig], Parts]


def execute(
    path: Path,
    build: Build,
    cfg: TrainingConfig | None = None,
    stop: StopFlag | None = None,
    *,
    by_hand: bool = False,
    ranks: Ranks = ALONE,
) -> Iterator[Event]:
    """Open the run at `path`, and return its events as it runs, with `cfg` in place of its recorded settings if given.

    When a person resumes a run (`by_hand`), pending commands to stop are ignored. On many `ranks` each calls this with
    the same path; rank 0 writes, and only its events are complete.

    Raise `stop` to end it after its current step (`graceful_stop` ties that to Ctrl-C). Only one run at a time per
    process: runs share the global random generators and the number of threads.
    """
    # Opened now, not at the first event: a run that another process has is refused before anything is shown.
    return _events(open_on_ranks(path, by_hand, ranks), build, cfg, stop, ranks)


def open_on_ranks(path: Path, by_hand: bool, ranks: Ranks) -> Run | FollowedRun:
    """Open the run for writing on rank 0; the others read the checkpoint that it goes on from."""
    opened: list[Run] = []

    def open_first() -> tuple[Path | None, int]:
        opened.append(Run(path, by_hand))
        checkpoint = opened[0].checkpoint
        return None if checkpoint is None else checkpoint.path, opened[0].attempt

    checkpoint, attempt = ranks.on_first(open_first)
    return ranks.together(lambda: opened[0] if opened else FollowedRun(path, checkpoint, attempt))


def _events(
    run: Run | FollowedRun, build: Build, cfg: TrainingConfig | None, stop: StopFlag | None, ranks: Ranks
) -> Iterator[Event]:
    parts: Parts | None = None
    # Does nothing until the settings are read; the `finally` below needs it in any case.
    free_threads = use_threads(None)
    try:
        cfg = cfg or read_config(run.path)
        run.set_status("running", run.checkpoint.step if run.checkpoint else 0, cfg.training.num_episodes)
        # The run's own settings name no rank's device.
        local = local_settings(ranks, cfg)
        check_device(local.policy.device)
        # Before `build`: fresh weights come from the global generators. A checkpoint then overrides all of it.
        seed_everything(cfg.run.seed)
        free_threads = use_threads(cfg.run.threads)
        keep_freed_memory()
        parts = ranks.together(lambda: build(local))
        run.notes += parts.notes
        learner = Learner(parts.policy, local, ranks)
        yield from train(
            parts.policy, joined_source(parts.source, ranks), learner, cfg, run, ranks=ranks, evaluate=parts.evaluate,
            samples=parts.samples, stop=stop,
        )  # fmt: skip
    except StorageError as error:
        refusal: GroupwiseError = _storage_failed(error, run.path)
        yield from _failed(run, refusal, parts)
        raise refusal from error
    except GroupwiseError as error:
        yield from _failed(run, error, parts)
        raise
    except Exception as error:
        if is_out_of_memory(error):
            refusal = _out_of_memory(error)
            yield from _failed(run, refusal, parts)
            raise refusal from error
        yield from _failed(run, GroupwiseError(f"{type(error).__name__}: {error}"), parts)
        raise
    finally:
        free_threads()
        if parts is not None:
            parts.source.close()
        run.close()


def use_threads(count: int | None) -> Callable[[], None]:
    """Use that many threads in PyTorch and in NumPy's BLAS (None: leave them); call the result to undo it."""
    if count is None:
        return lambda: None
    from threadpoolctl import threadpool_limits

    threads, limits = torch.get_num_threads(), threadpool_limits(count, "blas")
    torch.set_num_threads(count)

    def end() -> None:
        torch.set_num_threads(threads)
        limits.restore_original_limits()

    return end


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have."""
    kind = torch.device(name).type
    if kind != "cpu" and not getattr(torch, kind).is_available():
        raise ConfigError(f"policy.device = {name!r} is not available here", hint="Use 'cpu'.", field="policy.device")


def _out_of_memory(error: Exception) -> ResourceError:
    """Memory that smaller micro-batches cannot save: weights, the optimiser's state, or keys and values."""
    return ResourceError(
        f"out of memory: {' '.join(str(error).split('. ')[:2])}",
        hint="Train an adapter (language.lora_rank=16) or in bfloat16 (language.dtype), or make fewer attempts at a "
        "time (rollout.tasks_per_step, rollout.num_generations) or shorter ones (sampling.max_new_tokens).",
    )


def _storage_failed(error: StorageError, path: Path) -> StorageError:
    advice = f"Then continue from the last checkpoint with `groupwise resume {path}`."
    return StorageError(error.message, hint=f"{error.hint} {advice}".strip(), field=error.field)


def _failed(run: Run | FollowedRun, error: GroupwiseError, parts: Parts | None) -> Iterator[Event]:
    """Record in the run folder why it stopped, and what led to it, if the disk still can."""
    try:
        info = inspect_run(run.path)
        yield from say(run, info.step, () if parts is None else pending_hints(parts.source))
        yield run.emit("error", info.step, error.as_dict())
        run.set_status("failed", info.step, info.total, error=error.as_dict()["error"])
    except StorageError:
        return
