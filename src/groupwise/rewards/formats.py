"""The form of an answer: a pattern, tags, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from groupwise.errors import ConfigError
from groupwise.rewards.components import Component
from groupwise.rewards.speech import Reply

FENCE = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
LONGEST = 1_000_000


class FormatReward(Component):
    """The share of demands that a reply meets, each counting the same.

    `pattern`: a regular expression that must match somewhere in it. `tags`: each `<tag>…</tag>` must be there exactly
    once, opened before it is closed, in the order given. `json_keys`: the reply must be a JSON object (a fence of ```
    around it is fine), and have each of the keys; with no keys, any JSON will do.
    """

    label = "format"

    def __init__(
        self,
        weight: float = 1.0,
        pattern: str | None = None,
        tags: Iterable[str] | None = None,
        json_keys: Iterable[str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name)
        if pattern is None and tags is None and json_keys is None:
            raise ConfigError("format: nothing is demanded", hint="Give pattern, tags or json_keys.")
        self.pattern = None if pattern is None else _compiled(pattern)
        self.tags = _names(tags)
        self.json_keys = None if json_keys is None else _names(json_keys)

    def rate(self, reply: Reply) -> float:
        met = [] if self.pattern is None else [bool(self.pattern.search(reply.text))]
        met += self._tags_met(reply.text)
        met += self._json_met(reply.text)
        return sum(met) / len(met)

    def _tags_met(self, text: str) -> list[bool]:
        """Whether each pair of tags is there once, behind the pair before it."""
        met, behind = [], 0
        for tag in self.tags:
            opened, closed = f"<{tag}>", f"</{tag}>"
            start, end = text.find(opened, behind), text.find(closed, behind)
            once = text.count(opened) == text.count(closed) == 1
            met.append(once and 0 <= start < end)
            behind = end if met[-1] else behind
        return met

    def _json_met(self, text: str) -> list[bool]:
        if self.json_keys is None:
            return []
        value = _json(text)
        if not self.json_keys:
            return [value is not _NOTHING]
        return [isinstance(value, dict) and key in value for key in self.json_keys]


_NOTHING = object()


def _json(text: str) -> Any:
    fenced = FENCE.match(text)
    try:
        return json.loads((fenced.group(1) if fenced else text)[:LONGEST])
    except (ValueError, RecursionError):
        return _NOTHING


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"format: pattern = {pattern!r} is no regular expression: {error}") from error


def _names(given: Iterable[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
