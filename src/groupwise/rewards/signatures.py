"""What a user's own function may look like to be a reward, and how each form is called.

    def polite(turns)                              one conversation → a number or a `Score`
    async def ranked(task, group)                  a task and its attempts → one score per attempt
    def right(completions, answer, **columns)      as in TRL: all completions of a group, and the data's columns by name
    def right(prompts, completions, **columns)     the same

`as_reward` tells them apart by their parameters, and refuses what is none of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, isroutine
from typing import Any

from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import RewardFunction, needed, of_turns, parameters, turns_of
from groupwise.rewards.rules.components import known
from groupwise.rewards.scoring import is_async
from groupwise.types import Failed, Failure, Message, Reward, Task, Trajectory

FORMS = (
    "Write it as f(turns), as f(task, group), or as in TRL: f(completions, answer, **columns) or "
    "f(prompts, completions, **columns), with the data's columns by name."
)
GROUPS = ("group", "attempts", "members", "trajectories")


def as_reward(given: Reward | Callable[..., Any], name: str = "", options: Mapping[str, Any] | None = None) -> Reward:
    """Make a reward of what a user has: a `RewardFunction`, another reward object, or a function of a known form.

    `options` are further keywords of a function, and `name` is what messages call it.
    """
    if isinstance(given, type) or not callable(given):
        hint = f"Create one: {given.__name__}(…)." if isinstance(given, type) else "Pass a function of turns."
        raise ConfigError(f"{given!r:.60} is not a reward", hint=hint)
    if isinstance(given, RewardFunction):
        return given
    bound: Any = partial(given, **(options or {})) if name else given
    name = name or str(getattr(given, "__qualname__", type(given).__name__))
    places, count = parameters(given), needed(given)
    if any(place.name == "completions" for place in places):
        return CompletionsReward(given, name, options)
    if count > 2 or (count == 2 and isroutine(given) and not _takes_group(places)):
        shown = ", ".join(place.name for place in places)
        raise ConfigError(f"{name}({shown}) is not the signature of a reward", hint=FORMS)
    if count != 2 and not (is_async(given) and count != 1):
        return of_turns(bound, name)
    if bound is not given:
        bound.__qualname__ = name
    return bound  # type: ignore[no-any-return]


def _takes_group(places: Sequence[Parameter]) -> bool:
    first, second = places[:2]
    return first.name == "task" or first.name.startswith("_") or second.name in GROUPS


def _ignore(*_: object, **__: object) -> None:
    """Stands in for TRL's logging callbacks, which a reward may ask for."""


class CompletionsReward:
    """A function in TRL's form: it gets all completions of a group at once and returns one number for each.

    A prompt that is a text goes with completions that are texts; one that is a chat, with lists of messages. The data's
    columns come as lists, one entry per completion: all of them for a function with `**columns`, else those it names.
    None as a number means that it cannot score this completion.
    """

    def __init__(self, function: Callable[..., Any], name: str, options: Mapping[str, Any] | None = None) -> None:
        self.function, self.options = function, dict(options or {})
        self.name = self.__qualname__ = name
        named = [p for p in parameters(function) if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters(function))
        self.takes = {p.name for p in named}
        self.needs = [p.name for p in named if p.default is p.empty and p.name not in self.options]

    def __call__(self, task: Task, group: Sequence[Trajectory]) -> Any:
        given = self._arguments(task, [turns_of(attempt) for attempt in group])
        if "completion_ids" in self.takes or self.takes_all:
            given["completion_ids"] = [attempt.actions[attempt.mask].tolist() for attempt in group]
        if missing := self._missing(task):
            raise ContractError(f"{self.name} {missing}")
        wanted = {name: value for name, value in given.items() if self.takes_all or name in self.takes}
        answer = self.function(**{**wanted, **self.options})
        return self._later(answer) if hasattr(answer, "__await__") else self._scores(answer)

    by_columns = True  # whether it can score a task depends on the names of its columns alone

    def unfit(self, tasks: Sequence[Task]) -> dict[str, str]:
        """The ids of tasks that lack a column the function needs, each with which."""
        return {task.id: missing for task in tasks if (missing := self._missing(task))}

    def _missing(self, task: Task) -> str:
        lacking = [name for name in self.needs if name not in OWN and known(task, name) is None]
        if not lacking:
            return ""
        there = ", ".join(map(str, _columns(task))) or "none"
        return f"needs the column {lacking[0]!r}, which this task does not have (its columns: {there})"

    def _arguments(self, task: Task, talks: Sequence[Sequence[Message]]) -> dict[str, Any]:
        columns = {
            **_columns(task),
            **{name: known(task, name) for name in self.needs if known(task, name) is not None},
        }
        split = [next((n for n, turn in enumerate(talk) if turn["role"] == "assistant"), len(talk)) for talk in talks]
        prompts: list[Any] = [list(talk[:n]) for talk, n in zip(talks, split, strict=True)]
        completions: list[Any] = [list(talk[n:]) for talk, n in zip(talks, split, strict=True)]
        asked = getattr(task.payload, "prompt", None)
        if isinstance(asked, str):
            prompts, completions = [asked] * len(talks), [said[-1]["content"] if said else "" for said in completions]
        repeated = {
            name: [value] * len(talks) for name, value in columns.items() if name not in ("prompt", "completion")
        }
        return {**{name: GIVEN[name] for name in GIVEN if name in self.takes}, **repeated,
                "prompts": prompts, "completions": self._completions(completions)}  # fmt: skip

    def _completions(self, said: list[Any]) -> list[Any]:
        """What the function sees of the answers: texts, or lists of messages."""
        return said

    async def _later(self, answer: Any) -> Any:
        return self._scores(await answer)

    def _scores(self, answer: Any) -> Any:
        if not isinstance(answer, Sequence):
            return answer
        none = Failed(Failure("reward", "no_score", f"{self.name} returned None for this completion"))
        return [none if number is None else number for number in answer]


GIVEN: Mapping[str, Any] = {"trainer_state": None, "log_extra": _ignore, "log_metric": _ignore}
"""What TRL hands to a reward that names it, and we have nothing for."""
OWN = frozenset({"prompts", "completions", "completion_ids", *GIVEN})
"""What a function of TRL's form gets besides columns."""


def _columns(task: Task) -> Mapping[str, Any]:
    if isinstance(task.payload, Mapping):
        return task.payload
    columns = getattr(task.payload, "columns", None)
    return columns if isinstance(columns, Mapping) else {}
