"""`task.environment = "orders"`: questions about a shop's orders, answered with tools on a real SQLite database.

A question needs one tool or two: the second call of `city` and `refund` takes what the first one found. Some tools
change the database, and not everything that is asked for is allowed. What counts is the database afterwards and the
answer.
Texts are short, so that a whole conversation is within 200 characters and a character-level model can hold it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.agents.environment import Observation, Reply, Transition
from groupwise.agents.environments.order_database import (
    CITIES,
    ENDED,
    STATUSES,
    NotPossible,
    OrderDatabase,
    Shop,
    make_shop,
)
from groupwise.agents.toolbox import Toolbox, ToolResult
from groupwise.agents.tools import tool
from groupwise.errors import ConfigError
from groupwise.types import End, Message, Score, Task

ARGUMENTS = {
    "status": ("order",), "total": ("order",), "buyer": ("order",), "city": ("buyer",), "cancel": ("order",),
    "refund": ("order", "sum"),
}  # fmt: skip
KINDS = {
    "status": ("Where is {}?", "Status of {}?"),
    "total": ("What did {} cost?", "Price of {}?"),
    "buyer": ("Who bought {}?", "Whose is {}?"),
    "city": ("Which city is {} for?", "Town of {}?"),
    "cancel": ("Cancel {}.", "Stop {}."),
    "refund": ("Refund {}.", "Pay back {}."),
}
PLANS = {kind: (kind,) for kind in KINDS} | {"city": ("buyer", "city"), "refund": ("total", "refund")}
ALLOWS = {"cancel": "open", "refund": "sent"}
ALLOWED = 0.75  # of what is asked for; were less possible, telling the status would be right too often
MAX_TURNS = 3
DEMONSTRATIONS = ("right", "form")
RIGHT, HABIT = 0.2, 0.7


@dataclass(frozen=True, slots=True)
class OrderCase:
    """One customer's question: its kind, the words, the order it is about, and the shop as it is then."""

    kind: str
    question: str
    order: str
    shop: Shop

    @property
    def answer(self) -> str:
        """What the customer should be told."""
        database = OrderDatabase(self.shop)
        try:
            return right_calls(self, database)[-1].fact
        finally:
            database.close()


@dataclass(frozen=True)
class Call:
    """A call, and what came back."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def fact(self) -> str:
        """What is to be told to the customer: the last word of the result."""
        return self.result.split()[-1]


class Orders:
    """The scenarios. Order numbers and customers that are judged on never occur in training.

    `demonstrations` are what a warm start imitates: "right" ones, or only the "form": calls of tools mostly chosen by
    habit, with arguments that are there to be given, and then the last thing found out as the answer.
    """

    name = "orders"

    def __init__(self, demonstrations: str = "right", kinds: Sequence[str] = tuple(KINDS)) -> None:
        _insist("demonstrations", [demonstrations], DEMONSTRATIONS)
        _insist("kinds", kinds, tuple(KINDS))
        self.demonstrations, self.kinds = demonstrations, tuple(kinds)

    def training(self, seed: int, number: int) -> OrderCase:
        return self._case(random.Random(f"orders/{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> list[OrderCase]:
        rng = random.Random(f"orders held out/{seed}")
        return [self._case(rng, held_out=True) for _ in range(count)]

    def make(self) -> OrderDesk:
        return OrderDesk()

    def demonstration(self, case: OrderCase) -> tuple[Message, ...]:
        """What follows the question: calls, results and the answer."""
        database = OrderDatabase(case.shop)
        calls = right_calls(case, database) if self.demonstrations == "right" else formal_calls(case, database)
        database.close()
        said: list[Message] = []
        for number, call in enumerate(calls):
            function = {"name": call.name, "arguments": dict(call.arguments)}
            asked = {"id": f"call-{number}-0", "type": "function", "function": function}
            said.append({"role": "assistant", "content": "", "tool_calls": [asked]})
            said.append({"role": "tool", "content": call.result, "tool_call_id": asked["id"]})
        return (*said, {"role": "assistant", "content": calls[-1].fact})

    def _case(self, rng: random.Random, held_out: bool) -> OrderCase:
        shop = make_shop(rng, held_out=held_out)
        kind, order = rng.choice(self.kinds), rng.choice(shop.orders)[0]
        if kind in ALLOWS and rng.random() < ALLOWED:
            shop = shop.with_status(order, ALLOWS[kind])
        return OrderCase(kind, rng.choice(KINDS[kind]).format(order), order, shop)


class OrderTools:
    """The tools on one conversation's database, and what was called; `sum` is what an order cost, in whole euros."""

    def __init__(self, database: OrderDatabase) -> None:
        self.database = database
        self.calls: list[Call] = []

    @tool
    async def status(self, order: str) -> str:
        """What has become of an order."""
        return self._called("status", order=order)

    @tool
    async def total(self, order: str) -> str:
        """What an order cost."""
        return self._called("total", order=order)

    @tool
    async def buyer(self, order: str) -> str:
        """Who bought an order."""
        return self._called("buyer", order=order)

    @tool
    async def city(self, buyer: str) -> str:
        """Where a buyer lives."""
        return self._called("city", buyer=buyer)

    @tool
    async def cancel(self, order: str) -> str:
        """Cancel an open order."""
        return self._called("cancel", order=order)

    @tool
    async def refund(self, order: str, sum: int) -> str:
        """Refund a sent order with exactly what it cost."""
        return self._called("refund", order=order, sum=sum)

    def toolbox(self) -> Toolbox:
        return Toolbox([getattr(self, name) for name in ARGUMENTS])

    def _called(self, name: str, **arguments: Any) -> str:
        self.calls.append(call_tool(self.database, name, arguments))
        return self.calls[-1].result


