"""Working memory keeps the last of what happened, in order."""

from __future__ import annotations

from groupwise.memory import Store, WorkingMemory


def test_the_oldest_note_goes_when_a_new_one_needs_its_place() -> None:
    working = WorkingMemory(Store(), size=3)
    for number in range(5):
        working.note({"step": number})
    assert [note["step"] for note in working.recent()] == [2, 3, 4]
    assert [note["step"] for note in working.recent(2)] == [3, 4]
    assert working.recent(0) == ()
    assert len(working) == 3


def test_a_note_is_a_copy() -> None:
    working = WorkingMemory(Store())
    said = {"step": 1}
    working.note(said)
    said["step"] = 2
    working.recent()[0]["step"] = 3  # type: ignore[index]
    assert working.recent() == ({"step": 1},)
