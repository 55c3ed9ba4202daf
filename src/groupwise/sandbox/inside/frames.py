"""Messages between the processes of a sandbox: four bytes of length, then what they count."""

from __future__ import annotations

import os

JOBS, REPORTS = 60, 61
"""File descriptors of those who may speak with the outside."""
NEXT, LAST = b"N", b"L"
"""What comes before a job."""
GONE = -1.0
"""Seconds of a run after which there is no more keeper."""
FRAME = 8 << 20
HASHED = 100_000
"""Risky keys in one message: in here, time is the code's own or the tests'."""
MARK = 8
"""Bytes before a question, drawn anew for each and repeated before its answer: none can be given ahead."""
UNASKED = bytes(MARK)
"""Before what the code says first."""
WORDS = 400
"""Characters of a message for the reader."""


def read_frame(fd: int) -> bytes:
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if size > FRAME:
        raise EOFError(f"a message of {size} bytes")
    return read_exactly(fd, size)


def read_exactly(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def write_frame(fd: int, data: bytes) -> None:
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(fd, data) :]
