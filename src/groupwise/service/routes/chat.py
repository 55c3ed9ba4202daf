"""Chat with a model: the base model, or any run that trained one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from groupwise.agents.conversation.store import ConversationNotFound
from groupwise.agents.strategies import find_strategy
from groupwise.errors import GroupwiseError
from groupwise.service.chat_models import strategies, summary
from groupwise.service.refusals import refusals
from groupwise.service.schemas import (
    ChatAnswer,
    ChatRequest,
    ConversationList,
    ConversationSummary,
    ConversationView,
    ModelList,
    ModelView,
)
from groupwise.service.state import Asker, Shared

router = APIRouter(tags=["chat"])

Name = Annotated[str, Path(min_length=1, max_length=200)]
STREAM: dict[str, Any] = {"content": {"text/event-stream": {}}}
EVENT_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.post("/api/chat", response_model=ChatAnswer, responses={200: STREAM, **refusals(404, 409)})
async def chat(request: ChatRequest, parts: Shared, who: Asker) -> Any:
    """Say something; the answer comes whole, or with `stream` piece by piece as server-sent events.

    Events are `start`, `delta`, `call` and `result` of tools, and `done` with the whole answer (or `error`).
    """
    if request.strategy is not None:
        find_strategy(request.strategy)
    events = parts.talks.chat(request, who)
    if request.stream:
        first = await anext(events)  # what is refused at once is refused with its status
        return StreamingResponse(event_stream(first, events), headers=EVENT_STREAM, media_type="text/event-stream")
    *_, last = [event async for event in events]
    return ChatAnswer.model_validate(last)


@router.get("/api/conversations", responses=refusals())
def conversations(parts: Shared, who: Asker, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ConversationList:
    """Your conversations, the newest first."""
    found = [ConversationSummary.model_validate(summary(context)) for context in parts.talks.conversations(who, limit)]
    return ConversationList(conversations=found)


@router.get("/api/conversations/{name}", responses=refusals(404))
def conversation(name: Name, parts: Shared, who: Asker) -> ConversationView:
    """All that was said in a conversation."""
    context = parts.talks.conversation(name, who)
    messages = [dict(message) for message in context.messages]
    return ConversationView.model_validate({**summary(context), "state": context.state, "messages": messages})


@router.delete("/api/conversations/{name}", status_code=204, responses=refusals(404))
def forget(name: Name, parts: Shared, who: Asker) -> Response:
    """Forget a conversation."""
    parts.talks.conversation(name, who)
    if not parts.talks.store.delete(name):
        raise ConversationNotFound(f"there is no conversation {name!r:.60}")
    return Response(status_code=204)


@router.get("/api/models", responses=refusals())
def models(parts: Shared) -> ModelList:
    """The models there are to chat with, and how conversations can be led."""
    return ModelList(models=[ModelView.model_validate(m) for m in parts.talks.models()], strategies=strategies())


async def event_stream(first: Mapping[str, Any], rest: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Events as a browser reads them; an error after the first is an event too."""
    yield f"data: {json.dumps(first)}\n\n"
    try:
        async for event in rest:
            yield f"data: {json.dumps(event)}\n\n"
    except GroupwiseError as error:
        yield f"data: {json.dumps({'type': 'error', **error.as_dict()})}\n\n"
