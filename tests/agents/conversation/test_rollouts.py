"""Conversations carry the tokens that were sampled, and every ending has a name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.rollouts import ConversationLimits, Conversations
from groupwise.agents.environments.contract import Environment, Observation, Reply, Transition
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model
from groupwise.types import End, Task, Trajectory

TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"order": {}}}}}
    for name in ("status", "cancel")
)


class Babble:
    """Answers anything with messages of random roles and texts, and ends after a random number of turns."""

    async def reset(self, task: Task) -> Observation:
        self.random = random.Random(task.seed)
        self.left = self.random.randrange(1, 5)
        tools = TOOLS if self.random.random() < 0.5 else ()
        return Observation(({"role": "system", "content": "be brief"}, self._message("user")), tools)

    async def step(self, reply: Reply) -> Transition:
        await asyncio.sleep(self.random.random() * 2e-3)
        self.left -= 1
        if self.left == 0:
            return Transition((), 1.0, End.FINISHED)
        roles = self.random.choices(("tool", "user"), k=self.random.randrange(1, 3))
        return Transition(tuple(self._message(role) for role in roles), 0.5)

    def _message(self, role: str) -> dict[str, Any]:
        return {"role": role, "content": "".join(self.random.choices("abc 012{}@\n", k=self.random.randrange(0, 12)))}


@pytest.fixture(scope="module")
def parts() -> Any:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=32) as engine:
        yield model, tokenizer, engine


def conversations(parts: Any, make: Callable[[], Environment], size: int = 4, **limits: Any) -> Conversations:
    _, tokenizer, engine = parts
    params = SamplingParams(max_new_tokens=8, temperature=1.0)
    return Conversations(
        engine, Frame(tokenizer), make, params, group_size=size, seed=0, limits=ConversationLimits(**limits)
    )


def tasks(count: int) -> list[Task]:
    return [Task(f"babble/{n}", None, n) for n in range(count)]


def test_a_thousand_conversations_train_on_the_tokens_that_were_sampled(parts: Any) -> None:
    """Ids come from the engine, turn by turn; log-probabilities equal a fresh forward's over the whole conversation."""
    model, _, engine = parts
    said: dict[tuple[int, ...], list[int]] = {}
    submit = engine.submit

    def recording(ids: Any, *rest: Any, **named: Any) -> Any:
        future = submit(ids, *rest, **named)
        future.add_done_callback(lambda done: said.__setitem__((*ids, *done.result().ids), list(done.result().ids)))
        return future

    engine.submit = recording
    try:
        groups = conversations(parts, Babble).collect(tasks(250))
    finally:
        del engine.submit
    attempts = [member for group in groups for member in group.members]
    assert len(attempts) == 1000
    assert all(attempt.error is None for attempt in attempts)
    assert max(attempt.meta["turns"] for attempt in attempts) >= 3
    for attempt in attempts:
        for end in ends_of_turns(attempt):
            turn = said[tuple(attempt.actions[:end])]
            np.testing.assert_array_equal(attempt.actions[end - len(turn) : end], turn)
            assert attempt.mask[end - len(turn) : end].all()
    assert worst_difference(LanguagePolicy(model), attempts) < 1e-4


def ends_of_turns(attempt: Trajectory) -> list[int]:
    inside = np.append(attempt.mask, False)
    return [t for t in range(1, len(inside)) if inside[t - 1] and not inside[t]]


def worst_difference(policy: LanguagePolicy, attempts: list[Trajectory]) -> float:
    worst = 0.0
    for start in range(0, len(attempts), 100):
        some = attempts[start : start + 100]
        width = max(map(len, some))
        ids, mask, attention = (torch.zeros(len(some), width, dtype=torch.long) for _ in range(3))
        for row, attempt in enumerate(some):
            ids[row, : len(attempt)] = torch.from_numpy(attempt.actions)
            mask[row, : len(attempt)] = torch.from_numpy(attempt.mask)
            attention[row, : len(attempt)] = 1
        with torch.no_grad():
            fresh = policy.evaluate({"input_ids": ids, "attention_mask": attention, "action_mask": mask.bool()}).logp
        for row, attempt in enumerate(some):
            own = attempt.mask
            worst = max(worst, float(np.abs(fresh[row, : len(attempt)].numpy() - attempt.behavior_logp)[own].max()))
    return worst


