"""`ConversationEnvironment`: scenarios, and a simulated user who talks about one of them.

    environment = ConversationEnvironment([{"topic": "refund", "context": "Order delayed"}, …], max_turns=6)

A scenario is a mapping. `topic` and `context` say what it is about, `system` is the model's system prompt and `opening`
the user's first message. The rest describes the user: `user_responses` (a script), `rules` and `otherwise` (patterns
with answers, see `UserRule`), `persona` and `goal`. A reward function may score such a conversation; the environment
itself gives 1 if the user leaves satisfied.

    said = await user.speak(messages)      # the conversation so far; the model's last turn is at its end

Every conversation gets a fresh user, made from its scenario. The same `ConversationEnvironment` object is the scenarios
of a run (`training`, `held_out`, `make`) and one conversation (`reset`, `step`).
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.request import Request, urlopen

from groupwise.agents.environments.contract import Listed, Observation, Reply, Transition
from groupwise.errors import ConfigError, ContractError
from groupwise.foreign_programs import ProgramFailed, check_pattern, last_match
from groupwise.readers import data_limits, json_lines
from groupwise.types import End, Message, Task

Scenario = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of a user. A user who leaves without a word has an empty text, which the model does not see.

    `satisfied` means that the user leaves because it got what it came for.
    """

    text: str
    leaves: bool = False
    satisfied: bool = False


class User(Protocol):
    """One person in one conversation. The same scenario and replies always lead to the same words."""

    async def speak(self, messages: Sequence[Message]) -> Said: ...


class ScriptedUser:
    """Says the lines of `user_responses` in order, whatever the model says, and leaves after the last."""

    def __init__(self, scenario: Scenario) -> None:
        self.lines = list(scenario["user_responses"])

    async def speak(self, messages: Sequence[Message]) -> Said:
        return Said(self.lines.pop(0)) if self.lines else Said("", leaves=True)


@dataclass(frozen=True, slots=True)
class UserRule:
    """When the model's text matches `pattern` (a case-insensitive regular expression), the user answers `reply`.

    With `state`, the rule applies only in that state; `then` is the state afterwards. After a rule that `satisfies` the
    user leaves. In a reply, {topic} and other fields of the scenario are replaced by their values.
    """

    pattern: str
    reply: str
    state: str = ""
    then: str = ""
    satisfies: bool = False


class RuleUser:
    """Answers with the first rule that matches, or with `otherwise`. Rules may depend on a state."""

    def __init__(self, scenario: Scenario, rules: Sequence[UserRule | Mapping[str, Any]], otherwise: str) -> None:
        self.scenario, self.otherwise, self.state = scenario, otherwise, ""
        self.rules = [rule if isinstance(rule, UserRule) else _rule(rule) for rule in rules]

    async def speak(self, messages: Sequence[Message]) -> Said:
        heard = str(messages[-1].get("content") or "")
        for rule in self.rules:
            if rule.state in ("", self.state) and _matches(rule.pattern, heard):
                self.state = rule.then or self.state
                return Said(self._filled(rule.reply), leaves=rule.satisfies, satisfied=rule.satisfies)
        return Said(self._filled(self.otherwise))

    def _filled(self, text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: str(self.scenario.get(found[1], found[0])), text)


def _matches(pattern: str, text: str) -> bool:
    try:
        return last_match(pattern, text, re.IGNORECASE) is not None
    except ProgramFailed as error:
        raise ContractError(f"the rule's pattern {pattern!r:.200} cannot be used: {error.message}") from None


def _rule(given: Any) -> UserRule:
    try:
        rule = UserRule(**given)
        if not all(isinstance(text, str) for text in (rule.pattern, rule.reply, rule.state, rule.then)):
            raise TypeError("pattern, reply, state and then are text")
        check_pattern(rule.pattern, re.IGNORECASE)
    except (TypeError, ProgramFailed) as error:
        hint = "A rule has pattern and reply, and optionally state, then and satisfies."
        raise ConfigError(f"the rule {given!r:.200} cannot be used: {error}", hint=hint) from error
    return rule


USUAL_RULES = (
    UserRule(r"\?", "It is about {topic}: {context}.", state="", then="told"),
    UserRule(r"\b(refund|replace|track|fix|send|help|step|sorry|because|order)\w*", "Thank you, that helps.",
             state="told", satisfies=True),
)  # fmt: skip


def usual_user(scenario: Scenario) -> User:
    """Return the user a scenario describes: by script, by rules, or one who explains the topic until it is settled."""
    if "user_responses" in scenario:
        return ScriptedUser(scenario)
    return RuleUser(scenario, scenario.get("rules", USUAL_RULES), str(scenario.get("otherwise", "Please go on.")))


Answer = Callable[[list[Message]], "str | Awaitable[str]"]


class PlayedUser:
    """A user played by another model. `answer` is a function, async or not, from messages to the next text.

    The model in training is the assistant of the conversation. From the player's side it is the user, so the roles are
    swapped. When the player says `done`, the conversation ends and the user is satisfied.
    """

    def __init__(self, scenario: Scenario, answer: Answer, done: str = "[DONE]") -> None:
        self.scenario, self.answer, self.done = scenario, answer, done

    async def speak(self, messages: Sequence[Message]) -> Said:
        roles = {"user": "assistant", "assistant": "user"}
        heard = [(roles[m["role"]], m.get("content") or "") for m in messages if m["role"] in roles]
        said = self.answer([{"role": role, "content": text} for role, text in [("system", self.part()), *heard]])
        text = await said if inspect.isawaitable(said) else said
        if not isinstance(text, str):
            raise ContractError(f"the model that plays the user answered {text!r:.80}, not text")
        before, found, _ = text.partition(self.done)
        return Said(before.strip(), leaves=bool(found), satisfied=bool(found))

    def part(self) -> str:
        facts = "; ".join(f"{name}: {value}" for name, value in self.scenario.items() if isinstance(value, str | int))
        customer = "You are the customer in this conversation, never the assistant."
        return f"{customer} {facts}. Say {self.done} when satisfied."


