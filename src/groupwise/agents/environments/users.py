"""Who the model talks to: a script, rules with a memory, or another model that plays a part.

    said = await user.speak(messages)      # messages: the conversation so far, the model's last turn at its end

A user is made anew for every conversation, from its scenario. `Said` holds the words; `leaves` where the user is done,
`satisfied` where that is because it got what it came for.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.request import Request, urlopen

from groupwise.errors import ConfigError, ContractError
from groupwise.types import Message

Scenario = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of a user; an empty text of one that leaves is not passed on."""

    text: str
    leaves: bool = False
    satisfied: bool = False


class User(Protocol):
    """One person in one conversation. The same scenario and the same replies get the same words."""

    async def speak(self, messages: Sequence[Message]) -> Said: ...


class ScriptedUser:
    """Says the lines of `user_responses`, one after the other, whatever it hears, and leaves after the last."""

    def __init__(self, scenario: Scenario) -> None:
        self.lines = list(scenario["user_responses"])

    async def speak(self, messages: Sequence[Message]) -> Said:
        return Said(self.lines.pop(0)) if self.lines else Said("", leaves=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """When the model says `pattern` (a regular expression, in any case), the user answers `reply`.

    With `state`, only while the user is in that state; `then` is the state afterwards. A rule that `satisfies` is the
    user's last word. In a reply, {topic} and any other field of the scenario stand for their values.
    """

    pattern: str
    reply: str
    state: str = ""
    then: str = ""
    satisfies: bool = False


class RuleUser:
    """The first rule that fits answers; `otherwise` where none does. Rules may depend on what was said before."""

    def __init__(self, scenario: Scenario, rules: Sequence[Rule | Mapping[str, Any]], otherwise: str) -> None:
        self.scenario, self.otherwise, self.state = scenario, otherwise, ""
        self.rules = [rule if isinstance(rule, Rule) else _rule(rule) for rule in rules]

    async def speak(self, messages: Sequence[Message]) -> Said:
        heard = str(messages[-1].get("content") or "")
        for rule in self.rules:
            if rule.state in ("", self.state) and re.search(rule.pattern, heard, re.IGNORECASE):
                self.state = rule.then or self.state
                return Said(self._filled(rule.reply), leaves=rule.satisfies, satisfied=rule.satisfies)
        return Said(self._filled(self.otherwise))

    def _filled(self, text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: str(self.scenario.get(found[1], found[0])), text)


def _rule(given: Mapping[str, Any]) -> Rule:
    try:
        rule = Rule(**given)
        re.compile(rule.pattern)
    except (TypeError, re.error) as error:
        raise ConfigError(
            f"the rule {dict(given)} cannot be used: {error}",
            hint="A rule has pattern and reply, perhaps state, then and satisfies.",
        ) from error
    return rule


USUAL_RULES = (
    Rule(r"\?", "It is about {topic}: {context}.", state="", then="told"),
    Rule(r"\b(refund|replace|track|fix|send|help|step|sorry|because|order)\w*", "Thank you, that helps.", state="told",
         satisfies=True),
)  # fmt: skip


def usual_user(scenario: Scenario) -> User:
    """The user a scenario describes: its script, its rules, or one who explains the topic until it is dealt with."""
    if "user_responses" in scenario:
        return ScriptedUser(scenario)
    return RuleUser(scenario, scenario.get("rules", USUAL_RULES), str(scenario.get("otherwise", "Please go on.")))


Answer = Callable[[list[Message]], "str | Awaitable[str]"]


class PlayedUser:
    """A user that a model plays. `answer` takes messages and gives the next words: a function, async or not.

    The model in training is the assistant of the conversation; to the player it is the one who asks, so roles are
    swapped. `done` in what the player says ends the conversation, satisfied.
    """

    def __init__(self, scenario: Scenario, answer: Answer, done: str = "[DONE]") -> None:
        self.scenario, self.answer, self.done = scenario, answer, done

    async def speak(self, messages: Sequence[Message]) -> Said:
        said = self.answer([{"role": "system", "content": self.part()}, *_swapped(messages)])
        text = await said if inspect.isawaitable(said) else said
        if not isinstance(text, str):
            raise ContractError(f"the player of the user answered {text!r:.80}, not text")
        before, found, _ = text.partition(self.done)
        return Said(before.strip(), leaves=bool(found), satisfied=bool(found))

    def part(self) -> str:
        told = "; ".join(f"{name}: {value}" for name, value in self.scenario.items() if isinstance(value, str | int))
        return (
            f"You are the customer in this conversation, never the assistant. {told}. Say {self.done} when satisfied."
        )


def _swapped(messages: Sequence[Message]) -> list[Message]:
    roles = {"user": "assistant", "assistant": "user"}
    return [{"role": roles[m["role"]], "content": m.get("content") or ""} for m in messages if m["role"] in roles]


def endpoint(url: str, model: str, *, key: str = "", seconds: float = 60.0, **options: Any) -> Answer:
    """An OpenAI-compatible server that answers, for `PlayedUser`: `endpoint("http://localhost:8000/v1", "name")`."""

    def ask(messages: list[Message]) -> str:
        body = json.dumps({"model": model, "messages": messages, **options}).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = Request(f"{url.rstrip('/')}/chat/completions", body, headers)
        with urlopen(request, timeout=seconds) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    async def answer(messages: list[Message]) -> str:
        return await asyncio.to_thread(ask, messages)

    return answer
