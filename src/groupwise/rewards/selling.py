"""Selling: knowing the product, finding out what is needed, saying what it is worth."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

from groupwise.errors import ConfigError
from groupwise.rewards.components import Component, Ideas
from groupwise.rewards.speech import Reply, listed, phrase_of

MEASURE = re.compile(
    r"[$€£]\s?\d|(?<!\d)\d{1,12}(?:[.,]\d{1,6})?\s?(?:%|[a-zA-Z]{1,3}\b|percent|inch|hours|years|watts)"
)


class ProductKnowledgeRewardComponent(Ideas):
    """min(1, n / 3): of features, figures, compatibility, price, warranty and comparison, how many are spoken of.

    With `facts`, the share of those facts that a reply states, word for word.
    """

    label = "product_knowledge"
    enough = 3
    ideas: ClassVar = {
        "features": listed("feature*, includ*, comes with, equipped, built in, design*, model, version*, supports"),
        "compatibility": listed("compatib*, works with, fits, integrat*, connects, requires"),
        "price": listed("price*, cost*, plan, plans, discount*, subscription, per month, a month"),
        "warranty": listed("warrant*, guarantee*, return policy, returns, support included, service plan"),
        "comparison": listed("compared to, compared with, unlike, whereas, more than, better than, faster than"),
    }

    def __init__(self, weight: float = 1.0, facts: Iterable[str] | None = None, name: str | None = None) -> None:
        super().__init__(weight, name)
        given = [facts] if isinstance(facts, str) else facts or ()
        self.facts = tuple(filter(None, map(phrase_of, given)))
        if facts is not None and not self.facts:
            raise ConfigError("product_knowledge: none of the facts has a word in it", hint="Leave facts out instead.")

    def rate(self, reply: Reply) -> float:
        if self.facts:
            return sum(map(reply.says, self.facts)) / len(self.facts)
        return min(1.0, (self.found(reply) + bool(MEASURE.search(reply.text))) / self.enough)


class NeedsIdentificationRewardComponent(Component):
    """min(1, n / 2): n different questions, and one more where a reply takes up what the customer said they need."""

    label = "needs_identification"
    enough = 2
    taken_up: ClassVar = listed(
        "you mentioned, you said, you need, you're looking for, you are looking for, your needs, your goal*, your "
        "budget, sounds like you, based on what you, for your"
    )

    def rate(self, reply: Reply) -> float:
        return min(1.0, (len(reply.questions) + reply.says_any(self.taken_up)) / self.enough)


class ValuePropositionRewardComponent(Ideas):
    """min(1, n / 3): of a benefit, a saving, a result for you, proof and an invitation, how many are there."""

    label = "value_proposition"
    enough = 3
    ideas: ClassVar = {
        "benefit": listed("benefit*, advantage*, help you, helps you, lets you, allows you, makes it easy, improve*"),
        "saving": listed("save*, saving*, less time, lower cost*, cheaper, reduce*, return on investment, roi, value"),
        "result": listed("so you can, so that you, means you, you'll get, you will get, you can, for your, you gain"),
        "proof": listed("customers, reviews, rated, proven, percent, award*, tested, case study, on average"),
        "invitation": listed("free trial, demo, would you like, get started, try it, shall we, interested, sign up"),
    }
