"""Conversations carry the tokens that were sampled, and every ending has a name."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.rollouts import (
    ConversationLimits,
    Conversations,
    TokenTranscript,
    as_text,
    checked_messages,
    conversation_tasks,
    failure_of,
    spoken_meta,
)
from groupwise.agents.environments.contract import Environment, Observation, Reply, Transition
from groupwise.errors import ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer, tiny_model
from groupwise.thoughts import REASONING
from groupwise.types import End, Failure, Task, Trajectory

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


def spoken(*ids: int) -> Sampled:
    logp = np.linspace(-1, -2, len(ids), dtype=np.float32)
    return Sampled(np.array(ids), logp, np.full(len(ids), 7), 7, "stop")


def test_a_transcript_marks_the_models_tokens_and_credits_the_last_of_them() -> None:
    transcript = TokenTranscript()
    transcript.listen([1, 2])
    transcript.speak(spoken(3, 4))
    transcript.earn(0.5)
    transcript.listen([5])
    transcript.earn(0.25)
    transcript.speak(spoken(6))
    transcript.listen([7, 8])
    transcript.earn(1.0)
    assert len(transcript) == 8
    failure = Failure("environment", "raised", "no", "", "")
    attempt = transcript.attempt(Task("t/4", None, 4), 2, End.TRUNCATED, failure, {"a": 1})
    assert (attempt.id, attempt.task_id, attempt.group_id) == ("g4/m2", "t/4", "g4")
    assert attempt.actions.tolist() == attempt.obs.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert attempt.mask.tolist() == [False, False, True, True, False, True, False, False]
    assert attempt.behavior_logp.tolist() == [0, 0, -1, -2, 0, -1, 0, 0]
    assert attempt.versions.tolist() == [0, 0, 7, 7, 0, 7, 0, 0]
    assert attempt.rewards.tolist() == [0, 0, 0, 0.75, 0, 1, 0, 0]
    assert (attempt.end, attempt.terminated, attempt.error, attempt.meta) == (End.TRUNCATED, True, failure, {"a": 1})


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_conversation_has_as_many_turns_as_it_may_and_ends_with_the_model(parts: Any, turns: int) -> None:
    (group,) = conversations(parts, Endless, size=1, turns=turns).collect(tasks(1))
    (attempt,) = group.members
    assert attempt.end is End.TURN_LIMIT
    assert attempt.meta["turns"] == turns == len(ends_of_turns(attempt))
    assert attempt.mask[-1]
    assert [m["role"] for m in attempt.meta["messages"][2:]] == ["assistant", "user"] * turns


def test_no_more_conversations_are_in_flight_than_allowed(parts: Any) -> None:
    most = now = 0

    class Counted(Babble):
        async def reset(self, task: Task) -> Observation:
            nonlocal most, now
            now += 1
            most = max(most, now)
            return await super().reset(task)

        async def close(self) -> None:
            nonlocal now
            now -= 1

    conversations(parts, Counted, size=3, in_flight=2).collect(tasks(3))
    assert (most, now) == (2, 0)
    assert ConversationLimits() == ConversationLimits(turns=20, in_flight=64, seconds=60.0)


def test_every_turn_of_every_attempt_is_sampled_with_a_seed_of_its_own(parts: Any) -> None:
    _, _, engine = parts
    seeds: list[int] = []
    submit = engine.submit

    def recording(ids: Any, params: Any, seed: int, session: Any) -> Any:
        seeds.append(seed)
        return submit(ids, params, seed, session)

    engine.submit = recording
    try:
        for seed in (0, 1):
            made = conversations(parts, Endless, size=2, turns=2)
            made.seed = seed
            groups = made.collect(tasks(2))
            assert [group.id for group in groups] == ["g0", "g1"]
            assert [[m.id for m in group.members] for group in groups] == [["g0/m0", "g0/m1"], ["g1/m0", "g1/m1"]]
    finally:
        del engine.submit
    assert len(seeds) == len(set(seeds)) == 16
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_messages_become_text_for_a_reader() -> None:
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", REASONING: "hm"}, {"role": "tool", "content": None},
            {"role": "assistant", "content": "c", REASONING: "so"}]  # fmt: skip
    assert spoken_meta(talk, 2) == {
        "messages": tuple(talk), "prompt": "system: s\nuser: a", "reasoning": "hm\n\nso",
        "content": "assistant: b\ntool: \nassistant: c", "text": "assistant: b\ntool: \nassistant: c",
    }  # fmt: skip
    assert spoken_meta(talk[:3], 2)["text"] == "b"
    assert as_text([{"role": "user", "content": None}]) == ""
    assert as_text([]) == ""


@pytest.mark.parametrize("wrong", ["hi", b"hi", 7, {"role": "user"}, [{"role": "narrator"}], ["hi"], [{}]])
def test_messages_of_an_environment_are_checked(wrong: Any) -> None:
    sound = ({"role": "user", "content": "hi"}, {"role": "tool"})
    assert checked_messages(sound) is sound
    with pytest.raises(ContractError, match="of the environment is|environment's messages are"):
        checked_messages(wrong)


def test_a_failure_tells_whose_fault_it_is() -> None:
    own = failure_of(ContractError("no", hint="Do."))
    assert (own.where, own.code, own.message, own.hint) == ("environment", "contract", "no", "Do.")
    other = failure_of(KeyError("x" * 3000))
    assert (other.where, other.code, len(other.message)) == ("environment", "raised", 2000)
    assert other.message.startswith("the environment raised KeyError: 'xxx")


def test_tasks_are_the_training_scenarios_by_number() -> None:
    class Numbers:
        name = "numbers"

        def training(self, seed: int, number: int) -> Any:
            if number == 9:
                raise IndexError("too many")
            if number == 8:
                raise ContractError("own words")
            return (seed, number)

    make = conversation_tasks(Numbers(), 5)  # type: ignore[arg-type]
    assert make(3) == Task("numbers/3", (5, 3), 3)
    with pytest.raises(ContractError, match=r"training\(5, 9\) of 'numbers' raised IndexError: too many"):
        make(9)
    with pytest.raises(ContractError, match="^own words"):
        make(8)


class Once(Babble):
    """Asks, hears one reply, says one thing more, and ends after the next."""

    async def reset(self, task: Task) -> Observation:
        self.replies = 0
        return Observation(({"role": "user", "content": "hello"},))

    async def step(self, reply: Reply) -> Transition:
        self.replies += 1
        parts = {"said": 1.0, "long": 2.5} if self.replies == 1 else {"said": 0.5, "last": -1.0}
        end = End.FINISHED if self.replies == 2 else None
        return Transition(({"role": "user", "content": "go on"},) if end is None else (), 0.0, end, parts)


def in_context(parts: Any, make: Callable[[], Environment], length: int, **changes: Any) -> Trajectory:
    """One attempt with one token a turn, in a context of this length."""
    model, tokenizer, _ = parts
    with Engine(model, tokenizer, slots=2, max_length=length) as engine:
        params = SamplingParams(max_new_tokens=1)
        made = Conversations(engine, Frame(tokenizer), make, params, group_size=1, seed=0, **changes)
        (group,) = made.collect(tasks(1))
        made.close()
    return group.members[0]


def test_a_conversation_goes_on_while_one_token_more_fits_into_the_context(parts: Any) -> None:
    free = in_context(parts, Once, 200)
    assert (free.end, free.meta["turns"]) == (End.FINISHED, 2)
    before = len(free) - 1  # tokens before the second turn
    narrow, full = (in_context(parts, Once, length) for length in (before + 1, before))
    assert (narrow.end, narrow.actions.tolist()) == (End.FINISHED, free.actions.tolist())
    assert (full.end, full.error, full.meta["turns"]) == (End.TRUNCATED, None, 1)
    assert full.mask[-1], "nothing is read that nobody answers"
    opening = int(free.mask.argmax())
    assert in_context(parts, Once, opening + 1).meta["turns"] == 1
    refused = in_context(parts, Once, opening)
    assert refused.error is not None
    assert (
        refused.error.message == f"the conversation opens with {opening} tokens, but the model's context is {opening}"
    )
    assert len(refused) == 0


def test_the_parts_of_the_reward_are_summed_over_the_conversation(parts: Any) -> None:
    attempt = in_context(parts, Once, 200)
    assert attempt.meta["parts"] == {"said": 1.5, "long": 2.5, "last": -1.0}
    assert "".join(attempt.meta["tokens"]) == parts[1].decode(attempt.actions)
    assert attempt.meta["prompt"] == "hello"


def test_turns_of_the_model_in_the_opening_are_not_its_own(parts: Any) -> None:
    class Begun(Once):
        async def reset(self, task: Task) -> Observation:
            await super().reset(task)
            talk = [("user", "hi"), ("assistant", "hi"), ("user", "and?")]
            return Observation(tuple({"role": role, "content": content} for role, content in talk))

    attempt = in_context(parts, Begun, 200)
    assert (attempt.meta["turns"], len(ends_of_turns(attempt))) == (2, 2)
    assert attempt.meta["prompt"] == "user: hi\nassistant: hi\nuser: and?"


def test_options_of_the_template_hold_for_the_whole_conversation(parts: Any) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ mood }}{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )

    class Moody(Once):
        async def reset(self, task: Task) -> Observation:
            return Observation((await super().reset(task)).messages, (), {"mood": "glad "})

    made = Conversations(parts[2], Frame(tokenizer), Moody, SamplingParams(max_new_tokens=1), group_size=1, seed=0)
    (group,) = made.collect(tasks(1))
    text = tokenizer.decode(group.members[0].actions)
    assert "<|user|>glad hello<|end|>" in text
    assert "<|user|>glad go on<|end|>" in text


def test_an_environment_is_closed_however_its_conversation_ends(parts: Any) -> None:
    closed: list[type] = []

    def closing(kind: type[Babble]) -> type[Babble]:
        class Closing(kind):  # type: ignore[misc, valid-type]
            async def close(self) -> None:
                closed.append(kind)

        return Closing

    kinds = [Babble, Endless, Raises, Hangs, Floods, OpensTooLong, OpensWithAList]
    for kind in kinds:
        conversations(parts, closing(kind), size=1, turns=2, seconds=0.2).collect(tasks(1))
    assert closed == kinds


def test_what_fails_before_after_or_too_late_is_told_in_the_attempt(parts: Any) -> None:
    class SlowToOpen(Babble):
        async def reset(self, task: Task) -> Observation:
            await asyncio.sleep(60)
            return Observation(())

    class FailsToClose(Once):
        async def close(self) -> None:
            raise OSError("still open")

    def none_left() -> Environment:
        raise RuntimeError("none left")

    said = []
    for make in (SlowToOpen, FailsToClose, none_left):
        (group,) = conversations(parts, make, size=1, seconds=0.25).collect(tasks(1))
        (attempt,) = group.members
        assert attempt.end is End.ENV_ERROR
        assert attempt.error is not None
        said.append(attempt.error.message)
    assert said == [
        "the environment took longer than 0.25 s for one turn",
        "the environment raised OSError: still open",
        "the environment raised RuntimeError: none left",
    ]
    assert "none_left" in attempt.error.traceback


def test_attempts_are_in_order_whoever_finishes_first_each_with_a_session_of_its_own(parts: Any) -> None:
    """Every attempt waits for the one after it."""
    _, _, engine = parts
    sessions: list[Any] = []
    submit = engine.submit

    def recording(ids: Any, params: Any, seed: int, session: Any) -> Any:
        sessions.append((session, params))
        return submit(ids, params, seed, session)

    done = [asyncio.Event() for _ in range(7)]
    begun = iter(range(6))

    class Backwards(Once):
        async def reset(self, task: Task) -> Observation:
            self.number = next(begun)
            await super().reset(task)
            return Observation(({"role": "user", "content": f"I am {self.number}"},))

        async def step(self, reply: Reply) -> Transition:
            transition = await super().step(reply)
            if transition.end is not None:
                if self.number < 5:
                    await done[self.number + 1].wait()
                done[self.number].set()
            return transition

    made = conversations(parts, Backwards, size=3)
    engine.submit = recording
    try:
        groups = made.collect(tasks(2))
    finally:
        del engine.submit
    members = [member for group in groups for member in group.members]
    assert [member.meta["prompt"] for member in members] == [f"I am {n}" for n in range(6)]
    assert [member.id for member in members] == [f"g{g}/m{m}" for g in range(2) for m in range(3)]
    assert [group.task for group in groups] == tasks(2)
    own = [(f"babble/{g}", m) for g in range(2) for m in range(3)]
    assert sorted(session for session, _ in sessions) == sorted(own * 2), "the second turn is in that of the first"
    assert {params for _, params in sessions} == {made.params}


COUNTING = (
    "{% for m in messages %}<|{{ m.role }}|>{{ loop.index0 }}:{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_what_follows_a_turn_is_rendered_after_all_that_was_said_before(parts: Any) -> None:
    """A template that counts messages shows which of them it was given; the opening has two."""
    tokenizer = character_tokenizer()
    tokenizer.chat_template = COUNTING
    params, limits = SamplingParams(max_new_tokens=2), ConversationLimits(turns=4)
    made = Conversations(parts[2], Frame(tokenizer), Endless, params, group_size=1, seed=0, limits=limits)
    (group,) = made.collect(tasks(1))
    text = tokenizer.decode(group.members[0].actions)
    assert re.findall(r"<\|(?:system|user)\|>(\d+):", text) == ["0", "1", "3", "5", "7"]
