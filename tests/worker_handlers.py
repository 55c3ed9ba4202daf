"""Handlers for test_workers: what a child can do to its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError


class Handler:
    """Does what a request's first word says."""

    def __init__(self, folder: str = "") -> None:
        self.folder = Path(folder)
        self.kept: list[Any] = []

    def __call__(self, request: Any) -> Any:
        what, *rest = request
        return getattr(self, what)(*rest)

    def echo(self, value: Any) -> tuple[int, Any]:
        return os.getpid(), value

    def keep(self, value: Any) -> list[Any]:
        self.kept.append(value)
        return self.kept

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def path(self) -> list[str]:
        return sys.path

    def prints(self, text: str) -> None:
        print(text, flush=True)

    def fails(self) -> None:
        raise ConfigError("too much", hint="less", field="amount")

    def breaks(self) -> None:
        raise KeyError("lost")

    def unpicklable(self) -> Callable[[], None]:
        return lambda: None

    def exits(self, status: int) -> None:
        os._exit(status)

    def dies(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def leaves(self) -> None:
        raise SystemExit(3)

    def hangs(self, mark: str = "") -> None:
        if mark:
            (self.folder / mark).write_text(str(os.getpid()))
        while True:
            time.sleep(60)

    def starts_another(self, mark: str) -> None:
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (self.folder / mark).write_text(str(other.pid))
        other.wait()

    def waits_for(self, mark: str) -> str:
        while not (self.folder / mark).exists():
            time.sleep(0.01)
        return mark

    async def waits_until_cancelled(self, mark: str) -> None:
        try:
            (self.folder / mark).touch()
            await asyncio.Event().wait()
        finally:
            (self.folder / f"{mark}-cancelled").touch()

    async def counts(self, most: int) -> Any:
        for number in range(most):
            yield number
        if most > 5:
            raise ConfigError("cannot count further")

    def close(self) -> None:
        if self.folder.name:
            (self.folder / "closed").touch()


make_handler = Handler  # as the service's worker processes call theirs


def slow_to_start(folder: str) -> Handler:
    """A handler that is not made before there is a file called `start`."""
    Handler(folder).waits_for("start")
    return Handler(folder)


def broken() -> None:
    raise ConfigError("no handler today")
