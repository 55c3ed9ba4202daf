"""`task.environment = "orders"`: questions about a shop, answered with tools on a real SQLite database.

A question needs one tool or two: the second call for `city` and `refund` uses what the first one found. Some tools
change the database, and not every request is allowed. The database enforces the rules itself: only an open order can be
cancelled, and only a sent one refunded, with exactly its price. What counts is the database afterwards and the answer.

Texts are short: a conversation stays within 200 characters, so that a character-level model can handle it.
"""

import json
import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from groupwise.agents.data.problems import is_held_out
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.tools.function_tool import Tool
from groupwise.agents.tools.toolbox import Toolbox, ToolResult
from groupwise.errors import ConfigError
from groupwise.types import End, Message, Score, Task

STATUSES = ("open", "paid", "sent")
ENDED = ("cancelled", "refunded")
CITIES = ("Rome", "Oslo", "Lima", "Kyiv")
SYLLABLES = tuple(consonant + vowel for consonant in "bdklmnrst" for vowel in "aeio")
PRODUCTS = ("lamp", "chair", "desk", "shelf", "clock")
SCHEMA = """
CREATE TABLE customers (name TEXT PRIMARY KEY, city TEXT NOT NULL);
CREATE TABLE orders (id TEXT PRIMARY KEY, buyer TEXT NOT NULL REFERENCES customers(name), status TEXT NOT NULL,
                     refunded INTEGER NOT NULL DEFAULT 0);
CREATE TABLE items (order_id TEXT NOT NULL REFERENCES orders(id), product TEXT NOT NULL, price INTEGER NOT NULL,
                    quantity INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """The rows a database starts with."""

    customers: tuple[tuple[str, str], ...]
    orders: tuple[tuple[str, str, str], ...]
    items: tuple[tuple[str, str, int, int], ...]

    def with_status(self, order: str, status: str) -> Self:
        """Return the same shop with one order in another status."""
        return replace(self, orders=tuple((n, who, status if n == order else s) for n, who, s in self.orders))


def make_shop(rng: random.Random, *, held_out: bool, customers: int = 3, orders: int = 4) -> Shop:
    """Make a shop whose customers and order numbers are either all for training or all held out (one in five)."""
    names = _distinct(customers, held_out, lambda: (rng.choice(SYLLABLES) + rng.choice(SYLLABLES)).capitalize())
    numbers = _distinct(orders, held_out, lambda: str(rng.randrange(1000, 10_000)))
    items = [
        (number, product, rng.randrange(2, 25), rng.randrange(1, 3))
        for number in numbers
        for product in rng.sample(PRODUCTS, rng.randrange(1, 3))
    ]
    return Shop(
        tuple((name, rng.choice(CITIES)) for name in names),
        tuple((number, rng.choice(names), rng.choice(STATUSES)) for number in numbers),
        tuple(items),
    )


def _distinct(count: int, held_out: bool, draw: Callable[[], str]) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        value = draw()
        if is_held_out(value) == held_out:
            found[value] = None
    return list(found)


class NotPossible(Exception):
    """The shop refuses; the message is what the caller sees."""


class OrderDatabase:
    """An SQLite database with a shop in it, in memory unless `path` is a file.

    Its methods are the tools, and their docstrings part of the prompt: changing one changes what the model reads.
    """

    def __init__(self, shop: Shop, path: Path | str = ":memory:") -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.executescript(SCHEMA)
        with self.connection:
            self.connection.executemany("INSERT INTO customers VALUES (?, ?)", shop.customers)
            self.connection.executemany("INSERT INTO orders (id, buyer, status) VALUES (?, ?, ?)", shop.orders)
            self.connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", shop.items)

    def status(self, order: str) -> str:
        """What has become of an order."""
        return str(self._one("SELECT status FROM orders WHERE id = ?", order, "order"))

    def total(self, order: str) -> str:
        """What an order cost."""
        self.status(order)  # refuses an unknown order; SUM would return NULL for it
        return str(self._one("SELECT SUM(price * quantity) FROM items WHERE order_id = ?", order, "order"))

    def buyer(self, order: str) -> str:
        """Who bought an order."""
        return str(self._one("SELECT buyer FROM orders WHERE id = ?", order, "order"))

    def city(self, buyer: str) -> str:
        """Where a buyer lives."""
        return str(self._one("SELECT city FROM customers WHERE name = ?", buyer, "buyer"))

    def cancel(self, order: str) -> str:
        """Cancel an open order."""
        status = self.status(order)
        if status != "open":
            raise NotPossible(f"is {status}")
        return self._end(order, "cancelled", 0)

    def refund(self, order: str, sum: int) -> str:
        """Refund a sent order with exactly what it cost."""
        status, total = self.status(order), int(self.total(order))
        if status != "sent":
            raise NotPossible(f"is {status}")
        if str(sum) != str(total):
            raise NotPossible("wrong sum")
        return self._end(order, "refunded", total)

    def state(self) -> tuple[tuple[str, str, str, int], ...]:
        """Everything that tools can change."""
        return tuple(self.connection.execute("SELECT id, buyer, status, refunded FROM orders ORDER BY id"))

    def close(self) -> None:
        self.connection.close()

    def _one(self, query: str, key: str, kind: str) -> object:
        row = self.connection.execute(query, (str(key),)).fetchone()
        if row is None:
            raise NotPossible(f"no such {kind}")
        return row[0]

    def _end(self, order: str, status: str, refunded: int) -> str:
        self.connection.execute("UPDATE orders SET status = ?, refunded = ? WHERE id = ?", (status, refunded, order))
        return status


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
# The calls each kind of question needs, in order.
PLANS = {kind: (kind,) for kind in KINDS} | {"city": ("buyer", "city"), "refund": ("total", "refund")}
ALLOWS = {"cancel": "open", "refund": "sent"}  # the status in which the shop agrees
ALLOWED = 0.75  # share of requests that can be granted; with fewer, reporting the status would be right too often
MAX_TURNS = 3
DEMONSTRATIONS = ("right", "form")
RIGHT, HABIT = 0.2, 0.7  # in "form" demonstrations: share of right ones, and of calls that are always `status`


@dataclass(frozen=True, slots=True)
class OrderCase:
    """One customer's question: its kind and wording, the order it is about, and the shop at that time."""

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
class OrderCall:
    """A call and its result."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def fact(self) -> str:
        """The fact to tell the customer: the last word of the result."""
        return self.result.split()[-1]


class Orders:
    """The scenarios. Order numbers and customers of held-out cases never occur in training.

    `demonstrations` are what a warm start imitates: "right" ones, or only the right "form", that is valid calls mostly
    chosen by habit, with the last result as the answer.
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

    def make(self) -> "OrderDesk":
        return OrderDesk()

    def demonstration(self, case: OrderCase) -> tuple[Message, ...]:
        """Return what follows the question: calls, results and the answer."""
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


