"""What goes through the policy at once: optimiser steps, the micro-batches they are cut into, their precision, and
gradients that are taken task by task.

How rows are split never changes a result beyond rounding. So a split that did not fit into memory is made again with
half the rows or tokens: the gradients added up so far are dropped, the rows stay the same, and the size stays small
for the rest of the run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.errors import ContractError, ResourceError
from groupwise.types import Batch, Hint


def autocast(cfg: TrainingConfig) -> torch.autocast:
    """The precision of every pass through a policy while learning, the reference's too: bf16, fp16 or neither."""
    optim = cfg.optim
    dtype = torch.bfloat16 if optim.bf16 else torch.float16
    return torch.autocast(torch.device(cfg.policy.device).type, dtype=dtype, enabled=optim.bf16 or optim.fp16)


def at_least_single(tensor: Tensor) -> Tensor:
    """Losses are never computed in half precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


@dataclass(frozen=True)
class OptimiserStep:
    """This rank's rows of one optimiser step, and the numbers that the sums over all ranks' rows are divided by.

    `stand_in` is a row of any rank, for passes that must be made though there are no rows for them. `first` says that
    the policy has not changed since the batch came. `tasks` are those of all
    ranks' rows, for gradient surgery.
    """

    batch: Batch
    stand_in: Batch
    denominator: float
    tokens: float
    entropy_denominator: float
    first: bool
    tasks: tuple[int, ...] = ()


class TaskGradients:
    """Gradient surgery: the gradients of one optimiser step, task by task, and their sum once none opposes another.

    A task's gradient is its part of the usual one, so without conflicts the step is the usual one too. Networks that
    share no weights, such as actor and critic, are treated separately: a conflict between critics says nothing about
    the policies.
    """

    def __init__(self, *networks: Sequence[Parameter]) -> None:
        self.networks = [network for network in networks if network]
        self.taken: list[list[Tensor]] = [[] for _ in self.networks]

    def take(self) -> None:
        """Keep the gradients that the weights have now as those of one task, and clear them."""
        for network, taken in zip(self.networks, self.taken, strict=True):
            taken.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in network]))
            for parameter in network:
                parameter.grad = None

    def merge(self, random: torch.Generator) -> Tensor:
        """Give the weights the sum of the projected gradients; return the share of conflicts in the first network."""
        orders = core.random_orders(len(self.taken[0]), random)
        for network, taken in zip(self.networks, self.taken, strict=True):
            total = core.project_conflicts(torch.stack(taken), orders).sum(0)
            for parameter, part in zip(network, total.split([p.numel() for p in network]), strict=True):
                parameter.grad = part.view_as(parameter)
        return core.conflict_share(torch.stack(self.taken[0]))


def row_ends(mask: Tensor) -> Tensor:
    """The length of each row [B] up to its last action; 0 if it has none."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def acting_rows(batch: Batch) -> Tensor:
    """The rows [B] whose advantages the policy's loss acts on."""
    acting = batch.advantages.ne(0) & batch.mask
    return (acting if batch.keep is None else acting & batch.keep).any(1)


