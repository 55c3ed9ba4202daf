"""Attempts in other processes, here or on a cluster: `rollout.backend`.

Start with `pool`. In the order in which a request meets them:

    pool         RolloutWorkers: places, one queue, work done again when a worker is lost, orders to scale
    scaling      how many workers there should be, from the queue and the places used
    processes    workers as child processes of this one
    ray_actors   workers as actors of Ray, on this machine or on a cluster

What a worker runs is a product's own: an entry, which makes a handler of requests. With `rollout.backend = "local"`
there are no workers, and everything runs in this process.
"""

from collections.abc import Sequence
from typing import Any

from groupwise.config import RolloutSettings
from groupwise.errors import ConfigError
from groupwise.rollout.backends.pool import AttemptLost, Backend, Place, RolloutWorkers, Shared
from groupwise.rollout.backends.processes import ProcessWorkers
from groupwise.rollout.backends.scaling import WorkerLimits
from groupwise.workers import Entry

__all__ = ["AttemptLost", "Place", "RolloutWorkers", "Shared", "insist_local", "make_workers"]


def make_workers(
    settings: RolloutSettings, entry: Entry, args: Sequence[Any] = (), *, per_worker: int = 1
) -> RolloutWorkers | None:
    """The workers that the settings ask for; None if attempts are made in this process.

    `entry` makes the handler in a worker, from `args`. A worker has `per_worker` requests under way at once.
    """
    if settings.backend == "local":
        return None
    backend: Backend
    if settings.backend == "ray":
        from groupwise.rollout.backends.ray_actors import RayWorkers

        backend = RayWorkers(
            entry, args, settings.num_workers, per_worker, address=settings.ray_address, cpus=settings.ray_cpus
        )
    else:
        backend = ProcessWorkers(entry, args, settings.num_workers, per_worker)
        if settings.num_workers > backend.most:
            message = f"rollout.num_workers = {settings.num_workers} is more than there is room for: {backend.room}"
            raise ConfigError(message, hint=f"Set it to at most {backend.most}.", field="rollout.num_workers")
    limits = None if settings.max_workers is None else WorkerLimits(settings.num_workers, settings.max_workers)
    return RolloutWorkers(
        backend, per_worker=per_worker, limits=limits, when_lost=settings.when_worker_lost,
        patience=settings.worker_timeout,
    )  # fmt: skip


def insist_local(settings: RolloutSettings, why: str) -> None:
    """Refuse workers where attempts can only be made in one process."""
    if settings.backend != "local":
        message = f"rollout.backend = {settings.backend!r} cannot be used here: {why}"
        raise ConfigError(message, hint="Leave it out.", field="rollout.backend")