class OrderDesk:
    """The customer and the tools of one conversation."""

    async def reset(self, task: Task) -> Observation:
        self.case: OrderCase = task.payload
        self.tools = OrderTools(OrderDatabase(self.case.shop))
        self.toolbox = self.tools.toolbox()
        self.turns, self.tried, self.faults = 0, 0, 0
        return Observation(({"role": "user", "content": self.case.question},), self.toolbox.schemas)

    async def step(self, reply: Reply) -> Transition:
        self.turns += 1
        if not reply.calls and not reply.broken:
            return self._graded(reply.content, End.TRUNCATED if reply.cut else End.FINISHED)
        results = await self.toolbox.run(reply.calls, reply.broken)
        self.tried += len(results)
        self.faults += sum(not result.ok for result in results)
        if self.turns >= MAX_TURNS:
            return self._graded("", End.TURN_LIMIT)
        return Transition(tuple(_briefly(result) for result in results))

    async def close(self) -> None:
        if hasattr(self, "tools"):
            self.tools.database.close()

    def _graded(self, answer: str, end: End) -> Transition:
        valid = 1.0 - self.faults / self.tried if self.tried and end is not End.TRUNCATED else 0.0
        score = grade(self.case, self.tools.database, self.tools.calls, answer, valid)
        return Transition((), score.total, end, score.parts)


def _briefly(result: ToolResult) -> Message:
    """A result for a model that reads letter by letter: of a call that was none, the name of its fault."""
    return {**result.as_message(), "content": result.content if result.ok else f"error: {result.outcome}"}


def grade(case: OrderCase, database: OrderDatabase, calls: Sequence[Call], answer: str, valid: float) -> Score:
    """1 for a right answer that was looked up and a database as it should be; less for a part of the way.

    total = 0.7 · correct + 0.2 · share of the needed calls made + 0.1 · share of calls that are valid. Nothing is
    earned by needed calls where the database was changed and should not have been.
    """
    fresh = OrderDatabase(case.shop)
    before, plan = fresh.state(), right_calls(case, fresh)
    wanted, found = fresh.state(), database.state()
    fresh.close()
    fact = plan[-1].fact
    looked_up = any(call.fact == fact and call.arguments.get("order", case.order) == case.order for call in calls)
    parts = {
        "correct": float(found == wanted and looked_up and answers(case, answer) == {fact}),
        "progress": _done(plan, calls) / len(plan) if found in (before, wanted) else 0.0,
        "format": valid,
    }
    tenths = 7 * parts["correct"] + 2 * parts["progress"] + parts["format"]
    return Score(tenths / 10, parts)


def answers(case: OrderCase, text: str) -> set[str]:
    """The facts that a text mentions: numbers and known words; whoever names several has not answered."""
    known = {*STATUSES, *ENDED, *CITIES, *(name for name, _ in case.shop.customers)}
    words = re.findall(r"[A-Za-z]+|\d+", text)
    return {word for word in words if word in known or word.isdigit()} - {case.order}


def right_calls(case: OrderCase, database: OrderDatabase) -> list[Call]:
    """The calls that the question needs."""
    calls: list[Call] = []
    for name in PLANS[case.kind]:
        calls.append(call_tool(database, name, _arguments(name, case.order, calls)))
    return calls


def formal_calls(case: OrderCase, database: OrderDatabase) -> list[Call]:
    """Calls that are right in form and seldom in substance: mostly the status, whatever was asked.

    Two in ten are the right ones, so that a model hears what can be asked for; what it does most often stays wrong.
    """
    rng = random.Random(f"{case.question}/{case.shop.items}")
    if rng.random() < RIGHT:
        return right_calls(case, database)
    names = [name for name, needed in ARGUMENTS.items() if needed == ("order",)]
    first = call_tool(database, "status" if rng.random() < HABIT else rng.choice(names), {"order": case.order})
    if rng.random() < 0.6:
        return [first]
    follow = {"buyer": "city", "total": "refund"}.get(first.name)
    second = follow if follow and rng.random() < 0.7 else rng.choice([name for name in names if name != first.name])
    return [first, call_tool(database, second, _arguments(second, case.order, [first]))]


def _arguments(name: str, order: str, before: Sequence[Call]) -> dict[str, Any]:
    if name == "city":
        return {"buyer": before[-1].result}
    if name == "refund":
        return {"order": order, "sum": int(before[-1].result)}
    return {"order": order}


def call_tool(database: OrderDatabase, name: str, arguments: Mapping[str, Any]) -> Call:
    try:
        return Call(name, arguments, str(getattr(database, name)(**arguments)))
    except NotPossible as refusal:
        return Call(name, arguments, f"error: {refusal}")


def _done(plan: Sequence[Call], calls: Sequence[Call]) -> int:
    """How many calls of the plan were made, in its order."""
    made = iter((call.name, json.dumps(dict(call.arguments), default=str)) for call in calls)
    count = 0
    for needed in plan:
        if (needed.name, json.dumps(dict(needed.arguments))) not in made:
            break
        count += 1
    return count


def _insist(option: str, values: Sequence[str], known: tuple[str, ...]) -> None:
    for value in values or [""]:
        if value not in known:
            raise ConfigError(
                f"task.options.{option} = {value!r} does not fit 'orders'",
                hint=f"One of {', '.join(known)}.",
                field="task.options",
            )
