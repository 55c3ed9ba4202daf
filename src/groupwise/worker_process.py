"""The child's side of `workers`: frames over a socket, and a loop that answers requests until the parent is gone."""

import asyncio
import ctypes
import inspect
import json
import os
import pickle
import pkgutil
import signal
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

from groupwise.errors import GroupwiseError

LARGEST = 4 << 30  # bytes in one frame: more is not a message
BUFFER = 16 << 20  # bytes read ahead; with asyncio's 64 KiB a large array takes seconds
HEAD = struct.Struct("!QBQ")  # number of the request, kind of frame, length of the body


Operation: TypeAlias = Callable[[Mapping[str, Any]], AsyncIterator[Any]]


class Kind(IntEnum):
    """What a frame is. The first three go to the child, the others come from it."""

    REQUEST, CANCEL, END, READY, EVENT, DONE, FAILED = range(7)


Frame: TypeAlias = tuple[int, Kind, bytes]


def by_operation(handlers: Mapping[str, Operation]) -> Callable[[tuple[str, Mapping[str, Any]]], AsyncIterator[Any]]:
    """One handler out of several: each request is a pair of an operation's name and what it is asked."""
    return lambda request: handlers[request[0]](request[1])


def codec(as_json: bool) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Functions from a value to bytes and back."""
    if as_json:
        return lambda value: json.dumps(value).encode(), json.loads
    return partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL), pickle.loads


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None when the other side is gone or sends nonsense."""
    try:
        number, kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
        return (number, Kind(kind), await reader.readexactly(length)) if length <= LARGEST else None
    except (asyncio.IncompleteReadError, OSError, ValueError):
        return None


def serve(descriptor: int, parent: int) -> None:
    """A child's life, from its first line to its last."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(parent)
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


async def _serve(link: socket.socket) -> None:
    link.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=link, limit=BUFFER)
    try:
        handler, codec = _made(await read_frame(reader), await read_frame(reader))
    except Exception as error:
        await _send(writer, (0, Kind.FAILED, f"{type(error).__name__}: {error}".encode()))
        return
    await _send(writer, (0, Kind.READY, b""))
    tasks: dict[int, asyncio.Task[None]] = {}
    while (frame := await read_frame(reader)) is not None:
        number, kind, body = frame
        if kind is Kind.END:
            await _resolved(getattr(handler, "close", lambda: None)())
            return
        if kind is Kind.REQUEST:
            # The dictionary also keeps the task alive: asyncio holds tasks only weakly.
            tasks[number] = asyncio.create_task(_answer(writer, number, handler, codec, body))
            tasks[number].add_done_callback(lambda _, number=number: tasks.pop(number, None))  # type: ignore[misc]
        elif number in tasks:
            tasks[number].cancel()
    os._exit(0)  # the parent is gone: nobody waits for what threads may still be working on


def _made(first: Frame | None, second: Frame | None) -> tuple[Callable[[Any], Any], Any]:
    if first is None or second is None:
        os._exit(0)
    as_json, main = pickle.loads(first[2])  # noqa: S301
    if main:
        from multiprocessing.spawn import prepare

        prepare(main)
    entry, args = pickle.loads(second[2])  # noqa: S301
    return (pkgutil.resolve_name(entry) if isinstance(entry, str) else entry)(*args), codec(as_json)


async def _answer(
    writer: asyncio.StreamWriter, number: int, handler: Callable[[Any], Any], codec: Any, body: bytes
) -> None:
    """One request, from its bytes to the last frame of its answer: exactly one DONE or FAILED."""
    encode, decode = codec
    # How a cancelled request ends, and one whose handler only yields.
    kind, content = Kind.DONE, encode(None)
    try:
        found = handler(decode(body))
        if hasattr(found, "__aiter__"):
            async for event in found:
                await _send(writer, (number, Kind.EVENT, encode(event)))
        else:
            content = encode(await _resolved(found))
    except asyncio.CancelledError:
        pass
    except GroupwiseError as error:
        kind, content = Kind.FAILED, encode(error.as_dict()["error"])
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        kind, content = Kind.FAILED, encode({"code": "internal", "message": message, "hint": "Please report it."})
    await _send(writer, (number, kind, content))


async def _resolved(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def _send(writer: asyncio.StreamWriter, frame: Frame) -> None:
    number, kind, body = frame
    with suppress(OSError):  # the parent is gone, which the reader notices
        writer.write(HEAD.pack(number, kind, len(body)) + body)
        await writer.drain()


def _end_with_parent(parent: int) -> None:
    """End when the parent does, whatever we are busy with.

    The socket closes with the parent, but a busy child does not read it, and a process that was forked from the parent
    keeps a copy open. So we ask the kernel for a signal. Linux sends it when the thread that started us ends, which is
    the pool's own and lives as long as the pool. Elsewhere a thread looks twice a second.
    """
    # Not every C library has prctl; then the thread below has to do.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
