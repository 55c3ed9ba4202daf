"""A workflow design as a tree of blocks. Every such tree is sound: a case can always end, and ends cleanly.

    Sequence((Activity("check"), Parallel((Activity("price"), Activity("stock"))), Activity("ship")))

Blocks are frozen values: an edit makes a new tree, and equal trees compare equal. The names of the classes are also the
tags in JSON files (`json_file`), so they cannot change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from groupwise.errors import ConfigError
from groupwise.workflows.modular_decomposition import Module, modules
from groupwise.workflows.partial_orders import Edges, among, find_ring

Scheduling: TypeAlias = Literal["fifo", "priority", "shortest", "due"]
SUM_TOLERANCE = 1e-9  # by which the probabilities of a choice may miss 1


class DesignError(ConfigError):
    code = "design"


def _insist(holds: bool, message: str) -> None:
    if not holds:
        raise DesignError(message)


@dataclass(frozen=True, slots=True)
class Retry:
    """Up to `most` retries after a failure: the first after `pause` seconds, each later pause `growth` times longer."""

    most: int = 0
    pause: float = 0.0
    growth: float = 2.0

    def __post_init__(self) -> None:
        _insist(self.most >= 0, f"retry.most is {self.most} but must be at least 0")
        _insist(self.pause >= 0, f"retry.pause is {self.pause} but must be at least 0")
        _insist(self.growth >= 1, f"retry.growth is {self.growth} but must be at least 1")


@dataclass(frozen=True, slots=True)
class Handling:
    """How a task is carried out.

    `pool` does it (None: the first pool that may); the queue of a pool is served in the order of `scheduling`. An
    attempt that takes longer than `timeout` seconds fails. The task starts `delay` seconds after it becomes ready, and
    should be done `due` seconds after the case started.
    """

    pool: str | None = None
    priority: int = 0
    scheduling: Scheduling = "fifo"
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    delay: float = 0.0
    due: float | None = None

    def __post_init__(self) -> None:
        _insist(self.timeout is None or self.timeout > 0, f"timeout is {self.timeout} but must be above 0")
        _insist(self.delay >= 0, f"delay is {self.delay} but must be at least 0")
        _insist(self.due is None or self.due > 0, f"due is {self.due} but must be above 0")
        known = ("fifo", "priority", "shortest", "due")
        _insist(self.scheduling in known, f"scheduling is {self.scheduling!r} but must be one of {', '.join(known)}")


PLAIN = Handling()


@dataclass(frozen=True, slots=True)
class Activity:
    """One task: an activity of the requirements and how it is handled."""

    name: str
    handling: Handling = PLAIN

    def __post_init__(self) -> None:
        _insist(bool(self.name.strip()), "an activity has no name")


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do: the empty branch of a choice, or a loop without extra work between two rounds."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The case is over, and counts as completed. It stands where nothing runs in parallel, and nothing follows it."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that happen one after the other."""

    parts: tuple[Block, ...]

    def __post_init__(self) -> None:
        _insist(len(self.parts) >= 2, f"a sequence has {len(self.parts)} parts but needs at least 2")


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parts that happen at the same time; the block ends with the last of them."""

    parts: tuple[Block, ...]

    def __post_init__(self) -> None:
        _insist(len(self.parts) >= 2, f"a parallel block has {len(self.parts)} parts but needs at least 2")


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of the parts happens, each with its probability, of the cases that come here.

    Choices of one `outcome` decide alike in a case: `answers` are the results that lead to each part. The result is
    found once for everything inside the innermost loop or instances around all of them. Without an outcome, a choice
    decides for itself.
    """

    parts: tuple[Block, ...]
    probabilities: tuple[float, ...]
    outcome: str = ""
    answers: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        _insist(len(self.parts) >= 2, f"a choice has {len(self.parts)} branches but needs at least 2")
        count = len(self.probabilities)
        _insist(count == len(self.parts), f"a choice has {len(self.parts)} branches and {count} probabilities")
        _insist(
            all(p > 0 for p in self.probabilities),
            f"the probabilities of a choice must be above 0, not {self.probabilities}",
        )
        total = sum(self.probabilities)
        _insist(abs(total - 1) <= SUM_TOLERANCE, f"the probabilities of a choice add up to {total}, not 1")
        given = [answer for some in self.answers for answer in some]
        wanted = len(self.parts) if self.outcome else 0
        _insist(
            len(self.answers) == wanted and all(self.answers) and len(set(given)) == len(given),
            f"a choice of the outcome {self.outcome!r} needs different answers for each of its {wanted} branches",
        )


