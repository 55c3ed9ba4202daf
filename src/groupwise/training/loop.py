"""The one training loop. Everything that learns in Groupwise learns here.

A step: ask the source for a batch, update the policy, hand the new weights to whoever samples. Between
steps, and only there, the loop evaluates, obeys orders, looks for Ctrl-C and takes checkpoints; so a
checkpoint is always a whole number of steps, and a run that is interrupted and resumed goes exactly the
way it would have gone.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import CheckpointError, ContractError, GroupwiseError
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.checkpoint import SHARDS, Checkpoint, capture_randomness, restore_randomness
from groupwise.training.events import DAMAGE
from groupwise.training.folder import write_config
from groupwise.training.hints import HintEngine
from groupwise.training.learner import Learner
from groupwise.training.machine import describe_machine, resident_memory
from groupwise.training.ranks.communication import ALONE, Ranks
from groupwise.training.run import FollowedRun, Run
from groupwise.training.stop_conditions import EarlyStopping, StopFlag
from groupwise.types import Batch, Event, Hint, Policy, Sample, Source

SCORE = "eval/reward_mean"
NO_WORKERS = {
    "refused": "this run makes its attempts in its own process and has no workers to scale",
    "remedy": "Start a run with rollout.backend = 'processes' or 'ray'; for several runs at once, groupwise serve "
    "--workers 4.",
}
Evaluate = Callable[[Policy], Mapping[str, float]]
Samples = Callable[[], Sequence[Sample]]


def train(
    policy: Policy,
    source: Source,
    learner: Learner,
    cfg: TrainingConfig,
    run: Run | FollowedRun,
    *,
    ranks: Ranks = ALONE,
    evaluate: Evaluate | None = None,
    samples: Samples | None = None,
    stop: StopFlag | None = None,
) -> Iterator[Event]:
    """Train until done, yielding every event after it is on disk. Resumes where the run folder stands."""
    here = Position(cfg)
    ranks.together(lambda: here.restore(run, policy, source, learner))
    source.publish(policy)
    total = cfg.training.num_episodes
    evaluate = evaluate if cfg.run.eval_steps else None
    began = time.perf_counter()
    yield from _opening(run, cfg, here, ranks)
    if evaluate and here.step == 0:
        yield from _evaluation(run, here, policy, evaluate, samples, ranks)
        yield from say(run, here.step, pending_hints(source))

    while here.reason is None and here.step < total and not here.has_seen_enough:
        clock, busy = time.perf_counter(), time.process_time()
        batch = source.next()
        sampled = time.perf_counter()
        stats = learner.update(batch)
        source.publish(policy)
        here.advance(batch)
        timing = {"update": time.perf_counter() - sampled, "total": time.perf_counter() - clock}
        timing |= {"processor": time.process_time() - busy, "memory": resident_memory() / 2**30}
        data = _step_data(batch, stats, here, timing)
        yield run.emit("step", here.step, data)
        if _due(here.step, cfg.run.group_log_steps):
            run.write_groups(here.step, batch.records, cfg.run.group_log_limit)
        yield from say(run, here.step, (*batch.hints, *learner.take_hints(), *here.hints.step(data["metrics"])))

        last = here.step == total or here.has_seen_enough
        if evaluate and (_due(here.step, cfg.run.eval_steps) or last):
            yield from _evaluation(run, here, policy, evaluate, samples, ranks)
            yield from say(run, here.step, pending_hints(source))
        wanted = yield from _obey(run, here, source, stop, ranks)
        if wanted or last or here.reason or _due(here.step, cfg.run.save_steps):
            path = _save(run, here, policy, source, learner, ranks)
            yield run.emit("checkpoint", here.step, {"step": here.step, "path": f"checkpoints/{path.name}"})
        run.set_status("running", here.step, total)

    reason = here.reason or "finished"
    yield run.emit("end", here.step, {"reason": reason, "steps": here.step, "seconds": time.perf_counter() - began})
    run.set_status("stopped" if reason == "stopped" else "finished", here.step, total, reason=reason)


def pending_hints(source: Source) -> Sequence[Hint]:
    """Hints of a source that did not come with a batch, such as those of an evaluation."""
    take = getattr(source, "take_hints", None)
    return take() if callable(take) else ()


def say(run: Run | FollowedRun, step: int, hints: Iterable[Hint]) -> Iterator[Event]:
    for hint in hints:
        yield run.emit("hint", step, hint.as_dict())


class Position:
    """Where the loop is, apart from the weights: what a checkpoint keeps on the loop's behalf."""

    def __init__(self, cfg: TrainingConfig) -> None:
        self.cfg = cfg
        self.step = self.samples = self.attempts = 0
        self.reason: str | None = None
        self.resumed_from: int | None = None
        self.changed: list[str] = []
        self.ranks_before: int | None = None
        self.stopping = EarlyStopping(cfg)
        self.hints = HintEngine(cfg.to_dict(), cfg.training.num_episodes)

    def advance(self, batch: Batch) -> None:
        self.step += 1
        self.samples += batch.samples
        self.attempts += batch.attempts

    @property
    def has_seen_enough(self) -> bool:
        limit = self.cfg.training.total_samples
        return limit is not None and self.samples >= limit

    def capture(self, source: Source, learner: Learner) -> dict[str, Any]:
        return {
            "ranks": learner.ranks.size,
            "source": source.state_dict(),
            "learner": learner.state_dict(),
            "randomness": capture_randomness(),
            "stopping": self.stopping.state_dict(),
            "hints": self.hints.state_dict(),
            "samples": self.samples,
            "attempts": self.attempts,
            "reason": self.reason if self.reason != "stopped" else None,
            "config": self.cfg.to_dict(),
        }

    def restore(self, run: Run | FollowedRun, policy: Policy, source: Source, learner: Learner) -> None:
        """Go back to the run's newest sound checkpoint, if it has one."""
        if (checkpoint := run.checkpoint) is None:
            return
        try:
            self._restore(checkpoint, policy, source, learner)
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"checkpoint {checkpoint.path.name} does not fit the settings: {str(error).splitlines()[0]}",
                hint="Resume without --set, or start a new run with these settings.",
            ) from error
        self.step = self.resumed_from = checkpoint.step
        run.checkpoint = None

    def _restore(self, checkpoint: Checkpoint, policy: Policy, source: Source, learner: Learner) -> None:
        state = checkpoint.state
        policy.load_state_dict(checkpoint.model)
        source.load_state_dict(state["source"])
        learner.load_state_dict(state["learner"], checkpoint.path / SHARDS)
        restore_randomness(state["randomness"])
        self.stopping.load_state_dict(state["stopping"])
        self.hints.load_state_dict(state["hints"])
        self.samples, self.attempts = state["samples"], state["attempts"]
        self.ranks_before = state.get("ranks", 1)
        self.changed = changes(state["config"], self.cfg.to_dict())
        if not any(change.startswith("training.") for change in self.changed):
            self.reason = state["reason"]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Settings that differ, as `section.name: old → new`."""
    return [
        f"{section}.{name}: {before.get(section, {}).get(name)} → {value}"
        for section, settings in after.items()
        for name, value in settings.items()
        if before.get(section, {}).get(name) != value
    ]


def _save(
    run: Run | FollowedRun, here: Position, policy: Policy, source: Source, learner: Learner, ranks: Ranks
) -> Path:
    """A checkpoint, which rank 0 writes; where the optimiser is sharded, each rank writes its part of it."""
    shards: Path | None = None
    if learner.trained.sharded:
        shards = run.path / "checkpoints" / f".{here.step:06d}.shards.tmp"
        learner.save_shards(shards)

    def save() -> Path:
        assert isinstance(run, Run)
        state = here.capture(source, learner)
        return run.save(here.step, policy.state_dict(), state, here.cfg.run.save_total_limit, shards)

    return ranks.on_first(save)


def _opening(run: Run | FollowedRun, cfg: TrainingConfig, here: Position, ranks: Ranks) -> Iterator[Event]:
    if ranks.first:
        write_config(run.path, cfg)
    run.set_status("running", here.step, cfg.training.num_episodes)
    data = {
        "config": cfg.to_dict(),
        "resumed_from": here.resumed_from,
        "env": describe_machine(),
        "total_steps": cfg.training.num_episodes,
    }
    yield run.emit("start", here.step, data)
    if here.changed:
        message = f"settings changed since step {here.step}: {'; '.join(here.changed)}"
        remedy = "From here on the run differs from an uninterrupted one; schedules use the new number of steps."
        yield run.emit("hint", here.step, {"code": "settings_changed", "message": message, "remedy": remedy})
    if here.ranks_before not in (None, ranks.size):
        goes = "goes" if ranks.alone else "go"
        message = (
            f"the checkpoint was written by {_counted(here.ranks_before)}; {_counted(ranks.size)} {goes} on from it"
        )
        remedy = "Nothing to do: results stay the same up to rounding."
        yield run.emit("hint", here.step, {"code": "other_ranks", "message": message, "remedy": remedy})
    for code, messages in ((DAMAGE, run.warnings), ("notice", run.notes)):
        for message in messages:
            yield run.emit("hint", here.step, {"code": code, "message": message, "remedy": ""})


def _counted(ranks: int | None) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _evaluation(
    run: Run | FollowedRun, here: Position, policy: Policy, evaluate: Evaluate, samples: Samples | None, ranks: Ranks
) -> Iterator[Event]:
    clock = time.perf_counter()
    metrics = ranks.on_first(lambda: {name: float(value) for name, value in evaluate(policy).items()})
    if SCORE not in metrics:
        raise ContractError(f"an evaluation returned {sorted(metrics)}; {SCORE!r} must be among them")
    timing = {"evaluate": time.perf_counter() - clock}
    shown = {"samples": [asdict(sample) for sample in samples()]} if samples and ranks.first else {}
    yield run.emit("eval", here.step, {"metrics": metrics, "timing": timing, **shown})
    yield from say(run, here.step, here.hints.evaluation(metrics))
    reason = here.stopping.reason(here.step, metrics[SCORE])
    here.reason = reason if here.step else None


def _obey(
    run: Run | FollowedRun, here: Position, source: Source, stop: StopFlag | None, ranks: Ranks
) -> Generator[Event, None, bool]:
    """Carry out what came in by control file or Ctrl-C; true when a checkpoint is wanted now."""
    wanted = False
    for command in ranks.on_first(lambda: list(run.commands()) if isinstance(run, Run) else []):
        known = command.op in ("stop", "checkpoint")
        note = {} if known else _scaled(source, command.args)
        yield run.emit("control", here.step, {"id": command.id, "op": command.op, "args": command.args, **note})
        wanted = wanted or known
        if command.op == "stop":
            here.reason = here.reason or "stopped"
    if ranks.any(stop is not None and stop.raised):
        here.reason = here.reason or "stopped"
    return wanted


def _scaled(source: Source, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Carry out an order to scale, or say why it cannot be."""
    workers: RolloutWorkers | None = getattr(source, "workers", None)
    if workers is None:
        return NO_WORKERS
    try:
        return workers.scale(args)
    except (GroupwiseError, TypeError, ValueError, OverflowError) as error:
        return {"refused": str(error).splitlines()[0], "remedy": getattr(error, "hint", "")}


def _step_data(batch: Batch, stats: Mapping[str, float], here: Position, timing: Mapping[str, float]) -> dict[str, Any]:
    speed = {"samples_per_second": batch.samples / max(timing["total"], 1e-9)}
    return {
        # The batch has the last word: a batch of demonstrations leaves the surrogate loss out.
        "metrics": {**stats, **batch.metrics},
        "timing": {**batch.timing, **timing, **speed},
        "totals": {"samples": here.samples, "attempts": here.attempts},
    }


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
