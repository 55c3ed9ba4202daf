"""`ConversationEnvironment`: scenarios, and a user who talks about one of them.

    environment = ConversationEnvironment([{"topic": "refund", "context": "Order delayed"}, …], max_turns=6)

A scenario is a table. `topic` and `context` say what it is about, `system` what the model is told first, `opening` how
the user begins; the rest is the user's: `user_responses` (a script), `rules` and `otherwise` (patterns and answers, see
`users.Rule`), `persona`, `goal`. What such a conversation is worth is told by a reward function; the environment itself
pays 1 to a model whose user leaves satisfied.

The same object is the scenarios of a run (`training`, `held_out`, `make`) and one conversation (`reset`, `step`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.agents.environment import Observation, Reply, Transition
from groupwise.agents.environments.listed import Listed
from groupwise.agents.environments.users import Scenario, User, usual_user
from groupwise.errors import ConfigError
from groupwise.types import End, Message, Task

TEXTS = ("topic", "context", "system", "opening", "goal", "persona", "otherwise")


class ConversationEnvironment(Listed[Scenario]):
    """Args:
    scenarios: tables as above.
    max_turns: turns of the model after which a conversation ends as `turn_limit`.
    user: makes the user of a scenario; unless given, the one it describes (`users.usual_user`).
    held_out: scenarios to judge on; unless given, one in five of `scenarios`.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        max_turns: int = 10,
        *,
        user: Callable[[Scenario], User] = usual_user,
        held_out: Sequence[Scenario] | None = None,
        name: str = "conversation",
    ) -> None:
        if max_turns < 1:
            raise ConfigError(f"max_turns is {max_turns} and must be at least 1", field="max_turns")
        for number, scenario in enumerate((*scenarios, *(held_out or ()))):
            _check(scenario, f"scenario {number}")
        super().__init__(scenarios, held_out)
        self.scenarios, self.max_turns, self.user, self.name = list(scenarios), max_turns, user, name

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> ConversationEnvironment:
        """Scenarios from a file of JSON lines."""
        return cls(read_scenarios(Path(path)), name=Path(path).stem, **options)

    def make(self) -> ConversationEnvironment:
        """A fresh one for one conversation, about the same scenarios."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        return fresh

    def demonstration(self, scenario: Scenario) -> tuple[Message, ...]:
        """What a warm start imitates: the `demonstration` of the scenario, turns of the model in a row.

        Between them stand the lines of its script.
        """
        said = scenario.get("demonstration")
        if not said:
            raise ConfigError(
                f"the scenario {_label(scenario)!r} has no demonstration to imitate",
                hint="Give it one: a list of what the assistant says, turn by turn.",
            )
        lines = [*scenario.get("user_responses", ())]
        turns: list[Message] = []
        for number, text in enumerate(said):
            if number:
                turns.append({"role": "user", "content": lines.pop(0) if lines else "Please go on."})
            turns.append({"role": "assistant", "content": text})
        return tuple(turns)

    async def reset(self, task: Task) -> Observation:
        """Begin the conversation about the scenario that is the task's payload, or the task's number in the list."""
        scenario = task.payload if isinstance(task.payload, Mapping) else self.training(0, task.seed)
        self.partner, self.turns = self.user(scenario), 0
        self.messages: list[Message] = [*_system(scenario), {"role": "user", "content": opening(scenario)}]
        return Observation(tuple(self.messages))

    async def step(self, reply: Reply) -> Transition:
        self.turns += 1
        self.messages.append(reply.as_message())
        if reply.cut:
            return Transition((), 0.0, End.TRUNCATED)
        said = await self.partner.speak(tuple(self.messages))
        new: tuple[Message, ...] = ({"role": "user", "content": said.text},) if said.text or not said.leaves else ()
        self.messages += new
        reward, parts = float(said.satisfied), {"satisfied": float(said.satisfied)}
        if said.leaves:
            return Transition(new, reward, End.FINISHED, parts)
        return Transition(new, reward, End.TURN_LIMIT if self.turns >= self.max_turns else None, parts)


def opening(scenario: Scenario) -> str:
    """How the user begins: as the scenario says, or with its topic and context."""
    if "opening" in scenario:
        return str(scenario["opening"])
    topic, context = scenario.get("topic", ""), scenario.get("context", "")
    return f"I have a question about {topic}: {context}." if topic and context else str(context or topic)


def _system(scenario: Scenario) -> list[Message]:
    return [{"role": "system", "content": str(scenario["system"])}] if scenario.get("system") else []


def read_scenarios(path: Path) -> list[Scenario]:
    """The scenarios of a file of JSON lines, each a table."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="It holds a scenario a line, as JSON.")
    scenarios: list[Scenario] = []
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            scenario = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number} is no JSON: {error}") from None
        _check(scenario, f"{path}, line {number}")
        scenarios.append(scenario)
    return scenarios


def _check(scenario: Any, place: str) -> None:
    if not isinstance(scenario, Mapping):
        raise ConfigError(f"{place} is {scenario!r:.60}, not a table", hint='Like {"topic": …, "context": …}.')
    if not opening(scenario).strip():
        raise ConfigError(f"{place} says nothing: it has no topic, context or opening", hint="Give it one of them.")
    for name in TEXTS:
        if name in scenario and not isinstance(scenario[name], str):
            raise ConfigError(f"{place}: {name} is {scenario[name]!r:.60}, not text")
    lines = scenario.get("user_responses", [])
    if not isinstance(lines, Sequence) or isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"{place}: user_responses is {lines!r:.60}, not a list of texts")


def _label(scenario: Scenario) -> str:
    return opening(scenario)[:40]
