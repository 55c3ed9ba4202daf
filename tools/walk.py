"""Count the files that one command walks through: `python tools/walk.py train examples/column_addition.toml`.

A file counts when one of its functions is called (importing it does not count). Packages are listed in the order in
which their files are first visited: a change of package is a hop for whoever reads along. `train` is followed up to its
first event on disk; `service` starts the service, sends `POST /api/train` and counts files of `groupwise.service` only;
any other command is followed to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import groupwise

ADDRESS = "http://127.0.0.1:8001"
PACKAGE = Path(groupwise.__file__).parent


class Walk:
    """Files of the package in the order in which a function of each was first called."""

    def __init__(self, over: Callable[[], bool], within: str = "") -> None:
        self.files: list[str] = []
        self._over = over
        self._within = within
        self._known: dict[str, str | None] = {}
        self._ended = False

    def __enter__(self) -> Walk:
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_filename in self._known:
            return
        name = frame.f_code.co_filename
        # Module and class bodies run on import; neither is a step of the walk.
        if frame.f_code.co_name == "<module>" or not frame.f_code.co_flags & 0x2:
            return
        if _importing(frame):
            return
        self._known[name] = None
        if not self._ended and Path(name).is_relative_to(PACKAGE) and os.path.exists(name):
            self._ended = self._over()
            relative = Path(name).relative_to(PACKAGE).as_posix()
            if not self._ended and relative.startswith(self._within):
                self.files.append(relative)

    @property
    def changes(self) -> int:
        """How often the next file that is visited lies in another folder."""
        return sum(Path(a).parent != Path(b).parent for a, b in pairwise(self.files))


def _importing(frame: FrameType | None) -> bool:
    """Whether the call is part of importing a module of the package: a decorator, a table filled by a comprehension."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return True
        frame = frame.f_back
    return False


def command(words: list[str], folder: Path) -> Walk:
    """Walk through a command; `train` writes its run to `folder` and is followed to its first event."""
    from groupwise.cli import main

    training = words[0] in ("train", "sft")
    if training:
        words = [*words, "--set", f"run.output_dir={folder}", "--set", "training.num_episodes=1", "--quiet"]

    def over() -> bool:
        return training and any(path.stat().st_size for path in folder.glob("*/events.jsonl"))

    with Walk(over) as walk:
        try:
            main(words)
        except SystemExit as ended:
            if ended.code:
                raise
    return walk


def service(folder: Path) -> Walk:
    """Walk through one `POST /api/train`, in the service's own files."""
    import httpx

    from groupwise.service.app import create_app
    from groupwise.service.settings import ServiceSettings

    async def ask() -> Walk:
        app = create_app(ServiceSettings(runs_dir=folder))
        there = httpx.ASGITransport(app=app)
        # Threads that exist already are not profiled, so the walk begins before the application starts.
        with Walk(lambda: False, within="service/") as walk:
            async with app.router.lifespan_context(app), httpx.AsyncClient(transport=there, base_url=ADDRESS) as client:
                answer = await client.post("/api/train", json={"config": {"environment": "CartPole-v1"}})
                await client.post(f"/api/jobs/{answer.json()['id']}/cancel")
        assert answer.status_code == 202, answer.text
        return walk

    return asyncio.run(ask())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="a groupwise command with its arguments, or: service")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walk = service(Path(folder)) if asked.words == ["service"] else command(asked.words, Path(folder))
    if asked.json:
        print(json.dumps({"files": len(walk.files), "changes": walk.changes, "walk": walk.files}))
        return
    print("\n".join(walk.files))
    print(f"{len(walk.files)} files, {walk.changes} changes of package", file=sys.stderr)


if __name__ == "__main__":
    main()
