"""A conversation that was written and not sampled, as tokens to imitate: only the model's own turns are learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.agents.environment import Observation
from groupwise.agents.frame import Frame
from groupwise.errors import ConfigError, ContractError
from groupwise.types import Array, Message


def demonstration_row(frame: Frame, observation: Observation, said: Sequence[Message]) -> tuple[Array, Array]:
    """The tokens of a whole conversation, and which of them are the model's.

    `said` is what follows the opening, from the model's first turn to its last.
    """
    if not said or any(said[place]["role"] != "assistant" for place in (0, -1)):
        roles = ", ".join(str(message["role"]) for message in said) or "nothing"
        raise ContractError(f"a demonstration begins and ends with a turn of the assistant; this one is {roles}")
    ids = frame.opening(observation.messages, observation.tools)
    own = [False] * len(ids)
    heard: list[Message] = []
    for message in said:
        if message["role"] != "assistant":
            heard.append(message)
            continue
        if any(own):
            _extend(ids, own, frame.following(heard, ended=True), False)
        heard = []
        _extend(ids, own, frame.own_turn(message), True)
    return np.array(ids), np.array(own)


def _extend(ids: list[int], own: list[bool], new: Sequence[int], spoken: bool) -> None:
    ids += new
    own += [spoken] * len(new)


def demonstration_of(scenarios: Any, scenario: Any) -> Sequence[Message]:
    """The scenario's demonstration, or a refusal that says there is none."""
    if not hasattr(scenarios, "demonstration"):
        raise ConfigError(
            f"{scenarios.name!r} has no demonstrations to imitate",
            hint="Give its scenarios a method demonstration(scenario) that returns messages, or train without.",
            field="task.environment",
        )
    messages: Sequence[Message] = scenarios.demonstration(scenario)
    return messages
