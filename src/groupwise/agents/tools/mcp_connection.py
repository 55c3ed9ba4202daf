"""One MCP server that is kept alive: started when it is needed, asked, and started again when it died or hangs.

Whatever goes wrong is a `ToolUnavailable` or `ToolError` of the one call, in one sentence; nothing else is disturbed.
"""

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from groupwise.agents.tools.function_tool import ToolError, ToolUnavailable, shortened
from groupwise.agents.tools.http_tool import hidden
from groupwise.agents.tools.mcp_server import McpServer
from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.language.model_lookup import import_extra

INSTALL = "pip install 'groupwise[mcp]'"
START = 120.0  # seconds to start a server and to list its tools; a busy machine takes long
PROBE = 3.0  # seconds in which a server must answer a ping after a call that took too long
MOST_PAUSE = 30.0  # seconds between two attempts to start a server that keeps failing
LAST_WORDS = 0.5  # seconds for what a dying server reports to arrive
FRAMES = re.compile(r"[\u2500-\u257f]+")  # that pretty tracebacks draw
MOST_TOOLS, MOST_PAGES = 500, 50
SESSION_GONE = "Session terminated"  # how the package reports that a server over HTTP has forgotten us

for _noisy in ("mcp", "client"):  # they report what is an outcome here
    logging.getLogger(_noisy).addHandler(logging.NullHandler())