@dataclass(frozen=True, slots=True)
class Loop:
    """The body; after it, with probability `again`, `redo` and the body once more, and so on."""

    body: Block
    again: float
    redo: Block = field(default_factory=Skip)

    def __post_init__(self) -> None:
        _insist(0 < self.again < 1, f"a loop repeats with probability {self.again}, which must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class PartialOrder:
    """All parts happen, each after those that `edges` (pairs of earlier and later part) put before it."""

    parts: tuple[Block, ...]
    edges: Edges

    def __post_init__(self) -> None:
        count = len(self.parts)
        _insist(count >= 2, f"a partial order has {count} parts but needs at least 2")
        wrong = [edge for edge in sorted(self.edges) if not all(0 <= end < count for end in edge)]
        _insist(not wrong, f"a partial order of {count} parts cannot have the edge {wrong[:1]}")
        ring = find_ring(count, self.edges)
        _insist(not ring, f"a partial order has a cycle: {' → '.join(map(str, ring))}")


@dataclass(frozen=True, slots=True)
class Cancellable:
    """The body, which is cancelled with probability `chance`; `handler` then takes its place."""

    body: Block
    chance: float
    handler: Block = field(default_factory=Skip)

    def __post_init__(self) -> None:
        _insist(0 < self.chance < 1, f"the chance of cancelling is {self.chance}, which must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class Instances:
    """`least` to `most` copies of the body at the same time; the block ends when `enough` of them have ended."""

    body: Block
    least: int
    most: int
    enough: int

    def __post_init__(self) -> None:
        _insist(
            1 <= self.enough <= self.least <= self.most,
            f"instances need 1 ≤ enough ≤ least ≤ most, not {self.enough}, {self.least}, {self.most}",
        )


Block: TypeAlias = (
    Activity | Skip | Finish | Sequence | Parallel | Choice | Loop | PartialOrder | Cancellable | Instances
)


@dataclass(frozen=True, slots=True)
class Design:
    """A workflow: its name, its tree, and the number of servers in each pool."""

    name: str
    root: Block
    servers: tuple[tuple[str, int], ...] = ()
    documentation: str = ""

    def __post_init__(self) -> None:
        for pool, count in self.servers:
            _insist(count >= 1, f"pool {pool!r} has {count} servers but needs at least 1")
        # `count` is quadratic, so it runs only if there is a duplicate.
        names = [activity.name for activity in activities(self.root)]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        _insist(not twice, f"activities that occur more than once: {', '.join(twice)}")
        _insist(bool(names), "the design has no activity")
        _check_ends(self.root)


def _check_ends(root: Block) -> None:
    """An end cancels nothing, so it may stand only where nothing else of the case is open; nothing follows it."""
    stack = [(root, False)]
    while stack:
        block, beside = stack.pop()
        if isinstance(block, Finish):
            _insist(not beside, "a case cannot end beside work that is in progress in parallel, or may be cancelled")
        elif isinstance(block, Sequence):
            follows = any(always_ends(part) for part in block.parts[:-1])
            _insist(not follows, "nothing can follow where every case is over")
        beside = beside or isinstance(block, Parallel | PartialOrder | Cancellable | Instances)
        stack += [(part, beside) for part in children(block)]


def always_ends(block: Block) -> bool:
    """Whether every case is over after the block."""
    match block:
        case Finish():
            return True
        case Sequence(parts):
            return always_ends(parts[-1])
        case Choice(parts):
            return all(always_ends(part) for part in parts)
        case Loop(body):
            return always_ends(body)
        case _:
            return False


def may_end(block: Block) -> bool:
    return any(isinstance(inner, Finish) for inner in walk(block))


def children(block: Block) -> tuple[Block, ...]:
    match block:
        case Sequence(parts) | Parallel(parts) | Choice(parts) | PartialOrder(parts):
            return parts
        case Loop(body, _, redo):
            return (body, redo)
        case Cancellable(body, _, handler):
            return (body, handler)
        case Instances(body):
            return (body,)
        case _:
            return ()


def with_children(block: Block, parts: tuple[Block, ...]) -> Block:
    """The same block with other children, as many as before."""
    match block:
        case Sequence() | Parallel() | Choice() | PartialOrder():
            return replace(block, parts=parts)
        case Loop():
            return replace(block, body=parts[0], redo=parts[1])
        case Cancellable():
            return replace(block, body=parts[0], handler=parts[1])
        case Instances():
            return replace(block, body=parts[0])
        case _:
            return block


def walk(block: Block) -> Iterator[Block]:
    """The block and everything inside it, outermost first."""
    stack = [block]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def activities(block: Block) -> Iterator[Activity]:
    return (inner for inner in walk(block) if isinstance(inner, Activity))


def rewritten(block: Block, change: Callable[[Block], Block]) -> Block:
    """The tree with `change` applied to every block, innermost first."""
    parts = tuple(rewritten(child, change) for child in children(block))
    return change(with_children(block, parts) if parts else block)


def tidied(block: Block) -> Block:
    """The same behaviour in its simplest form, so that equivalent designs become equal.

    Sequences in sequences, parallel blocks in parallel blocks and choices in choices are merged; a partial order
    becomes sequences and parallel blocks as far as possible. Branches are sorted by their activities, and blocks
    without any activity disappear.
    """
    return rewritten(block, _tidied)


def _tidied(block: Block) -> Block:
    match block:
        case Sequence(parts):
            flat = [inner for part in parts for inner in (part.parts if isinstance(part, Sequence) else (part,))]
            return _joined(_parted(_asked_once([part for part in flat if not isinstance(part, Skip)])), Sequence)
        case Parallel(parts):
            flat = [inner for part in parts for inner in (part.parts if isinstance(part, Parallel) else (part,))]
            return _joined(sorted((part for part in flat if not isinstance(part, Skip)), key=_first_name), Parallel)
        case Choice(outcome=outcome):
            return _set_off(_one_outcome(block) if outcome else _one_choice(block.parts, block.probabilities))
        case PartialOrder(parts, edges):
            return simplest_order(parts, edges)
        case Loop(Skip(), _, Skip()) | Cancellable(Skip(), _, Skip()) | Instances(Skip()):
            return Skip()
        case Instances(body, most=1):
            return body
        case _:
            return block


def asked_again(root: Block) -> Block:
    """The tree without outcomes that only one choice asks for: that decides for itself."""
    asked = Counter(one.outcome for one in walk(root) if isinstance(one, Choice))

    def alone(block: Block) -> Block:
        if isinstance(block, Choice) and block.outcome and asked[block.outcome] == 1:
            return Choice(block.parts, block.probabilities)
        return block

    return rewritten(root, alone)


def _joined(parts: list[Block], kind: type[Sequence] | type[Parallel]) -> Block:
    if not parts:
        return Skip()
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


# The key by which branches are sorted; activities are unique, so the order is.
def _first_name(block: Block) -> str:
    return min((activity.name for activity in activities(block)), default="")


def _one_choice(parts: tuple[Block, ...], probabilities: tuple[float, ...]) -> Block:
    # Branches with their probability, inner choices multiplied out.
    flat: list[tuple[Block, float]] = []
    for part, share in zip(parts, probabilities, strict=True):
        plain = isinstance(part, Choice) and not part.outcome
        inner = zip(part.parts, part.probabilities, strict=True) if plain else [(part, 1.0)]  # type: ignore[union-attr]
        flat += [(block, share * probability) for block, probability in inner]
    # All empty branches become one, with their probabilities added up; so do those that only end the case.
    for empty in (Skip(), Finish()):
        share = sum(share for block, share in flat if block == empty)
        flat = [branch for branch in flat if branch[0] != empty] + ([(empty, share)] if share else [])
    if len(flat) == 1:
        return flat[0][0]
    flat.sort(key=lambda branch: (_first_name(branch[0]), isinstance(branch[0], Finish)))
    return Choice(tuple(block for block, _ in flat), tuple(share for _, share in flat))


def _one_outcome(block: Choice) -> Block:
    """The same for a choice of an outcome: its empty branches become one, with all of their answers."""
    ways: list[tuple[Block, float, tuple[str, ...]]] = []
    for part, share, some in zip(block.parts, block.probabilities, block.answers, strict=True):
        if isinstance(part, Choice) and part.outcome == block.outcome:
            inner = zip(part.parts, part.probabilities, part.answers, strict=True)
            ways += [(one, share * chance, answers) for one, chance, answers in inner]
        else:
            ways.append((part, share, some))
    empty = [way for way in ways if isinstance(way[0], Skip)]
    ways = [way for way in ways if not isinstance(way[0], Skip)]
    if empty:
        answers = tuple(sorted(answer for _, _, some in empty for answer in some))
        ways.append((Skip(), sum(share for _, share, _ in empty), answers))
    if len(ways) == 1:
        return ways[0][0]
    ways.sort(key=lambda way: sorted(way[2]))
    parts, shares, answers_ = zip(*ways, strict=True)
    return replace(block, parts=parts, probabilities=shares, answers=answers_)


def _set_off(block: Block) -> Block:
    """A choice of which one part goes on, with that part behind it: for whoever comes there, nothing was chosen."""
    place = _only_way_on(block)
    if not isinstance(block, Choice) or place is None or isinstance(block.parts[place], Skip):
        return block
    rest = block.parts[place]
    asked = replace(block, parts=(*block.parts[:place], Skip(), *block.parts[place + 1 :]))
    return _tidied(Sequence((_tidied(asked), rest)))


def _only_way_on(block: Block) -> int | None:
    """The part of a choice that goes on, if all others end the case."""
    if not isinstance(block, Choice):
        return None
    going = [number for number, part in enumerate(block.parts) if not always_ends(part)]
    return going[0] if len(going) == 1 else None


def _asked_once(parts: list[Block]) -> list[Block]:
    """Parts of a sequence; choices in a row become one if they ask the same, or the first ends all other cases."""
    found: list[Block] = []
    for part in parts:
        last = found[-1] if found else None
        place = _only_way_on(last) if last is not None else None
        if isinstance(last, Choice) and isinstance(part, Choice) and (pairs := _same_answers(last, part)):
            rest = [Skip() if other is None else part.parts[other] for other in pairs]
            both = tuple(_tidied(Sequence(two)) for two in zip(last.parts, rest, strict=True))
            found[-1] = _one_outcome(replace(last, parts=both))
        elif not isinstance(last, Choice) or not isinstance(part, Choice) or place is None:
            found.append(part)
        elif _same_question(last, place, part):
            found[-1] = _merged(last, place, part)
        else:
            found.append(part)
    return found


def _parted(parts: list[Block]) -> list[Block]:
    """Parts of a sequence; where all cases end, what follows a choice that ends some is one of its branches."""
    if not parts or not always_ends(parts[-1]):
        return parts
    for number, part in enumerate(parts[:-1]):
        if isinstance(part, Choice) and any(map(always_ends, part.parts)):
            return [*parts[:number], _with_rest(part, parts[number + 1 :])]
    return parts


def _with_rest(block: Choice, rest: list[Block]) -> Block:
    """A choice that ends some cases; all of its other parts, and the rest behind them, are one part."""
    over = [number for number, part in enumerate(block.parts) if always_ends(part)]
    going = [number for number in range(len(block.parts)) if number not in over]
    share = sum(block.probabilities[number] for number in going)
    first = block.parts[going[0]]
    if len(going) > 1:
        first = replace(
            block,
            parts=tuple(block.parts[number] for number in going),
            probabilities=tuple(block.probabilities[number] / share for number in going),
            answers=tuple(block.answers[number] for number in going) if block.outcome else (),
        )
    return _tidied(
        replace(
            block,
            parts=(*(block.parts[number] for number in over), _tidied(Sequence((_tidied(first), *rest)))),
            probabilities=(*(block.probabilities[number] for number in over), share),
            answers=(
                *(block.answers[number] for number in over),
                tuple(sorted(answer for number in going for answer in block.answers[number])),
            )
            if block.outcome
            else (),
        )
    )


def _same_answers(one: Choice, other: Choice) -> list[int | None] | None:
    """For each part of a choice, the part of the next choice that the same results lead to (None: the case is over).

    None if they do not ask for the same outcome, or a part of the next one would be there twice.
    """
    if not one.outcome or one.outcome != other.outcome:
        return None
    found: list[int | None] = []
    for part, answers in zip(one.parts, one.answers, strict=True):
        same = [number for number, some in enumerate(other.answers) if set(answers) <= set(some)]
        if not same and not always_ends(part):
            return None
        found.append(same[0] if same and not always_ends(part) else None)
    twice = [n for n in found if n is not None and not isinstance(other.parts[n], Skip) and found.count(n) > 1]
    return None if twice or all(number is None for number in found) else found


def _same_question(one: Choice, place: int, other: Choice) -> bool:
    if not isinstance(one.parts[place], Skip):
        return False
    if not one.outcome and not other.outcome:
        return True
    answers = {answer for some in other.answers for answer in some}
    return one.outcome == other.outcome and answers == set(one.answers[place])


def _merged(one: Choice, place: int, other: Choice) -> Block:
    if not one.outcome:
        return _one_choice((*one.parts[:place], other, *one.parts[place + 1 :]), one.probabilities)
    share = one.probabilities[place]
    return _one_outcome(
        replace(
            one,
            parts=(*one.parts[:place], *other.parts, *one.parts[place + 1 :]),
            probabilities=(
                *one.probabilities[:place],
                *(share * p for p in other.probabilities),
                *one.probabilities[place + 1 :],
            ),
            answers=(*one.answers[:place], *other.answers, *one.answers[place + 1 :]),
        )
    )


def simplest_order(parts: tuple[Block, ...], edges: Edges) -> Block:
    """Parts in a partial order, as sequences and parallel blocks as far as possible; empty parts disappear."""
    kept = [number for number, part in enumerate(parts) if not isinstance(part, Skip)]
    if not kept:
        return Skip()
    if len(kept) < len(parts):
        # Leaving a part out must not lose the order between its neighbours.
        edges = among(kept, len(parts), edges)
    return _block_of(modules(len(kept), edges), [parts[number] for number in kept])


def _block_of(module: Module | int, leaves: list[Block]) -> Block:
    if isinstance(module, int):
        return leaves[module]
    parts = tuple(_block_of(part, leaves) for part in module.parts)
    if module.kind == "series":
        return _tidied(Sequence(parts))
    if module.kind == "parallel":
        return _tidied(Parallel(parts))
    order = sorted(range(len(parts)), key=lambda part: _first_name(parts[part]))
    number = {part: new for new, part in enumerate(order)}
    edges = frozenset((number[a], number[b]) for a, b in module.edges)
    return PartialOrder(tuple(parts[part] for part in order), edges)
