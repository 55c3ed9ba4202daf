"""Chat in the service: which models can be chatted with, and past conversations."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, RunNotFound
from groupwise.products import find, service_module
from groupwise.service.keys import Who
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.ownership import Ownership
from groupwise.service.schemas import RUN_NAME, ChatRequest
from groupwise.service.settings import ServiceSettings
from groupwise.service.sidecar import Sidecar
from groupwise.training.folder import read_config, run_folders

TINY = "tiny"


class ModelNotFound(GroupwiseError):
    code = "model_not_found"


class ChatModels:
    """Conversations with the base model and with trained runs."""

    def __init__(self, settings: ServiceSettings, counting: ServiceMetrics, ownership: Ownership) -> None:
        self.settings, self.counting, self.ownership = settings, counting, ownership
        self.chat_service = service_module("chat")
        file = settings.folder / "conversations.sqlite"
        self.archive = self.chat_service.ConversationArchive(file)
        words = [str(settings.runs_dir), str(file), str(settings.models_loaded)]
        self.process = Sidecar(self.chat_service.WORKER, [*words, *([settings.tools] if settings.tools else [])])
        self._products: dict[Path, tuple[float, bool]] = {}

    def models(self, who: Who) -> list[dict[str, Any]]:
        """The base model first, then every run of a language model that has a checkpoint and that `who` may see."""
        base = dict.fromkeys([self.settings.model, TINY])
        runs = [path for path in run_folders(self.settings.runs_dir) if self._speaks(path) and self._seen(path, who)]
        found = [{"id": path.name, "kind": "run", "step": _step(path)} for path in runs]
        return [{"id": name, "kind": "base", "step": None} for name in base] + [run for run in found if run["step"]]

    def find(self, name: str | None, who: Who) -> str:
        """The model called `name`, or the base model if no name is given."""
        wanted = name or self.settings.model
        if wanted in (self.settings.model, TINY):
            return wanted
        path = self.settings.runs_dir / wanted
        if path.parent == self.settings.runs_dir and self._speaks(path) and self._seen(path, who) and _step(path):
            return wanted
        known = ", ".join(model["id"] for model in self.models(who)[:10])
        raise ModelNotFound(f"there is no model {wanted!r:.100}", hint=f"Available: {known}.", field="model")

    async def chat(self, request: ChatRequest, who: Who) -> AsyncIterator[Mapping[str, Any]]:
        """Stream the answer."""
        asked = request.model_dump(exclude={"stream"})
        asked |= {"model": self.find(request.model, who), "user": who.id, "admin": who.may("admin")}
        async for event in self.process.ask("chat", asked):
            if event["type"] == "done":
                self.counting.tokens.inc(event["tokens"])
            yield event

    def state(self) -> dict[str, Any]:
        return {"process": self.process.pid, "starts": self.process.starts, "under_way": self.process.waiting}

    async def close(self) -> None:
        await self.process.close()
        self.archive.close()

    def _seen(self, path: Path, who: Who) -> bool:
        try:
            return bool(self.ownership.run(path.name, who))
        except RunNotFound:
            return False

    def _speaks(self, path: Path) -> bool:
        """Whether the folder is a run of a language model."""
        if not re.fullmatch(RUN_NAME, path.name):
            return False
        try:
            # Reading settings takes milliseconds, and there may be thousands of runs: one read per change.
            changed = (path / "config.toml").stat().st_mtime
            known = self._products.get(path)
            if known is None or known[0] != changed:
                known = (changed, find(read_config(path).task.product).language_model)
                self._products[path] = known
            return known[1]
        except (OSError, ValueError, GroupwiseError):
            return False


def _step(path: Path) -> int | None:
    """The step of the newest checkpoint, judged by its folder alone; the checkpoint itself is not read."""
    whole = [file.parent.name for file in path.glob("checkpoints/*/COMPLETE")]
    return max((int(name) for name in whole if re.fullmatch("[0-9]{1,15}", name)), default=None)
