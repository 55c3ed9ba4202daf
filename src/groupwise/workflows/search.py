"""Every marking that a net can reach, one by one over bit masks, and what is wrong with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupwise.workflows.net import Net, Transition
from groupwise.workflows.orders import bits

Verdict: TypeAlias = Literal["sound", "unsound", "unknown"]
FIRINGS_PER_MARKING = 20


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


def search(
    net: Net, bound: int, may: Callable[[int, int], bool] | None = None, spare: Container[int] | None = None
) -> Soundness:
    """Every marking that can be reached; an unsafe or improper one is reported with the steps that lead to it.

    `may(step, marking)` can forbid steps. A step that can never happen is no fault if another of its name can and it is
    among the `spare` ones, which are all if nothing is said. `bound` markings are looked at, and twenty times as many
    steps between them.
    """
    steps = _by_place(net)
    came_from: dict[int, tuple[int, int]] = {net.start: (-1, -1)}
    leads: dict[int, list[int]] = {}
    queue = deque([net.start])
    fired = firings = 0
    while queue:
        here = queue.popleft()
        leads[here] = followers = []
        for place in bits(here):
            for number, step in steps[place]:
                if step.takes & here != step.takes or (may is not None and not may(number, here)):
                    continue
                fired |= 1 << number
                rest = here & ~step.takes & ~step.clears
                if rest & step.puts:
                    names = (*_trace(net, came_from, here), step.name)
                    words = f"{net.marking(rest & step.puts)[0]!r} can hold two tokens at once"
                    return unsound("unsafe", words, names, len(came_from))
                after = rest | step.puts
                followers.append(after)
                if after in came_from:
                    continue
                came_from[after] = (here, number)
                if after & net.goal and after != net.goal:
                    left = ", ".join(net.marking(after & ~net.goal))
                    words = f"it can end while there is still work at {left}"
                    return unsound("improper completion", words, _trace(net, came_from, after), len(came_from))
                queue.append(after)
        firings += len(followers)
        if len(came_from) > bound or firings > bound * FIRINGS_PER_MARKING:
            words = f"it has more than {bound:,} markings, and was not searched further"
            return Soundness("unknown", "too large", words, markings=len(came_from))
    return _completion(net, came_from, leads) or _dead(net, fired, len(came_from), spare) or Soundness(
        "sound", markings=len(came_from)
    )  # fmt: skip


def _by_place(net: Net) -> list[list[tuple[int, Transition]]]:
    """The steps by the lowest place they take from, so that few are looked at in a marking."""
    steps: list[list[tuple[int, Transition]]] = [[] for _ in net.places]
    for number, step in enumerate(net.transitions):
        steps[(step.takes & -step.takes).bit_length() - 1].append((number, step))
    return steps


def _completion(net: Net, came_from: dict[int, tuple[int, int]], leads: dict[int, list[int]]) -> Soundness | None:
    """From every marking there must be a way to the end."""
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
    lost = [marking for marking in came_from if marking not in able]
    if not lost:
        return None
    stuck = next((marking for marking in lost if not leads[marking]), lost[-1])
    words = "nothing can happen any more" if not leads[stuck] else "it goes on for ever"
    places = ", ".join(net.marking(stuck))
    return unsound(
        "no way to complete", f"with tokens at {places}, {words}", _trace(net, came_from, stuck), len(came_from)
    )


def _dead(net: Net, fired: int, markings: int, spare: Container[int] | None) -> Soundness | None:
    if fired.bit_count() == len(net.transitions):
        return None
    alive = {step.name for number, step in enumerate(net.transitions) if fired >> number & 1}
    never = [(number, step.name) for number, step in enumerate(net.transitions) if not fired >> number & 1]
    counted = [name for number, name in never if name not in alive or (spare is not None and number not in spare)]
    dead = list(dict.fromkeys(counted))
    if not dead:
        return None
    return unsound("dead task", f"{', '.join(map(repr, dead[:5]))} can never happen", (), markings)


def _trace(net: Net, came_from: dict[int, tuple[int, int]], marking: int) -> tuple[str, ...]:
    steps: list[str] = []
    while came_from[marking][1] >= 0:
        marking, number = came_from[marking]
        steps.append(net.transitions[number].name)
    return tuple(reversed(steps))


def unsound(rule: str, explanation: str, trace: tuple[str, ...] = (), markings: int = 0) -> Soundness:
    return Soundness("unsound", rule, explanation, trace, markings)
