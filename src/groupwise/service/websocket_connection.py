"""One WebSocket client: what it may send, and what it receives.

    ► auth {key} · subscribe {topic: run|runs|metrics, run, from, attempt} · unsubscribe · chat {id, request} · ping
    ◄ ready · subscribed · event · rewind · dropped · runs · metrics · chat · pong · error

Messages wait until the client accepts them; a client that accepts nothing for `PATIENCE` seconds is disconnected.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from groupwise.errors import ContractError, GroupwiseError, RunNotFound
from groupwise.service.event_stream import StreamPosition
from groupwise.service.guard import TooMany
from groupwise.service.keys import Unauthorised, Who, insist
from groupwise.service.run_list import ListChanges
from groupwise.service.schemas import RUN_NAME

if TYPE_CHECKING:
    from groupwise.service.state import ServiceState

PATIENCE = 20.0  # seconds a client may take to accept one message
AUTH_WITHIN = 5.0  # seconds a client has to send its key
LONGEST = 256 * 1024  # characters in a message from a client
MOST_RUNS = 32  # runs one client may follow
OUTBOX = 64  # answers queued for one client; while there are more, we stop reading from it
MOST_CHATS = 4
UNAUTHORISED, TOO_MANY = 4401, 1013

REREAD = '{"type":"runs","changed":[],"removed":[],"more":true}'

ENDS = (WebSocketDisconnect, TimeoutError, OSError, GroupwiseError)
"""Ordinary ends of a connection: the client is gone or too slow, or a log cannot be read."""


class Topics:
    """The latest message of each shared topic (the list of runs, and metrics) for each view of it (`Who.view`)."""

    def __init__(self) -> None:
        self.newest: dict[tuple[str, str], str] = {}
        self.followers: dict[str, set[LiveClient]] = {"runs": set(), "metrics": set()}
        self.changes: dict[str, ListChanges] = {}
        """What of the list of runs each view has been told."""

    def views(self, topic: str) -> dict[str, Who]:
        """The views that the topic's followers have, each with one of those who have it."""
        asking = [client.who for client in list(self.followers[topic]) if client.who is not None]
        return {who.view: who for who in asking}

    def tell(self, topic: str, messages: Mapping[str, str]) -> None:
        """Send each follower the message for its view, unless nothing changed."""
        for view, message in messages.items():
            # A change of the list of runs is told once; of anything else, only what is new.
            if topic != "runs":
                if self.newest.get((topic, view)) == message:
                    continue
                self.newest[topic, view] = message
            for client in self.followers[topic]:
                if client.who is not None and client.who.view == view:
                    client.offer(topic, message)

    def forget(self, topic: str) -> None:
        self.newest = {place: message for place, message in self.newest.items() if place[0] != topic}
        if topic == "runs":
            self.changes.clear()


