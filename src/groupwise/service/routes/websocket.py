"""The WebSocket, and the topics it sends to everyone."""

import asyncio
import json
import logging

from fastapi import APIRouter, WebSocket

from groupwise.service.guard import CrossSite, refuse_foreign
from groupwise.service.keys import FRESH
from groupwise.service.routes.system import snapshot
from groupwise.service.run_list import ListChanges
from groupwise.service.state import ServiceState
from groupwise.service.websocket_connection import TOO_MANY, LiveClient

logger = logging.getLogger(__name__)
router = APIRouter()

MOST_CLIENTS = 2000
PACE = {"runs": 0.5, "metrics": 1.0}  # seconds between broadcasts


@router.websocket("/ws")
async def live(socket: WebSocket) -> None:
    parts: ServiceState = socket.app.state.parts
    if parts.keys.is_stale:
        await asyncio.to_thread(parts.keys.refresh)
    try:
        refuse_foreign(socket.headers, parts.settings, guarded_by_key=parts.keys.required, reading=False)
    except CrossSite:
        await socket.close(1008)  # closed before it was accepted, so the client sees a 403
        return
    if len(parts.clients) >= MOST_CLIENTS:
        await socket.close(TOO_MANY)
        return
    client = LiveClient(socket, parts)
    parts.clients.add(client)
    parts.counting.clients.set(len(parts.clients))
    try:
        await client.serve()
    finally:
        parts.clients.discard(client)
        parts.counting.clients.set(len(parts.clients))


async def broadcast(parts: ServiceState) -> None:
    """Send run lists and metrics to their followers for as long as the service runs."""
    await asyncio.gather(_look_at_keys(parts), *(_send_updates(parts, topic, pace) for topic, pace in PACE.items()))


async def _look_at_keys(parts: ServiceState) -> None:
    """Disconnect clients whose key was revoked."""
    while True:
        await asyncio.sleep(FRESH)
        if parts.keys.is_stale and parts.clients:
            await asyncio.to_thread(parts.keys.refresh)
        for client in list(parts.clients):
            client.look_at_key()


async def _send_updates(parts: ServiceState, topic: str, pace: float) -> None:
    while True:
        await asyncio.sleep(pace)
        if not parts.topics.followers[topic]:
            # Nobody follows it: forget the last message, so that the next follower gets a fresh one.
            parts.topics.forget(topic)
            continue
        try:
            parts.topics.tell(topic, await asyncio.to_thread(_messages, parts, topic))
        except Exception:
            logger.exception("could not send %s; trying again", topic)


def _messages(parts: ServiceState, topic: str) -> dict[str, str]:
    """The topic's message for each view, if there is one: followers who see the same runs get the same one."""
    views = parts.topics.views(topic)
    if topic == "metrics":
        return {view: json.dumps({"type": "metrics", "metrics": snapshot(parts, who)}) for view, who in views.items()}
    told = {}
    for view, who in views.items():
        changes = parts.topics.changes.setdefault(view, ListChanges())
        if (message := changes.since(parts.run_list.views(who, whole=False))) is not None:
            told[view] = json.dumps(message)
    return told
