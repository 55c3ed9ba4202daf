"""Rules that make a net smaller without changing its soundness.

Murata, "Petri nets: properties, analysis and applications" (1989), section V: fusion of series places and transitions,
of parallel places and transitions, and self-loops. For steps that clear places: Verbeek, Wynn, van der Aalst and ter
Hofstede, "Reduction rules for reset/inhibitor nets" (2010): places may be fused only if the same steps clear them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from groupwise.workflows.partial_orders import bits
from groupwise.workflows.soundness.net import Net, NetTransition

# Steps of the original net, one after the other: a step number, or two such rows. A binary tree makes joining O(1).
Row: TypeAlias = "int | tuple[Row, Row]"


class _Sketch:
    """A net while it is being reduced: `places` and `steps` are those that are left.

    `takers`, `putters` and `clearers` are bit masks of steps, one per place; `takes`, `puts` and `clears` are bit masks
    of places, one per step. The two views always agree. `does` has the steps of the original net that a step stands
    for, `implies` the steps that were dropped as its twins: they can happen whenever it can. Places in `fixed` are
    never fused: source, sink, and those of or-joins (`apart`).
    """

    def __init__(self, net: Net, apart: int) -> None:
        self.apart = apart
        self.fixed = {net.source, net.sink, *bits(apart)}
        count = len(net.places)
        self.places, self.steps = set(range(count)), set(range(len(net.transitions)))
        self.changed_places, self.changed_steps = self.places - self.fixed, set(self.steps)
        # The place or step last seen with the same connections: a candidate for a twin.
        self.place_like: dict[tuple[int, int], int] = {}
        self.step_like: dict[tuple[int, int, int], int] = {}
        self.does: list[Row] = list(range(len(net.transitions)))
        self.implies: dict[int, list[Row]] = {}
        self.takes, self.puts, self.clears = [], [], []
        self.takers, self.putters, self.clearers = [0] * count, [0] * count, [0] * count
        bit = 1
        for step in net.transitions:
            self.takes.append(step.takes)
            self.puts.append(step.puts)
            self.clears.append(step.clears)
            for mask, users in ((step.takes, self.takers), (step.puts, self.putters), (step.clears, self.clearers)):
                while mask:
                    low = mask & -mask
                    users[low.bit_length() - 1] |= bit
                    mask ^= low
            bit <<= 1

    def follow(self, step: int, first: int, second: int) -> None:
        """Let `step`, one of the two, stand for both."""
        gone = second if step == first else first
        self.changed_steps.add(step)
        self.does[step] = (self.does[first], self.does[second])
        if gone in self.implies:
            self.implies.setdefault(step, []).extend(self.implies[gone])

    def forget(self, place: int, step: int) -> None:
        """Remove a place and a step that nothing refers to any more, except the steps that clear the place."""
        self.places.discard(place)
        self.steps.discard(step)
        for clearer in bits(self.clearers[place]):
            self.clears[clearer] ^= 1 << place
            self.changed_steps.add(clearer)

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
                self.changed_places.add(place)

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
                self.changed_steps.add(step)

    def step_key(self, step: int) -> tuple[int, int, int]:
        return self.takes[step], self.puts[step], self.clears[step]

    def place_key(self, place: int) -> tuple[int, int]:
        return self.putters[place], self.takers[place] | self.clearers[place]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A reduced net, and the new numbers of the places and steps that are left.

    For each step, `does` has the steps of the original net that it stands for, in order, and `implies` further steps
    that can happen whenever it can.
    """

    net: Net
    places: Mapping[int, int]
    steps: Mapping[int, int]
    does: tuple[Row, ...]
    implies: Mapping[int, list[Row]]

    def row(self, step: int) -> list[int]:
        return _flat([self.does[step]])

    def possible(self, step: int) -> set[int]:
        """The steps of the original net that can happen if this step can."""
        return set(_flat([self.does[step], *self.implies.get(step, ())]))


def _flat(rows: list[Row]) -> list[int]:
    found, stack = [], rows[::-1]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack += top[::-1]
        else:
            found.append(top)
    return found


def reduce_net(net: Net, apart: int = 0) -> Reduced:
    """The net after applying every rule that fits. The places in `apart` are left alone."""
    sketch = _Sketch(net, apart)
    # Series fusion first; dropped twins make new series, so it repeats until nothing changes.
    todo = sketch.places - sketch.fixed
    while todo:
        while todo:  # it grows as neighbours change
            place = todo.pop()
            if place in sketch.places and place not in sketch.fixed:
                todo.update(_fused_forwards(sketch, place) or _fused_backwards(sketch, place))
        todo.update(_drop_twin_steps(sketch))
        todo.update(_drop_twin_places(sketch))
    return _finished(net, sketch)


