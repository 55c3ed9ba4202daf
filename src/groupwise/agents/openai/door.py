"""OpenAI's API for agent programs in training: every call is answered, and recorded, by the attempt whose label it has.

    POST {base_url}/chat/completions     the model's next turn, whole or as server-sent events
    POST {base_url}/score                {"score": 0.5, "parts": {…}}: how good the attempt was
    GET  {base_url}/models

A program has its label as its API key; it may send it in the header `x-groupwise-attempt` or as the model's name
instead. The calls are those of a rollout function's client (`conversation/completion_client`): the tokens stay with the
run, which decides how to sample.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.agents.conversation.completion_client import (
    ChatCompletion,
    Completes,
    CompletionClient,
    ContextUsedUp,
    TurnsUsedUp,
)
from groupwise.agents.openai.requests import NO_EFFECT, NUMBERS, PENALTIES, TEMPLATE, RequestError
from groupwise.errors import GroupwiseError
from groupwise.language.model_lookup import import_extra
from groupwise.types import Score

INSTALL = "pip install 'groupwise[service]'"
LABEL = b"x-groupwise-attempt"
LARGEST_BODY = 16 << 20  # bytes
# The run decides how to sample; parameters with these values ask for nothing else.
SAMPLING = {*NUMBERS, *PENALTIES, "top_k", "stream_options", *NO_EFFECT}
NEUTRAL: Mapping[str, Any] = {
    "logprobs": False,
    "response_format": {"type": "text"},
    "top_logprobs": 0,
    "logit_bias": {},
}

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass
class Visit:
    """One attempt at the door: who answers its calls, the score that it reported, and the limit that it ran into."""

    label: str
    client: CompletionClient
    score: Score | None = None
    limit: TurnsUsedUp | ContextUsedUp | None = None


class Door:
    """The server, in the event loop of the conversations. It listens on this machine only."""

    def __init__(self) -> None:
        self.visits: dict[str, Visit] = {}
        self.url = ""
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Start listening, and return the base URL for clients."""
        uvicorn = import_extra("uvicorn", INSTALL)
        settings = uvicorn.Config(
            self, "127.0.0.1", 0, log_level="critical", access_log=False, lifespan="off", ws="none"
        )
        server = uvicorn.Server(settings)
        self._serving = asyncio.create_task(_serve(server))
        while not server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
        return self.url

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    def admit(self, who: Completes | CompletionClient) -> Visit:
        """Give an attempt a label of its own."""
        client = who if isinstance(who, CompletionClient) else CompletionClient(who)
        visit = Visit(f"attempt-{secrets.token_hex(16)}", client)
        self.visits[visit.label] = visit
        return visit

    def dismiss(self, visit: Visit) -> None:
        self.visits.pop(visit.label, None)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            return
        place, method = scope["path"].removeprefix("/v1"), scope["method"]
        try:
            if (method, place) == ("GET", "/models"):
                policy = {"id": "policy", "object": "model", "created": 0, "owned_by": "groupwise"}
                await _answer(send, {"object": "list", "data": [policy]})
            elif method == "POST" and place in ("/chat/completions", "/score"):
                body = await _body(receive)
                visit = self._visit(scope, body)
                work = _scored(visit, body, send) if place == "/score" else _completed(visit, body, send)
                await _unless_gone(work, receive)
            else:
                message = f"there is no {method} {scope['path']}"
                await _refuse(send, 404, RequestError(message, hint="POST /v1/chat/completions or /v1/score."))
        except GroupwiseError as error:
            await _refuse(send, 400, error)
        except _Stranger:
            hint = "Use the API key that the program was started with; it ends with the attempt."
            await _refuse(send, 401, RequestError("no attempt under way has this label", hint=hint))

    def _visit(self, scope: Mapping[str, Any], body: Mapping[str, Any]) -> Visit:
        headers = dict(scope["headers"])
        key = headers.get(b"authorization", b"").decode("latin1").removeprefix("Bearer ").strip()
        for label in (headers.get(LABEL, b"").decode("latin1"), key, str(body.get("model"))):
            if label in self.visits:
                return self.visits[label]
        raise _Stranger


