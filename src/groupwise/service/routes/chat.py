"""Chat with the base model or with any trained run: our own API, and OpenAI's, whose clients work unchanged."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from groupwise.errors import GroupwiseError
from groupwise.service import schemas
from groupwise.service.refusals import InvalidRequest, refusals
from groupwise.service.state import Asker, Shared

router = APIRouter(tags=["chat"])

Name = Annotated[str, Path(min_length=1, max_length=200)]
STREAM: dict[str, Any] = {"content": {"text/event-stream": {}}}
EVENT_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.post("/api/chat", response_model=schemas.ChatAnswer, responses={200: STREAM, **refusals(404, 409)})
async def chat(request: schemas.ChatRequest, parts: Shared, who: Asker) -> Any:
    """Send a message. The answer comes in one piece, or with `stream` as server-sent events.

    The events are `start`, `thought`, `delta`, `call` and `result` (of tools), and `done` with the full answer, or
    `error`.
    """
    if request.strategy is not None:
        parts.chat_models.chat_service.check_strategy(request.strategy)
    events = parts.chat_models.chat(request, who)
    if request.stream:
        first = await anext(events)  # an error before the first event still gets its own HTTP status
        return event_stream(first, events, {"type": "error"})
    *_, last = [event async for event in events]
    return schemas.ChatAnswer.model_validate(last)


@router.get("/api/conversations", responses=refusals())
def conversations(
    parts: Shared,
    who: Asker,
    begin: Annotated[int, Query(alias="from", ge=0, lt=2**53, description="The place of the first one.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> schemas.ConversationList:
    """Your conversations, newest first and page by page."""
    total, found = parts.chat_models.archive.newest(who.id, begin, limit)
    shown = [schemas.ConversationSummary.model_validate(one) for one in found]
    following = begin + len(found) if begin + len(found) < total else None
    return schemas.ConversationList(conversations=shown, total=total, next=following)


@router.get("/api/conversations/{name}", responses=refusals(404))
def conversation(name: Name, parts: Shared, who: Asker) -> schemas.ConversationView:
    """Every message of a conversation."""
    return schemas.ConversationView.model_validate(parts.chat_models.archive.read(name, who.id, admin=who.may("admin")))


@router.delete("/api/conversations/{name}", status_code=204, responses=refusals(404))
def forget(name: Name, parts: Shared, who: Asker) -> Response:
    """Delete a conversation."""
    parts.chat_models.archive.delete(name, who.id, admin=who.may("admin"))
    return Response(status_code=204)


@router.get("/api/models", responses=refusals())
def models(parts: Shared, who: Asker) -> schemas.ModelList:
    """The models you can chat with, and the conversation strategies."""
    found = [schemas.ModelView.model_validate(model) for model in parts.chat_models.models(who)]
    return schemas.ModelList(models=found, strategies=parts.chat_models.chat_service.strategies())


def event_stream(
    first: Mapping[str, Any], rest: AsyncIterator[Mapping[str, Any]], mark: Mapping[str, str], last: str = ""
) -> StreamingResponse:
    """Server-sent events, then `last`; an error after the first is sent as an event that begins with `mark`."""

    async def events() -> AsyncIterator[str]:
        yield f"data: {json.dumps(first)}\n\n"
        try:
            async for event in rest:
                yield f"data: {json.dumps(event)}\n\n"
            yield last
        except GroupwiseError as error:
            yield f"data: {json.dumps({**mark, **error.as_dict()})}\n\n"

    return StreamingResponse(events(), headers=EVENT_STREAM, media_type="text/event-stream")


openai_router = APIRouter(tags=["openai"])

EXAMPLE = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
OPENAI_MODEL = {"object": "model", "created": 0, "owned_by": "groupwise"}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}


@openai_router.post("/v1/completions", responses={200: {"content": {**OBJECT, **STREAM["content"]}}, **refusals(404)})
@openai_router.post(
    "/v1/chat/completions", responses={200: {"content": {**OBJECT, **STREAM["content"]}}, **refusals(404)}
)
async def complete(
    request: Request,
    parts: Shared,
    who: Asker,
    body: dict[str, Any] = Body(examples=[EXAMPLE]),  # noqa: B008
) -> Any:
    """A completion of a chat or a text, whole or streamed. Parameters it does not know are refused by name."""
    name = body.get("model")
    if not isinstance(name, str):
        raise InvalidRequest(f"model must be a string, not {name!r:.80}", field="model")
    wanted = "prompt" if request.url.path == "/v1/completions" else "messages"
    if wanted not in body:
        raise InvalidRequest(f"the request has no {wanted}", field=wanted)
    asked = {"model": parts.chat_models.find(name, who), "body": (await request.body()).decode("utf8", "replace")}
    events = parts.chat_models.process.ask("complete", asked)
    first = await anext(events)
    if first["object"] == "chat.completion.chunk" or (body.get("stream") and first["object"] == "text_completion"):
        return event_stream(first, events, {}, last="data: [DONE]\n\n")
    async for _ in events:
        pass
    return JSONResponse(first)


@openai_router.get("/v1/models", responses={200: {"content": OBJECT}, **refusals()})
def openai_models(parts: Shared, who: Asker) -> Any:
    """The base model and every trained language run."""
    found = [{"id": model["id"], **OPENAI_MODEL} for model in parts.chat_models.models(who)]
    return JSONResponse({"object": "list", "data": found})


@openai_router.get("/v1/models/{name}", responses={200: {"content": OBJECT}, **refusals(404)})
def openai_model(name: str, parts: Shared, who: Asker) -> Any:
    """One model."""
    return JSONResponse({"id": parts.chat_models.find(name, who), **OPENAI_MODEL})