def _finished(net: Net, sketch: _Sketch) -> Reduced:
    places = {place: new for new, place in enumerate(sorted(sketch.places))}
    steps = {step: new for new, step in enumerate(sorted(sketch.steps))}

    def renumbered(mask: int) -> int:
        return sum(1 << places[place] for place in bits(mask))

    transitions = tuple(
        NetTransition(*net.transitions[step][:2], *(renumbered(mask) for mask in sketch.step_key(step)))
        for step in steps
    )
    names = tuple(net.places[place] for place in places)
    less = Net(names, transitions, places[net.source], places[net.sink])
    implies = {steps[step]: rows for step, rows in sketch.implies.items() if step in steps}
    return Reduced(less, places, steps, tuple(sketch.does[step] for step in steps), implies)


def _fused_forwards(sketch: _Sketch, place: int) -> list[int]:
    # Fuse a place whose only taker needs nothing else, so that it can fire as soon as the place is marked.
    # If the taker leads to a single place, the two places become one; if the place has a single putter, the two steps.
    taker, bit = sketch.takers[place], 1 << place
    if not taker or taker & (taker - 1):
        return []
    step = taker.bit_length() - 1
    puts, putters = sketch.puts[step], sketch.putters[place]
    if sketch.takes[step] != bit or puts & (bit | sketch.apart) or sketch.clears[step] or not putters:
        return []
    after, clearers = bits(puts), sketch.clearers[place]
    if len(after) > 1 and putters & (putters - 1):  # x & (x − 1) is 0 if at most one bit of x is set
        return []
    for q in after:
        # Fused places must be cleared by the same steps, and no putter may put twice on one place.
        if sketch.clearers[q] != clearers or sketch.putters[q] & putters:
            return []
    for putter in bits(putters):
        # The bits of the place and of what follows differ, so ^= removes the one and adds the others.
        sketch.puts[putter] ^= bit | puts
        sketch.follow(putter, putter, step)
    for q in after:
        sketch.putters[q] ^= taker | putters
    sketch.changed_places.update(after)
    sketch.forget(place, step)
    return after + bits(sketch.takes[putters.bit_length() - 1])


def _fused_backwards(sketch: _Sketch, place: int) -> list[int]:
    # Fuse a place whose only putter just moves a token there, and whose takers need nothing else.
    # The token may as well wait where it was: the putter fires right before any of the takers.
    putter, bit = sketch.putters[place], 1 << place
    if not putter or putter & (putter - 1):
        return []
    step = putter.bit_length() - 1
    takes = sketch.takes[step]
    if sketch.puts[step] != bit or takes & (takes - 1) or takes & (bit | sketch.apart) or sketch.clears[step]:
        return []
    before, takers = takes.bit_length() - 1, sketch.takers[place]
    followers = bits(takers)
    if sketch.clearers[before] != sketch.clearers[place] or any(sketch.takes[t] != bit for t in followers):
        return []
    for follower in followers:
        sketch.takes[follower] = takes
        sketch.follow(follower, step, follower)
    sketch.takers[before] ^= putter | takers
    sketch.changed_places.add(before)
    sketch.forget(place, step)
    return [before, *(q for follower in followers for q in bits(sketch.puts[follower]))]


def _drop_twin_steps(sketch: _Sketch) -> list[int]:
    """Drop all but one of the steps that do the same, and steps that put every token back where it was."""
    touched: list[int] = []
    steps, sketch.changed_steps = sketch.changed_steps & sketch.steps, set()
    for step in steps:
        takes, puts, clears = key = sketch.step_key(step)
        if takes & sketch.apart:
            continue
        # A step that only puts back one token changes nothing, but is alive wherever that place is marked.
        if takes == puts and not clears and not takes & (takes - 1):
            others = bits(sketch.putters[takes.bit_length() - 1] & ~(1 << step))
        else:
            like = sketch.step_like.setdefault(key, step)
            others = [like] if like != step and like in sketch.steps and sketch.step_key(like) == key else []
            sketch.step_like[key] = like if others else step
        if others:
            rows = [sketch.does[step], *sketch.implies.pop(step, ())]
            for other in others:
                sketch.implies.setdefault(other, []).extend(rows)
            sketch.drop_step(step)
            touched += bits(takes | puts)
    return touched


def _drop_twin_places(sketch: _Sketch) -> list[int]:
    # Drop one of two places that are always marked together: the same steps fill them, and take from or clear them.
    # The kept place must be needed by every step that needs the dropped one.
    touched: list[int] = []
    places, sketch.changed_places = sketch.changed_places & sketch.places, set()
    for place in places - sketch.fixed:
        key = sketch.place_key(place)
        like = sketch.place_like.setdefault(key, place)
        if like == place or like not in sketch.places or sketch.place_key(like) != key:
            sketch.place_like[key] = place
            continue
        spare, kept = (like, place) if sketch.takers[like] & ~sketch.takers[place] == 0 else (place, like)
        if sketch.takers[spare] & ~sketch.takers[kept]:
            continue
        sketch.place_like[key] = kept
        sketch.drop_place(spare)
        for step in bits(key[0] | key[1]):
            touched += bits(sketch.takes[step] | sketch.puts[step])
    return touched
