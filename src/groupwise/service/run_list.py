"""The list of runs and jobs as one: searched, filtered, sorted and handed out page by page.

A run may have no job (started from the command line), and a job no folder yet (it waits): both are entries.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import RunNotFound
from groupwise.metrics import HELD_OUT, REWARD
from groupwise.service.jobs import JobBrief, Jobs
from groupwise.service.keys import Keys, Who
from groupwise.service.run_index import RunCard, RunIndex
from groupwise.service.schemas import ErrorDetail, RunView

Order = Literal["recent", "name", "state", "product", "environment", "step", "reward", "held_out", "updated"]
FIRST = {"running": 0, "stopping": 0, "created": 0, "queued": 1}
"""In the usual order, what is under way comes before what is over."""


@dataclass(frozen=True)
class Wanted:
    """Which runs, in which order."""

    text: str = ""
    state: str = ""
    product: str = ""
    environment: str = ""
    tag: str = ""
    owner: str = ""
    archived: bool | None = False
    order: Order = "recent"
    backwards: bool = False

    def fits(self, view: RunView) -> bool:
        if self.archived is not None and view.archived != self.archived:
            return False
        exact = ((self.state, view.state), (self.product, view.product), (self.environment, view.environment))
        if any(wanted and wanted != found for wanted, found in (*exact, (self.owner, view.owner))):
            return False
        if self.tag and self.tag not in view.tags:
            return False
        words = f"{view.id} {view.title} {' '.join(view.tags)} {view.notes}".lower()
        return all(word in words for word in self.text.lower().split())

    def sorted(self, views: Sequence[RunView]) -> list[RunView]:
        newest = sorted(views, key=lambda view: (-view.updated, view.id))
        if self.order == "recent":
            return sorted(newest, key=lambda view: FIRST.get(view.state, 2), reverse=self.backwards)
        found = sorted(newest, key=KEYS[self.order], reverse=self.backwards)
        # Runs without a number come last in either direction.
        return sorted(found, key=lambda view: KEYS[self.order](view) == -math.inf)


def _metric(name: str) -> Callable[[RunView], float]:
    def value(view: RunView) -> float:
        found = view.metrics.get(name)
        return -math.inf if found is None else found

    return value


KEYS: Mapping[str, Callable[[RunView], Any]] = {
    "name": lambda view: (view.title or view.id).lower(), "state": lambda view: view.state,
    "product": lambda view: view.product, "environment": lambda view: view.environment,
    "step": lambda view: view.step, "updated": lambda view: view.updated,
    "reward": _metric(REWARD), "held_out": _metric(HELD_OUT),
}  # fmt: skip


class RunListing:
    """All runs of a service, as the callers may see them."""

    def __init__(self, index: RunIndex, jobs: Jobs, keys: Keys) -> None:
        self.index, self.jobs, self.keys = index, jobs, keys
        self._views: dict[str, tuple[RunCard | None, JobBrief | None, RunView]] = {}

    def views(self, who: Who, whole: bool = True) -> list[RunView]:
        """Every entry that the caller may see."""
        self.index.refresh(whole)
        briefs = self.jobs.briefs()
        names = self.index.cards.keys() | briefs.keys()
        seen = [self._view(name, self.index.cards.get(name), briefs.get(name)) for name in names]
        self._views = {view.id: self._views[view.id] for view in seen}
        if who.may("admin"):
            return seen
        return [view for view in seen if view.id in briefs and who.owns(briefs[view.id].asked_by)]

    def view(self, name: str) -> RunView:
        """One entry, as it is now. A job that waits has no folder yet."""
        brief = self.jobs.briefs().get(name)
        try:
            card = self.index.look(name)
        except RunNotFound:
            if brief is None:
                raise
            card = None
        return self._view(name, card, brief)

    def _view(self, name: str, card: RunCard | None, brief: JobBrief | None) -> RunView:
        known = self._views.get(name)
        # An entry is made again only when what it is made of has changed: there may be thousands.
        if known is not None and known[0] is card and known[1] == brief:
            return known[2]
        view = run_view(name, card, brief, self.keys.name_of(brief.asked_by) if brief else "")
        self._views[name] = (card, brief, view)
        return view


class ListChanges:
    """What changed in the list since it was last asked for, for one view of it."""

    def __init__(self) -> None:
        self._before: dict[str, RunView] | None = None

    def since(self, views: Sequence[RunView]) -> dict[str, Any] | None:
        """The message about it; None if nothing changed, or at the first look."""
        before, now = self._before, {view.id: view for view in views}
        self._before = now
        if before is None:
            return None
        # The same object means the same entry.
        changed = [view for name, view in now.items() if before.get(name) is not view]
        removed = [name for name in before if name not in now]
        if not changed and not removed:
            return None
        changed.sort(key=lambda view: -view.updated)
        more = len(changed) > MOST_CHANGES or len(removed) > MOST_CHANGES
        told = [view.model_dump(mode="json") for view in changed[:MOST_CHANGES]]
        return {"type": "runs", "changed": told, "removed": removed[:MOST_CHANGES], "more": more}


MOST_CHANGES = 100  # entries in one message; with more, clients read the list again


def run_view(name: str, card: RunCard | None, brief: JobBrief | None, owner: str) -> RunView:
    facts: dict[str, Any] = {"step": 0, "total": 0, "attempt": 0, "metrics": {}}
    if card is not None:
        facts = {name: getattr(card, name) for name in facts}
        labels = card.labels
        facts |= {"title": labels.title, "tags": list(labels.tags), "notes": labels.notes, "archived": labels.archived}
    product = (card.product if card else "") or (brief.product if brief else "")
    updated = card.updated if card else brief.updated if brief else 0.0
    return RunView(
        id=name, state=_state(card, brief), **facts, updated=updated,
        product=product, environment=card.environment if card else "", owner=owner, job=brief.id if brief else None,
        job_state=brief.state if brief else None,
        error=ErrorDetail.model_validate(brief.error) if brief and brief.error else None,
    )  # fmt: skip


def _state(card: RunCard | None, brief: JobBrief | None) -> str:
    """What is going on: the job knows whether it waits or failed before it began, the folder everything else."""
    if brief is None:
        return card.state if card else "damaged"
    if brief.state == "running" and brief.wanted == "cancel":
        return "stopping"
    if brief.state in ("queued", "failed"):
        return brief.state
    if brief.state == "running" and (card is None or card.state != "running"):
        return "created"
    return card.state if card else brief.state


def counted(views: Sequence[RunView]) -> dict[str, dict[str, int]]:
    """How many runs there are for each value to filter by."""
    fields = ("state", "product", "environment", "owner")
    found = {field: Counter(str(getattr(view, field)) for view in views if getattr(view, field)) for field in fields}
    found["tag"] = Counter(tag for view in views for tag in view.tags)
    return {field: dict(counts.most_common(100)) for field, counts in found.items()}