class LiveClient:
    """One connection, from its first message to its last."""

    def __init__(self, socket: WebSocket, parts: ServiceState) -> None:
        self.socket, self.parts = socket, parts
        self.who: Who | None = None
        self._key: str | None = None
        self._refused: Unauthorised | None = None
        self._places: dict[str, StreamPosition] = {}
        self._outbox: deque[str] = deque()
        self._latest: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._chats: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Serve the client until either side closes the connection."""
        await self.socket.accept()
        try:
            if not await self._authenticated():
                return
            await self._welcome()
            # Whichever side ends first ends the connection.
            tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._talk())]
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                if (error := task.exception()) and not isinstance(error, ENDS):
                    raise error
        except ENDS:
            pass
        finally:
            await self._leave()

    def offer(self, topic: str, message: str) -> None:
        """Queue the latest message of a topic; an older one that was not sent yet is replaced."""
        # A change of the list that nobody received is lost with its message: the client has to read the list again.
        self._latest[topic] = REREAD if topic == "runs" and topic in self._latest else message
        self._wake.set()

    def look_at_key(self) -> None:
        """Check the key again: it may have been revoked, or keys may be required now."""
        if self.who is None:
            return
        try:
            self.who = self.parts.keys.who(self._key)
        except Unauthorised as error:
            self._refused = error
            for task in list(self._chats.values()):
                task.cancel()
            self._wake.set()

    @property
    def _asker(self) -> Who:
        assert self.who is not None
        return self.who

    async def _authenticated(self) -> bool:
        """Identify the client: by its first message if a key is needed."""
        if not self.parts.keys.required:
            self.who = self.parts.keys.who(None)
            return True
        try:
            async with asyncio.timeout(AUTH_WITHIN):
                given = self._read(await self._received())
            if given.get("type") != "auth" or not isinstance(given.get("key"), str):
                raise Unauthorised("the first message must be an auth message", hint='{"type": "auth", "key": "gw_…"}')
            self.who, self._key = self._owner(given["key"]), given["key"]
        except (GroupwiseError, TimeoutError) as error:
            await self._dismiss(error if isinstance(error, GroupwiseError) else Unauthorised("no key was sent in time"))
            return False
        return True

    def _owner(self, key: str) -> Who:
        """The owner of a key. Wrong keys count against the address, together with wrong keys in HTTP requests."""
        try:
            return self.parts.keys.who(key)
        except Unauthorised:
            self.parts.failures.count(self.socket.client.host if self.socket.client else "")
            raise

    async def _dismiss(self, error: GroupwiseError) -> None:
        await self._send(json.dumps({"type": "error", **error.as_dict()}))
        await self.socket.close(TOO_MANY if isinstance(error, TooMany) else UNAUTHORISED)

    async def _received(self) -> str:
        """The next message as text; a binary message counts as empty, and is refused as such."""
        message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        return message.get("text") or ""

    async def _listen(self) -> None:
        while True:
            text = await self._received()
            # Back-pressure: a client that does not read its answers is not listened to either.
            while len(self._outbox) >= OUTBOX:
                self._room.clear()
                await self._room.wait()
            asked: Mapping[str, Any] = {}
            try:
                if self._refused is not None:
                    return
                asked = self._read(text)
                await self._obey(asked)
            except GroupwiseError as error:
                await self._reply({"type": "error", "id": asked.get("id"), **error.as_dict()})

    def _read(self, text: str) -> Mapping[str, Any]:
        if len(text) > LONGEST:
            raise ContractError(f"the message has {len(text):,} characters; the limit is {LONGEST:,}")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise ContractError("the message is not valid JSON", hint='Example: {"type": "ping"}') from None
        if not isinstance(given, dict) or not isinstance(given.get("type"), str):
            raise ContractError("the message has no type", hint='Example: {"type": "ping"}', field="type")
        return given

    async def _obey(self, asked: Mapping[str, Any]) -> None:
        kind = asked["type"]
        if kind == "ping":
            await self._reply({"type": "pong", "id": asked.get("id")})
        elif kind == "subscribe":
            await self._subscribe(asked)
        elif kind == "unsubscribe":
            await self._unsubscribe(asked)
        elif kind == "chat":
            self._begin_chat(asked)
        elif kind == "chat_stop":
            if task := self._chats.get(str(asked.get("id"))):
                task.cancel()
        elif kind == "auth":
            await self._identify(asked)
        else:
            known = "auth, subscribe, unsubscribe, chat, chat_stop or ping"
            raise ContractError(f"unknown message type {kind!r:.40}", hint=f"Send {known}.", field="type")

    async def _identify(self, asked: Mapping[str, Any]) -> None:
        """Take the token of a client that was let in without a key, and answer with a second `ready`."""
        key = asked.get("key")
        if not self.parts.keys.required and isinstance(key, str):
            self.who, self._key = self.parts.keys.who(key), key
            await self._welcome()

    async def _welcome(self) -> None:
        told = {"name": self._asker.name, "scope": self._asker.scope, "keys_required": self.parts.keys.required}
        await self._reply({"type": "ready", **told})

    async def _subscribe(self, asked: Mapping[str, Any]) -> None:
        insist(self._asker, "read")
        topic = asked.get("topic")
        if topic in ("runs", "metrics"):
            self.parts.topics.followers[topic].add(self)
            await self._reply({"type": "subscribed", "topic": topic})
            # Changes say nothing to a client that does not know the list: it reads that over HTTP now.
            message = REREAD if topic == "runs" else self.parts.topics.newest.get((topic, self._asker.view))
            if message:
                self.offer(topic, message)
            return
        if topic != "run":
            raise ContractError(f"unknown topic {topic!r:.40}", hint="Use run, runs or metrics.", field="topic")
        run, begin, attempt = _run(asked), _whole(asked, "from", 0), _whole(asked, "attempt", None)
        if run not in self._places and len(self._places) >= MOST_RUNS:
            hint = "Unsubscribe from one first."
            raise ContractError(f"this client already follows {MOST_RUNS} runs", hint=hint, field="run")
        await asyncio.to_thread(self.parts.ownership.run, run, self._asker)
        await self._forget(run)
        # `rewind` is set when the client asked for events that have been replaced since.
        place, rewind = await self.parts.followers.join(run, begin or 0, attempt, self._wake)
        try:  # once more: between the first look and now, the run may have been deleted and its name taken
            await asyncio.to_thread(self.parts.ownership.run, run, self._asker)
        except GroupwiseError:
            await self.parts.followers.leave(place, self._wake)
            raise
        head = {"type": "subscribed", "topic": "run", "run": run, "next": place.next, "count": place.follower.count}
        await self._reply(head)
        if rewind is not None:
            await self._reply({"type": "rewind", "run": run, "from": rewind})
        self._places[run] = place
        self._wake.set()

    async def _unsubscribe(self, asked: Mapping[str, Any]) -> None:
        topic = asked.get("topic")
        if topic in ("runs", "metrics"):
            self.parts.topics.followers[topic].discard(self)
        else:
            await self._forget(_run(asked))
        await self._reply({"type": "unsubscribed", "topic": topic, "run": asked.get("run")})

    def _begin_chat(self, asked: Mapping[str, Any]) -> None:
        insist(self._asker, "train")
        name, request = asked.get("id"), asked.get("request")
        if not isinstance(name, str) or not 0 < len(name) <= 100 or name in self._chats:
            raise ContractError(f"id = {name!r:.60} must be a string that no running chat uses", field="id")
        if not isinstance(request, dict):
            raise ContractError("request must be an object as for POST /api/chat", field="request")
        if len(self._chats) >= MOST_CHATS:
            raise ContractError(f"{MOST_CHATS} chats are already running", hint="Wait for one of them.", field="id")
        self._chats[name] = asyncio.create_task(self._chat(name, request))

    async def _chat(self, name: str, request: Mapping[str, Any]) -> None:
        try:
            async for event in self.parts.chat_events(request, self._asker):
                await self._reply({"type": "chat", "id": name, "event": event})
        except GroupwiseError as error:
            await self._reply({"type": "chat", "id": name, "event": {"type": "error", **error.as_dict()}})
        finally:
            self._chats.pop(name, None)

    async def _reply(self, message: Mapping[str, Any]) -> None:
        # Chats run at their own pace, so they wait here and not in `_listen`.
        while len(self._outbox) >= 4 * OUTBOX:
            self._room.clear()
            await self._room.wait()
        self._outbox.append(json.dumps(message))
        self._wake.set()

    async def _talk(self) -> None:
        while True:
            self._wake.clear()
            if self._refused is not None:
                await self._dismiss(self._refused)
                return
            while self._outbox:
                await self._send(self._outbox.popleft())
                self._room.set()
            # Answers first, then the latest of each topic, then events: answers never wait behind a stream.
            for topic in list(self._latest):
                await self._send(self._latest.pop(topic))
            busy = False
            for run, place in list(self._places.items()):
                async for kind, message in place.news():
                    if kind == "dropped":
                        assert isinstance(message, dict)
                        self.parts.counting.dropped.inc(int(str(message["to"])) - int(str(message["from"])) + 1)
                    await self._send(message if isinstance(message, str) else json.dumps(message))
                busy |= place.has_news
                if place.follower.is_over and self._places.get(run) is place:
                    await self._forget(run)
                    await self._send(json.dumps({"type": "error", "id": None, **_deleted(run).as_dict()}))
            if not busy and not self._outbox and not self._latest:
                await self._wake.wait()

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.socket.send_text(text)
        self.parts.counting.sent.inc()

    async def _forget(self, run: str) -> None:
        place = self._places.pop(run, None)
        if place is not None:
            await self.parts.followers.leave(place, self._wake)

    async def _leave(self) -> None:
        for task in list(self._chats.values()):
            task.cancel()
        for followers in self.parts.topics.followers.values():
            followers.discard(self)
        for run in list(self._places):
            await self._forget(run)


def _run(asked: Mapping[str, Any]) -> str:
    run = asked.get("run")
    if not isinstance(run, str) or not re.fullmatch(RUN_NAME, run):
        raise ContractError(f"run = {run!r:.60} is not a valid run name", field="run")
    return run


def _deleted(run: str) -> RunNotFound:
    return RunNotFound(f"run {run!r:.100} was deleted", hint="GET /api/runs lists those that are left.", field="run")


def _whole(asked: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = asked.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53):
        raise ContractError(f"{name} = {value!r:.60} must be a whole number, 0 or more", field=name)
    return value