class McpConnection:
    """A server and the session with it, in an event loop of its own, so that it outlives whoever calls."""

    def __init__(self, server: McpServer) -> None:
        self.server, self.starts = server, 0
        self._loop = EventLoop(f"mcp {server.name}")
        self._session: _Session | None = None
        self._opening: asyncio.Lock | None = None
        self._failed, self._not_before, self._why = 0, 0.0, ""

    def list_tools(self) -> list[Any]:
        """What the server offers; it is started for this."""
        try:
            return self._loop.run(self._listed())
        except (ToolError, ToolUnavailable) as error:
            message = f"the MCP server {self.server.name!r:.60} ({self.server.place:.200}) cannot be used: {error}"
            raise ConfigError(message, hint="Start it by hand to see what is wrong with it.") from None

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool from any event loop and return its result as text."""
        return await asyncio.wrap_future(self._loop.submit(self._call(name, arguments)))

    def close(self) -> None:
        if self._session is not None:
            with suppress(Exception):
                self._loop.run(self._session.close())
        self._session = None
        self._loop.close()
        self._opening = None

    async def _listed(self) -> list[Any]:
        from mcp.types import PaginatedRequestParams

        session = await self._open()
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            asked = PaginatedRequestParams(cursor=cursor) if cursor else None

            def listed(client: Any, params: PaginatedRequestParams | None = asked) -> Any:
                return client.session.list_tools(params=params)

            page = await self._answer(session, listed, START)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        if cursor or len(found) > MOST_TOOLS:
            raise ToolUnavailable(f"it offers more than {MOST_TOOLS} tools")
        return found

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        session = await self._open()
        try:
            result = await self._answer(session, lambda client: client.call_tool(name, dict(arguments)))
        except _Forgotten:  # the call has not been made, so it can be made again
            result = await self._answer(await self._open(), lambda client: client.call_tool(name, dict(arguments)))
        except asyncio.CancelledError:
            # Too slow: one call may be, but a server that answers nothing at all is started again.
            session.probe()
            raise
        text = hidden(_text(result), self.server.secrets)
        if result.is_error:
            raise ToolError(text or "the tool failed without a word")
        return text

    async def _answer(self, session: "_Session", ask: Callable[[Any], Any], seconds: float | None = None) -> Any:
        from mcp import MCPError

        asked = asyncio.ensure_future(ask(session.client))
        try:
            await asyncio.wait({asked, session.ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asked.cancel()
            raise
        if not asked.done():
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            raise ToolUnavailable(self._story(session, f"it did not answer within {seconds:g} s" if seconds else ""))
        try:
            return asked.result()
        except MCPError as error:
            if SESSION_GONE in error.message:
                await session.close()
                raise _Forgotten(error.message) from None
            if session.over or error.message == "Connection closed":
                await asyncio.wait({session.ended}, timeout=LAST_WORDS)
                raise ToolUnavailable(self._story(session, "")) from None
            # What the transport refused is the server's fault; what the server refused may be the model's.
            refused = ToolUnavailable if error.code == -32700 else ToolError
            raise refused(hidden(shortened(" ".join(error.message.split()), 300), self.server.secrets)) from None
        except asyncio.CancelledError:
            raise ToolUnavailable(self._story(session, "")) from None
        except Exception as error:  # an answer that is not one: the package says so in many ways
            said = hidden(shortened(" ".join(str(error).split()), 300), self.server.secrets)
            raise ToolUnavailable(f"its answer cannot be used: {said}") from None

    async def _open(self) -> "_Session":
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._session is not None and not self._session.over:
                return self._session
            wait = self._not_before - time.monotonic()
            if wait > 0:
                raise ToolUnavailable(f"it is not running; it is started again in {wait:.0f} s ({self._why})")
            self.starts += 1
            session = self._session = _Session(self.server)
            try:
                await session.start()
            except ToolUnavailable as error:
                self._failed += 1
                self._not_before = time.monotonic() + min(MOST_PAUSE, 0.25 * 2**self._failed)
                self._why = shortened(self._story(session, str(error)), 200)
                raise ToolUnavailable(self._story(session, str(error))) from None
            self._failed = 0
            return session

    def _story(self, session: "_Session", what: str) -> str:
        """What happened, with the last words of the server."""
        last = " ".join(FRAMES.sub(" ", "".join(session.said)).split())[-200:]
        story = what or session.why or "it ended while the call was under way"
        return hidden(f"{story}; its last words: {last!r}" if last else story, self.server.secrets)


class _Forgotten(Exception):
    """The server no longer knows the session."""


class _Session:
    """One life of a server. `ended` is done when it is over, for whatever reason; `why` says more if it can."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.client: Any = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.said: deque[str] = deque(maxlen=4)
        self.why = ""
        self._closing = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self._closing.is_set() or self.ended.done()

    async def start(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(ready))
        try:
            await asyncio.wait({ready, self._life}, timeout=START, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                self.why = self.why or f"it did not start within {START:g} s"
                raise ToolUnavailable(self.why)
        except BaseException:
            self._life.cancel()
            raise

    async def _live(self, ready: asyncio.Future[None]) -> None:
        """Hold the connection open in one task, from its beginning to its end, as the package demands."""
        mcp = import_extra("mcp", INSTALL)
        transport = import_extra("groupwise.agents.tools.mcp_transport", INSTALL)
        over = (
            transport.process_streams(self.server, self.said, self._closing.set)
            if self.server.command
            else transport.address_streams(self.server, START)
        )
        try:
            async with mcp.Client(over) as self.client:
                ready.set_result(None)
                await self._closing.wait()
        except asyncio.CancelledError:
            self.why = self.why or "it was stopped"
        except BaseException as error:
            self.why = self.why or _reason(error)
        finally:
            if not self.ended.done():
                self.ended.set_result(None)

    def probe(self) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._probed())

    async def _probed(self) -> None:
        with suppress(Exception):
            if await _answers(self.client):
                return
        self.why = f"it took too long and did not answer a ping within {PROBE:g} s, so it is started again"
        await self.close()

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait({self._life}, timeout=START)
        self._life.cancel()


async def _answers(client: Any) -> bool:
    """Whether the server answers anything; an error is an answer too."""
    from mcp import MCPError

    try:
        await asyncio.wait_for(client.session.list_tools(), PROBE)
    except MCPError as error:
        return error.message != "Connection closed"
    except TimeoutError:
        return False
    return True


def _reason(error: BaseException) -> str:
    """The innermost of what ended a session: task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = shortened(" ".join(str(error).split()), 300)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _text(result: Any) -> str:
    """A result as the model reads it: its texts, and a note for what is not text."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(_part(block) for block in result.content)


def _part(block: Any) -> str:
    inner = getattr(block, "resource", None)
    text = getattr(block, "text", None) if inner is None else getattr(inner, "text", None)
    if isinstance(text, str):
        return text
    if block.type == "resource_link":
        return f"({block.name}: {block.uri})"
    data = getattr(block, "data", "") or getattr(inner, "blob", "")
    kind = getattr(block, "mime_type", None) or getattr(inner, "mime_type", None) or block.type
    return f"({len(data) * 3 // 4} bytes of {kind}, not text)"
