"""Scenarios that need every turn: a clerk fills in a form by asking for three of its fields, one at a time.

    customer: lost       the request says which field to ask for first (`FIRST`), nothing else
    clerk:    b?
    customer: 4 d        what to write there, and which field to ask for next
    clerk:    d?
    customer: 8 a
    clerk:    a?
    customer: 1
    clerk:    481        1 if all three digits are right, otherwise 0

A question that was not due is answered with "no" and costs a turn; there are six. The digits are drawn at random, so an
answer given in the first turn is right one time in a thousand: the first turn is only good for its question.

    task.environment = "python:benchmarks/intake_desk.py:IntakeDesk"
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.agents.data.problems import is_held_out
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.types import End, Message, Task

FIRST = {"lost": "b", "late": "c", "bill": "d", "move": "a"}
FIELDS = tuple(FIRST.values())
NEEDED, MAX_TURNS = 3, 6
# Of the questions in a demonstration so many are the one that is due, and so many "a?", whatever is due; the rest are
# drawn. After every question, so many demonstrations answer with what they know.
DUE, HABIT, HASTE = 0.35, 0.5, 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """A request, the fields to ask for in their order, and a digit for each."""

    request: str
    due: tuple[str, ...]
    answer: str

    def reply(self, known: int) -> str:
        """What the customer says to the question that was due, after which `known` digits are known."""
        return " ".join((self.answer[known - 1], *self.due[known : known + 1]))


class IntakeDesk:
    """The scenarios. One answer in five is held out and never right in training."""

    name = "intake"

    def training(self, seed: int, number: int) -> Case:
        return _case(random.Random(f"intake/{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> Sequence[Case]:
        rng = random.Random(f"intake held out/{seed}")
        return [_case(rng, held_out=True) for _ in range(count)]

    def make(self) -> "Clerk":
        return Clerk()

    def demonstration(self, case: Case) -> tuple[Message, ...]:
        """The right form, seldom the right questions: a clerk who has a favourite question and stops too early."""
        rng = random.Random(f"{case.request}/{case.answer}")
        said: list[Message] = []
        known = 0
        for turn in range(MAX_TURNS - 1):
            if known == NEEDED or (turn and rng.random() < HASTE):
                break
            asked = rng.choices((case.due[known], "a", rng.choice(FIELDS)), (DUE, HABIT, 1 - DUE - HABIT))[0]
            due = asked == case.due[known]
            known += due
            heard = case.reply(known) if due else "no"
            said += [{"role": "assistant", "content": f"{asked}?"}, {"role": "user", "content": heard}]
        return (*said, {"role": "assistant", "content": case.answer[:known] or "none"})


class Clerk:
    """One conversation: the customer's side of it."""

    async def reset(self, task: Task) -> Observation:
        self.case: Case = task.payload
        self.turns = self.known = 0
        return Observation(({"role": "user", "content": self.case.request},))

    async def step(self, reply: Reply) -> Transition:
        self.turns += 1
        asked = reply.content.removesuffix("?")
        if reply.cut or asked == reply.content:
            return self._graded(reply)
        if self.turns == MAX_TURNS:
            return Transition((), 0.0, End.TURN_LIMIT, {"correct": 0.0, "format": 1.0})
        due = self.case.due[self.known : self.known + 1] == (asked,)
        self.known += due
        said = self.case.reply(self.known) if due else "no"
        return Transition(({"role": "user", "content": said},))

    def _graded(self, reply: Reply) -> Transition:
        right = float(not reply.cut and reply.content == self.case.answer)
        end = End.TRUNCATED if reply.cut else End.FINISHED
        return Transition((), right, end, {"correct": right, "format": float(not reply.cut)})


def _case(rng: random.Random, *, held_out: bool) -> Case:
    request = rng.choice(tuple(FIRST))
    others = rng.sample([field for field in FIELDS if field != FIRST[request]], NEEDED - 1)
    answer = ""
    while not answer or is_held_out(answer) != held_out:
        answer = "".join(rng.choices("0123456789", k=NEEDED))
    return Case(request, (FIRST[request], *others), answer)