def endpoint(url: str, model: str, *, key: str = "", seconds: float = 60.0, **options: Any) -> Answer:
    """Return an `answer` for `PlayedUser` that asks an OpenAI-compatible server.

    For example `endpoint("http://localhost:8000/v1", "name")`.
    """

    def ask(messages: list[Message]) -> str:
        body = json.dumps({"model": model, "messages": messages, **options}).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = Request(f"{url.rstrip('/')}/chat/completions", body, headers)
        with urlopen(request, timeout=seconds) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    async def answer(messages: list[Message]) -> str:
        return await asyncio.to_thread(ask, messages)

    return answer


TEXTS = ("topic", "context", "system", "opening", "goal", "persona", "otherwise")


class ConversationEnvironment(Listed[Scenario]):
    """Conversations with simulated users.

    Args:
      scenarios: mappings as described above.
      max_turns: turns of the model after which a conversation ends with `turn_limit`.
      user: makes the user of a scenario; by default the one the scenario describes (`usual_user`).
      held_out: scenarios for evaluation; by default one in five of `scenarios`.
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
            raise ConfigError(f"max_turns is {max_turns}, but must be at least 1", field="max_turns")
        for number, scenario in enumerate((*scenarios, *(held_out or ()))):
            _check(scenario, f"scenario {number}")
        super().__init__(scenarios, held_out)
        self.scenarios, self.max_turns, self.user, self.name = list(scenarios), max_turns, user, name

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> Self:
        """Read scenarios from a JSON-lines file."""
        return cls(read_scenarios(Path(path)), name=Path(path).stem, **options)

    def demonstration(self, scenario: Scenario) -> tuple[Message, ...]:
        """Return what a warm start imitates: the turns in `demonstration`, with the user's lines between them."""
        said = scenario.get("demonstration")
        if not said:
            message = f"the scenario {opening(scenario)[:40]!r} has no demonstration to imitate"
            raise ConfigError(message, hint="Add one: a list of what the assistant says, turn by turn.")
        lines = [*scenario.get("user_responses", ())]
        turns: list[Message] = []
        for number, text in enumerate(said):
            if number:
                turns.append({"role": "user", "content": lines.pop(0) if lines else "Please go on."})
            turns.append({"role": "assistant", "content": text})
        return tuple(turns)

    async def reset(self, task: Task) -> Observation:
        """Begin a conversation about the task's payload; without one, `task.seed` picks a scenario."""
        scenario = task.payload if isinstance(task.payload, Mapping) else self.training(0, task.seed)
        self.partner, self.turns = self.user(scenario), 0
        told = [{"role": "system", "content": str(scenario["system"])}] if scenario.get("system") else []
        self.messages: list[Message] = [*told, {"role": "user", "content": opening(scenario)}]
        return Observation(tuple(self.messages))

    async def step(self, reply: Reply) -> Transition:
        self.turns += 1
        self.messages.append(reply.as_message())
        said = await self.partner.speak(tuple(self.messages))
        # A user who leaves without a word adds no message.
        new: tuple[Message, ...] = ({"role": "user", "content": said.text},) if said.text or not said.leaves else ()
        self.messages += new
        # The user answers what there is of a truncated reply, but only a complete one can satisfy.
        satisfied = float(said.satisfied and not reply.cut)
        return Transition(new, satisfied, self._end(said, reply), {"satisfied": satisfied})

    def _end(self, said: Said, reply: Reply) -> End | None:
        if not said.leaves and self.turns < self.max_turns:
            return None
        if reply.cut:
            return End.TRUNCATED
        return End.FINISHED if said.leaves else End.TURN_LIMIT


def opening(scenario: Scenario) -> str:
    """Return the user's first message: the scenario's `opening`, or one made of its topic and context."""
    if "opening" in scenario:
        return str(scenario["opening"])
    topic, context = scenario.get("topic", ""), scenario.get("context", "")
    return f"I have a question about {topic}: {context}." if topic and context else str(context or topic)


def read_scenarios(path: Path) -> list[Scenario]:
    """Read scenarios from a JSON-lines file, one object per line."""
    scenarios: list[Scenario] = []
    try:
        for number, scenario in json_lines(path, data_limits()):
            _check(scenario, f"line {number}")
            scenarios.append(scenario)
    except ConfigError as error:
        hint = error.hint or "It should have one scenario per line, as a JSON object."
        raise ConfigError(f"{path}: {error.message}", hint=hint) from None
    return scenarios


def _check(scenario: Any, place: str) -> None:
    if not isinstance(scenario, Mapping):
        raise ConfigError(f"{place} is {scenario!r:.60}, not an object", hint='Write {"topic": …, "context": …}.')
    if not opening(scenario).strip():
        raise ConfigError(f"{place} is empty: it has no topic, context or opening", hint="Add one of them.")
    for name in TEXTS:
        if name in scenario and not isinstance(scenario[name], str):
            raise ConfigError(f"{place}: {name} is {scenario[name]!r:.60}, not text")
    lines = scenario.get("user_responses", [])
    if not isinstance(lines, Sequence) or isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"{place}: user_responses is {lines!r:.60}, not a list of strings")
    rules = scenario.get("rules", [])
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise ConfigError(f"{place}: rules is {rules!r:.60}, not a list of rules")
    for rule in rules:
        rule if isinstance(rule, UserRule) else _rule(rule)
