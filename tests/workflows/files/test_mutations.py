"""Files that someone damaged are read or refused in one sentence; nothing else happens."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Cancellable, Choice, Design, Handling, Instances, Loop, Sequence
from groupwise.workflows.document import document_of
from groupwise.workflows.files import bpmn, pnml, yawl
from groupwise.workflows.files.formats import Format
from tests.workflows.files.test_bpmn import CLAIM
from tests.workflows.files.test_pnml import NET

EVERYTHING = Design(
    "everything",
    Sequence(
        (
            Choice((Activity("a", Handling("clerk", timeout=3.0)), Activity("b b")), (0.25, 0.75)),
            Cancellable(Sequence((Activity("c"), Loop(Activity("d"), 0.5))), 0.1, Activity("e")),
            Instances(Sequence((Activity("f"), Activity("g"))), 2, 3, 1),
        )
    ),
    (("clerk", 2),),
)
FILES: list[tuple[Format, bytes]] = [
    (yawl.FORMAT, yawl.write(document_of(EVERYTHING))),
    (bpmn.FORMAT, bpmn.write(document_of(EVERYTHING))),
    (bpmn.FORMAT, CLAIM.encode()),
    (pnml.FORMAT, NET.encode()),
]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The file with up to three elements removed, doubled, renamed or changed."""
    from lxml import etree

    root = etree.fromstring(content)
    elements: list[Any] = [e for e in root.iter() if isinstance(e.tag, str)]
    for _ in range(rng.randint(1, 3)):
        one, other = rng.choice(elements), rng.choice(elements)
        parent, kind = one.getparent(), rng.randrange(6)
        if kind == 0 and parent is not None:
            parent.remove(one)
        elif kind == 1 and parent is not None:
            parent.append(copy.deepcopy(one))
        elif kind == 2:
            one.tag = other.tag
        elif kind == 3:
            one.text = rng.choice(["", "x", "-5", '{"ids": 3}', "{", "9" * 30])
        elif one.attrib:
            name = rng.choice(sorted(one.attrib))
            one.set(name, other.get(name, rng.choice(["", "x", "-1", "é €"])))
    return etree.tostring(root)


@pytest.mark.parametrize("number", range(len(FILES)))
@pytest.mark.parametrize("seed", range(3))
def test_damage_is_survived(number: int, seed: int) -> None:
    format_, content = FILES[number]
    assert format_.read is not None
    assert format_.write is not None
    rng = random.Random(seed)
    refused = []
    for _ in range(25):
        try:
            document = format_.read(damaged(content, rng))
        except ConfigError as error:
            refused.append(error.message)
            continue
        try:
            written = format_.write(document)
        except ConfigError:
            continue
        format_.read(written)
    assert refused
    assert not any("\n" in message for message in refused)
