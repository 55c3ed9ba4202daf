"""Rules that make a net smaller and change nothing of its soundness.

Murata, "Petri nets: properties, analysis and applications" (1989), section V: fusion of series places and transitions,
of parallel places and transitions, and self-loops. Whatever a cancellation clears or a clearing step touches is left
as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from groupwise.workflows.net import Net, Transition
from groupwise.workflows.orders import bits


class _Sketch:
    """A net while it is being reduced: transitions by number, and which of them take from and put on every place."""

    def __init__(self, net: Net) -> None:
        self.source, self.sink = net.source, net.sink
        self.steps: dict[int, Transition] = dict(enumerate(net.transitions))
        self.fixed = 1 << net.source | 1 << net.sink
        for step in net.transitions:
            if step.clears:
                self.fixed |= step.clears | step.takes | step.puts
        self.takers: dict[int, set[int]] = {place: set() for place in range(len(net.places))}
        self.putters: dict[int, set[int]] = {place: set() for place in range(len(net.places))}
        for number in self.steps:
            self._enter(number)

    def _enter(self, number: int) -> None:
        for place in bits(self.steps[number].takes):
            self.takers[place].add(number)
        for place in bits(self.steps[number].puts):
            self.putters[place].add(number)

    def drop(self, number: int) -> None:
        step = self.steps.pop(number)
        for place in bits(step.takes):
            self.takers[place].discard(number)
        for place in bits(step.puts):
            self.putters[place].discard(number)

    def change(self, number: int, takes: int, puts: int) -> None:
        step = self.steps[number]
        self.drop(number)
        self.steps[number] = Transition(step.name, step.label, takes, puts, step.clears)
        self._enter(number)

    def drop_place(self, place: int) -> None:
        bit = 1 << place
        for number in list(self.takers[place] | self.putters[place]):
            step = self.steps[number]
            self.change(number, step.takes & ~bit, step.puts & ~bit)
        del self.takers[place], self.putters[place]

    def movable(self, place: int) -> bool:
        return not self.fixed >> place & 1


def reduce_net(net: Net) -> Net:
    """The net after as many rules as apply; itself where none does."""
    sketch = _Sketch(net)
    changed = again = True
    while again:
        again = any([rule(sketch) for rule in RULES])
        changed = changed and (again or len(sketch.steps) < len(net.transitions))
    if len(sketch.steps) == len(net.transitions) and len(sketch.takers) == len(net.places):
        return net
    return _finished(net, sketch)


def _finished(net: Net, sketch: _Sketch) -> Net:
    """The sketch as a net, its places numbered anew."""
    kept = sorted(sketch.takers)
    number = {place: new for new, place in enumerate(kept)}

    def renumbered(mask: int) -> int:
        return sum(1 << number[place] for place in bits(mask) if place in number)

    steps = tuple(
        Transition(s.name, s.label, renumbered(s.takes), renumbered(s.puts), renumbered(s.clears))
        for s in sketch.steps.values()
    )
    places = tuple(net.places[place] for place in kept)
    return Net(places, steps, number[sketch.source], number[sketch.sink])


def _series_places(sketch: _Sketch) -> bool:
    """A step from one place to another, the only way out of the first: the two places are one."""
    done = False
    for number, step in list(sketch.steps.items()):
        if number not in sketch.steps or step is not sketch.steps[number] or step.clears:
            continue
        before, after = single(step.takes), single(step.puts)
        if before is None or after is None or before == after or not sketch.movable(before):
            continue
        if sketch.takers[before] != {number} or any(sketch.steps[p].puts >> after & 1 for p in sketch.putters[before]):
            continue
        sketch.drop(number)
        for putter in list(sketch.putters[before]):
            earlier = sketch.steps[putter]
            sketch.change(putter, earlier.takes, earlier.puts & ~(1 << before) | 1 << after)
        sketch.drop_place(before)
        done = True
    return done


def _series_steps(sketch: _Sketch) -> bool:
    """A place between two steps, all that the second needs: the two steps are one."""
    done = False
    for place in list(sketch.takers):
        if place not in sketch.takers or not sketch.movable(place):
            continue
        putters, takers = sketch.putters[place], sketch.takers[place]
        if len(putters) != 1 or len(takers) != 1:
            continue
        (first,), (second,) = putters, takers
        early, late = sketch.steps[first], sketch.steps[second]
        if first == second or late.takes != 1 << place or early.clears or late.clears:
            continue
        if early.puts & ~(1 << place) & late.puts:
            continue
        puts = early.puts & ~(1 << place) | late.puts
        takes = early.takes
        sketch.drop(second)
        sketch.change(first, takes, puts)
        sketch.drop_place(place)
        done = True
    return done


def _twin_places(sketch: _Sketch) -> bool:
    """Places with the same steps before and behind them hold the same tokens: one is enough."""
    seen: dict[tuple[frozenset[int], frozenset[int]], int] = {}
    done = False
    for place in list(sketch.takers):
        if not sketch.movable(place):
            continue
        key = (frozenset(sketch.putters[place]), frozenset(sketch.takers[place]))
        if key in seen:
            sketch.drop_place(place)
            done = True
        else:
            seen[key] = place
    return done


def _twin_steps(sketch: _Sketch) -> bool:
    """Steps that do the same: one is enough."""
    seen: set[tuple[int, int, int]] = set()
    done = False
    for number, step in list(sketch.steps.items()):
        key = (step.takes, step.puts, step.clears)
        if key in seen:
            sketch.drop(number)
            done = True
        else:
            seen.add(key)
    return done


def _idle_steps(sketch: _Sketch) -> bool:
    """A step that puts everything back where it was."""
    idle = [n for n, step in sketch.steps.items() if step.takes == step.puts and not step.clears and single(step.takes)]
    idle = [n for n in idle if len(sketch.putters[single(sketch.steps[n].takes) or 0]) > 1]
    for number in idle:
        sketch.drop(number)
    return bool(idle)


RULES: tuple[Callable[[_Sketch], bool], ...] = (_series_places, _series_steps, _twin_places, _twin_steps, _idle_steps)


def single(mask: int) -> int | None:
    """The one place of a mask; None where there are several, or none."""
    return mask.bit_length() - 1 if mask and not mask & (mask - 1) else None
