"""A model behind the usual door: an OpenAI-compatible server over the generation engine.

    POST /v1/chat/completions    at once, or piece by piece (`stream`)
    GET  /v1/models

Whatever stands before `/v1` in the path is a label: requests under one label are one conversation (see `answering`).
Meant for this machine and for people who trust each other: plain HTTP, at most one key.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from groupwise.agents.conversation.frame import Frame, TextStream
from groupwise.agents.openai.requests import Answering, CompletionRequest, RequestError, Served, read_request
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Engine, Sampled, SamplingParams

LARGEST = 32 << 20
LOOK_AGAIN = 0.25  # seconds between two looks whether a client is still there
COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"


class ModelServer:
    """Serves an engine until it is closed. Use it in a `with` block.

    Args:
      engine: runs in its thread; whoever made it closes it, after the server.
      frame: the model's chat format.
      params: how to sample where a request does not say.
      name: what the model is called.
      host, port: where it listens; port 0 is any that is free.
      seed: makes answers without a `seed` of their own repeatable, by label and turn; None draws one.
      api_key: what a client must show; None asks for nothing.
      on_answer: sees every answer before the client does.
    """

    def __init__(
        self, engine: Engine, frame: Frame, params: SamplingParams | None = None, *, name: str = "groupwise",
        host: str = "127.0.0.1", port: int = 0, seed: int | None = None, api_key: str | None = None,
        on_answer: Callable[[Served], object] | None = None,
    ) -> None:  # fmt: skip
        self.params, self.name, self.api_key = params or SamplingParams(), name, api_key
        self.answering = Answering(engine.start(), frame, seed, on_answer)
        self.forget = self.answering.forget
        self._http = _Http((host, port), self)
        self._url = f"http://{host}:{self._http.server_address[1]}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="model-server", daemon=True
        )
        self._thread.start()

    def url(self, label: str = "") -> str:
        """What a client takes for its base_url."""
        return f"{self._url}/{label}/v1" if label else f"{self._url}/v1"

    def close(self) -> None:
        """Take no more requests; answers under way end where they are."""
        self._http.closing = True
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], model: ModelServer) -> None:
        super().__init__(address, _Handler)
        self.model = model
        self.closing = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class _Gone(Exception):
    """Nobody waits for the answer any more."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: its requests one after another, each in the connection's own thread."""

    protocol_version = "HTTP/1.1"
    timeout = 120
    server: _Http

    def do_GET(self) -> None:
        path, _ = self._route()
        if path != MODELS:
            self._refuse(404, f"there is no {path}")
        elif self._may_ask():
            model = {"id": self.server.model.name, "object": "model", "created": 0, "owned_by": "groupwise"}
            self._give(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        path, label = self._route()
        try:
            body = self._body()
            if path != COMPLETIONS:
                self._refuse(404, f"there is no {path}")
            elif self._may_ask():
                self._complete(label, read_request(body, self.server.model.params))
        except GroupwiseError as error:
            self._refuse(400, error.message, error.field, error.code)
        except (_Gone, ConnectionError):
            self.close_connection = True
        except Exception as error:  # out of memory, or `on_answer` raised: the client is told, the server goes on
            self._refuse(500, f"{type(error).__name__}: {error}", code="server_error")

    def _complete(self, label: str, request: CompletionRequest) -> None:
        answering = self.server.model.answering
        tokens: SimpleQueue[int | None] = SimpleQueue()
        on_token = (lambda token, _: tokens.put(token)) if request.stream else None
        prompt, futures = answering.submit(label, request, on_token)
        try:
            if request.stream:
                futures[0].add_done_callback(lambda _: tokens.put(None))
                self._begin_stream()
                self._stream_text(request, tokens, futures[0])
            sampled = [self._wait(future) for future in futures]
        except (_Gone, ConnectionError):
            for future in futures:
                answering.engine.cancel(future)
            raise
        answers = answering.served(label, request, prompt, sampled)
        usage = _usage(prompt, sampled)
        if request.stream:
            self._end_stream(answers[0], usage if request.stream_usage else None)
        else:
            choices = [{"index": n, "message": a.message, "finish_reason": a.finish} for n, a in enumerate(answers)]
            self._give(200, self._envelope("chat.completion", choices, usage))

    def _wait(self, future: Future[Sampled]) -> Sampled:
        while True:
            try:
                return future.result(LOOK_AGAIN)
            except TimeoutError:
                self._look(future)

    def _look(self, future: Future[Sampled]) -> None:
        """Is it still worth going on?"""
        if self.server.closing:
            self.server.model.answering.engine.cancel(future)
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise _Gone

    def _begin_stream(self) -> None:
        self.id = _new_id()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._piece({"role": "assistant", "content": ""})

    def _stream_text(
        self, request: CompletionRequest, tokens: SimpleQueue[int | None], future: Future[Sampled]
    ) -> None:
        text = TextStream(self.server.model.answering.frame.tokenizer, request.params.stop)
        while True:
            try:
                token = tokens.get(timeout=LOOK_AGAIN)
            except Empty:
                self._look(future)
                continue
            if piece := text.finish() if token is None else text.feed(token):
                self._piece({"content": piece})
            if token is None:
                return

    def _end_stream(self, answer: Served, usage: Mapping[str, int] | None) -> None:
        calls = [{"index": n, **call} for n, call in enumerate(answer.message.get("tool_calls", ()))]
        self._piece({"tool_calls": calls} if calls else {}, answer.finish)
        if usage is not None:
            self._event(self._envelope("chat.completion.chunk", [], usage))
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _piece(self, delta: Mapping[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._event(self._envelope("chat.completion.chunk", [choice]))

    def _event(self, event: Mapping[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        self.wfile.flush()

    def _envelope(self, kind: str, choices: list[Any], usage: Mapping[str, int] | None = None) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": int(time.time()), "model": self.server.model.name}
        return {**head, "choices": choices, **({} if usage is None else {"usage": usage})}

    def _route(self) -> tuple[str, str]:
        """What is wanted, and the label before it."""
        self.id, self.began = _new_id(), False
        label, found, rest = unquote(urlsplit(self.path).path).rpartition("/v1/")
        return f"{found}{rest}", label.strip("/")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST:
            self.close_connection = True
            raise RequestError(f"a body of {length or 'unknown'} bytes; it may have up to {LARGEST}")
        return self.rfile.read(int(length))

    def _may_ask(self) -> bool:
        key = self.server.model.api_key
        shown = self.headers.get("Authorization", "").encode("latin1", "replace")
        allowed = key is None or hmac.compare_digest(shown, f"Bearer {key}".encode())
        if not allowed:
            self._refuse(401, "the API key is missing or wrong", code="invalid_api_key")
        return allowed

    def _refuse(self, status: int, message: str, field: str = "", code: str = "invalid_request_error") -> None:
        error = {"message": message, "type": code, "param": field or None, "code": code}
        if self.began:  # an answer is under way: all that can be done is to end it
            self.close_connection = True
        else:
            self._give(status, {"error": error})

    def _give(self, status: int, body: Mapping[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_response(self, code: int, message: str | None = None) -> None:
        self.began = True
        super().send_response(code, message)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: their messages may be private."""


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _usage(prompt: Sequence[int], sampled: Sequence[Sampled]) -> dict[str, int]:
    made = sum(map(len, sampled))
    return {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}
