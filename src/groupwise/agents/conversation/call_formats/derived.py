"""A format that nobody named, worked out from one call that a chat template wrote.

The template is shown a call with a known name and known arguments. Where they stand in its text tells which marks are
around them. Whatever is worked out here is used only if it reads back every call the template writes.
"""

import json
from collections.abc import Iterator
from itertools import pairwise

from groupwise.agents.conversation.call_formats.json_calls import named, objects
from groupwise.agents.conversation.call_formats.parameter_calls import Tags, tagged_parameters
from groupwise.agents.conversation.call_formats.reading import CallFormat
from groupwise.agents.environments.contract import ToolCall

MARKS = "<["  # what a mark may begin with


def derived_formats(text: str, call: ToolCall) -> Iterator[CallFormat]:
    """Yield the formats that the text of a turn with this one call may be in; the likeliest first."""
    yield from _objects(text, call)
    yield from _named(text, call)
    yield from _parameters(text, call)


def _objects(text: str, call: ToolCall) -> Iterator[CallFormat]:
    """Marks around a JSON object, or a list of them, that holds name and arguments."""
    for place, value, end in _json_values(text):
        inner = value[0] if isinstance(value, list) and value else value
        if not isinstance(inner, dict) or call.name not in json.dumps(inner) or place > text.find(call.name):
            continue
        for opens in _openings(text[:place]):
            for closes in _closings(text[end:]):
                yield objects(_label(opens, closes), opens, closes)
                yield objects(_label(opens, closes), opens, closes, keyed=True)
        return


def _named(text: str, call: ToolCall) -> Iterator[CallFormat]:
    """A name, then its arguments as one JSON object."""
    start = text.find(call.name)
    for place, value, end in _json_values(text):
        if start < 0 or place < start or value != call.arguments:
            continue
        then = text[start + len(call.name) : place]
        for opens in _openings(text[:start]):
            for closes in _closings(text[end:]):
                if opens and then.strip():
                    yield named(_label(opens, closes), opens, then.strip(), closes)
        return


def _parameters(text: str, call: ToolCall) -> Iterator[CallFormat]:
    """A name, then each parameter between tags. The first two arguments show where a parameter begins and ends."""
    (first, one), (second, two), *_ = ((key, str(value)) for key, value in call.arguments.items())
    places, place = [], 0
    for part in (call.name, first, one, second, two):
        place = text.find(part, place)
        if place < 0:
            return
        places.append((place, place := place + len(part)))
    before = text[: places[0][0]]
    gaps = [text[a[1] : b[0]] for a, b in pairwise(places)]
    head, key_end, between, _ = gaps
    rest = text[places[-1][1] :]
    # A parameter begins with what stands before both keys, and ends with what stands behind both values.
    key = _last_tag(_beginning(head[::-1], between[::-1])[::-1])
    value_end = _beginning(between, rest)
    value_end = value_end[: value_end.rfind(">") + 1]
    ending = rest.rpartition(value_end)[2] if value_end else rest
    pad = "\n" if key_end.endswith("\n") and value_end.startswith("\n") else ""
    middle = key_end.strip()
    cut = middle.rfind("<")
    key_close, value = (middle[:cut].strip(), middle[cut:]) if cut > 0 else (middle, "")
    for opens in _openings(before):
        for end in _closings(ending):
            if opens and key and value_end and key_close and end:
                tags = Tags(opens, head[: -len(key)].strip(), key, key_close, value, value_end.strip(), end, pad)
                yield tagged_parameters(_label(opens, end), tags)


def _json_values(text: str) -> Iterator[tuple[int, object, int]]:
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        starts = [found for sign in "{[" if (found := text.find(sign, place)) >= 0]
        if not starts:
            return
        place = min(starts)
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        yield place, value, end
        place = end


def _openings(before: str) -> Iterator[str]:
    """Yield what may open a call: the mark nearest to it, then longer ones."""
    core = before.strip()
    for place in reversed([place for place, sign in enumerate(core) if sign in MARKS]):
        yield core[place:]
    yield core.rpartition("\n")[2]


def _closings(behind: str) -> Iterator[str]:
    """Yield what may close a call: the first mark behind it, all of it, or nothing."""
    core = behind.strip()
    for sign in (">", "]", "\n"):
        if sign in core:
            yield core[: core.index(sign) + 1].strip()
    yield core
    yield ""


def _beginning(one: str, other: str) -> str:
    """Return what two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _last_tag(text: str) -> str:
    return text[text.rfind("<") :] if "<" in text else text.lstrip()


def _label(opens: str, closes: str) -> str:
    return f"{opens} … {closes}".strip()
