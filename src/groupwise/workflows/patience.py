"""When an or-join may go on: it takes all there is, once nothing more can come.

Wynn, Edmond, van der Aalst and ter Hofstede, "Achieving a general, formal and decidable approach to the OR-join in
workflow using reset nets" (2005): an or-join waits in a marking as long as another can be reached, without the join
itself, that keeps the tokens at its inputs and has one at an input that is empty now. The other or-joins are taken for
xor-joins when looking ahead.
"""

from __future__ import annotations

from collections import Counter, deque

from groupwise.workflows.graph_net import OrJoin
from groupwise.workflows.net import Net, Transition
from groupwise.workflows.orders import bits

LOOK_AHEAD = 5_000
ALTOGETHER = 100_000


class TooFarAhead(Exception):
    """What can still reach an or-join is more than is looked at; the message names its task."""


class Patience:
    """Tells which steps of or-joins may be taken. What it looks at is bounded, for one question and for all together."""

    def __init__(self, net: Net, joins: tuple[OrJoin, ...]) -> None:
        self.net = net
        self.of_step = {number: join for join in joins for number in join.transitions}
        self.others = {
            join.task: [step for number, step in enumerate(net.transitions) if number not in join.transitions]
            for join in joins
        }
        self.known: dict[tuple[str, int], bool] = {}
        self.seen = 0

    def __call__(self, number: int, marking: int) -> bool:
        join = self.of_step.get(number)
        if join is None:
            return True
        if self.net.transitions[number].takes != marking & join.places:
            return False
        key = (join.task, marking)
        if key not in self.known:
            self.known[key] = not self._more_can_come(join, marking)
        return self.known[key]

    def _more_can_come(self, join: OrJoin, marking: int) -> bool:
        """Markings as masks, where a second token on a place is lost. If any was and nothing was found, count them."""
        steps, here = self.others[join.task], marking & join.places
        empty = join.places & ~here
        seen, queue, lost = {marking}, deque([marking]), False
        while queue:
            before = queue.popleft()
            for step in steps:
                if step.takes & before != step.takes:
                    continue
                rest = before & ~step.takes & ~step.clears
                lost = lost or bool(rest & step.puts)
                after = rest | step.puts
                if after & here == here and after & empty:
                    return True
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
                    self._count(join, len(seen))
        return lost and self._more_can_come_counted(join, steps, marking, here, empty)

    def _more_can_come_counted(
        self, join: OrJoin, steps: list[Transition], marking: int, here: int, empty: int
    ) -> bool:
        """The same with markings as bags, in which places may hold any number of tokens."""
        start = tuple(bits(marking))
        seen, queue = {start}, deque([start])
        while queue:
            before = Counter(queue.popleft())
            for step in steps:
                if not all(before[place] for place in bits(step.takes)):
                    continue
                bag = before - Counter(bits(step.takes))
                for place in bits(step.clears):
                    bag.pop(place, None)
                bag.update(bits(step.puts))
                if all(bag[place] for place in bits(here)) and any(bag[place] for place in bits(empty)):
                    return True
                after = tuple(sorted(bag.elements()))
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
                    self._count(join, len(seen))
        return False

    def _count(self, join: OrJoin, seen: int) -> None:
        self.seen += 1
        if seen > LOOK_AHEAD or self.seen > ALTOGETHER:
            raise TooFarAhead(repr(join.task))
