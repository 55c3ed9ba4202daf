"""The net of a block design, made without its graph: a second opinion on what blocks mean."""

from __future__ import annotations

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
)
from groupwise.workflows.soundness.net import Net, NetBuilder, mask_of


def compile_net(root: Block) -> Net:
    """The workflow net of a design."""
    builder = NetBuilder()
    _add(builder, root, 0, 1)
    return builder.net()


def _add(net: NetBuilder, block: Block, start: int, end: int) -> None:
    """Put the block between two places. A block never takes a token back to `start`, so that places can be shared."""
    match block:
        case Activity(name):
            net.transition([start], [end], label=name)
        case Skip():
            net.transition([start], [end])
        case Sequence(parts):
            between = [start, *(net.place() for _ in parts[1:]), end]
            for part, before, after in zip(parts, between, between[1:], strict=False):
                _add(net, part, before, after)
        case Parallel(parts):
            _add_order(net, parts, frozenset(), start, end)
        case PartialOrder(parts, edges):
            _add_order(net, parts, edges, start, end)
        case Choice(parts):
            for part in parts:
                _add(net, part, start, end)
        case Loop(body, _, redo):
            _add_loop(net, body, redo, start, end)
        case Cancellable(body, _, handler):
            _add_cancellable(net, body, handler, start, end)
        case Instances(body):
            _add(net, body, start, end)


def _add_order(
    net: NetBuilder, parts: tuple[Block, ...], edges: frozenset[tuple[int, int]], start: int, end: int
) -> None:
    """A silent split, a place for every edge, and a silent join."""
    first = {part: net.place() for part in range(len(parts)) if not any(b == part for _, b in edges)}
    last = {part: net.place() for part in range(len(parts)) if not any(a == part for a, _ in edges)}
    arrows = {edge: net.place() for edge in sorted(edges)}
    net.transition([start], list(first.values()))
    for number, part in enumerate(parts):
        before = [first[number]] if number in first else [arrows[e] for e in arrows if e[1] == number]
        after = [last[number]] if number in last else [arrows[e] for e in arrows if e[0] == number]
        opening, closing = before[0], after[0]
        if len(before) > 1:
            opening = net.place()
            net.transition(before, [opening])
        if len(after) > 1:
            closing = net.place()
        _add(net, part, opening, closing)
        if len(after) > 1:
            net.transition([closing], after)
    net.transition(list(last.values()), [end])


def _add_loop(net: NetBuilder, body: Block, redo: Block, start: int, end: int) -> None:
    first, last = net.place(), net.place()
    net.transition([start], [first])
    _add(net, body, first, last)
    _add(net, redo, last, first)
    net.transition([last], [end])


def _add_cancellable(net: NetBuilder, body: Block, handler: Block, start: int, end: int) -> None:
    """While the guard has its token, the body may be broken off; all of its places are then cleared."""
    guard, first, last, broken = net.place("guard"), net.place(), net.place(), net.place("broken off")
    net.transition([start], [guard, first])
    before = len(net.places)
    _add(net, body, first, last)
    region = mask_of([first, last, *range(before, len(net.places))])
    net.transition([guard, last], [end])
    net.transition([guard], [broken], clears=region)
    _add(net, handler, broken, end)
