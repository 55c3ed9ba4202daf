"""What goes through the policy at once: so many rows, or so many padded tokens, and half of it when memory runs out.

How rows are split never changes a result beyond rounding, so a split that did not fit is simply made again, finer: what
it had added up is dropped, the rows stay the same, and the size stays small for the rest of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ResourceError
from groupwise.training.batches import row_ends
from groupwise.types import Batch, Hint

Result = TypeVar("Result")
ALLOCATORS_SAY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


class MicroBatches:
    """The present size of a micro-batch in one place of the run, which `activity` names for the reader.

    With `optim.micro_batch_tokens` a size is padded tokens, rows × the longest of them, and a row that is longer
    still goes alone; otherwise it is `optim.per_device_train_batch_size` rows.
    """

    def __init__(self, cfg: TrainingConfig, activity: str) -> None:
        optim = cfg.optim
        self.activity = activity
        self.by_tokens = optim.micro_batch_tokens is not None
        self.configured = optim.micro_batch_tokens or optim.per_device_train_batch_size
        self.step_rows = optim.per_device_train_batch_size * optim.gradient_accumulation_steps
        self.size = self.announced = self.configured

    def over(
        self, batch: Batch, work: Callable[[Batch], Result], undo: Callable[[], None] = lambda: None
    ) -> list[Result]:
        """`work` on every micro-batch. When memory runs out: `undo`, halve the size, and all of it again."""
        while True:
            done, part = [], batch
            try:
                for part in self.split(batch):
                    done.append(work(part))
                return done
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if part.rows == 1:
                    raise self._too_large(part) from error
            # Only here, with the exception gone, are the tensors of the frames that it held free again.
            done.clear()
            undo()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            self.size = max(1, min(self.size, self._measure(part)) // 2)

    def split(self, batch: Batch) -> Iterator[Batch]:
        if self.by_tokens and batch.rows:
            slices = slices_by_tokens(row_ends(batch.mask).tolist(), self.size)
        else:
            slices = (slice(start, start + self.size) for start in range(0, batch.rows, self.size))
        for rows in slices:
            yield batch.select(rows)

    def take_hints(self) -> tuple[Hint, ...]:
        """What happened since the last call, said once."""
        before, self.announced = self.announced, self.size
        if before == self.size:
            return ()
        unit = "padded tokens" if self.by_tokens else "rows"
        message = (
            f"Memory ran out while {self.activity} with micro-batches of {before} {unit}; from here on they have "
            f"{self.size}. Results stay the same to rounding, steps take longer."
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
        return ResourceError(
            f"memory ran out while {self.activity} on a single row of {int(row_ends(part.mask).max())} tokens",
            hint="Turn on policy.gradient_checkpointing and optim.bf16, train an adapter (language.lora_rank=16), "
            "or shorten the answers (sampling.max_new_tokens).",
        )

    def state_dict(self) -> dict[str, Any]:
        return {"by_tokens": self.by_tokens, "configured": self.configured, "size": self.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the size that fitted, unless the settings were changed since."""
        if (state["by_tokens"], state["configured"]) == (self.by_tokens, self.configured):
            self.size = self.announced = state["size"]


def slices_by_tokens(lengths: Sequence[int], budget: int) -> Iterator[slice]:
    """Neighbouring rows whose count × the longest of them stays within `budget`; at least one row each."""
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
