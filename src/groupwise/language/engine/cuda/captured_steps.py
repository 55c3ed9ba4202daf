"""Decoding steps as CUDA graphs, one for each number of rows (rounded up) and kind of step.

A step is some three hundred small kernels: launched one by one they take longer to start than to run. Without enough
memory to capture one, steps run without graphs, which is slower and gives the same tokens.
"""

import logging
from typing import Any

import torch

from groupwise.language.engine.cuda.paged_network import PagedNetwork, StepShape
from groupwise.language.engine.cuda.row_state import RowState

log = logging.getLogger(__name__)
# Programs that keep a GPU busy: with fewer (row, key head) pairs, rows are cut into parts.
BUSY = 512
# A part shorter than this costs more than it saves.
LEAST_PART = 128
# Fewer bytes than this, spared per layer by reading what rows share once, do not pay for joining the parts.
LEAST_SPARED = 8 << 20


def row_bucket(rows: int, most: int) -> int:
    """The number of rows to capture a step for: a quarter of the rows may be spare, at most."""
    size = 1
    while size < rows:
        size += max(size // 4, 1) if size >= 8 else size
    return min(size, most)


def splits_for(rows: int, kv_heads: int, length: int) -> int:
    """Into how many parts to cut the attention of rows up to this long: a power of two."""
    splits = 1
    while rows * kv_heads * splits < BUSY and splits * LEAST_PART < length:
        splits *= 2
    return splits


class CapturedSteps:
    """Runs one decoding step, with sampling, for the rows in the state's `order`."""

    def __init__(self, network: PagedNetwork, state: RowState, *, capture: bool) -> None:
        self.network, self.state, self.capture = network, state, capture
        self.graphs: dict[StepShape, torch.cuda.CUDAGraph] = {}
        self.pool: Any = None
        self.addresses = network.addresses

    def check_addresses(self) -> None:
        """Forget graphs that read memory which has moved."""
        now = self.network.addresses
        if now != self.addresses:
            self.graphs.clear()
            self.pool, self.addresses = None, now

    def run(self, shape: StepShape) -> None:
        if self.capture and shape not in self.graphs:
            self._try_capture(shape)
        if shape in self.graphs:
            self.graphs[shape].replay()
        else:
            self._step(shape)

    def _step(self, shape: StepShape) -> None:
        logits = self.network.decode(shape)
        self.network.sample(logits, self.state.order[: shape.rows], truncated=shape.truncated)

    def _try_capture(self, shape: StepShape) -> None:
        # With the dead slot in every row, the trial changes nothing.
        order = self.state.order.clone()
        self.state.order.fill_(self.state.most)
        try:
            self.graphs[shape] = self._captured(shape)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            self.capture, self.pool = False, None
            self.graphs.clear()
            torch.cuda.empty_cache()
            why = "not enough GPU memory" if isinstance(error, torch.OutOfMemoryError) else f"{error}".split("\n")[0]
            log.warning("decoding goes on without CUDA graphs, which is slower: a step could not be captured (%s)", why)
        finally:
            self.state.order.copy_(order)

    def _captured(self, shape: StepShape) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Compiles the kernels, which must not happen while capturing.
            self._step(shape)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=side, capture_error_mode="thread_local"):
            self._step(shape)
        self.pool = self.pool or graph.pool()
        return graph
