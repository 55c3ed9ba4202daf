"""Strategies: how to conduct a kind of conversation, as a small state that every turn updates.

    registry            the contract, how strategies are found, and `Signal` to recognise phrases; start here
    reading             what a turn means in its dialogue, by rules: whether a matter is settled, what somebody wants
    phrases, polarity   the phrases by which turns are read; whether a turn sounds like success or failure
    resolution          whether a dialogue met the user's need: the rules weighed with learned weights (resolution.json)
    valence             how strongly words praise or blame
    intents             what the user actually wants, by domain
    customer_service, technical_support, educational, sales

A strategy is a frozen dataclass of what it has understood so far. `advance(message)` returns the state after a turn of
either side, `guidance()` instructs the model for its next turn. Both are pure.

    @strategy("waiter")
    @dataclass(frozen=True, slots=True)
    class Waiter:
        ordered: bool = False

        def advance(self, message: Message) -> Waiter:
            return replace(self, ordered=self.ordered or "please" in message["content"])

        def guidance(self) -> str:
            return "Confirm the order." if self.ordered else "Ask what it may be."
"""

from groupwise.agents.strategies.customer_service import CustomerService
from groupwise.agents.strategies.educational import Educational
from groupwise.agents.strategies.registry import (
    DOMAINS,
    Strategy,
    UnknownStrategy,
    find_strategy,
    known_strategies,
    report,
    restore,
    strategy,
)
from groupwise.agents.strategies.sales import Sales
from groupwise.agents.strategies.technical_support import TechnicalSupport

__all__ = [
    "DOMAINS", "CustomerService", "Educational", "Sales", "Strategy", "TechnicalSupport", "UnknownStrategy",
    "find_strategy", "known_strategies", "report", "restore", "strategy",
]  # fmt: skip
