"""Where flows bend: each gap between two columns has tracks, and every flow that changes its height takes one.

Flows out of one node, or into one, share a track where nothing else leaves or enters their other ends; tracks are
ordered so that few flows cross and none runs along another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf

from groupwise.workflows.pictures.columns import Columns, Edge

SAME = 0.5
NEAR = 7.0


@dataclass(slots=True)
class Track:
    """An upright line: the heights at which flows come from the left and leave to the right."""

    lefts: set[float] = field(default_factory=set)
    rights: set[float] = field(default_factory=set)
    top: float = inf
    bottom: float = -inf
    place: int = 0

    def add(self, left: float, right: float) -> None:
        self.lefts.add(left)
        self.rights.add(right)
        self.top, self.bottom = min(self.top, left, right), max(self.bottom, left, right)

    def overlaps(self, other: Track) -> bool:
        return self.top <= other.bottom + NEAR and other.top <= self.bottom + NEAR


@dataclass(slots=True)
class Gap:
    """The space between two columns: the track of every link that is not straight, and how many there are.

    A link with a detour leaves its track short of its goal, at another height, and gets there on the last track.
    """

    tracks: dict[Edge, Track]
    detours: dict[Edge, float]

    @property
    def places(self) -> int:
        return max((track.place for track in self.tracks.values()), default=-1) + 1 + bool(self.detours)


def gaps(columns: Columns, y: Sequence[float]) -> list[Gap]:
    found: list[Gap] = []
    for column in columns.order[:-1]:
        links = [(a, b) for a in column for b in columns.right[a] if abs(y[a] - y[b]) > SAME]
        tracks = _tracks(columns, links, y)
        found.append(Gap(tracks, _detours(tracks, y)))
    return found


def _detours(tracks: dict[Edge, Track], y: Sequence[float]) -> dict[Edge, float]:
    """Links that would run along another which leaves from the height they arrive at, further right."""
    found = {}
    for (a, b), track in tracks.items():
        beside = (other for other in tracks.values() if other is not track and other.place > track.place)
        if any(abs(left - y[b]) < SAME for other in beside for left in other.lefts):
            found[a, b] = y[b] + (NEAR + 1 if y[a] > y[b] else -NEAR - 1)
    return found


def _tracks(columns: Columns, links: Sequence[Edge], y: Sequence[float]) -> dict[Edge, Track]:
    shared: dict[Hashable, Track] = {}
    of: dict[Edge, Track] = {}
    for a, b in links:
        of[a, b] = shared.setdefault(_company(columns, a, b), Track())
        of[a, b].add(y[a], y[b])
    _place(list(shared.values()))
    return of


def _company(columns: Columns, a: int, b: int) -> Hashable:
    """What a link shares its track with: all out of its source, or into its target, or all that go from all to all."""
    targets, sources = columns.right[a], columns.left[b]
    if len(targets) == 1 or len(sources) == 1:
        return (a, -1) if len(targets) > 1 else (-1, b) if len(sources) > 1 else (a, b)
    goals, origins = set(targets), set(sources)
    everyone = all(set(columns.right[one]) == goals for one in origins) and all(
        set(columns.left[one]) == origins for one in goals
    )
    return (frozenset(origins), frozenset(goals)) if everyone else (a, b)


def _place(found: list[Track]) -> None:
    """Order the tracks by what it costs to stand left of each other, then pack them."""
    count = len(found)
    behind: list[dict[int, int]] = [{} for _ in found]
    waits = [0] * count
    for a in range(count):
        for b in range(a + 1, count):
            if found[a].overlaps(found[b]):
                saved = _cost(found[b], found[a]) - _cost(found[a], found[b])
                before, after = (a, b) if saved >= 0 else (b, a)
                behind[before][after] = abs(saved) + 1
                waits[after] += abs(saved) + 1
    left = list(range(count))
    placed: list[Track] = []
    while left:
        chosen = min(left, key=lambda one: (waits[one], one))
        left.remove(chosen)
        for after, cost in behind[chosen].items():
            waits[after] -= cost
        track = found[chosen]
        track.place = 1 + max((other.place for other in placed if other.overlaps(track)), default=-1)
        placed.append(track)


def _cost(left: Track, right: Track) -> int:
    """Crossings if `left` stands left of `right`, and a hundred for each pair that would run along each other."""
    cost = sum(_inside(height, left) for height in right.lefts) + sum(_inside(height, right) for height in left.rights)
    cost += 100 * sum(abs(a - b) < NEAR for a in left.rights for b in right.lefts)
    return cost


def _inside(height: float, track: Track) -> int:
    return 1 if track.top + SAME < height < track.bottom - SAME else 0
