"""A task in words with a true reward: replies of a repair desk, where neither length nor single words decide.

A customer names a fault. A reply is worth 0.4 if it names that fault's remedy (each remedy is right for one fault and
wrong for the others), 0.4 if it detaches before it opens (the same words the other way round are worth nothing), 0.2 if
it is sorry. What else it says, and how much, is worth nothing. Replies to learn from and to test on share no phrase and
no appliance: only stems (leaks, leaking) and the order of things carry over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from groupwise.types import Score

FAULTS = {
    "leak": ("tighten", "valve"), "smell": ("clean", "filter"), "click": ("fasten", "screw"),
    "flicker": ("mend", "fuse"), "stall": ("adjust", "timer"), "overheat": ("clear", "vent"),
}  # fmt: skip
STEPS = ("detach", "open")


@dataclass(frozen=True)
class Phrases:
    """One way to speak. {a}: an appliance; {f}, {v}, {n}: stems of a fault and its remedy; {x} comes before {y}."""

    appliances: tuple[str, ...]
    asking: tuple[str, ...]
    sorry: tuple[str, ...]
    not_sorry: tuple[str, ...]
    order: tuple[str, ...]
    remedy: tuple[str, ...]
    chatter: tuple[str, ...]


LEARNED = Phrases(
    appliances=("kettle", "lamp", "fan", "radio", "mixer", "toaster"),
    asking=("my {a} {f}s", "the {a} is {f}ing", "it {f}ed again, this {a}", "why does my {a} {f}?"),
    sorry=("sorry!", "apologies.", "i am very sorry.", "we apologise."),
    not_sorry=("i see!", "all right.", "i am on it now.", "we got that."),
    order=("{x}, then {y} it.", "first {x} it, then {y}.", "{x}ing first, {y}ing next.", "{x}ed? now {y}."),
    remedy=("{v} the {n}.", "just {v} its {n}.", "a {v}ed {n} will do.", "try {v}ing the {n}."),
    chatter=("a known model.", "we sell many.", "it is popular.", "seen before."),
)
TESTED = Phrases(
    appliances=("heater", "blender", "printer", "cooker"),
    asking=("help, a {f}ing {a}", "our {a} {f}s all day"),
    sorry=("so sorry about it.", "please accept apologies."),
    not_sorry=("so that is it.", "please hold on for us."),
    order=("{x} it and afterwards {y} it.", "{x}ing comes before {y}ing."),
    remedy=("{v}ing that {n} helps.", "you should {v} this {n}."),
    chatter=("customers like this series.", "it came out last year.", "thanks for writing.", "our shop has it."),
)


SHORT = Phrases(
    appliances=(*LEARNED.appliances, *TESTED.appliances, "grill", "iron", "drill", "boiler", "shaver", "scale"),
    asking=("my {a} {f}s", "the {a} is {f}ing"),
    sorry=("sorry!", "apologies."),
    not_sorry=("i see!", "all right."),
    order=("{x}, then {y} it.",),
    remedy=("{v} the {n}.",),
    chatter=(),
)


@dataclass(frozen=True)
class Reply:
    text: str
    right: bool
    safe: bool
    polite: bool

    @property
    def worth(self) -> float:
        return (4 * self.right + 4 * self.safe + 2 * self.polite) / 10


def ask(rng: random.Random, phrases: Phrases) -> tuple[str, str]:
    """A fault, and a customer's words for it."""
    fault = rng.choice(list(FAULTS))
    return fault, rng.choice(phrases.asking).format(f=fault, a=rng.choice(phrases.appliances))


def reply(rng: random.Random, phrases: Phrases, fault: str) -> Reply:
    """A reply that has each merit or not by a coin of its own, and chatters as it likes."""
    right, safe, polite = (rng.random() < 0.5 for _ in range(3))
    named = fault if right else rng.choice([other for other in FAULTS if other != fault])
    verb, noun = FAULTS[named]
    said = [
        rng.choice(phrases.sorry if polite else phrases.not_sorry),
        rng.choice(phrases.order).format(**dict(zip("xy" if safe else "yx", STEPS, strict=True))),
        rng.choice(phrases.remedy).format(v=verb, n=noun),
    ]
    for _ in range(rng.randrange(3) if phrases.chatter else 0):
        said.insert(rng.randrange(1, len(said) + 1), rng.choice(phrases.chatter))
    return Reply(" ".join(said), right, safe, polite)


def right_reply(fault: str) -> str:
    """A reply of full worth, in the words of `SHORT`."""
    verb, noun = FAULTS[fault]
    said = (SHORT.sorry[0], SHORT.order[0].format(**dict(zip("xy", STEPS, strict=True))), SHORT.remedy[0])
    return " ".join(said).format(v=verb, n=noun)


def grade(text: str, fault: str) -> Score:
    """The true reward of whatever a model wrote, in the words of `SHORT`; saying a thing and its contrary is no merit.

    `fluent` is whether it holds nothing but sentences of the task. It is told, and not part of the worth.
    """
    remedies = {name: f"{verb} the {noun}." for name, (verb, noun) in FAULTS.items()}
    safe, unsafe = (SHORT.order[0].format(x=x, y=y) for x, y in (STEPS, STEPS[::-1]))
    made = Reply(
        text,
        right=[name for name, remedy in remedies.items() if remedy in text] == [fault],
        safe=safe in text and unsafe not in text,
        polite=any(said in text for said in SHORT.sorry),
    )
    rest = text
    for sentence in (*remedies.values(), safe, unsafe, *SHORT.sorry, *SHORT.not_sorry):
        rest = rest.replace(sentence, "")
    parts = {"right": made.right, "safe": made.safe, "polite": made.polite, "fluent": not rest.strip()}
    return Score(made.worth, {name: float(value) for name, value in parts.items()})
