"""Conversations that wait for a tool over HTTP, for `scaling.py`: the model is asked for a letter, a service counts it.

Each turn of the model is sent to the service, which takes `delay` seconds, as a search or a database would, and answers
with the share of the letter. The share is the reward, so the tiny model can learn it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from groupwise.agents.environments.contract import Listed, Observation, Reply, Transition
from groupwise.types import End, Task

LETTERS = "ab"
SPECIAL = re.compile(r"<\|.*?\|>")
# Wordings to learn from, and others to be judged on.
LEARNED = ("write", "say", "only", "now", "please")
HELD_OUT = ("give me", "I want")


def prompts(wordings: tuple[str, ...]) -> list[str]:
    return [f"{wording} {letter}" for wording in wordings for letter in LETTERS]


class SpellingDesk(Listed[str]):
    """`turns` turns for each conversation. Without a `url` the letters are counted here, and nothing waits."""

    name = "spelling"

    def __init__(self, url: str = "", turns: int = 4) -> None:
        super().__init__(prompts(LEARNED), prompts(HELD_OUT))
        self.url, self.turns = url, turns

    async def reset(self, task: Task) -> Observation:
        self.prompt, self.left = task.payload, self.turns
        return Observation(({"role": "user", "content": self.prompt},))

    async def step(self, reply: Reply) -> Transition:
        self.left -= 1
        share = self._share(self.prompt[-1], reply.content) / self.turns
        end = None if self.left else End.FINISHED
        said = ({"role": "user", "content": self.prompt},) if self.left else ()
        return Transition(said, share, end, {"share": share, "process": os.getpid() / self.turns})

    def _share(self, letter: str, text: str) -> float:
        if not self.url:
            return counted(letter, text)
        # Blocks its worker, as most people's tools do.
        return float(asked(self.url, f"/?letter={letter}&text={quote(text)}")["share"])


@cache
def connection(url: str) -> HTTPConnection:
    """This process's connection to the service; it is kept open."""
    return HTTPConnection(urlsplit(url).netloc, timeout=30)


def asked(url: str, path: str) -> Any:
    kept = connection(url)
    try:
        kept.request("GET", path)
        return json.load(kept.getresponse())
    except (HTTPException, OSError):
        kept.close()  # the next request opens it again
        raise


def counted(letter: str, text: str) -> float:
    """The letter's share of the text; what a special token is called does not count as written."""
    return SPECIAL.sub("", text).count(letter) / max(1, len(text))


@contextmanager
def served(delay: float) -> Iterator[str]:
    """The service on a free port of this machine, in a process of its own; its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, delay), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(link: Any, delay: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            await asyncio.sleep(delay)
            query = parse_qs(urlsplit(line.split()[1].decode()).query, keep_blank_values=True)
            body = json.dumps({"share": counted(query["letter"][0], query["text"][0])}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        link.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())
