"""The generation engine: requests in, futures of sampled tokens out.

There are two ways to drive it. `start()` runs it in its own thread, and requests join and leave the running batch at
any step. Without that thread, `run_until_idle()` or `generate()` drive it from the caller's.
"""

import logging
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from torch import Tensor, nn

from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine.batcher import Batcher
from groupwise.language.engine.cuda.support import reason_against
from groupwise.language.engine.families import Architecture, describe, unwrap
from groupwise.language.engine.model_batcher import ModelBatcher
from groupwise.language.engine.model_forward import text_config
from groupwise.language.engine.request import GenerationRequest, OnToken, Outcome, Sampled, SamplingParams, StopStrings
from groupwise.language.engine.rotary import longest
from groupwise.language.engine.row_batcher import RowBatcher
from groupwise.language.engine.steering import Steering

log = logging.getLogger(__name__)
# Requests at once; more do not make a GPU faster than the second number.
SLOTS, MOST_SLOTS = 64, 1024
# Weights up to this size may be copied into joined matrices.
COPY_BYTES = 2 << 30
MOST_STOPS = 32  # sets of stop strings that are kept


class Engine:
    """Generates with a Hugging Face causal language model, reading the live module's weights.

    `slots` requests run at once; others wait. On a GPU whose kernels suit the model, rows take only the pages they
    need, so there may be more of them: up to `paged_slots`, and as many as memory holds. `max_length` limits prompt and
    new tokens together (default: the model's own limit). `eos` are the tokens that end every request (default: the
    model's and tokenizer's; `()` for none), and `ends` further ones, such as those with which a chat template ends a
    turn. `copy_weights` allows copies of projections, joined into larger matrices: faster, but more memory (default:
    for models up to 2 GiB).

    The engine notices when an optimiser changes the weights in place. While its thread runs, change them only inside
    `hold()`, so that no step sees half an update, and announce the new version with `load`.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        slots: int = SLOTS,
        paged_slots: int | None = None,
        max_length: int | None = None,
        eos: Sequence[int] | None = None,
        ends: Sequence[int] = (),
        copy_weights: bool | None = None,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"slots is {slots}; it must be at least 1", field="slots")
        self.model, self.tokenizer = model, tokenizer
        config = text_config(unwrap(model))
        self.vocabulary = int(config.vocab_size)
        every = ending_tokens(model, tokenizer, eos) | frozenset(ends)
        self._inside, self.max_length = _inside(
            model, config, slots, max_length, every, copy_weights, paged_slots or slots
        )
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self._requests: dict[Future[Sampled], GenerationRequest] = {}
        self._arrived: list[GenerationRequest] = []
        self._any_cancelled = False
        # Guards the queue and the flags; never held during a step.
        self._state = threading.Condition()
        # Held during a step, and by whoever changes weights.
        self._stepping = threading.RLock()
        self._holders = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        seed: int,
        session: Hashable | None = None,
        on_token: OnToken | None = None,
        steering: Steering | None = None,
    ) -> Future[Sampled]:
        """Request a continuation of `ids`, from any thread.

        A request with a `session` keeps its keys and values, and the session's next request reads only the tokens
        after their common beginning. `on_token(token, logp)` is called on the engine's thread for every token as it is
        made; an exception in it ends this request and no other. `steering` changes which tokens are chosen.
        """
        request = self._request(ids, params, seed, session, on_token)
        request.steering = steering
        with self._state:
            if self._closed:
                raise ContractError("the engine is closed and takes no more requests")
            self._requests[request.future] = request
            self._arrived.append(request)
            self._state.notify_all()
        # After the lock is released: a future that is already done runs its callback at once.
        request.future.add_done_callback(self._forget)
        return request.future

    def generate(self, prompts: Sequence[tuple[Sequence[int], int]], params: SamplingParams) -> list[Sampled]:
        """Continuations of `(ids, seed)` pairs, in order."""
        futures = [self.submit(ids, params, seed) for ids, seed in prompts]
        self.run_until_idle()
        return [future.result() for future in futures]

    def run_until_idle(self) -> None:
        """Work until no request is left, or wait for the engine's thread to do so."""
        if self._thread is not None:
            with self._state:
                self._state.wait_for(lambda: not self._requests)
            return
        while self._step():
            pass

    def step(self) -> bool:
        """One step for all running requests; False if there was nothing to do."""
        # A running engine thread would otherwise never let go of the lock.
        with self.hold():
            return self._step()

    def _step(self) -> bool:
        with self._stepping:
            outcomes = self._take_arrivals()
            busy = not self._inside.idle
            if busy:
                try:
                    outcomes += self._inside.step()
                except Exception as error:  # out of memory, for example: every request it was working on fails
                    outcomes += self._inside.fail(error)
        # Outside the lock: callbacks of a future may submit or cancel other requests.
        for request, outcome in outcomes:
            request.resolve(outcome)
        return busy or bool(outcomes)

    def load(self, weights: Mapping[str, Tensor] | nn.Module, version: int) -> None:
        """Take new weights: a state dict to copy, another module, or the engine's own module after an update.

        Running requests continue with the new weights, and their caches are computed again; `Sampled.versions` records
        the version of each token. Sessions start over.
        """
        with self.hold():
            model = weights if isinstance(weights, nn.Module) else self.model
            if not isinstance(weights, nn.Module):
                model.load_state_dict(dict(weights))
            # Refuses a model that does not fit; the engine then keeps the one it has.
            self._inside.renew(model)
            self.model, self._inside.version = model, version

    @property
    def version(self) -> int:
        return self._inside.version

    @property
    def on_accelerator(self) -> bool:
        return self._inside.device.type != "cpu"

    @property
    def tokens_read(self) -> int:
        """How many prompt tokens went through the network; shared prompts and sessions count once."""
        return self._inside.tokens_read

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Pause the engine inside the `with` block, so that weights can be changed."""
        with self._state:
            self._holders += 1
        try:
            with self._stepping:
                yield
        finally:
            with self._state:
                self._holders -= 1
                self._state.notify_all()

    def cancel(self, future: Future[Sampled]) -> None:
        """End a request at the next step: its future gets the tokens made so far, with end "cancelled"."""
        with self._state:
            request = self._requests.get(future)
            if request is not None:
                request.cancelled = True
                self._any_cancelled = True
                self._state.notify_all()

    def start(self) -> Self:
        """Run the engine in its own thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="groupwise-engine", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop the engine; requests still running or waiting end as cancelled."""
        with self._state:
            self._closed = True
            pending = list(self._requests)
            self._state.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for future in pending:
            self.cancel(future)
        self._step()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or (self._holders == 0 and self._has_work()))
                if self._closed:
                    return
            self._step()

    def _has_work(self) -> bool:
        return bool(self._arrived) or self._any_cancelled or not self._inside.idle

    def _take_arrivals(self) -> list[Outcome]:
        with self._state:
            arrived, self._arrived = self._arrived, []
            any_cancelled, self._any_cancelled = self._any_cancelled, False
        for request in arrived:
            self._inside.add(request)
        return self._inside.cancel_marked() if any_cancelled else []

    def _forget(self, future: Future[Sampled]) -> None:
        """A future is done: resolved by a step, or cancelled by its owner, which frees its row."""
        with self._state:
            request = self._requests.pop(future)
            if future.cancelled():
                request.cancelled = True
                self._any_cancelled = True
            self._state.notify_all()

    def _request(
        self, ids: Sequence[int], params: SamplingParams, seed: int, session: Hashable | None, on_token: OnToken | None
    ) -> GenerationRequest:
        array = np.array(ids, dtype=np.int64)
        if array.ndim != 1 or len(array) == 0:
            raise ContractError(f"a prompt must be a list of at least 1 token; this one has shape {array.shape}")
        if array.min() < 0 or array.max() >= self.vocabulary:
            wrong = next(int(i) for i in array if not 0 <= i < self.vocabulary)
            hint = "Do the tokenizer and the model belong together?"
            raise ContractError(f"token {wrong} is not in the model's vocabulary of {self.vocabulary}", hint=hint)
        room = self.max_length - len(array)
        if room < 1:
            limit = f"max_length is {self.max_length}, including at least 1 token of the answer"
            hint = "Shorten the prompt or raise max_length."
            raise ContractError(f"the prompt has {len(array)} tokens, but {limit}", hint=hint)
        stops, new = self._stop_strings(params.stop), min(params.max_new_tokens, room)
        return GenerationRequest(array, params, seed, session, on_token, stops, new)

    def _stop_strings(self, strings: tuple[str, ...]) -> StopStrings | None:
        if not strings:
            return None
        if self.tokenizer is None:
            raise ContractError(f"stop strings {strings!r} need a tokenizer, and this engine has none")
        if strings not in self._stops:
            # Callers of a service may send different ones with every request.
            while len(self._stops) >= MOST_STOPS:
                self._stops.pop(next(iter(self._stops)), None)
            self._stops[strings] = StopStrings(strings, self.tokenizer, self.vocabulary)
        return self._stops[strings]


def _inside(
    model: nn.Module, config: Any, slots: int, max_length: int | None, eos: frozenset[int], copy: bool | None,
    paged_slots: int,
) -> tuple[RowBatcher, int]:  # fmt: skip
    """The part that does the work, and the longest sequence it takes."""
    length = longest(config, max_length)
    architecture = describe(model)
    if architecture is None:
        return ModelBatcher(model, slots=slots, eos=eos), length
    if next(architecture.embedding.parameters()).device.type == "cuda":
        reason = reason_against(architecture, length)
        if reason is None:
            return _paged(model, architecture, paged_slots, length, eos), length
        log.warning("generation on this GPU does without fast kernels, because %s", reason)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    copy = size <= COPY_BYTES if copy is None else copy
    return Batcher(model, architecture, slots=slots, length=length, eos=eos, copy=copy), length


def _paged(model: nn.Module, architecture: Architecture, slots: int, length: int, eos: frozenset[int]) -> RowBatcher:
    # It imports Triton, which not every machine has.
    from groupwise.language.engine.cuda.cuda_batcher import CudaBatcher

    return CudaBatcher(model, architecture, slots=slots, length=length, eos=eos)


def ending_tokens(model: nn.Module, tokenizer: Any, given: Sequence[int] | None) -> frozenset[int]:
    """The tokens that end every text: those given, or the model's and the tokenizer's."""
    if given is not None:
        return frozenset(given)
    found = getattr(getattr(unwrap(model), "generation_config", None), "eos_token_id", None)
    ids = list(found) if isinstance(found, list | tuple) else [found]
    ids.append(getattr(tokenizer, "eos_token_id", None))
    return frozenset(int(i) for i in ids if i is not None)
