"""Rules that make a net smaller and change nothing of its soundness.

Murata, "Petri nets: properties, analysis and applications" (1989), section V: fusion of series places and transitions,
of parallel places and transitions, and self-loops. For steps that clear places away: Verbeek, Wynn, van der Aalst and
ter Hofstede, "Reduction rules for reset/inhibitor nets" (2010): places are one only if the same steps clear them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.workflows.net import Net, Transition
from groupwise.workflows.orders import bits


class _Sketch:
    """A net while it is being reduced. `takers`, `putters` and `clearers` are bit masks of steps, one for every place;
    `takes`, `puts` and `clears` are masks of places, one for every step. What is gone has no entry in `places`, `steps`.
    """

    def __init__(self, net: Net, apart: int) -> None:
        self.apart = apart
        self.fixed = {net.source, net.sink, *bits(apart)}
        count = len(net.places)
        self.places, self.steps = set(range(count)), set(range(len(net.transitions)))
        self.takes, self.puts, self.clears = [], [], []
        self.takers, self.putters, self.clearers = [0] * count, [0] * count, [0] * count
        bit = 1
        for step in net.transitions:
            self.takes.append(step.takes)
            self.puts.append(step.puts)
            self.clears.append(step.clears)
            for mask, users in (
                (step.takes, self.takers),
                (step.puts, self.putters),
                (step.clears, self.clearers),
            ):
                while mask:
                    low = mask & -mask
                    users[low.bit_length() - 1] |= bit
                    mask ^= low
            bit <<= 1

    def drop_step(self, step: int) -> None:
        self.steps.discard(step)
        gone = ~(1 << step)
        for mask, users in (
            (self.takes[step], self.takers),
            (self.puts[step], self.putters),
            (self.clears[step], self.clearers),
        ):
            for place in bits(mask):
                users[place] &= gone

    def drop_place(self, place: int) -> None:
        self.places.discard(place)
        gone = ~(1 << place)
        for users, masks in (
            (self.takers[place], self.takes),
            (self.putters[place], self.puts),
            (self.clearers[place], self.clears),
        ):
            for step in bits(users):
                masks[step] &= gone


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a net, and the new numbers of the places and steps that are."""

    net: Net
    places: Mapping[int, int]
    steps: Mapping[int, int]


def reduce_net(net: Net, apart: int = 0) -> Reduced:
    """The net after as many rules as apply. The places of `apart` stay what they are, alone."""
    sketch = _Sketch(net, apart)
    todo = list(sketch.places - sketch.fixed)
    while todo:
        _fuse_series(sketch, todo)
        todo = _drop_twin_steps(sketch) + _drop_twin_places(sketch)
    return _finished(net, sketch)


def _finished(net: Net, sketch: _Sketch) -> Reduced:
    """The sketch as a net, everything numbered anew."""
    places = {place: new for new, place in enumerate(sorted(sketch.places))}
    steps = {step: new for new, step in enumerate(sorted(sketch.steps))}

    def renumbered(mask: int) -> int:
        return sum(1 << places[place] for place in bits(mask))

    transitions = tuple(
        Transition(
            net.transitions[s].name,
            net.transitions[s].label,
            renumbered(sketch.takes[s]),
            renumbered(sketch.puts[s]),
            renumbered(sketch.clears[s]),
        )
        for s in steps
    )
    names = tuple(net.places[place] for place in places)
    return Reduced(Net(names, transitions, places[net.source], places[net.sink]), places, steps)


def _fuse_series(sketch: _Sketch, todo: list[int]) -> None:
    """Places with one step behind them, which needs nothing else. That step happens as soon as the place is marked.

    Where it leads to a single place, the two places are one; where the place has a single step before it, the two steps
    are one. `todo` are the places to look at, and grows while neighbours change.
    """
    while todo:
        place = todo.pop()
        taker = sketch.takers[place]
        if place not in sketch.places or place in sketch.fixed or not taker or taker & (taker - 1):
            continue
        step, bit = taker.bit_length() - 1, 1 << place
        puts, putters = sketch.puts[step], sketch.putters[place]
        if sketch.takes[step] != bit or puts & (bit | sketch.apart) or sketch.clears[step] or not putters:
            continue
        after = bits(puts)
        clearers = sketch.clearers[place]
        if any(sketch.clearers[q] != clearers or sketch.putters[q] & putters for q in after):
            continue
        if len(after) > 1 and putters & (putters - 1):
            continue
        sketch.places.discard(place)
        sketch.steps.discard(step)
        for putter in bits(putters):
            sketch.puts[putter] ^= bit | puts
        for clearer in bits(clearers):
            sketch.clears[clearer] ^= bit
        for q in after:
            sketch.putters[q] ^= taker | putters
        todo += after
        todo += bits(sketch.takes[putters.bit_length() - 1])


def _drop_twin_steps(sketch: _Sketch) -> list[int]:
    """Steps that do the same, of which one is enough, and steps that put everything back where it was."""
    seen: set[tuple[int, int, int]] = set()
    touched: list[int] = []
    for step in list(sketch.steps):
        if sketch.takes[step] & sketch.apart:
            continue
        takes, puts, clears = key = (sketch.takes[step], sketch.puts[step], sketch.clears[step])
        if takes == puts and not clears and not takes & (takes - 1):
            place = takes.bit_length() - 1
            needed = not sketch.putters[place] & ~(1 << step)
        else:
            needed = key not in seen
            seen.add(key)
        if not needed:
            sketch.drop_step(step)
            touched += bits(takes | puts)
    return touched


def _drop_twin_places(sketch: _Sketch) -> list[int]:
    """Places that are always marked together: filled by the same steps, and emptied by the same, taken or cleared.

    One of them is enough if it is needed by every step that needs the other.
    """
    kept: dict[tuple[int, int], int] = {}
    touched: list[int] = []
    for place in sorted(sketch.places - sketch.fixed, key=lambda p: -sketch.takers[p].bit_count()):
        takers = sketch.takers[place]
        key = (sketch.putters[place], takers | sketch.clearers[place])
        if kept.setdefault(key, place) != place and not takers & ~sketch.takers[kept[key]]:
            touched += [q for step in bits(takers) for q in bits(sketch.takes[step])]
            touched += [q for step in bits(key[0]) for q in bits(sketch.puts[step] | sketch.takes[step])]
            sketch.drop_place(place)
    return touched