class _Stranger(Exception):
    """No attempt has the label of a request."""


async def _serve(server: Any) -> None:
    try:
        await server.serve()
    finally:
        for listening in getattr(server, "servers", ()):
            listening.close()


async def _body(receive: Receive) -> dict[str, Any]:
    content = bytearray()
    while True:
        message = await receive()
        content += message.get("body", b"")
        if len(content) > LARGEST_BODY:
            raise RequestError(f"the body has more than {LARGEST_BODY >> 20} MiB")
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    try:
        body = json.loads(bytes(content))
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise RequestError("the body is not a JSON object")
    return {name: value for name, value in body.items() if value is not None}


async def _unless_gone(work: Any, receive: Receive) -> None:
    """Do the work unless the client goes away meanwhile: then the model stops as well."""
    working = asyncio.ensure_future(work)

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(left())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
    with suppress(asyncio.CancelledError):
        await working


async def _completed(visit: Visit, body: dict[str, Any], send: Send) -> None:
    stream, usage = bool(body.pop("stream", False)), body.get("stream_options", {})
    asked = {name: value for name, value in body.items() if name not in SAMPLING and value != NEUTRAL.get(name)}
    extra = {name: asked.pop(name) for name in TEMPLATE if name in asked}
    if "messages" not in asked:
        raise RequestError("the request has no messages", field="messages")
    try:
        answer = await visit.client.create(**asked, extra_body=extra)
    except (TurnsUsedUp, ContextUsedUp) as limit:
        visit.limit = limit
        raise
    if not stream:
        await _answer(send, _whole(answer))
        return
    await _begin(send, 200, b"text/event-stream")
    for chunk in _chunks(answer, usage=isinstance(usage, dict) and bool(usage.get("include_usage"))):
        await send({"type": "http.response.body", "body": b"data: " + _json(chunk) + b"\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _scored(visit: Visit, body: dict[str, Any], send: Send) -> None:
    visit.score = read_score(body)
    await _answer(send, {"score": visit.score.total})


def read_score(given: Mapping[str, Any]) -> Score:
    """A score that a program reports: {"score": number, "parts": {name: number}}."""
    parts = given.get("parts", {})
    total = given.get("score")
    named = isinstance(parts, Mapping) and all(map(_finite, parts.values()))
    if not _finite(total) or not named:
        message = f"the score is {json.dumps(dict(given), default=repr):.120}"
        raise RequestError(
            message, hint='Report {"score": 0.5}, optionally with "parts": {"name": 0.5}.', field="score"
        )
    return Score(float(total), {str(name): float(value) for name, value in parts.items()})  # type: ignore[arg-type]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _whole(answer: ChatCompletion) -> dict[str, Any]:
    choices = [{**asdict(choice), "message": choice.message.model_dump()} for choice in answer.choices]
    for choice in choices:
        choice["message"].setdefault("content", None)
    return {**asdict(answer), "choices": choices}


def _chunks(answer: ChatCompletion, *, usage: bool) -> Iterator[dict[str, Any]]:
    """The answer as a stream: what was said in one piece, then how it ended."""
    (choice,) = answer.choices
    said = choice.message.model_dump()
    said["tool_calls"] = [{"index": n, **call} for n, call in enumerate(said.get("tool_calls", ()))]
    head = {"id": answer.id, "object": "chat.completion.chunk", "created": answer.created, "model": answer.model}
    delta = {name: value for name, value in said.items() if value}
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.finish_reason}]}
    if usage:
        yield {**head, "choices": [], "usage": asdict(answer.usage)}


async def _refuse(send: Send, status: int, error: GroupwiseError) -> None:
    await _answer(send, error.as_dict(), status)


async def _answer(send: Send, content: Mapping[str, Any], status: int = 200) -> None:
    await _begin(send, status, b"application/json")
    await send({"type": "http.response.body", "body": _json(content)})


async def _begin(send: Send, status: int, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
