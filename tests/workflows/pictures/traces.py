"""A small workflow with everything in it, and a trace of it as a simulation leaves one."""

from __future__ import annotations

from xml.etree import ElementTree

from groupwise.workflows.blocks import Activity, Choice, Design, Handling, Loop, Parallel, Retry, Sequence
from groupwise.workflows.evaluation.performance import SimulatedTry as Try


def tree_of(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)  # noqa: S314 - we wrote it


def task(name: str, **handling: object) -> Activity:
    return Activity(name, Handling(**handling))  # type: ignore[arg-type]


CLAIM = Design(
    "claim",
    Sequence(
        (
            task("register", pool="clerk"),
            Parallel((task("assess", pool="expert", timeout=3600), task("ask police", retry=Retry(2, 10)))),
            Loop(task("decide", pool="boss"), 0.2, task("ask again", pool="clerk")),
            Choice((task("pay"), task("reject & say <why>")), (0.8, 0.2)),
        )
    ),
    (("clerk", 2), ("expert", 1), ("boss", 1)),
)

TRACE = (
    Try(0, "register", 0, 0, 10, "clerk", 0),
    Try(1, "register", 5, 5, 15, "clerk", 1),
    Try(0, "assess", 10, 10, 40, "expert", 0),
    Try(0, "ask police", 10, 10, 20, outcome="failed"),
    Try(0, "ask police", 30, 30, 36),
    Try(1, "assess", 15, 40, 60, "expert", 0),
    Try(1, "ask police", 15, 15, 25),
    Try(0, "decide", 40, 40, 50, "boss", 0),
    Try(0, "ask again", 50, 50, 55, "clerk", 0),
    Try(0, "decide", 55, 55, 65, "boss", 0),
    Try(1, "decide", 60, 65, 75, "boss", 0),
    Try(0, "pay", 65, 65, 70),
    Try(1, "reject & say <why>", 75, 75, 80),
)