def check_batch(batch: Batch) -> None:
    """Check what every source promises: boolean masks, one shape [B, T], a positive denominator."""
    shape = tuple(batch.mask.shape)
    for name in ("mask", "keep"):
        tensor = getattr(batch, name)
        if tensor is not None and tensor.dtype != torch.bool:
            raise ContractError(f"a batch's {name} is {tensor.dtype}; it must be torch.bool")
    for name in ("behavior_logp", "advantages", "versions", "old_logp", "reference_logp", "returns", "values", "tasks"):
        tensor = getattr(batch, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ContractError(f"a batch's {name} has shape {tuple(tensor.shape)}; the mask's is {shape}")
    if batch.rows and not batch.denominator > 0:
        raise ContractError(f"a batch's denominator is {batch.denominator}; it must be above 0")


Result = TypeVar("Result")
# Words in the messages of torch's CPU, CUDA and cuBLAS allocators, which raise a plain RuntimeError.
ALLOCATORS_SAY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


class MicroBatches:
    """The current size of a micro-batch for one activity of the run, which `activity` names in messages.

    With `optim.micro_batch_tokens` the size is in padded tokens, rows × the longest of them, and a row that is longer
    still goes alone; otherwise it is `optim.per_device_train_batch_size` rows.
    """

    def __init__(self, cfg: TrainingConfig, activity: str, passes: Callable[[int], int] = lambda count: count) -> None:
        optim = cfg.optim
        self.activity, self.passes = activity, passes
        # What all ranks go through in step cannot be started again by one of them.
        self.in_step = False
        self.by_tokens = optim.micro_batch_tokens is not None
        self.configured = optim.micro_batch_tokens or optim.per_device_train_batch_size
        self.step_rows = optim.per_device_train_batch_size * optim.gradient_accumulation_steps
        self.size = self.announced = self.configured

    def over(
        self,
        batch: Batch,
        work: Callable[[Batch], Result],
        undo: Callable[[], None] = lambda: None,
        idle: Callable[[], Result | None] | None = None,
    ) -> list[Result]:
        """`work` on every micro-batch. When memory runs out, `undo`, halve the size, and start again.

        `idle` is a pass that counts for nothing, for each that this rank must make beyond its own micro-batches.
        """
        while True:
            done, part = [], batch
            try:
                parts = list(self.split(batch))
                # Asked before the first pass: in the passes themselves ranks are busy talking about weights.
                surplus = self.passes(len(parts)) - len(parts) if idle else 0
                for part in parts:
                    done.append(work(part))
                done += [zero for _ in range(surplus) if idle and (zero := idle()) is not None]
                return done
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                # A single row cannot be split further.
                if part.rows <= 1 or self.in_step:
                    raise self._too_large(part) from error
            # Only here, outside the handler, are the tensors in the exception's frames free again.
            done.clear()
            undo()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            # Half of what did not fit, which may be less than the configured size.
            self.size = max(1, min(self.size, self._measure(part)) // 2)

    def split(self, batch: Batch) -> Iterator[Batch]:
        if self.by_tokens and batch.rows:
            slices = slices_by_tokens(row_ends(batch.mask).tolist(), self.size)
        else:
            slices = (slice(start, start + self.size) for start in range(0, batch.rows, self.size))
        for rows in slices:
            yield batch.select(rows)

    def take_hints(self) -> tuple[Hint, ...]:
        """A hint if the size has shrunk since the last call."""
        before, self.announced = self.announced, self.size
        if before == self.size:
            return ()
        unit = "padded tokens" if self.by_tokens else "rows"
        message = (
            f"Out of memory while {self.activity} with micro-batches of {before} {unit}; from now on they have "
            f"{self.size}. Results stay the same up to rounding, but steps take longer."
        )
        return (Hint("out_of_memory", message, self._remedy()),)

    def _remedy(self) -> str:
        if self.by_tokens:
            return f"Set optim.micro_batch_tokens={self.size} to start there."
        return (
            f"Set optim.per_device_train_batch_size={self.size} and "
            f"optim.gradient_accumulation_steps={-(-self.step_rows // self.size)} to start there."
        )

    def _measure(self, part: Batch) -> int:
        return part.rows * int(row_ends(part.mask).max()) if self.by_tokens else part.rows

    def _too_large(self, part: Batch) -> ResourceError:
        rows = "a single row" if part.rows == 1 else f"{part.rows} rows"
        return ResourceError(
            f"out of memory while {self.activity} on {rows} of {int(row_ends(part.mask).max())} tokens",
            hint="Turn on policy.gradient_checkpointing and optim.bf16, train an adapter (language.lora_rank=16), "
            "or shorten the answers (sampling.max_new_tokens).",
        )

    def state_dict(self) -> dict[str, Any]:
        return {"by_tokens": self.by_tokens, "configured": self.configured, "size": self.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the size that fitted, unless the settings have changed."""
        if (state["by_tokens"], state["configured"]) == (self.by_tokens, self.configured):
            self.size = self.announced = state["size"]


def slices_by_tokens(lengths: Sequence[int], budget: int) -> Iterator[slice]:
    """Neighbouring rows whose number × the longest of them stays within `budget`; at least one row each."""
    start = longest = 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if row > start and (row + 1 - start) * longest > budget:
            yield slice(start, row)
            start, longest = row, length
    yield slice(start, len(lengths))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether any of torch's allocators, or Python's, had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ALLOCATORS_SAY)
