"""The MCP server of `mcp_learning.py`: a shop's desk with three tools, and 400 questions that need one of them.

    python mcp_desk.py             the server, over standard input and output
    mcp_desk.py:demonstrated       what a warm start imitates: right in form, and mostly the wrong tool

The model is told neither what an order's number stands for nor which tool a question needs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.environments.task import TaskEnvironment
from groupwise.types import Message

ORDERS = 200
STATUSES = ("open", "paid", "sent")
NAMES = ("Boni", "Dela", "Kuma", "Lise", "Mato", "Nera", "Risa", "Soke")
WORDS = {"status": ("Where is {}?", "State of {}?"), "total": ("Cost of {}?", "Bill of {}?"),
         "buyer": ("Who has {}?", "Whose is {}?")}  # fmt: skip
HABIT, RIGHT = (
    0.55,
    0.25,
)  # shares of the demonstrations that ask for the status anyway, and that ask for what is needed


def catalogue() -> dict[str, dict[str, str]]:
    """Every order with its facts; the same in the server and in the questions."""
    rng = random.Random("desk")
    return {
        str(number): {"status": rng.choice(STATUSES), "total": str(rng.randrange(2, 99)), "buyer": rng.choice(NAMES)}
        for number in rng.sample(range(1000, 10_000), ORDERS)
    }


def questions(*, held_out: bool) -> list[dict[str, str]]:
    """Two questions about every order; one order in four occurs only in held-out questions."""
    rng = random.Random("questions")
    found = []
    for place, (order, facts) in enumerate(catalogue().items()):
        for tool in rng.sample(sorted(WORDS), 2):
            asked = rng.choice(WORDS[tool]).format(order)
            if (place % 4 == 0) == held_out:
                found.append({"prompt": asked, "answer": facts[tool], "order": order, "tool": tool})
    return found


class Demonstrated(TaskEnvironment):
    """The training questions, with conversations that show how to call a tool and to answer with its result."""

    def demonstration(self, task: Mapping[str, Any]) -> tuple[Message, ...]:
        rng = random.Random(f"shown/{task['goal']}")
        draw = rng.random()
        tool = task["tool"] if draw < RIGHT else "status" if draw < RIGHT + HABIT else rng.choice(sorted(WORDS))
        called = {
            "id": "call-0-0",
            "type": "function",
            "function": {"name": tool, "arguments": {"order": task["order"]}},
        }
        fact = catalogue()[task["order"]][tool]
        return (
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "content": fact, "tool_call_id": "call-0-0"},
            {"role": "assistant", "content": fact},
        )


def demonstrated() -> Demonstrated:
    train, held_out = ([{"goal": row["prompt"], **row} for row in questions(held_out=side)] for side in (False, True))
    return Demonstrated(train, _right, held_out=held_out, name="desk")


def _right(task: Mapping[str, Any], messages: Sequence[Message]) -> float:
    return float(messages[-1]["content"].strip() == task["answer"])


def main() -> None:
    from mcp.server import MCPServer

    known, desk = catalogue(), MCPServer("desk")

    def fact(order: str, name: str) -> str:
        if order not in known:
            raise ValueError(f"there is no order {order}")
        return known[order][name]

    @desk.tool()
    def status(order: str) -> str:
        """What has become of an order."""
        return fact(order, "status")

    @desk.tool()
    def total(order: str) -> str:
        """What an order cost."""
        return fact(order, "total")

    @desk.tool()
    def buyer(order: str) -> str:
        """Who bought an order."""
        return fact(order, "buyer")

    desk.run()


if __name__ == "__main__":
    main()
