"""How messages of the Model Context Protocol travel, within limits: to a process here, or to an address.

Both are `Transport`s of the package `mcp`, which brings its own; those read a message of any length into memory. Here a
message beyond `LONGEST_MESSAGE` fails the call that it answers, and a server that writes without end is stopped.
"""

import asyncio
import atexit
import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from groupwise.agents.tools.mcp_server import McpServer

LONGEST_MESSAGE = 4 << 20  # bytes
MOST_UNASKED = 8 << 20  # bytes between two answers: notifications, and lines that are not messages
LONGEST_LINE = 64 << 20  # bytes that are read, and forgotten, to get to the end of a message that is too long
PIECE = 1 << 16
ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')
PATIENCE = 2.0  # seconds for a process to exit by itself
LAST_WORDS = 0.2  # seconds
STDERR_KEPT = 2000  # characters
UNREADABLE = -32700  # JSON-RPC's code for a message that cannot be parsed

_processes: set[int] = set()


class Flood(Exception):
    """A server writes without end."""


class Unfit(httpx2.StreamError):
    """An HTTP answer that is too large, or compressed although that was not asked for."""


@asynccontextmanager
async def process_streams(server: McpServer, said: deque[str], ended: Callable[[], None]) -> AsyncIterator[Any]:
    """Start the command, and yield the streams of messages from and to it.

    `said` keeps the last of what it reports; `ended` is called when it stops writing.
    """
    process = await asyncio.create_subprocess_exec(
        *server.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**get_default_environment(), **server.filled(server.env)},
        cwd=server.folder or None, start_new_session=True, limit=PIECE,
    )  # fmt: skip
    _processes.add(process.pid)
    came, coming = anyio.create_memory_object_stream[Any](0)
    leaving, left = anyio.create_memory_object_stream[SessionMessage](0)
    reports = asyncio.create_task(_keep(process, said))
    work = [asyncio.create_task(_read(process, came, said, ended)), asyncio.create_task(_write(process, left))]
    try:
        yield coming, leaving
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        for stream in (came, coming, leaving, left):
            stream.close()
        try:
            await asyncio.shield(_end(process))
            # Its last words may still be on their way.
            await asyncio.wait({reports}, timeout=LAST_WORDS)
        finally:
            # Something that it started may hold its pipes open; asyncio offers no other way to let go of them.
            process._transport.close()  # type: ignore[attr-defined]
        reports.cancel()


async def _read(process: asyncio.subprocess.Process, came: Any, said: deque[str], ended: Callable[[], None]) -> None:
    assert process.stdout is not None
    with came:
        try:
            async for message in messages(process.stdout, said):
                await came.send(message)
        except Flood as flood:
            said.append(str(flood))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session is over, which whoever waits for an answer is told
        finally:
            ended()


async def messages(stdout: asyncio.StreamReader, said: deque[str]) -> AsyncIterator[SessionMessage]:
    """The messages that a process writes, one per line. What is too long or broken fails the call it answers."""
    line, length, unasked = bytearray(), 0, 0
    while piece := await stdout.read(PIECE):
        while piece:
            part, newline, piece = piece.partition(b"\n")
            length += len(part)
            line += part[: max(0, LONGEST_MESSAGE - len(line))]
            if length > LONGEST_LINE:
                raise Flood(f"it wrote a line of more than {LONGEST_LINE >> 20} MiB")
            if newline:
                message = _message(bytes(line), length, said)
                unasked = 0 if message is not None and _answers(message) else unasked + length + 1
                if unasked > MOST_UNASKED:
                    raise Flood(f"it wrote more than {MOST_UNASKED >> 20} MiB that nobody asked for")
                if message is not None:
                    yield message
                line, length = bytearray(), 0


def _message(line: bytes, length: int, said: deque[str]) -> SessionMessage | None:
    if length > LONGEST_MESSAGE:
        return _refusal(line, f"its answer has {length:,} bytes, more than {LONGEST_MESSAGE:,}", said)
    if not line.lstrip().startswith(b"{"):  # a server that prints what it should log
        said.append(line[:200].decode("utf8", "replace"))
        return None
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return _refusal(line, f"its answer is not valid JSON-RPC: {line[:80].decode('utf8', 'replace')!r}", said)


def _refusal(line: bytes, problem: str, said: deque[str]) -> SessionMessage | None:
    """An error in the place of an answer that cannot be used; None if it does not say which call it answers."""
    found = ID.search(line[:400]) or ID.search(line[-400:])
    if found is None:
        said.append(problem)
        return None
    error = mcp_types.ErrorData(code=UNREADABLE, message=problem)
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


def _answers(message: SessionMessage) -> bool:
    return isinstance(message.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError)


async def _write(process: asyncio.subprocess.Process, left: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for message in left:
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _keep(process: asyncio.subprocess.Process, said: deque[str]) -> None:
    assert process.stderr is not None
    while piece := await process.stderr.read(PIECE):
        said.append(piece[-STDERR_KEPT:].decode("utf8", "replace"))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input of the process and wait; a process that stays is killed with all that it started."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), PATIENCE)
    _kill(process.pid)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), PATIENCE)
    _processes.discard(process.pid)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


@atexit.register
def _kill_all() -> None:
    for group in _processes:
        _kill(group)


@asynccontextmanager
async def address_streams(server: McpServer, seconds: float) -> AsyncIterator[Any]:
    """Yield the streams of messages from and to a server over HTTP."""
    headers = {"Accept-Encoding": "identity", **server.filled(server.headers)}
    timeout = httpx2.Timeout(seconds, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Bounded(), trust_env=False) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST_MESSAGE) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses answers that are too large; a stream of events has limits of its own."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise Unfit("its answer is compressed, which was not asked for")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for piece in self.stream:
            length += len(piece)
            if length > LONGEST_MESSAGE:
                raise Unfit(f"its answer has more than {LONGEST_MESSAGE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self.stream.aclose()
