"""An engine that samples on vLLM servers: token ids in, token ids with log-probabilities and versions out.

    submit ─► queue ─► a thread per request in flight ─► a server of the fleet ─► POST /inference/v1/generate
    future ◄──────── Sampled ◄──── checked, cut at a stop string ◄──── tokens, log-probabilities, weight versions

A request is answered once: a server that dies in the middle has delivered nothing, and another begins it again. While
weights travel, no request is under way, so all tokens of an answer have one version, which the server confirms.

Departures from the engine of this process: `on_token` is called when the answer has arrived, a cancelled request has no
tokens, and vLLM draws other tokens from the same seed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine.engine import ending_tokens
from groupwise.language.engine.model_forward import text_config
from groupwise.language.engine.request import GenerationRequest, OnToken, Sampled, SamplingParams, StopStrings
from groupwise.language.engine.rotary import longest
from groupwise.language.engine.weights import Fingerprint
from groupwise.language.loading import LanguageModel
from groupwise.language.samplers.server_fleet import OnLost, ServerFleet
from groupwise.language.samplers.vllm_checks import (
    insist_on_model,
    insist_on_news,
    insist_on_tokenizer,
    probe_prompt,
    prompt_logp,
)
from groupwise.language.samplers.vllm_server import (
    Answer,
    Call,
    Lost,
    Refused,
    ServerLost,
    VllmServer,
    checked_servers,
    with_each,
)
from groupwise.language.samplers.weight_travel import Travel, travel_for
from groupwise.types import Hint

TRIES = 8  # servers that may fail one request before it is the request's fault
# What Groupwise asks of every server, whatever a request says.
LOGPROBS = {"logprobs": 0, "ignore_eos": True, "skip_special_tokens": False, "include_stop_str_in_output": True}


class VllmEngine:
    """Generates on vLLM servers with the weights of `language.model`, which `load` sends to them.

    Args:
      language: the model that learns, and its tokenizer.
      servers: addresses of servers that serve the same model.
      params: how the run samples; the servers' log-probabilities are compared with the model's under them.
      ends: tokens that end every request, besides the model's own.
      in_flight: requests that one server works on at a time.
      weights: how weights travel: "adapter", "folder", "transfer"; None chooses.
      folder: a folder that this machine and the servers share.
      on_lost, patience: what happens when a server is lost; see `ServerFleet`.
      timeout: seconds one request may take before its server counts as lost.
    """

    def __init__(
        self,
        language: LanguageModel,
        servers: Sequence[str],
        *,
        params: SamplingParams | None = None,
        ends: Sequence[int] = (),
        in_flight: int = 64,
        weights: str | None = None,
        folder: str | None = None,
        on_lost: OnLost = "wait",
        patience: float = 600.0,
        timeout: float = 600.0,
        travel: Travel | None = None,
    ) -> None:
        if not servers:
            message = "rollout.sampler = 'vllm' needs the address of a server"
            raise ConfigError(message, hint="Set vllm.servers = ['http://127.0.0.1:8000'].", field="vllm.servers")
        connections = [VllmServer(url, timeout) for url in checked_servers(servers)]
        self.language, self.tokenizer, self.params = language, language.tokenizer, params or SamplingParams()
        config = text_config(language.model)
        self.vocabulary, self._own_length = int(config.vocab_size), longest(config, None)
        self.ends = ending_tokens(language.model, language.tokenizer, None) | frozenset(ends)
        self.travel = travel or travel_for(weights, language, folder, connections)
        self.fleet = ServerFleet(
            connections, in_flight=in_flight, on_lost=on_lost, patience=patience, admit=self._admit
        )
        self._bases: dict[VllmServer, tuple[str, int]] = {}
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self._version: int | None = None
        # A test text, and what the published weights say of it.
        self._probe = probe_prompt(language)
        self._probed = np.zeros(len(self._probe) - 1, np.float32)
        self._fingerprint = Fingerprint(language.model)
        # Held while weights are written or sent, so that nobody is given half of them.
        self._weights = threading.RLock()
        self._state = threading.Condition()
        self._queue: deque[GenerationRequest] = deque()
        self._calls: dict[Future[Sampled], tuple[GenerationRequest, Call]] = {}
        self._running = self._holders = self._resent = 0
        self._publishing = 0.0
        self._closed = False
        self._threads: list[threading.Thread] = []

    @property
    def version(self) -> int:
        return self._version or 0

    @property
    def on_accelerator(self) -> bool:
        return True

    @property
    def max_length(self) -> int:
        """The longest sequence that the model and every server in service take."""
        if self._version is None:
            self.load(self.language.model, 0)
        return min([self._own_length, *(length for _, length in self._bases.values())])

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        seed: int,
        session: Hashable | None = None,
        on_token: OnToken | None = None,
    ) -> Future[Sampled]:
        """Request a continuation of `ids`, from any thread. Requests of one `session` prefer one server."""
        request = self._request(ids, params, seed, session, on_token)
        with self._state:
            if self._closed:
                raise ContractError("the engine is closed and takes no more requests")
            self._calls[request.future] = request, Call()
            self._queue.append(request)
            self._hire()
            self._state.notify_all()
        request.future.add_done_callback(self._forget)
        return request.future

    def generate(self, prompts: Sequence[tuple[Sequence[int], int]], params: SamplingParams) -> list[Sampled]:
        """Continuations of `(ids, seed)` pairs, in order."""
        futures = [self.submit(ids, params, seed) for ids, seed in prompts]
        wait(futures)
        return [future.result() for future in futures]

    def load(self, weights: nn.Module, version: int) -> None:
        """Send the weights of the run's model to all servers, between requests; to a lost one on its return."""
        if weights is not self.language.model:
            raise ContractError("a vLLM sampler is given the weights of the model it was made for, not another module")
        if version == self._version and self._fingerprint.is_current():
            return
        began = time.perf_counter()
        with self.hold(), self._weights:
            self.travel.prepare(version)
            self._version, self._fingerprint = version, Fingerprint(self.language.model)
            old, self._probed = self._probed, prompt_logp(self.language, self._probe)
            for server, error in self._renewed(self.fleet.in_service, old):
                self.fleet.lose(server, error)
        self.fleet.open()
        self._publishing = time.perf_counter() - began

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the `with` block no request is under way; new ones wait."""
        with self._state:
            self._holders += 1
            self._state.wait_for(lambda: self._running == 0)
        try:
            yield
        finally:
            with self._state:
                self._holders -= 1
                self._state.notify_all()

    def cancel(self, future: Future[Sampled]) -> None:
        """End a request: its future gets no tokens, with end "cancelled"."""
        with self._state:
            request, call = self._calls.get(future, (None, None))
            if request is None or call is None:
                return
            request.cancelled = True
        call.break_off()

    def start(self) -> Self:
        """The servers work on their own; nothing to start."""
        return self

    def run_until_idle(self) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._calls)

    def close(self) -> None:
        """Stop; requests still running or waiting end as cancelled."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            pending = list(self._calls)
            self._state.notify_all()
        for future in pending:
            self.cancel(future)
        self.fleet.close()
        for thread in self._threads:
            thread.join()
        for request in self._queue:
            request.resolve(Sampled.cancelled_unread(self.version))
        self.travel.close(self.fleet.in_service)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        """Servers in service, requests that had to be sent again, and how long the last weights travelled."""
        with self._state:
            resent, self._resent = self._resent, 0
        return {
            "sampler/servers": float(len(self.fleet.in_service)),
            "sampler/resent": float(resent),
            "sampler/publish_seconds": self._publishing,
        }

    def take_hints(self) -> list[Hint]:
        return self.fleet.take_hints()

    # Servers

    def _admit(self, servers: Sequence[VllmServer]) -> Lost:
        """Check servers that are new or were restarted, and give them the present weights."""
        with self._weights:
            lost = with_each(servers, self._meet)
            reached = _others(servers, lost)
            lost += self.travel.send(reached)
            return lost + with_each(_others(reached, lost), self._compare)

    def _renewed(self, servers: Sequence[VllmServer], old: NDArray[np.float32]) -> Lost:
        """Give new weights to servers in service, and see that they took them."""
        lost = self.travel.send(servers)

        def see(server: VllmServer) -> None:
            insist_on_news(server, self._asked(server, [], self.params, 0), self._probe, old, self._probed)

        return lost + with_each(_others(servers, lost), see)

    def _meet(self, server: VllmServer) -> None:
        server.insist_on_route()
        name, length = server.model()
        insist_on_tokenizer(server, name, self.tokenizer)
        self._bases[server] = name, length or self._own_length

    def _compare(self, server: VllmServer) -> None:
        body = self._asked(server, [], self.params, 0)
        insist_on_model(server, body, self.language, self.params)

    # Requests

    def _hire(self) -> None:
        """One more thread if there is more to do than threads, and the fleet may have room for it."""
        most = self.fleet.limit * len(self.fleet.members)
        if len(self._threads) < min(most, len(self._calls)):
            thread = threading.Thread(target=self._work, name="groupwise-vllm", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or (self._queue and self._holders == 0))
                if self._closed:
                    return
                request = self._queue.popleft()
                call = self._calls.get(request.future, (None, Call()))[1]
                self._running += 1
            outcome: Sampled | BaseException
            try:
                outcome = self._answer(request, call)
            except Exception as error:
                outcome = error
            finally:
                with self._state:
                    self._running -= 1
                    self._state.notify_all()
            request.resolve(outcome)

    def _answer(self, request: GenerationRequest, call: Call) -> Sampled:
        """Ask one server after another until one has answered."""
        prefer = None if request.session is None else hash(request.session)
        failure = ""
        for _ in range(TRIES):
            if request.cancelled:
                break
            member = self.fleet.take(prefer)
            try:
                answer = self._ask(member.server, request, call)
            except ServerLost as lost:
                failure = lost.message
                if call.broken_off:
                    break
                self._resent += 1
                self.fleet.lose(member.server, lost)
            else:
                return self._sampled(request, answer)
            finally:
                self.fleet.give(member)
        else:
            raise ContractError(
                f"{TRIES} servers in a row failed the same request of {len(request.ids)} tokens: {failure}",
                hint="Look into the servers' logs; `groupwise sampler status` says where they are.",
            )
        return Sampled.cancelled_unread(self.version)

    def _ask(self, server: VllmServer, request: GenerationRequest, call: Call) -> Answer:
        body = self._asked(server, request.ids.tolist(), request.params, request.seed, request.limit)
        try:
            answer, said = server.generate(body, call)
        except Refused as refused:
            if refused.status == 404:
                raise ServerLost(f"the server at {server.url} has lost the weights it was given") from refused
            raise
        self._insist_on_version(server, body, answer, said)
        if answer.reason in ("abort", "error"):
            raise ServerLost(f"the server at {server.url} ended a request by itself ({answer.reason})")
        return answer

    def _insist_on_version(
        self, server: VllmServer, body: Mapping[str, Any], answer: Answer, said: Mapping[str, Any]
    ) -> None:
        """Refuse tokens of other weights than the present ones: a restarted server has those it began with."""
        label = self.travel.label
        if body["model"] == label:
            known = said.get("model") == label
        else:
            known = bool(answer.spans) and all(span[0] == label for span in answer.spans)
        if not known and len(answer.ids):
            raise ServerLost(f"the server at {server.url} sampled with other weights than it was given")

    def _asked(
        self, server: VllmServer, ids: list[int], params: SamplingParams, seed: int, limit: int = 1
    ) -> dict[str, Any]:
        """The body of a request, in vLLM's words."""
        sampling = {
            "max_tokens": limit,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "repetition_penalty": params.repetition_penalty,
            "seed": seed % 2**63,
            "stop": list(params.stop),
            "stop_token_ids": sorted(self.ends | set(params.stop_token_ids)),
            # Only stop strings need text.
            "detokenize": bool(params.stop),
            **LOGPROBS,
        }
        return {
            "model": self.travel.model_name(server, self._bases[server][0]),
            "token_ids": ids,
            "sampling_params": sampling,
        }

    def _sampled(self, request: GenerationRequest, answer: Answer) -> Sampled:
        ids, logp = answer.ids, answer.logp
        if len(ids) and (ids.min() < 0 or ids.max() >= self.vocabulary):
            raise ContractError(
                f"a server sampled token {int(ids.max())}, but the model's vocabulary has {self.vocabulary}",
                hint="Does it serve the run's own model?",
            )
        stopped = answer.reason == "stop"
        if request.stops is not None:
            # Where our engine would have stopped: vLLM looks at text, which may hide part of a character.
            found = next((n for n in range(1, len(ids) + 1) if request.stops.ends(ids[:n])), None)
            if found is not None:
                ids, logp, stopped = ids[:found], logp[:found], True
        if request.on_token is not None:
            for token, value in zip(ids.tolist(), logp.tolist(), strict=True):
                request.on_token(token, value)
        versions = np.full(len(ids), self.version, np.int64)
        return Sampled(ids, logp, versions, self.version, "stop" if stopped else request.full_end)

    def _request(
        self, ids: Sequence[int], params: SamplingParams, seed: int, session: Hashable | None, on_token: OnToken | None
    ) -> GenerationRequest:
        array = np.array(ids, dtype=np.int64)
        if array.ndim != 1 or len(array) == 0:
            raise ContractError(f"a prompt must be a list of at least 1 token; this one has shape {array.shape}")
        room = self.max_length - len(array)
        if room < 1:
            message = f"the prompt has {len(array)} tokens, but the servers take {self.max_length} in all"
            raise ContractError(message, hint="Shorten the prompt, or start them with a larger --max-model-len.")
        stops = self._stop_strings(params.stop)
        return GenerationRequest(array, params, seed, session, on_token, stops, min(params.max_new_tokens, room))

    def _stop_strings(self, strings: tuple[str, ...]) -> StopStrings | None:
        if strings and strings not in self._stops:
            self._stops[strings] = StopStrings(strings, self.tokenizer, self.vocabulary)
        return self._stops.get(strings)

    def _forget(self, future: Future[Sampled]) -> None:
        with self._state:
            request, call = self._calls.pop(future)
            cancelled = future.cancelled()
            request.cancelled |= cancelled
            self._state.notify_all()
        if cancelled:
            call.break_off()


def _others(servers: Sequence[VllmServer], lost: Lost) -> list[VllmServer]:
    gone = {server for server, _ in lost}
    return [server for server in servers if server not in gone]
