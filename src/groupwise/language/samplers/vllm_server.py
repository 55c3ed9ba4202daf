"""One vLLM server over HTTP: its routes, and what each of its refusals means.

Two kinds of failure come out of here. `ServerLost`: the server is gone, restarting, or has forgotten our weights, and
another (or the same one, later) can do the work. Anything else: asking again would not help.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode, urlsplit

from groupwise.errors import ConfigError, ContractError, GroupwiseError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from groupwise.config import TrainingConfig

GENERATE = "/inference/v1/generate"
OLDEST = "0.32"
KEY_VARIABLE = "VLLM_API_KEY"
LARGEST = 256 << 20  # bytes of an answer
CONNECT = 10.0  # seconds to connect, and for routes that answer at once
UPDATE = 1800.0  # seconds a server may take to load new weights
# What vLLM sends for a log-probability that it does not have.
NO_LOGPROB = -9999.0


class ServerLost(GroupwiseError):
    """A server does not answer, or no longer has the weights it was given."""

    code = "server_lost"


class Refused(ContractError):
    """A server answered with a status of 4xx. `status` is that status, `is_route` whether the route is missing."""

    def __init__(self, message: str, status: int, is_route: bool = False, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.is_route = status, is_route


@dataclass(frozen=True)
class Answer:
    """What a server sampled: tokens, their log-probabilities, why it ended, and which weights made which tokens.

    `spans` are `(label, first, end)` of the server's own weight versions; empty if it does not say.
    """

    ids: NDArray[np.int64]
    logp: NDArray[np.float32]
    reason: str
    spans: tuple[tuple[str, int, int], ...] = ()


class Call:
    """An HTTP request under way, which another thread may break off."""

    def __init__(self) -> None:
        self.broken_off = False
        self._connection: http.client.HTTPConnection | None = None

    def begin(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        if self.broken_off:
            raise ConnectionAbortedError("the request was cancelled")

    def break_off(self) -> None:
        self.broken_off = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            # The server notices the closed connection and stops generating.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@dataclass(eq=False)
class VllmServer:
    """The server at an address. `timeout` are the seconds one request for tokens may take."""

    url: str
    timeout: float = 600.0
    key: str = field(default_factory=lambda: os.environ.get(KEY_VARIABLE, ""), repr=False)

    def __post_init__(self) -> None:
        self.url = checked_url(self.url)

    # What the engine asks for

    def model(self) -> tuple[str, int | None]:
        """The name of the base model that is served, and the longest sequence the server takes."""
        listed = self.call("GET", "/v1/models")
        data = listed.get("data") if isinstance(listed, Mapping) else None
        cards = [card for card in data if isinstance(card, Mapping)] if isinstance(data, list) else []
        base = next((card for card in cards if not card.get("parent")), None)
        if base is None:
            raise self._not_vllm("GET /v1/models lists no model")
        length = base.get("max_model_len")
        return str(base.get("id")), int(length) if isinstance(length, int) else None

    def insist_on_route(self) -> None:
        """Refuse a server that is not vLLM's, or does not take token ids and return token ids."""
        try:
            self.call("GET", "/health")
        except Refused as refused:
            raise self._not_vllm(f"GET /health is refused with status {refused.status}") from None
        try:
            self.call("POST", GENERATE, {})
        except Refused as refused:
            if refused.is_route:
                raise ConfigError(
                    f"the server at {self.url} has no route {GENERATE}",
                    hint=f"It needs vLLM {OLDEST} or newer, started with --enable-scale-out; `groupwise sampler start` "
                    "does that.",
                    field="vllm.servers",
                ) from None
        else:
            raise self._not_vllm(f"POST {GENERATE} accepts a request without tokens")

    def tokens_of(self, model: str, text: str) -> list[int]:
        """The text as the server's tokenizer reads it."""
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        said = self.call("POST", "/tokenize", body)
        try:
            return [int(token) for token in said["tokens"]]
        except (LookupError, TypeError, ValueError):
            raise self._not_vllm("POST /tokenize returns no tokens") from None

    def generate(self, body: Mapping[str, Any], call: Call | None = None) -> tuple[Answer, Mapping[str, Any]]:
        """One continuation: what was sampled, and everything else the server said."""
        said = self.call("POST", GENERATE, body, timeout=self.timeout, under_way=call)
        if said is None:
            # A server that died while a proxy was passing its answer on.
            raise ServerLost(f"the server at {self.url} sent an empty answer")
        return self._answer(said), said

    def _answer(self, said: Mapping[str, Any]) -> Answer:
        # `groupwise sampler` asks servers for nothing that is made of numbers.
        import numpy as np

        try:
            choice = said["choices"][0]
            ids = np.array(choice["token_ids"], np.int64)
            reason = str(choice["finish_reason"])
            content = (choice.get("logprobs") or {}).get("content")
            logp = None if content is None else np.array([float(token["logprob"]) for token in content], np.float32)
            spans = tuple((str(s["version"]), int(s["start"]), int(s["end"])) for s in choice["weight_versions"] or ())
        except (LookupError, TypeError, ValueError) as error:
            # A server without `weight_versions` is older than the route we need.
            message = (
                f"the server at {self.url} answered {GENERATE} in an unknown form: {type(error).__name__}: {error}"
            )
            raise ContractError(message, hint=f"It needs vLLM {OLDEST} or newer.") from error
        if logp is None or len(logp) != len(ids) or (logp <= NO_LOGPROB).any() or not np.isfinite(logp).all():
            raise ContractError(
                f"the server at {self.url} gives no log-probabilities of the tokens it samples",
                hint="GRPO cannot correct for another sampler without them. Use a server that answers "
                "sampling_params.logprobs = 0.",
            )
        return Answer(ids, logp, reason, spans)

    # HTTP

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        timeout: float = CONNECT,
        under_way: Call | None = None,
    ) -> Any:
        """One request; the answer's JSON, or None if it is not JSON."""
        connection = self._connection()
        target = urlsplit(self.url).path + path + (f"?{urlencode(query)}" if query else "")
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
            (under_way or Call()).begin(connection)
            status, text = self._exchange(connection, method, target, body)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ServerLost(f"the server at {self.url} does not answer: {reason}") from error
        finally:
            connection.close()
        try:
            said = json.loads(text) if text else None
        except ValueError:
            said = None
        if 200 <= status < 300:
            return said
        raise self._failure(method, path, status, said, text)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=CONNECT, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=CONNECT)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connection.request(method, target, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        text = answer.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise http.client.HTTPException(f"an answer of more than {LARGEST >> 20} MiB")
        if answer.length:
            # `read` with a limit does not mind that the server died before the end.
            raise http.client.IncompleteRead(text, answer.length)
        return answer.status, text

    def _not_vllm(self, found: str) -> ConfigError:
        hint = (
            f"Start one with `groupwise sampler start MODEL`, or name another in vllm.servers (vLLM {OLDEST} or newer)."
        )
        return ConfigError(f"the server at {self.url} is not a vLLM server: {found}", hint=hint, field="vllm.servers")

    def _failure(self, method: str, path: str, status: int, said: Any, text: bytes) -> GroupwiseError:
        reason = _reason(said, text)
        if status in (401, 403):
            hint = f"Put the server's key into the environment variable {KEY_VARIABLE}."
            return ConfigError(f"the server at {self.url} wants another API key", hint=hint, field="vllm.servers")
        if status < 400:
            return self._not_vllm(f"{method} {path} is redirected")
        message = f"the server at {self.url} refused {method} {path} with status {status}: {reason}"
        if status in (408, 429) or status >= 500:
            return ServerLost(message)
        # vLLM's own refusals are {"error": …}; a missing route is answered by the web framework.
        is_route = status in (404, 405, 501) and not (isinstance(said, Mapping) and "error" in said)
        return Refused(message, status, is_route)


def checked_url(url: str) -> str:
    """The address without a trailing slash or /v1; refuse anything that is not an address."""
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or parts.username or parts.query or parts.fragment:
        # Not quoted as a whole: it may contain a password.
        shown = url.rpartition("@")[2]
        hint = f"Write it as http://host:port; a key belongs into the environment variable {KEY_VARIABLE}."
        raise ConfigError(
            f"vllm.servers: {shown!r:.80} is not the address of a server", hint=hint, field="vllm.servers"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def checked_servers(urls: Sequence[str]) -> tuple[str, ...]:
    """The addresses, each checked; refuse one that is named twice."""
    found = tuple(map(checked_url, urls))
    twice = next((url for url in found if found.count(url) > 1), None)
    if twice is not None:
        raise ConfigError(f"vllm.servers names {twice} twice", hint="Name every server once.", field="vllm.servers")
    return found


def check_sampler(cfg: TrainingConfig) -> None:
    """Refuse settings that no servers could be used with."""
    if cfg.rollout.sampler == "own":
        return
    checked_servers(cfg.vllm.servers)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        message = f"rollout.sampler = 'vllm' does not go with several ranks: each of {ranks} ranks would replace the "
        hint = "Train in one process, or let every rank sample by itself: rollout.sampler = 'own'."
        raise ConfigError(message + "servers' weights", hint=hint, field="rollout.sampler")
    if cfg.vllm.weights == "adapter" and not cfg.language.lora_rank:
        message = "vllm.weights = 'adapter' needs an adapter, but language.lora_rank = 0 trains all weights"
        raise ConfigError(message, hint="Set language.lora_rank, or vllm.weights = 'folder'.", field="vllm.weights")


def _reason(said: Any, text: bytes) -> str:
    if isinstance(said, Mapping):
        error = said.get("error", said.get("detail", said))
        said = error.get("message", error) if isinstance(error, Mapping) else error
        return " ".join(str(said).split())[:400]
    return " ".join(text.decode(errors="replace").split())[:400] or "no reason given"


Lost: TypeAlias = list[tuple[VllmServer, ServerLost]]


def with_each(servers: Sequence[VllmServer], act: Callable[[VllmServer], object]) -> Lost:
    """Do something with all servers at once; return those that are lost. Any other error is raised."""
    if not servers:
        return []
    with ThreadPoolExecutor(len(servers)) as pool:
        asked = [(server, pool.submit(act, server)) for server in servers]
    lost: Lost = []
    for server, future in asked:
        error = future.exception()
        if isinstance(error, ServerLost):
            lost.append((server, error))
        elif error is not None:
            raise error
    return lost
