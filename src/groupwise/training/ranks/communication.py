"""Who the ranks of a run are, and everything they say to each other.

Objects travel as pickles between processes of one user and one run; tensors that are summed travel as tensors. An error
on one rank is raised on all of them at the next exchange, so that no rank waits for one that has given up.
"""

import datetime
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from groupwise import __version__
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError, GroupwiseError, RankError, ResourceError
from groupwise.products import product_of

T = TypeVar("T")
STARTED_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# The key under which a launch remembers, across restarts, which run it began.
BEGUN = "groupwise/run"


@dataclass(frozen=True)
class Ranks:
    """This process's place among the `size` processes that train a run. Rank 0 writes the run's folder.

    Without others every exchange returns at once what it was given.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def share(self, things: Sequence[T]) -> Sequence[T]:
        """This rank's share of `things`: every `size`-th, so that neighbours of similar length are dealt out."""
        return things[self.rank :: self.size]

    def rows(self, rows: Tensor) -> Tensor:
        """This rank's share of row numbers."""
        return rows[self.rank :: self.size]

    def gather(self, work: Callable[[], T]) -> list[T]:
        """Do `work` on every rank; what each returned, in the order of ranks. If it raises on any, it raises on all."""
        if self.alone:
            return [work()]
        answers: list[Any] = [None] * self.size
        self._send(lambda outcome: dist.all_gather_object(answers, outcome, group=host_group()), self._outcome(work))
        self._raise_any(answers)
        return [answer.value for answer in answers]

    def dealt(self, things: Sequence[T], work: Callable[[Sequence[T]], Sequence[Any]]) -> list[Any]:
        """`work` on every rank's share of `things`, and the results of all in the order of `things`."""
        shares = self.gather(lambda: work(self.share(things)))
        return [shares[n % self.size][n // self.size] for n in range(len(things))]

    def on_first(self, work: Callable[[], T]) -> T:
        """Do `work` on rank 0 only and return its result on all. If it raises, it raises on all."""
        if self.alone:
            return work()
        answer: list[Any] = [None]

        def send(outcome: _Outcome | None) -> None:
            answer[0] = outcome
            dist.broadcast_object_list(answer, src=0, group=host_group())

        self._send(send, self._outcome(work) if self.first else None)
        self._raise_any(answer)
        value: T = answer[0].value
        return value

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` on every rank and return this rank's result. If it raises on any, it raises on all."""
        if self.alone:
            return work()
        own: list[T] = []
        self.gather(lambda: own.append(work()))
        return own[0]

    def add(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        return self._reduce(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest values over all ranks, in place."""
        return self._reduce(tensor, dist.ReduceOp.MAX)

    def fill(self, rows: Tensor, shape: tuple[int, ...], values: Tensor) -> Tensor:
        """A table of which every rank knows some rows: row `rows[n]` is `values[n]`. All get all of it.

        The others add zeros, so no number is rounded. A rank without rows passes any row of the right type.
        """
        table = torch.zeros(shape, dtype=values.dtype, device=values.device)
        table[rows.to(values.device)] = values[: len(rows)]
        return self.add(table)

    def any(self, here: bool) -> bool:
        """Whether it is true on any rank."""
        return here if self.alone else bool(self.largest(torch.tensor([float(here)]))[0])

    def most(self, count: int) -> int:
        """The largest count of any rank."""
        return count if self.alone else int(self.largest(torch.tensor([float(count)], dtype=torch.float64))[0])

    def _reduce(self, tensor: Tensor, operation: Any) -> Tensor:
        if not self.alone:
            with _connected(self):
                dist.all_reduce(tensor, operation, group=None if tensor.is_cuda else host_group())
        return tensor

    def _outcome(self, work: Callable[[], Any]) -> "_Outcome":
        try:
            return _Outcome(work())
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> "_Outcome":
        return _Outcome(error=error, rank=self.rank, host=socket.gethostname())

    def _send(self, send: Callable[[Any], None], outcome: "_Outcome | None") -> None:
        with _connected(self):
            try:
                send(outcome)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                # It could not be pickled, so nothing has been sent yet, and the others are still waiting.
                problem = ContractError(f"what this rank found cannot be sent to the others: {error}")
                send(self._failed(problem))

    def _raise_any(self, answers: Sequence[Any]) -> None:
        failed = [answer for answer in answers if answer is not None and answer.error is not None]
        # A rank's own error keeps its traceback.
        for answer in [a for a in failed if a.rank == self.rank] or failed:
            # Whoever reports errors knows that rank 0 has this one too.
            answer.error.shared = True
            raise answer.error


ALONE = Ranks()


class _Outcome:
    """What work returned on a rank, or the error it raised there, as a value that can be sent."""

    def __init__(self, value: Any = None, *, error: Exception | None = None, rank: int = 0, host: str = "") -> None:
        self.value, self.error, self.rank, self.host = value, error, rank, host

    def __reduce__(self) -> tuple[Any, ...]:
        if self.error is None:
            return (_Outcome, (self.value,))
        return (_arrived, (type(self.error), *_words(self.error), self.rank, self.host))


def _words(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, GroupwiseError):
        return error.message, error.hint, error.field
    return f"{type(error).__name__}: {error}", "", ""


def _arrived(kind: type[Exception], message: str, hint: str, field: str, rank: int, host: str) -> _Outcome:
    """An error of another rank, as it is raised here."""
    kind = kind if issubclass(kind, GroupwiseError) else GroupwiseError
    where = f"rank {rank} on {host}: " if rank else ""
    return _Outcome(error=kind(f"{where}{message}", hint=hint, field=field), rank=rank, host=host)


@contextmanager
def _connected(ranks: Ranks) -> Iterator[None]:
    """Turn a broken connection into one sentence: another rank has ended."""
    try:
        yield
    except RuntimeError as error:
        what = str(error).splitlines()[0]
        raise RankError(
            f"rank {ranks.rank} lost its connection to the other ranks: {what}",
            hint="One of them has ended, and its own message says why. If it was killed, resume the run.",
        ) from error


_groups: list[Any] = []


def host_group() -> Any:
    """The group over which objects and tensors in memory travel: gloo, also where gradients travel by NCCL."""
    return _groups[0] if _groups else None


def rank_here() -> int:
    """The rank that torchrun gave this process; 0 without torchrun."""
    return int(os.environ.get("RANK", 0))


@contextmanager
def joined(cfg: TrainingConfig) -> Iterator[Ranks]:
    """Join the other processes that torchrun started; `ALONE` if it started none.

    Settings that differ between ranks are refused, and so are more ranks than there are groups.
    """
    if any(name not in os.environ for name in STARTED_BY_TORCHRUN) or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    ranks = Ranks(*(int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    _connect(ranks, cfg)
    try:
        ranks.gather(lambda: take_device(ranks, cfg))
        check_settings(ranks, cfg)
        yield ranks
    finally:
        _groups.clear()
        # Closes the connections, so that a rank that still waits for this one learns that it has ended.
        dist.destroy_process_group()


def _connect(ranks: Ranks, cfg: TrainingConfig) -> None:
    kind = torch.device(cfg.policy.device).type
    backend = {"cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}.get(kind, "gloo")
    timeout = datetime.timedelta(seconds=cfg.ranks.timeout)
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=datetime.timedelta(seconds=cfg.ranks.join_timeout)))
        # torchrun keeps one store for all restarts: without a prefix, ranks would find addresses of those that died.
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.size, timeout=timeout)
        if kind != "cpu":
            _groups.append(dist.new_group(backend="gloo", timeout=timeout))
    except (RuntimeError, ValueError) as error:  # torch's own errors of connections are RuntimeErrors
        raise RankError(
            f"rank {ranks.rank} of {ranks.size} could not join the others at {place} within "
            f"{cfg.ranks.join_timeout:g} s",
            hint="Check that every node was started with the same address, port and number of nodes, and that the port "
            "is open. ranks.join_timeout sets how long a rank waits.",
        ) from error


def remember_run(path: Path) -> None:
    """Tell torchrun's agent which run its ranks have begun; it outlives them."""
    if (store := _agent_store()) is not None:
        store.set(BEGUN, str(path.resolve()))


def remembered_run() -> Path | None:
    """The run that this launch's ranks began before they were restarted."""
    store = _agent_store()
    return Path(store.get(BEGUN).decode()) if store is not None and store.check([BEGUN]) else None


def _agent_store() -> Any:
    """The store of torchrun's agent, which outlives the ranks; None without an agent."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def take_device(ranks: Ranks, cfg: TrainingConfig) -> None:
    """Take the device with this rank's number on its machine; refuse a rank for which there is none."""
    device = torch.device(cfg.policy.device)
    if device.index is not None:
        hint = f"Write policy.device = {device.type!r}; each rank takes the one with its own number on its machine."
        raise ConfigError(
            f"policy.device = {cfg.policy.device!r} names one device for {ranks.size} ranks", hint=hint,
            field="policy.device",
        )  # fmt: skip
    count = 1 if device.type == "cpu" else getattr(torch, device.type).device_count()
    if device.type != "cpu" and ranks.local_rank >= count:
        raise ResourceError(
            f"there is no {device.type}:{ranks.local_rank} on this machine, which has {count}",
            hint=f"Start at most one rank for each: torchrun --nproc-per-node {max(1, count)}.",
            field="policy.device",
        )
    if device.type != "cpu":
        getattr(torch, device.type).set_device(ranks.local_rank)


def local_settings(ranks: Ranks, cfg: TrainingConfig) -> TrainingConfig:
    """The settings with this rank's own device."""
    kind = torch.device(cfg.policy.device).type
    if ranks.alone or kind == "cpu":
        return cfg
    return cfg.replace(device=f"{kind}:{ranks.local_rank}")


def check_settings(ranks: Ranks, cfg: TrainingConfig) -> None:
    """Refuse ranks that were started with different settings or versions, and more ranks than a step has groups."""
    mine = {"version of groupwise": __version__, "version of torch": torch.__version__, **_flat(cfg)}
    everyone = ranks.gather(lambda: (socket.gethostname(), mine))
    # By one rank, for all: the error is one that all know of.
    ranks.on_first(lambda: _compare(everyone))
    ranks.on_first(lambda: check_groups(ranks.size, cfg))


def _compare(everyone: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    first = everyone[0][1]
    for rank, (host, found) in enumerate(everyone):
        for name in sorted(first.keys() | found.keys()):
            if first.get(name) != found.get(name):
                raise ConfigError(
                    f"rank {rank} on {host} has {name} = {found.get(name)!r}, but rank 0 has {first.get(name)!r}",
                    hint="Start every rank with the same settings file and the same packages.",
                    field=name if "." in name else "",
                )


def check_groups(size: int, cfg: TrainingConfig) -> None:
    """Refuse more ranks than a step has groups."""
    groups = cfg.rollout.tasks_per_step
    if size > groups and product_of(cfg).grouped:
        raise ConfigError(
            f"{size} ranks share {groups} group{'s' * (groups != 1)} per step (rollout.tasks_per_step); each rank "
            "samples whole groups, so some would have nothing to do",
            hint=f"Set rollout.tasks_per_step to {size} or more, or start {groups} rank{'s' * (groups != 1)}.",
            field="rollout.tasks_per_step",
        )


def _flat(cfg: TrainingConfig) -> Mapping[str, Any]:
    return {f"{section}.{name}": value for section, table in cfg.to_dict().items() for name, value in table.items()}