TOOLS = [Tool.from_function(getattr(OrderDatabase, name)) for name in ARGUMENTS]


class OrderTools:
    """The tools of one conversation, and the calls made. `sum` is the price of an order in whole euros."""

    def __init__(self, database: OrderDatabase) -> None:
        self.database = database
        self.calls: list[OrderCall] = []

    def toolbox(self) -> Toolbox:
        return Toolbox([replace(tool, run=partial(self._called, tool.name), unbound=False) for tool in TOOLS])

    async def _called(self, name: str, /, **arguments: Any) -> str:
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
        if not reply.tool_calls and not reply.broken:
            return self._graded(reply.content, End.TRUNCATED if reply.cut else End.FINISHED)
        results = await self.toolbox.run(reply.tool_calls, reply.broken)
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
    """Shorten a result for a character-level model: a failed call shows only the name of its fault."""
    return {**result.as_message(), "content": result.content if result.ok else f"error: {result.outcome}"}


def grade(case: OrderCase, database: OrderDatabase, calls: Sequence[OrderCall], answer: str, valid: float) -> Score:
    """Score 1 for a right answer that was looked up, with the database in its right state; less for part of the way.

    total = 0.7 · correct + 0.2 · share of the needed calls made + 0.1 · share of valid calls. The needed calls earn
    nothing if the database was changed in a way it should not have been.
    """
    fresh = OrderDatabase(case.shop)
    before, plan = fresh.state(), right_calls(case, fresh)
    # `plan` was carried out on `fresh`: its state is the right one.
    wanted, found = fresh.state(), database.state()
    fresh.close()
    fact = plan[-1].fact
    # A right answer that no call returned was guessed.
    looked_up = any(call.fact == fact and call.arguments.get("order", case.order) == case.order for call in calls)
    parts = {
        "correct": float(found == wanted and looked_up and answers(case, answer) == {fact}),
        "progress": _done(plan, calls) / len(plan) if found in (before, wanted) else 0.0,
        "format": valid,
    }
    tenths = 7 * parts["correct"] + 2 * parts["progress"] + parts["format"]
    return Score(tenths / 10, parts)


def answers(case: OrderCase, text: str) -> set[str]:
    """Return the facts in a text: numbers and known words. An answer with several facts does not count."""
    known = {*STATUSES, *ENDED, *CITIES, *(name for name, _ in case.shop.customers)}
    words = re.findall(r"[A-Za-z]+|\d+", text)
    return {word for word in words if word in known or word.isdigit()} - {case.order}


def right_calls(case: OrderCase, database: OrderDatabase) -> list[OrderCall]:
    """Make the calls that the question needs."""
    calls: list[OrderCall] = []
    for name in PLANS[case.kind]:
        calls.append(call_tool(database, name, _arguments(name, case.order, calls)))
    return calls


def formal_calls(case: OrderCase, database: OrderDatabase) -> list[OrderCall]:
    """Make calls that are right in form but seldom in substance: mostly the status, whatever the question.

    Two in ten are right, so that the model sees every tool used; its most frequent behaviour is still wrong.
    """
    rng = random.Random(f"{case.question}/{case.shop.items}")
    if rng.random() < RIGHT:
        return right_calls(case, database)
    names = [name for name, needed in ARGUMENTS.items() if needed == ("order",)]
    first = call_tool(database, "status" if rng.random() < HABIT else rng.choice(names), {"order": case.order})
    # Six in ten stop after one call, right or wrong.
    if rng.random() < 0.6:
        return [first]
    follow = {"buyer": "city", "total": "refund"}.get(first.name)
    second = follow if follow and rng.random() < 0.7 else rng.choice([name for name in names if name != first.name])
    return [first, call_tool(database, second, _arguments(second, case.order, [first]))]


def _arguments(name: str, order: str, before: Sequence[OrderCall]) -> dict[str, Any]:
    if name == "city":
        return {"buyer": before[-1].result}
    if name == "refund":
        return {"order": order, "sum": int(before[-1].result)}
    return {"order": order}


def call_tool(database: OrderDatabase, name: str, arguments: Mapping[str, Any]) -> OrderCall:
    try:
        return OrderCall(name, arguments, str(getattr(database, name)(**arguments)))
    except NotPossible as refusal:
        return OrderCall(name, arguments, f"error: {refusal}")


def _done(plan: Sequence[OrderCall], calls: Sequence[OrderCall]) -> int:
    """Return how many calls of the plan were made, in the plan's order."""
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
            message = f"task.options.{option} = {value!r} does not fit 'orders'"
            raise ConfigError(message, hint=f"Use one of {', '.join(known)}.", field="task.options")
