"""A process beside the service for work it must not do itself, such as running models: both ends of the link."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from groupwise.errors import GroupwiseError

logger = logging.getLogger(__name__)

HEAD = struct.Struct("!I")
LARGEST_FRAME = 64 << 20
MOST_WAITING = 64


class SidecarLost(GroupwiseError):
    """The process ended while working on the request."""

    code = "generation_lost"


class SidecarBusy(GroupwiseError):
    code = "busy"


class TookTooLong(GroupwiseError):
    code = "took_too_long"


class SidecarRefusal(GroupwiseError):
    """An error reported by the process, in the usual format."""

    def __init__(self, error: Mapping[str, str]) -> None:
        super().__init__(error["message"], hint=error.get("hint", ""), field=error.get("field", ""))
        self.code = error["code"]
        self.status = int(error.get("status", 0) or 0)


class Sidecar:
    """The process running `module` with `words`, and its open requests."""

    def __init__(self, module: str, words: Sequence[str]) -> None:
        self.module, self.words = module, list(words)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Queue[Mapping[str, Any] | None]] = {}
        self._number = 0
        self._opening = asyncio.Lock()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def ask(self, what: str, request: Mapping[str, Any], seconds: float | None = None) -> AsyncIterator[Any]:
        """Stream the process's answers to a request. A caller that stops listening cancels the work.

        If the work takes longer than `seconds`, the process is killed, because running work cannot be interrupted.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise SidecarBusy(f"{MOST_WAITING} requests are already waiting", hint="Try again in a moment.")
        await self._open()
        self._number += 1
        number, queue = self._number, asyncio.Queue[Mapping[str, Any] | None]()
        self._waiting[number] = queue
        done = False
        try:
            await self._send({"id": number, "op": what, "request": request})
            async with asyncio.timeout(seconds):
                while True:
                    frame = await queue.get()
                    if frame is None:
                        raise SidecarLost("the process working on this request ended", hint="Ask again.")
                    if "error" in frame:
                        done = True
                        raise SidecarRefusal(frame["error"])
                    if "end" in frame:
                        done = True
                        return
                    yield frame["event"]
        except TimeoutError:
            done = True
            self._kill()
            raise TookTooLong(
                f"it took longer than {seconds:g} s and was stopped",
                hint="Ask for fewer evaluations or a smaller workflow.",
            ) from None
        finally:
            self._waiting.pop(number, None)
            if not done and self._writer is not None:
                with suppress(OSError, SidecarLost):
                    await self._send({"id": number, "op": "cancel"})

    async def answer(self, what: str, request: Mapping[str, Any], seconds: float | None = None) -> Any:
        """The process's single answer."""
        found = [event async for event in self.ask(what, request, seconds)]
        return found[-1]

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, 3)
            except subprocess.TimeoutExpired:
                self._kill()
        if self._listening is not None:
            self._listening.cancel()

    async def _open(self) -> None:
        async with self._opening:
            if self._process is not None and self._process.poll() is None and self._writer is not None:
                return
            ours, theirs = socket.socketpair()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", self.module, str(theirs.fileno()), *self.words],
                    stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True, env=dict(os.environ),
                )  # fmt: skip
            finally:
                theirs.close()
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=LARGEST_FRAME)
            self.starts += 1
            self._listening = asyncio.create_task(self._listen(reader, self._process))

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._writer is not None
        try:
            write_frame(self._writer, message)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise SidecarLost("the process for this request ended", hint="Ask again.") from error

    async def _listen(self, reader: asyncio.StreamReader, process: subprocess.Popen[bytes]) -> None:
        while (frame := await read_frame(reader)) is not None:
            if (queue := self._waiting.get(frame["id"])) is not None:
                queue.put_nowait(frame)
        if process is self._process and self._writer is not None:
            self._writer.close()
            self._writer = None
            for queue in self._waiting.values():
                queue.put_nowait(None)
        status = await asyncio.to_thread(process.wait)
        logger.info("%s ended with status %s", self.module, status)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame; None once the other side is gone."""
    try:
        (length,) = HEAD.unpack(await reader.readexactly(HEAD.size))
        frame: dict[str, Any] = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None
    return frame


def write_frame(writer: asyncio.StreamWriter, frame: Mapping[str, Any]) -> None:
    content = json.dumps(frame).encode()
    writer.write(HEAD.pack(len(content)) + content)


Handler = Callable[[Mapping[str, Any]], AsyncIterator[Any]]


def serve_requests(descriptor: int, handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the service closes the connection."""
    asyncio.run(_serve(socket.socket(fileno=descriptor), handlers))


async def _serve(link: socket.socket, handlers: Mapping[str, Handler]) -> NoReturn:
    link.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=link)
    tasks: dict[int, asyncio.Task[None]] = {}
    while (frame := await read_frame(reader)) is not None:
        number = frame["id"]
        if frame["op"] == "cancel":
            if task := tasks.get(number):
                task.cancel()
            continue
        tasks[number] = asyncio.create_task(_answer(writer, number, handlers[frame["op"]], frame["request"]))
        tasks[number].add_done_callback(lambda _, number=number: tasks.pop(number, None))  # type: ignore[misc]
    os._exit(0)  # threads may still be working on a design or an answer that nobody waits for


async def _answer(writer: asyncio.StreamWriter, number: int, handler: Handler, request: Mapping[str, Any]) -> None:
    try:
        async for event in handler(request):
            write_frame(writer, {"id": number, "event": event})
            await writer.drain()
        last: dict[str, Any] = {"id": number, "end": True}
    except GroupwiseError as error:
        last = {"id": number, **error.as_dict()}
    except Exception as error:
        if writer.is_closing():  # the service is gone, so nobody can be told
            return
        told = GroupwiseError(f"{type(error).__name__}: {error}", hint="Please report it.")
        told.code = "internal"
        last = {"id": number, **told.as_dict()}
    write_frame(writer, last)
    await writer.drain()
