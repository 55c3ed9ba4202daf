"""When an or-join may fire: it takes every token at its inputs, once no further token can arrive.

Wynn, Edmond, van der Aalst and ter Hofstede, "Achieving a general, formal and decidable approach to the OR-join in
workflow using reset nets" (2005): an or-join waits in a marking as long as another marking can be reached, without the
join itself firing, that keeps the tokens at its inputs and adds one at an input that is empty now. When looking ahead,
the other or-joins are treated as xor-joins.
"""

from collections import Counter, deque

from groupwise.workflows.partial_orders import bits
from groupwise.workflows.soundness.net import Net, NetTransition, OrJoin

WORK = 5_000_000


class TooFarAhead(Exception):
    """Looking ahead from an or-join exceeded `WORK`; the message names its task."""


class OrJoinWait:
    """Decides which transitions of or-joins may fire; gives up after looking at `WORK` steps."""

    def __init__(self, net: Net, joins: tuple[OrJoin, ...]) -> None:
        self.net = net
        self.of_step = {number: join for join in joins for number in join.transitions}
        self.ways: dict[str, tuple[int, list[NetTransition]]] = {}
        # The answer depends only on the marking of places from which the join can be reached.
        self.known: dict[tuple[str, int], bool] = {}
        self.work = 0

    def __call__(self, number: int, marking: int) -> bool:
        join = self.of_step.get(number)
        if join is None:
            return True
        # Of the 2^n − 1 steps of a join, only the one that takes all present tokens may fire.
        if self.net.transitions[number].takes != marking & join.places:
            return False
        if join.task not in self.ways:
            self.ways[join.task] = self._ways(join)
        places, steps = self.ways[join.task]
        key = (join.task, marking & places)
        if key not in self.known:
            self.known[key] = not self._more_can_come(join, steps, marking & places)
        return self.known[key]

    def _more_can_come(self, join: OrJoin, steps: list[NetTransition], marking: int) -> bool:
        """Whether a token can still arrive; masks lose second tokens, so the search may repeat with counted ones."""
        here = marking & join.places
        empty = join.places & ~here
        seen, queue, lost = {marking}, deque([marking]), False
        while queue:
            before = queue.popleft()
            self._count(join, len(steps))
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
        return lost and self._more_can_come_counted(join, steps, marking, here, empty)

    def _more_can_come_counted(
        self, join: OrJoin, steps: list[NetTransition], marking: int, here: int, empty: int
    ) -> bool:
        """The same with markings as bags, in which a place may have any number of tokens."""
        start = tuple(bits(marking))
        seen, queue = {start}, deque([start])
        while queue:
            before = Counter(queue.popleft())
            self._count(join, 10 * len(steps))
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
        return False

    def _ways(self, join: OrJoin) -> tuple[int, list[NetTransition]]:
        # The places from which a token can reach the join, and the steps on the way, restricted to those places.
        # All other steps only take tokens away from these places, so they bring nothing to the join.
        steps = [step for number, step in enumerate(self.net.transitions) if number not in join.transitions]
        places, before = join.places, 0
        while places != before:
            before = places
            self._count(join, len(steps))
            # Backwards, because steps mostly follow the order of the workflow: few rounds are needed.
            for step in reversed(steps):
                if step.puts & places:
                    places |= step.takes
        near = [step for step in steps if step.puts & places]
        return places, [step._replace(puts=step.puts & places, clears=step.clears & places) for step in near]

    def _count(self, join: OrJoin, steps: int) -> None:
        self.work += steps
        if self.work > WORK:
            raise TooFarAhead(repr(join.task))