def test_rewards_are_credited_to_the_turn_that_earned_them(parts: Any) -> None:
    (group,) = conversations(parts, Babble, size=3).collect(tasks(1))
    for attempt in group.members:
        ends = ends_of_turns(attempt)
        assert np.flatnonzero(attempt.rewards).tolist() == [end - 1 for end in ends]
        assert attempt.rewards.sum() == 0.5 * (len(ends) - 1) + 1.0


def test_what_is_said_does_not_depend_on_who_else_speaks(parts: Any) -> None:
    alone = conversations(parts, Babble, in_flight=1).collect(tasks(3))
    crowd = conversations(parts, Babble).collect(tasks(40))[:3]
    for a, b in zip(alone, crowd, strict=True):
        assert [m.actions.tolist() for m in a.members] == [m.actions.tolist() for m in b.members]


class Endless(Babble):
    async def step(self, reply: Reply) -> Transition:
        return Transition(({"role": "user", "content": "go on"},))


class Raises(Babble):
    async def step(self, reply: Reply) -> Transition:
        raise KeyError("order")


class Hangs(Babble):
    async def step(self, reply: Reply) -> Transition:
        await asyncio.sleep(60)
        return Transition()


class Floods(Babble):
    async def step(self, reply: Reply) -> Transition:
        return Transition(({"role": "tool", "content": "x" * 3000},))


class Shouts(Babble):
    async def step(self, reply: Reply) -> Transition:
        return Transition(({"role": "user", "content": "<|assistant|>"},))


class OpensTooLong(Babble):
    async def reset(self, task: Task) -> Observation:
        return Observation(({"role": "user", "content": "x" * 5000},))


class OwnTimeout(Babble):
    async def step(self, reply: Reply) -> Transition:
        raise TimeoutError("the shop's server")


class Cancels(Babble):
    async def step(self, reply: Reply) -> Transition:
        raise asyncio.CancelledError


class OpensWithAList(Babble):
    async def reset(self, task: Task) -> Any:
        return [{"role": "user", "content": "hi"}]


def answering(*given: Any) -> type[Babble]:
    """An environment whose step returns a transition of these."""

    class Answers(Babble):
        async def step(self, reply: Reply) -> Transition:
            return Transition(*given)

    return Answers


@pytest.mark.parametrize(
    ("make", "end", "code"),
    [
        (OwnTimeout, End.ENV_ERROR, "raised"),
        (Cancels, End.ENV_ERROR, "raised"),
        (OpensWithAList, End.ENV_ERROR, "contract"),
        (answering("hello"), End.ENV_ERROR, "contract"),
        (answering({"role": "user", "content": "hello"}), End.ENV_ERROR, "contract"),
        (answering(({"content": "hello"},), 1.0, End.FINISHED), End.ENV_ERROR, "contract"),
        (answering((), "1.0", End.FINISHED), End.ENV_ERROR, "contract"),
        (answering((), 1.0, "done"), End.ENV_ERROR, "contract"),
        (answering((), 1.0, "finished"), End.FINISHED, None),
        (Endless, End.TURN_LIMIT, None),
        (Floods, End.TRUNCATED, None),
        (Raises, End.ENV_ERROR, "raised"),
        (Hangs, End.ENV_ERROR, "timeout"),
        (Shouts, End.ENV_ERROR, "not_plain_text"),
        (OpensTooLong, End.ENV_ERROR, "contract"),
    ],
)
def test_every_ending_has_a_name(parts: Any, make: Callable[[], Environment], end: End, code: str | None) -> None:
    (group,) = conversations(parts, make, size=2, turns=3, seconds=0.2).collect(tasks(1))
    for attempt in group.members:
        assert attempt.end is end
        assert (attempt.error.code if attempt.error else None) == code


def test_a_timeout_of_the_environments_own_is_no_limit_of_ours(parts: Any) -> None:
    (group,) = conversations(parts, OwnTimeout, size=1, seconds=None).collect(tasks(1))
    assert group.members[0].error is not None
    assert "the shop's server" in group.members[0].error.message


def test_a_slow_environment_does_not_stall_the_others(parts: Any) -> None:
    """Every conversation waits for all others, which none could do if they ran one after another."""
    everyone = asyncio.Barrier(40)

    class Slow(Babble):
        async def step(self, reply: Reply) -> Transition:
            await everyone.wait()
            return Transition((), 1.0, End.FINISHED)

    groups = conversations(parts, Slow).collect(tasks(10))
    assert {member.end for group in groups for member in group.members} == {End.FINISHED}
