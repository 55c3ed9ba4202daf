"""Continuous batching on a GPU: steps run in bursts, and the host reads a burst's tokens while the next one runs.

Rows that end stop by themselves on the device; the host learns of it a burst later, takes them out of `order`, and
gives their pages back. Requests whose logits must be seen by Python (a JSON schema, a repetition penalty) run one step
at a time, as on a CPU.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.language.engine.cuda.attention_kernels import PAGE
from groupwise.language.engine.cuda.captured_steps import LEAST_SPARED, CapturedSteps, row_bucket, splits_for
from groupwise.language.engine.cuda.paged_network import (
    PagedNetwork,
    PagedStore,
    SlotPiece,
    StepShape,
    shared_rows,
)
from groupwise.language.engine.cuda.pages import Pages, page_keys
from groupwise.language.engine.cuda.row_state import RING, RowState
from groupwise.language.engine.cuda.support import reason_against
from groupwise.language.engine.families import Architecture, describe
from groupwise.language.engine.prefill import SWEEP_TOKENS
from groupwise.language.engine.request import GenerationRequest, Outcome, Sampled
from groupwise.language.engine.rotary import RotaryTables
from groupwise.language.engine.row_batcher import RowBatcher
from groupwise.language.engine.weights import Fingerprint

log = logging.getLogger(__name__)
# Steps between two looks of the host. Twice as many must fit into the ring.
BURST = 8
assert 2 * BURST < RING
# The cache may take this share of the memory that is free; activations and an optimiser need the rest.
CACHE_SHARE = 0.6
# Where memory cannot be asked for its limit.
MOST_PAGES = 1 << 16


@dataclass(slots=True)
class Burst:
    """Steps that were launched: which requests were in which slots, and where their tokens arrive."""

    requests: list[GenerationRequest]
    slots: NDArray[np.int32]
    # Tokens of each row before the burst, and steps.
    made: NDArray[np.int64]
    steps: int
    version: int
    tokens: Tensor
    arrived: Any


class CudaBatcher(RowBatcher):
    """Runs an `Architecture` on pages."""

    def __init__(
        self, model: nn.Module, architecture: Architecture, *, slots: int, length: int, eos: frozenset[int]
    ) -> None:
        a = architecture
        like = next(a.embedding.parameters())
        super().__init__(model, slots=slots, eos=eos, vocabulary=a.vocabulary, device=like.device)
        self.architecture, self.length = a, length
        self.width = -(-length // PAGE)
        self.pages = Pages(0, PAGE)
        self.store = PagedStore(a, like.detach())
        self.state = RowState(slots, self.width, a.vocabulary, like.device)
        self.bursts: deque[Burst] = deque()
        # By row: its slot, and the tokens launched so far; by slot: its pages.
        self.slot = np.zeros(slots, np.int32)
        self.launched = np.zeros(slots, np.int64)
        self.free_slots = list(range(slots - 1, -1, -1))
        self.page_table = np.zeros((slots, self.width), np.int32)
        self.page_lists: dict[int, list[int]] = {}
        # Tokens of a new request that are in its pages already.
        self.starts: dict[int, int] = {}
        # Whether the device knows the newest tokens, which rows run, and whether a page was freed since one was short.
        self.in_step = self.arranged = False
        self.room, self.said_full = True, False
        self.shares = self.truncated = False
        self.stop_version = -1
        self._tokens_read = 0
        self._take_weights()

    def _take_weights(self) -> None:
        self.fingerprint = Fingerprint(self.model)
        rotary = RotaryTables(self.architecture, paired=False)
        self.network = PagedNetwork(self.architecture, rotary, self.store, self.state)
        # Parameters have moved, which is no change of theirs.
        self.fingerprint = Fingerprint(self.model)
        self.steps = CapturedSteps(self.network, self.state, capture=self.device.type == "cuda")

    @property
    def tokens_read(self) -> int:
        return self._tokens_read

    @property
    def idle(self) -> bool:
        return super().idle and not self.ended

    @torch.inference_mode()
    def step(self) -> list[Outcome]:
        """Admit requests, launch a burst of steps, read the burst before it, and return the requests that ended."""
        if not self.fingerprint.looks_current() or (self.waiting and not self.fingerprint.is_current()):
            self.renew()
        if self._one_by_one():
            self._drain()
            self.in_step = self.arranged = False
            return super().step()
        if not self.in_step:
            self._place(range(self.rows.count))
            self.in_step = True
        if self.waiting and self.rows.count < self.slots and self.room:
            self._drain()
            self._admit()
        kept = 0
        if (steps := self._steps_left()) > 0:
            self.bursts.append(self._launch(steps))
            kept = 1
        while len(self.bursts) > kept:
            self._read(self.bursts.popleft())
        return self._take_ended()

    @torch.inference_mode()
    def renew(self, model: nn.Module | None = None) -> None:
        self._drain()
        if model is not None and model is not self.model:
            self._change_model(model)
            self._take_weights()
        else:
            self.network.refresh()
            self.fingerprint = Fingerprint(self.model)
            self.steps.check_addresses()
        self.pages.forget()
        self._read_again()

    def _change_model(self, model: nn.Module) -> None:
        found, mine = describe(model), self.architecture
        reason = None if found is None else reason_against(found, self.length)
        if found is None or found.shape != mine.shape or reason is not None:
            theirs = "an unknown model family" if found is None else f"{found.name} {found.shape}"
            theirs += "" if reason is None else f" ({reason})"
            raise ContractError(f"this engine was built for {mine.name} {mine.shape} and cannot load {theirs}")
        self.model, self.architecture = model, found

    def _one_by_one(self) -> bool:
        """Whether Python must see the logits of a request before its token is chosen."""
        return any(_needs_logits(request) for request in (*self.rows.requests, *self.waiting))

    # What the device does: bursts of steps.

    def _steps_left(self) -> int:
        count = self.rows.count
        left = self.rows.limit[:count] - self.launched[:count]
        return min(BURST, int(left.max(initial=0)))

    def _launch(self, steps: int) -> Burst:
        self._arrange()
        count = self.rows.count
        made = self.launched[:count].copy()
        shape = self._shape()
        for _ in range(steps):
            self.steps.run(shape)
        self.launched[:count] = np.minimum(made + steps, self.rows.limit[:count])
        return self._sent(made, slice(0, count), steps)

    def _sent(self, made: NDArray[np.int64], part: slice, steps: int) -> Burst:
        """What was just launched for these rows, with its tokens on their way to the host."""
        ring, arrived = self.state.ring, None
        if self.device.type == "cuda":
            tokens = torch.empty(ring.shape, dtype=ring.dtype, pin_memory=True)
            tokens.copy_(ring, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        else:
            tokens = ring.clone()
        return Burst(self.rows.requests[part], self.slot[part].copy(), made, steps, self.version, tokens, arrived)

    def _arrange(self) -> None:
        """Tell the device which slots run, after rows came or went."""
        if self.arranged:
            return
        count = self.rows.count
        rows = row_bucket(count, self.slots)
        self.state.set_order(self.slot[:count], rows)
        self._find_groups(rows)
        self.truncated = any(_truncates(request) for request in self.rows.requests)
        self.arranged = True

    def _shape(self) -> StepShape:
        count = self.rows.count
        longest = int(self.rows.length[:count].max()) + 2 * BURST
        rows = row_bucket(count, self.slots)
        return StepShape(rows, splits_for(rows, self.architecture.kv_heads, longest), self.shares, self.truncated)

    def _find_groups(self, rows: int) -> None:
        """Find neighbouring rows that begin with the same pages, and let them be read once if that pays."""
        a, count = self.architecture, self.rows.count
        group = a.heads // a.kv_heads
        filled = [len(request.ids) // PAGE for request in self.rows.requests]
        tables = self.page_table[self.slot[:count], : max(filled)]
        same = np.logical_and.accumulate(tables[1:] == tables[:-1], axis=1).sum(1)
        # Both rows must have filled the pages they share.
        same = np.minimum(same, np.minimum(filled[1:], filled[:-1]))
        groups = find_groups(same.tolist(), most=shared_rows(group) // group)
        spared = sum((members - 1) * pages for _, members, pages in groups) * PAGE
        self.shares = spared * a.kv_heads * a.head_dim * 2 * self.store.data.element_size() >= LEAST_SPARED
        if self.shares:
            shared = np.zeros(rows, np.int32)
            for first, members, pages in groups:
                shared[first : first + members] = pages * PAGE
            self.state.set_groups(shared, np.array(groups, np.int32).T * np.array([[1], [1], [PAGE]], np.int32))

    def _place(self, rows: Sequence[int]) -> None:
        """Write the state of these rows to their slots on the device."""
        if not rows:
            return
        known, at = self.rows, list(rows)
        slots = self.slot[at].tolist()
        self.state.place(
            slots, [known.requests[row] for row in at], known.stop_set[at].tolist(),
            known.made[at].tolist(), known.token[at].tolist(),
        )  # fmt: skip
        if self.stop_version != known.stop_version:
            self.stop_version = known.stop_version
            self.state.set_stop_table(known.stop_table)
            self.steps.check_addresses()

    # What the host learns: tokens, a burst later.

    def _drain(self) -> None:
        """Wait for the bursts that run, and take over their tokens."""
        while self.bursts:
            self._read(self.bursts.popleft())
        self.launched[: self.rows.count] = self.rows.made[: self.rows.count]

    def _read(self, burst: Burst) -> None:
        """Take over the tokens of a burst, and remove the rows that ended."""
        rows = {id(request): row for row, request in enumerate(self.rows.requests)}
        places = [(i, rows[id(request)]) for i, request in enumerate(burst.requests) if id(request) in rows]
        if not places:
            return
        if burst.arrived is not None:
            burst.arrived.synchronize()
        old, new = (np.array(side) for side in zip(*places, strict=True))
        made, slots = burst.made[old], burst.slots[old]
        # [steps, rows]
        turn = (made + np.arange(burst.steps)[:, None]) % RING
        ring = burst.tokens.numpy()
        tokens, logp = ring[0][turn, slots].astype(np.int64), ring[1].view(np.float32)[turn, slots]
        ends = self.rows.stop_table[self.rows.stop_set[new], tokens] | np.isnan(logp)
        room = np.minimum(burst.steps, self.rows.limit[new] - made)
        first = np.where(ends.any(0), ends.argmax(0) + 1, burst.steps + 1)
        counts = np.minimum(first, room)
        self.rows.accept_block(new, tokens, logp, counts, burst.version)
        self._remove(self._outcomes(new[counts > 0], counts[counts > 0], (first <= room)[counts > 0]))

    def _outcomes(
        self, rows: NDArray[np.int64], counts: NDArray[np.int64], stopped: NDArray[np.bool_]
    ) -> dict[int, Sampled | BaseException]:
        found: dict[int, Sampled | BaseException] = {}
        known = self.rows
        watched = set(known.watched(slice(0, known.count)))
        failed, full = np.isnan(known.last_logp[rows]), known.made[rows] >= known.limit[rows]
        for i, row in enumerate(rows.tolist()):
            outcome = self._watch(row, int(counts[i])) if row in watched else None
            if outcome is not None:
                found[row] = outcome
            elif failed[i]:
                found[row] = self._not_finite(row)
            elif stopped[i] or full[i]:
                found[row] = known.result(row, "stop" if stopped[i] else known.requests[row].full_end)
        return found

    def _watch(self, row: int, count: int) -> Sampled | BaseException | None:
        """Pass on the newest tokens of a row one by one, until one of them completes a stop string."""
        made = int(self.rows.made[row])
        for number in range(made - count + 1, made + 1):
            self.rows.go_back(row, number)
            if np.isnan(self.rows.last_logp[row]):
                return self._not_finite(row)
            if (outcome := self._look(row)) is not None:
                return outcome
        return None

    def _remove(self, outcomes: dict[int, Sampled | BaseException]) -> None:
        """Take ended rows out; the others keep their order, so that groups stay together."""
        if not outcomes:
            return
        rows = self.rows
        keep = [row for row in range(rows.count) if row not in outcomes]
        for row in sorted(outcomes):
            self.ended.append((rows.requests[row], outcomes[row]))
            slot = int(self.slot[row])
            pages = self.page_lists.pop(slot)
            if isinstance(outcomes[row], Sampled):
                self.pages.publish(pages, page_keys(rows.cached_ids(row), PAGE))
            self.pages.give_back(pages)
            self.free_slots.append(slot)
        if self.seen is not None:
            self.seen[: len(keep)] = self.seen[keep]
        self.slot[: len(keep)], self.launched[: len(keep)] = self.slot[keep], self.launched[keep]
        rows.close_gaps(range(len(keep)), keep, len(keep))
        self.room = True
        self._unsettle()

    def _unsettle(self) -> None:
        super()._unsettle()
        self.arranged = False

    # Admission: pages for the longest answer a request may get, so that no row ever waits in the middle.

    def _admit(self) -> None:
        if self._one_by_one():
            super()._admit()
            return
        self._choose_entering()
        if not self.entering:
            return
        first, logits = self.rows.count, self._read_entering()
        self._enter_rows()
        rows = range(first, self.rows.count)
        self._place(rows)
        truncated = any(_truncates(request) for request in self.rows.requests[first:])
        self.network.sample(logits, self.state.to_device(self.slot[first : self.rows.count]), truncated=truncated)
        self.launched[first : self.rows.count] = 1
        self.bursts.append(self._sent(np.zeros(len(rows), np.int64), slice(first, self.rows.count), 1))

    def _choose_entering(self) -> None:
        coming = [self.waiting[i] for i in range(min(len(self.waiting), self.slots - self.rows.count))]
        keys = [page_keys(request.ids, PAGE) for request in coming]
        self._make_pages(coming, keys)
        for request, known in zip(coming, keys, strict=True):
            if not self._reserve(request, known):
                break
            self.entering.append(self.waiting.popleft())
        left = len(coming) - len(self.entering)
        if left and not self.entering and self.rows.count == 0:
            self._refuse(self.waiting.popleft())
        elif left:
            self.room = False
            self._say_full(self.rows.count + len(self.entering), self.rows.count + len(coming))

    def _reserve(self, request: GenerationRequest, keys: list[bytes]) -> bool:
        """Give a request a slot and pages; False if there are not enough pages."""
        # The last token is always read again, for its logits.
        known = self.pages.beginning(keys[: (len(request.ids) - 1) // PAGE])
        pages = self.pages.take(known, _pages_of(request) - len(known))
        if pages is None:
            return False
        slot = self.free_slots.pop()
        self.slot[self.rows.count + len(self.entering)] = slot
        self.page_lists[slot], self.starts[slot] = pages, len(known) * PAGE
        self.page_table[slot] = 0
        self.page_table[slot, : len(pages)] = pages
        # Before they are read: those that come with this request read them in the same sweep, layer by layer.
        self.pages.publish(pages, keys)
        return True

    def _make_pages(self, requests: Sequence[GenerationRequest], keys: Sequence[list[bytes]]) -> None:
        """Make the store large enough for these requests, as far as memory allows."""
        full = [(len(request.ids) - 1) // PAGE for request in requests]
        new = {key for some, count in zip(keys, full, strict=True) for key in some[:count]}
        repeated = sum(full) - len(new - self.pages.known.keys())
        short = sum(map(_pages_of, requests)) - repeated - self.pages.available
        if short <= 0:
            return
        have, keep = len(self.pages), bool(self.rows.count)
        # While rows run, old and new store exist side by side, and growing often would cost too much.
        size = max(have + short, 2 * have if keep else 0)
        size = min(size, max(have, self._pages_that_fit(0 if keep else have)))
        if size == have:
            return
        try:
            self.store.grow(size, keep=keep)
        except torch.OutOfMemoryError:
            size = have
            if not keep:
                self.store.grow(size, keep=False)
        if not keep:
            self.pages.forget()
        self.pages.grow(size)
        self.steps.check_addresses()

    def _pages_that_fit(self, replaced: int) -> int:
        """How many pages the free memory holds, once `replaced` of them are given up."""
        if self.device.type != "cuda":
            return MOST_PAGES
        free, _ = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(CACHE_SHARE * (free / self.store.page_bytes + replaced))

    def _say_full(self, running: int, wanted: int) -> None:
        if not self.said_full:
            self.said_full = True
            log.warning("the GPU's memory holds %d of %d rows at once; the others wait for a place", running, wanted)

    def _refuse(self, request: GenerationRequest) -> None:
        need, have = len(request.ids) + request.limit, len(self.pages) * PAGE
        message = f"a request of up to {need} tokens does not fit into the GPU's cache of {have}"
        hint = "Shorten the prompt, lower max_new_tokens, or free GPU memory."
        self.ended.append((request, ContractError(message, hint=hint)))

    def _enter_rows(self) -> None:
        for request in self.entering:
            self.rows.add(request, self.eos | frozenset(request.params.stop_token_ids))
        self.entering.clear()
        self._unsettle()

    def _read_entering(self) -> Tensor:
        """Each distinct prompt is read once; what differs of its copies is their last page."""
        first = self.rows.count
        pieces: list[SlotPiece] = []
        leaders: dict[bytes, int] = {}
        source: list[int] = []
        copies: list[tuple[int, int]] = []
        for number, request in enumerate(self.entering):
            slot = int(self.slot[first + number])
            start, last = self.starts.pop(slot), (len(request.ids) - 1) // PAGE
            if request.key in leaders:
                copies.append((self.page_table[pieces[leaders[request.key]].slot, last], self.page_table[slot, last]))
            else:
                leaders[request.key] = len(pieces)
                pieces.append(SlotPiece(slot, start, request.ids[start:]))
            source.append(leaders[request.key])
        # The prompts' pages must be on the device before they are read.
        slots = self.slot[first : first + len(self.entering)]
        self.state.set_tables(slots, self.page_table[slots])
        logits = self._sweep(pieces)
        if copies:
            self.store.copy(self.state.to_device(np.array(copies, np.int64)))
            logits = logits.index_select(0, self.state.to_device(np.array(source)))
        return logits

    def _read_again(self) -> None:
        """Read all running rows with new weights; pages that several share, once."""
        pieces, written = [], set[int]()
        for row, request in enumerate(self.rows.requests):
            slot, ids = int(self.slot[row]), self.rows.cached_ids(row)
            pages = self.page_lists[slot]
            self.pages.publish(pages, page_keys(request.ids, PAGE))
            done = next((i for i, page in enumerate(pages) if page not in written), 0)
            written.update(pages[: len(request.ids) // PAGE])
            if done * PAGE < len(ids):
                pieces.append(SlotPiece(slot, done * PAGE, ids[done * PAGE :]))
        if pieces:
            self._sweep(pieces)

    def _sweep(self, pieces: Sequence[SlotPiece]) -> Tensor:
        """Read pieces, at most SWEEP_TOKENS at a time: logits [pieces, vocabulary]."""
        logits, batch = [], list[SlotPiece]()
        for place, piece in enumerate(pieces, start=1):
            batch.append(piece)
            size = sum(len(p.tokens) for p in batch)
            if place == len(pieces) or size + len(pieces[place].tokens) > SWEEP_TOKENS:
                logits.append(self.network.prefill(batch))
                self._tokens_read += size
                batch = []
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    # One step at a time, when Python looks at the logits.

    def _next_logits(self) -> Tensor:
        self._place(range(self.rows.count))
        self._arrange()
        return self.network.decode(self._shape())[: self.rows.count].float()

    def _choose(self, logits: Tensor, part: slice) -> None:
        super()._choose(logits.float(), part)

    def _leave(self, outcomes: dict[int, Sampled | BaseException], new_place: dict[int, int], kept: int) -> None:
        raise AssertionError("rows leave through `_remove`")

    def _withdraw(self, request: GenerationRequest) -> None:
        """A waiting request holds nothing."""

    def _forget_everything(self) -> None:
        self.bursts.clear()
        self.pages = Pages(len(self.pages), PAGE)
        self.page_lists.clear()
        self.starts.clear()
        self.free_slots = list(range(self.slots - 1, -1, -1))
        self.in_step, self.room = False, True


def _needs_logits(request: GenerationRequest) -> bool:
    return request.steering is not None or request.params.repetition_penalty != 1


def _truncates(request: GenerationRequest) -> bool:
    p = request.params
    return p.temperature > 0 and (p.top_k > 0 or p.top_p < 1 or p.min_p > 0)


def _pages_of(request: GenerationRequest) -> int:
    """Pages for the longest answer: the last token of all is never written."""
    return -(-(len(request.ids) + request.limit - 1) // PAGE)


def find_groups(same: Sequence[int], most: int) -> list[tuple[int, int, int]]:
    """Runs of up to `most` rows that share pages, as (first row, rows, pages); rows i and i + 1 share `same[i]`."""
    groups = []
    first, pages = 0, 0
    for row in range(1, len(same) + 2):
        common = same[row - 1] if row <= len(same) else 0
        members = row - first
        # One more row may shorten what all share.
        joined = min(pages, common) if members > 1 else common
        if common and members < most and joined * members >= pages * (members - 1):
            pages = joined
            continue
        if members > 1:
            groups.append((first, members, pages))
        first, pages = row, 0
    return groups
