"""The contract of an environment, the other side of a conversation. It exchanges messages; authors never see tokens.

    observation = await environment.reset(task)
    while not over:
        reply = the model's turn
        transition = await environment.step(reply)

One object lives through one conversation. `conversation/rollouts.py` runs many at once in one continuous batch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from groupwise.agents.data.problems import Epochs
from groupwise.errors import ConfigError, ContractError, GroupwiseError
from groupwise.thoughts import REASONING
from groupwise.types import End, Failure, Message, Task
from groupwise.user_code import traceback_of


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to run; `id` is unique within the conversation."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """A malformed tool call and what is wrong with it, which the model is told."""

    text: str
    problem: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn of the model: what it said and the calls in it, apart from what it thought first.

    `cut` if it reached a token limit. A thought that is not finished is not an answer: `content` is then empty.
    """

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    broken: tuple[BrokenCall, ...] = ()
    cut: bool = False
    reasoning: str = ""

    @property
    def written(self) -> list[ToolCall | BrokenCall]:
        """All calls in the order they were written, which is the order of their ids."""
        both: list[ToolCall | BrokenCall] = [*self.tool_calls, *self.broken]
        return sorted(both, key=lambda call: call.id) if self.broken else both

    def as_message(self) -> Message:
        """Return the turn in the form of chat APIs."""
        said = {"role": "assistant", "content": self.content}
        if self.reasoning:
            said[REASONING] = self.reasoning
        if not self.tool_calls:
            return said
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in self.tool_calls
        ]
        return {**said, "tool_calls": calls}


@dataclass(frozen=True, slots=True)
class Observation:
    """How a conversation begins: the first messages, and the JSON schemas of the tools the model may call.

    `chat_template_kwargs` are options of the model's chat template for this conversation alone.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transition:
    """What a reply led to: new messages for the model, the reward of the turn, and how the conversation ended, if so.

    `parts` break the reward down by name; they are summed over the conversation.
    """

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    end: End | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


class EnvironmentFailed(ContractError):
    """An environment failed in a worker, which says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, hint=failure.hint)
        self.failure = failure


def failure_of(error: BaseException) -> Failure:
    """The failure that an attempt is given for what its environment, or something in it, raised."""
    if isinstance(error, EnvironmentFailed):
        return error.failure
    if isinstance(error, GroupwiseError):
        return Failure("environment", error.code, error.message, error.hint)
    message = f"the environment raised {type(error).__name__}: {error}"
    hint = "Correct it, then resume the run. Conversations it fails in are left out, not scored 0."
    return Failure("environment", "raised", message[:2000], hint, traceback_of(error))


class Environment(Protocol):
    """The user, the task and the tools of one conversation.

    It may also have `async def close(self)`, and an attribute `for_reward`: an object that a reward in the same process
    finds as `meta["environment"]` of the attempt.
    """

    async def reset(self, task: Task) -> Observation: ...
    async def step(self, reply: Reply) -> Transition: ...


class Scenarios(Protocol):
    """Where conversations come from.

    `training` is a pure function of its arguments, so a run can resume anywhere, and never returns a scenario that
    `held_out` returns. A scenario is the task's payload: anything the environment understands. `make` returns a fresh
    environment for one conversation.
    """

    @property
    def name(self) -> str: ...
    def training(self, seed: int, number: int) -> Any: ...
    def held_out(self, seed: int, count: int) -> Sequence[Any]: ...
    def make(self) -> Environment: ...


T = TypeVar("T")
SHARE = 0.2  # of the scenarios are held out


class Listed(Epochs[T]):
    """A list of scenarios, split into training and held-out ones by a hash of their content, not by their order.

    One in five is held out, at least one if there are two; `held_out` names others instead. A single scenario is used
    for both training and evaluation, and `shared` says so.
    """

    def __init__(self, scenarios: Sequence[T], held_out: Sequence[T] | None = None) -> None:
        if not scenarios:
            raise ConfigError("the list of scenarios is empty", hint="Pass at least one.")
        by_text = {_text(scenario): scenario for scenario in scenarios}
        if held_out is not None:
            # A scenario on both lists is held out.
            judged = {_text(scenario): scenario for scenario in held_out}
            train = [scenario for text, scenario in by_text.items() if text not in judged]
            test = list(judged.values())
        else:
            # The lowest hashes are held out, so that few change sides when scenarios are added.
            order = sorted(by_text, key=lambda text: hashlib.sha256(text.encode()).digest())
            count = max(1, round(SHARE * len(order))) if len(order) > 1 else 0
            test = [by_text[text] for text in order[:count]]
            train = [by_text[text] for text in by_text if text not in order[:count]]
        if not train:
            raise ConfigError("every training scenario is also held out", hint="Hold out other scenarios.")
        self.shared = not test
        super().__init__(train, test)

    def make(self) -> Self:
        """Return a fresh copy for one conversation about the same scenarios."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        return fresh


def _text(scenario: Any) -> str:
    if isinstance(scenario, Mapping):
        return json.dumps(dict(scenario), sort_keys=True, default=repr)
    return repr(scenario)
