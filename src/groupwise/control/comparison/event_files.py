"""TensorBoard's event files, read without TensorBoard.

    record   = length (8 bytes, little endian), its checksum (4), data, the data's checksum (4)
    data     = Event:   1 wall time (double), 2 step (varint), 5 Summary
    Summary  = Value*:  1 tag (text), 2 simple value (float), 8 tensor
    tensor   = 1 type, 4 content (bytes), 5 floats, 6 doubles

Only scalars are read. A file that a run has not finished writing ends in a part of a record, which is left out.
"""

import struct
from collections.abc import Iterator

from groupwise.errors import ConfigError
from groupwise.readers import Clock, ReadLimits

# Tag → (step, value, wall time) in the order of the file.
Scalars = dict[str, list[tuple[int, float, float]]]
LONGEST = 1 << 28  # bytes of a record: images and histograms are large, but not larger than this
HEAD = struct.Struct("<QI")
DOUBLE, FLOAT = struct.Struct("<d"), struct.Struct("<f")
KINDS = {1: ("<f", 4), 2: ("<d", 8)}  # TensorFlow's DT_FLOAT and DT_DOUBLE


def read_scalars(content: bytes, limits: ReadLimits) -> Scalars:
    """All scalars of an event file."""
    clock, found = Clock(limits), Scalars()
    for record in _records(content):
        try:
            for tag, step, value, wall in _scalars_of(record):
                clock.tick()
                found.setdefault(tag, []).append((step, value, wall))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise ConfigError(f"not a TensorBoard event file: a record cannot be read ({error})") from None
        clock.tick()
    return found


def _records(content: bytes) -> Iterator[bytes]:
    place = 0
    while place + HEAD.size <= len(content):
        length, checksum = HEAD.unpack_from(content, place)
        if masked_crc(content[place : place + 8]) != checksum or length > LONGEST:
            raise ConfigError(f"not a TensorBoard event file: the record at byte {place} has a wrong checksum")
        place += HEAD.size
        if place + length > len(content):
            return
        yield content[place : place + length]
        place += length + 4
    if place == 0 and content:
        raise ConfigError("not a TensorBoard event file: it is shorter than a record")


def _scalars_of(record: bytes) -> Iterator[tuple[str, int, float, float]]:
    step, wall, summaries = 0, 0.0, []
    for number, value in _fields(record):
        if number == 1 and isinstance(value, bytes):
            wall = DOUBLE.unpack(value)[0]
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, one in _fields(summary):
            if number == 1 and isinstance(one, bytes):
                tag, scalar = _value(one)
                if tag and scalar is not None:
                    yield tag, step, scalar, wall


def _value(content: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(content):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode()
        elif number == 2 and len(value) == 4:
            scalar = FLOAT.unpack(value)[0]
        elif number == 8:
            scalar = _tensor(value)
    return tag, scalar


def _tensor(content: bytes) -> float | None:
    """The number in a tensor of one float or double."""
    kind = 0
    for number, value in _fields(content):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes) and kind in KINDS and len(value) == KINDS[kind][1]:
            return float(struct.unpack(KINDS[kind][0], value)[0])
    return None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: numbers as they are, everything else as bytes."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == 0:
            number, place = _varint(content, place)
            yield key >> 3, number
            continue
        if kind == 2:
            length, place = _varint(content, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise struct.error(f"field of kind {kind}")
        if place + length > len(content):
            raise struct.error("a field ends beyond its record")
        yield key >> 3, content[place : place + length]
        place += length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise struct.error("a number of more than 64 bits")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def masked_crc(content: bytes) -> int:
    """CRC-32C as record files have it: rotated, and moved by a constant."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
