"""The answer in what a model said: the number, list or word of the kind that is wanted; or the program."""

from __future__ import annotations

import re

from groupwise.workflows.code.values import Value

INTEGER = re.compile(r"(?<![\w.])-?\d[\d,]{0,20}(?![\w]|\.\d)")
LEAD = re.compile(r"(?:final answer|answer)\s*(?:is|:|=)\s*", re.IGNORECASE)
FENCE = re.compile(r"```(?:python)?[ \t]*\n(.*?)```", re.DOTALL)
LONGEST = 20_000


def answer_in(said: Value, wanted: Value) -> Value:
    """What a workflow's text says, as a value of the kind of the wanted one; other values as they are.

    Of several numbers the last counts: models reason first.
    """
    if not isinstance(said, str) or isinstance(wanted, bool):
        return said
    text = final(said[-LONGEST:])
    if isinstance(wanted, int):
        found = [match.replace(",", "") for match in INTEGER.findall(text)]
        return int(found[-1]) if found else said
    if isinstance(wanted, list):
        parts = [part.strip(" '\"") for part in re.split(r"[,\s]+", text.strip().strip("[].")) if part]
        return [int(part) for part in parts] if all(re.fullmatch(r"-?\d{1,15}", part) for part in parts) else parts
    return text.strip().strip(".'\"")


def code_in(said: str) -> str:
    """The program in an answer: what stands between the last fences, or all of it."""
    found = FENCE.findall(said[-LONGEST:])
    return str(found[-1] if found else said).strip("\n")


def final(text: str) -> str:
    """The part behind the last "Answer:", or all of it."""
    return LEAD.split(text)[-1]
