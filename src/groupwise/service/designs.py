"""Workflows in the service: the worker process behind them, and the designs it has made."""

import asyncio
import base64
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.files import disk, write_atomic
from groupwise.products import SERVICES
from groupwise.service.settings import ServiceSettings
from groupwise.service.sidecar import Sidecar

PACKAGED = Path(__file__).parents[1] / "examples" / "workflows"
IN_THE_REPOSITORY = Path(__file__).parents[3] / "examples" / "workflows"
MEDIA = {
    ".json": "application/json", ".wfcommons.json": "application/json", ".svg": "image/svg+xml", ".png": "image/png",
    ".bpmn": "application/xml", ".yawl": "application/xml", ".pnml": "application/xml", ".py": "text/x-python",
    ".yml": "application/yaml", ".argo.yaml": "application/yaml", ".mmd": "text/plain",
}  # fmt: skip

# What is kept of designs, whoever made them: an edited workflow of 4 MB takes a moment to make.
MOST_DESIGNS = 1000
MOST_BYTES = 256 << 20


class DesignNotFound(GroupwiseError):
    code = "design_not_found"


@dataclass(frozen=True)
class DesignFile:
    """A workflow as a file in one format."""

    name: str
    content: bytes
    media: str
    notes: tuple[str, ...]


class Designs:
    """Designs, checks, simulates and converts workflows in a separate process."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.folder = settings.folder / "designs"
        self.seconds = settings.workflow_timeout
        # A process of its own: designing computes for seconds, and a workflow file is untrusted input.
        self.process = Sidecar(SERVICES["workflows"], [])
        self._formats: list[dict[str, Any]] | None = None

    async def work(self, what: str, asked: Mapping[str, Any]) -> Any:
        """The worker's result. A request that takes too long is stopped."""
        return await self.process.answer(what, asked, self.seconds)

    async def design(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make a design and keep it, so that it can be downloaded in any format."""
        return await self._kept(await self.work("design", asked))

    async def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Edit a workflow, and keep the result like a design."""
        return await self._kept(await self.work("edit", asked))

    async def _kept(self, found: dict[str, Any]) -> dict[str, Any]:
        name = uuid.uuid4().hex[:16]
        with disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        document = found.pop("document").encode()
        await asyncio.to_thread(self._make_room, len(document))
        write_atomic(self.folder / f"{name}.json", document)
        cannot = found.pop("cannot")
        downloads = [
            {"format": one["name"], "title": one["title"], "suffix": one["suffix"],
             "url": f"/api/workflows/{name}/download/{one['name']}", "cannot": cannot.get(one["name"], "")}
            for one in await self.formats() if one["writes"]
        ]  # fmt: skip
        return {**found, "id": name, "downloads": downloads}

    def _make_room(self, size: int) -> None:
        """Delete the oldest designs until another of `size` bytes fits within the limits."""
        kept: list[tuple[int, int, str]] = []
        for found in os.scandir(self.folder):
            with suppress(FileNotFoundError):  # another request has just made room
                told = found.stat(follow_symlinks=False)
                kept.append((told.st_mtime_ns, told.st_size, found.path))
        left, used = len(kept), sum(bytes_ for _, bytes_, _ in kept)
        for _, bytes_, path in sorted(kept):
            if left < MOST_DESIGNS and used + size <= MOST_BYTES:
                return
            Path(path).unlink(missing_ok=True)
            left, used = left - 1, used - bytes_

    async def formats(self) -> list[dict[str, Any]]:
        if self._formats is None:
            self._formats = list((await self.work("formats", {}))["formats"])
        return self._formats

    async def download(self, name: str, to: str) -> DesignFile:
        path = self.folder / f"{name}.json"
        if not path.is_file():
            raise DesignNotFound(f"there is no design {name!r:.40}", hint="POST /api/workflows/design creates one.")
        return _file(await self.work("download", {"document": path.read_text("utf8"), "to": to}))

    async def convert(self, asked: Mapping[str, Any]) -> DesignFile:
        return _file(await self.work("convert", asked))

    async def close(self) -> None:
        await self.process.close()


def examples() -> list[dict[str, Any]]:
    """The bundled examples: requirements, each with the workflow it starts from."""
    folder = PACKAGED if PACKAGED.is_dir() else IN_THE_REPOSITORY
    found = []
    for path in sorted(folder.glob("*.yaml")):
        beside = [other for other in folder.glob(f"{path.stem}.*") if other != path]
        start = beside[0].read_text("utf8") if beside else None
        found.append({"name": path.stem, "requirements": path.read_text("utf8"), "workflow": start})
    return found


def _file(found: Mapping[str, Any]) -> DesignFile:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in found["name"]).strip("-")
    content = base64.b64decode(found["content"])
    media = MEDIA.get(found["suffix"], "application/octet-stream")
    return DesignFile(f"{plain[:60] or 'workflow'}{found['suffix']}", content, media, tuple(found["notes"]))
