"""Where flows bend: each gap between two columns has tracks, and every flow that changes its height takes one.

Flows out of one node, or into one, share a track where nothing else leaves or enters their other ends; tracks are
ordered so that few flows cross and none runs along another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise.workflows.pictures.columns import Columns, Edge

SAME = 0.5
NEAR = 7.0


@dataclass(slots=True)
class Track:
    """An upright line: the heights at which flows come from the left and leave to the right."""

    lefts: set[float] = field(default_factory=set)
    rights: set[float] = field(default_factory=set)
    place: int = 0

    @property
    def top(self) -> float:
        return min(self.lefts | self.rights)

    @property
    def bottom(self) -> float:
        return max(self.lefts | self.rights)

    def overlaps(self, other: Track) -> bool:
        return self.top <= other.bottom + NEAR and other.top <= self.bottom + NEAR


def tracks(columns: Columns, y: Sequence[float]) -> list[dict[Edge, Track]]:
    """The track of every link that is not straight, for each gap between columns."""
    found: list[dict[Edge, Track]] = []
    for column in columns.order[:-1]:
        links = [(a, b) for a in column for b in columns.right[a] if abs(y[a] - y[b]) > SAME]
        found.append(_gap(columns, links, y))
    return found


def _gap(columns: Columns, links: Sequence[Edge], y: Sequence[float]) -> dict[Edge, Track]:
    shared: dict[tuple[int, ...], Track] = {}
    of: dict[Edge, Track] = {}
    for a, b in links:
        fans_out, fans_in = len(columns.right[a]) > 1, len(columns.left[b]) > 1
        key = (a, b) if fans_out and fans_in else (a, -1) if fans_out else (-1, b) if fans_in else (a, b)
        track = shared.setdefault(key, Track())
        track.lefts.add(y[a])
        track.rights.add(y[b])
        of[a, b] = track
    _place(list(shared.values()))
    return of


def _place(found: list[Track]) -> None:
    """Order the tracks by what it costs to stand left of each other, then pack them."""
    count = len(found)
    blocks: list[dict[int, int]] = [{} for _ in found]
    for a in range(count):
        for b in range(a + 1, count):
            if found[a].overlaps(found[b]):
                saved = _cost(found[b], found[a]) - _cost(found[a], found[b])
                before, after = (a, b) if saved >= 0 else (b, a)
                blocks[after][before] = abs(saved) + 1
    left = set(range(count))
    while left:
        chosen = min(left, key=lambda one: (sum(cost for other, cost in blocks[one].items() if other in left), one))
        left.discard(chosen)
        track = found[chosen]
        earlier = [other for number, other in enumerate(found) if number not in left and number != chosen]
        track.place = 1 + max((other.place for other in earlier if other.overlaps(track)), default=-1)


def _cost(left: Track, right: Track) -> int:
    """Crossings if `left` stands left of `right`, and a hundred for each pair that would run along each other."""
    cost = sum(_inside(height, left) for height in right.lefts) + sum(_inside(height, right) for height in left.rights)
    cost += 100 * sum(abs(a - b) < NEAR for a in left.rights for b in right.lefts)
    return cost


def _inside(height: float, track: Track) -> int:
    return 1 if track.top + SAME < height < track.bottom - SAME else 0
