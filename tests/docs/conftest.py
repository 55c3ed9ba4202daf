"""Examples in documents change nothing for the tests after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupwise.agents.conversation.call_formats import FORMATS


@pytest.fixture(autouse=True)
def registered_formats_are_forgotten() -> Iterator[None]:
    before = FORMATS[:]
    yield
    FORMATS[:] = before
