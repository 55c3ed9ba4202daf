"""Every marking that a net can reach, one by one over bit masks, and what is wrong with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupwise.workflows.net import Net, Transition
from groupwise.workflows.orders import bits

FIRINGS_PER_MARKING = 20


Verdict: TypeAlias = Literal["sound", "unsound", "unknown"]


@dataclass(frozen=True, slots=True)
class Soundness:
    """The verdict, the rule that is broken or the reason for not knowing, and the steps that show it.

    `rule` is one of "structure", "unsafe", "no way to complete", "improper completion", "dead task", "endless calls",
    "too large"; it is empty for what is sound.
    """

    verdict: Verdict
    rule: str = ""
    explanation: str = ""
    trace: tuple[str, ...] = ()
    markings: int = 0

    @property
    def sound(self) -> bool:
        return self.verdict == "sound"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a search has found: the rule that is broken, by which steps, and which steps can happen at all (a mask).

    `rule` is empty where none is broken, unless steps that never happened are a fault.
    """

    rule: str
    explanation: str
    steps: tuple[int, ...]
    happened: int
    markings: int


def search(net: Net, bound: int, may: Callable[[int, int], bool] | None = None) -> Finding:
    """Every marking that can be reached, up to the first that is unsafe or improper.

    `may(step, marking)` can forbid steps. `bound` markings are looked at, and twenty times as many steps between them.
    """
    by_place = _by_place(net)
    came_from: dict[int, tuple[int, int]] = {net.start: (-1, -1)}
    leads: dict[int, list[int]] = {}
    queue = deque([net.start])
    fired = firings = 0

    def found(rule: str, explanation: str, marking: int = net.start, *more: int) -> Finding:
        return Finding(rule, explanation, (*_way(came_from, marking), *more), fired, len(came_from))

    while queue:
        here = queue.popleft()
        leads[here] = followers = []
        for place in bits(here):
            for number, step in by_place[place]:
                if step.takes & here != step.takes or (may is not None and not may(number, here)):
                    continue
                fired |= 1 << number
                rest = here & ~step.takes & ~step.clears
                if rest & step.puts:
                    words = f"{net.marking(rest & step.puts)[0]!r} can hold two tokens at once"
                    return found("unsafe", words, here, number)
                after = rest | step.puts
                followers.append(after)
                if after in came_from:
                    continue
                came_from[after] = (here, number)
                if after & net.goal and after != net.goal:
                    left = ", ".join(net.marking(after & ~net.goal))
                    return found("improper completion", f"it can end while there is still work at {left}", after)
                queue.append(after)
        firings += len(followers)
        if len(came_from) > bound or firings > bound * FIRINGS_PER_MARKING:
            return found("too large", f"it has more than {bound:,} markings, and was not searched further")
    lost = _lost(net, leads)
    if lost is None:
        return found("", "")
    words = "it goes on for ever" if leads[lost] else "nothing can happen any more"
    return found("no way to complete", f"with tokens at {', '.join(net.marking(lost))}, {words}", lost)


def _by_place(net: Net) -> list[list[tuple[int, Transition]]]:
    """The steps by the lowest place they take from, so that few are looked at in a marking."""
    steps: list[list[tuple[int, Transition]]] = [[] for _ in net.places]
    for number, step in enumerate(net.transitions):
        steps[(step.takes & -step.takes).bit_length() - 1].append((number, step))
    return steps


def _lost(net: Net, leads: dict[int, list[int]]) -> int | None:
    """A marking without a way to the end, one where nothing happens any more if there is such; None if all have one."""
    before: dict[int, list[int]] = {}
    for here, followers in leads.items():
        for after in followers:
            before.setdefault(after, []).append(here)
    able, stack = {net.goal}, [net.goal]
    while stack:
        for earlier in before.get(stack.pop(), ()):
            if earlier not in able:
                able.add(earlier)
                stack.append(earlier)
    lost = [marking for marking in leads if marking not in able]
    return next((marking for marking in lost if not leads[marking]), lost[-1] if lost else None)


def _way(came_from: dict[int, tuple[int, int]], marking: int) -> list[int]:
    """The steps that lead to a marking."""
    steps: list[int] = []
    while came_from[marking][1] >= 0:
        marking, number = came_from[marking]
        steps.append(number)
    return steps[::-1]
