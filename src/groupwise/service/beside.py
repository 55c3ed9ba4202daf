"""The other end of `sidecar`: what such a process does with the requests it gets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

from groupwise.errors import GroupwiseError
from groupwise.service.sidecar import read_frame, write_frame

Handler = Callable[[Mapping[str, Any]], AsyncIterator[Any]]


def run(descriptor: int, handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the service is gone."""
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
    os._exit(0)  # threads may be at work on a design or an answer; nobody waits for it any more


async def _answer(writer: asyncio.StreamWriter, number: int, handler: Handler, request: Mapping[str, Any]) -> None:
    try:
        async for event in handler(request):
            write_frame(writer, {"id": number, "event": event})
            await writer.drain()
        last: dict[str, Any] = {"id": number, "end": True}
    except GroupwiseError as error:
        last = {"id": number, **error.as_dict()}
    except Exception as error:
        if writer.is_closing():  # nobody is there to be told
            return
        told = GroupwiseError(f"{type(error).__name__}: {error}", hint="Please report it.")
        told.code = "internal"
        last = {"id": number, **told.as_dict()}
    write_frame(writer, last)
    await writer.drain()
