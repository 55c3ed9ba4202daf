"""An agent written against an OpenAI client is trained on the very tokens that were sampled for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.custom_rollout import (
    AssistantMessage,
    ChatCompletion,
    CustomRollouts,
    Function,
    FunctionCall,
    RolloutScenarios,
    plain_message,
    rows_of_segments,
)
from groupwise.agents.conversation.rollouts import ConversationLimits
from groupwise.errors import ContractError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model
from groupwise.training.estimators import scored_attempts
from groupwise.types import End, Group, Score, ScoredGroup, Task, Trajectory

TOOLS = [{"type": "function", "function": {"name": "status", "parameters": {"properties": {"order": {}}}}}]


@pytest.fixture(scope="module")
def parts() -> Any:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=16) as engine:
        yield model, tokenizer, engine


def attempts(parts: Any, rollout: Any, size: int = 4, **limits: Any) -> list[Trajectory]:
    _, tokenizer, engine = parts
    params = SamplingParams(max_new_tokens=8)
    own = CustomRollouts(
        engine, Frame(tokenizer), rollout, params, group_size=size, seed=0, limits=ConversationLimits(**limits)
    )
    try:
        (group,) = own.collect([Task("own/0", {"question": "Where is 4821?"}, 5)])
    finally:
        own.close()
    return list(group.members)


async def agent(client: Any, task: Any) -> float:
    """A usual loop: ask, run what is called for, ask again."""
    messages: list[Any] = [{"role": "user", "content": task["question"]}]
    for _ in range(3):
        answer = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS, temperature=0.7)
        said = answer.choices[0].message
        messages.append(said)
        for call in said.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.loads(call.function.arguments)})
        if not said.tool_calls:
            messages.append({"role": "user", "content": "Go on."})
    return 0.5


def worst_difference(model: Any, members: list[Trajectory]) -> float:
    """How far the recorded log-probabilities are from a fresh forward's, row by row."""
    scored = ScoredGroup(_group(members), tuple(Score(1.0) for _ in members))
    rows = rows_of_segments(scored_attempts([scored]))
    with torch.no_grad():
        fresh = LanguagePolicy(model).evaluate(rows.inputs).logp
    return float((fresh - rows.behavior_logp)[rows.mask].abs().max())


def _group(members: list[Trajectory]) -> Any:
    return Group("g5", Task("own/0", None, 5), tuple(members))


def test_calls_that_go_on_carry_their_tokens(parts: Any) -> None:
    model, _, engine = parts
    before = engine.tokens_read
    members = attempts(parts, agent)
    assert [member.end for member in members] == [End.FINISHED] * 4
    for member in members:
        assert (member.meta["segments"], member.meta["turns"]) == (1, 3)
        assert member.rewards.sum() == 0.5
        assert member.rewards[np.flatnonzero(member.mask)[-1]] == 0.5
        assert 3 <= member.mask.sum() <= 24
    assert worst_difference(model, members) < 1e-4
    whole = sum(len(member) for member in members)
    assert engine.tokens_read - before < whole, "what was read before is not read again"


async def forgetful(client: Any, task: Any) -> Score:
    """A question, another one, one about a history of its own, and the first one twice continued."""
    question = [{"role": "user", "content": task["question"]}]
    first = await client.chat.completions.create(messages=question)
    await client.chat.completions.create(messages=[{"role": "user", "content": "Something else?"}])
    rewritten = [*question, {"role": "assistant", "content": "shortened"}, {"role": "user", "content": "And?"}]
    await client.chat.completions.create(messages=rewritten, max_tokens=2)
    more = [*question, first.choices[0].message.model_dump(), {"role": "user", "content": "And?"}]
    await asyncio.gather(*(client.chat.completions.create(messages=more) for _ in range(2)))
    return Score(1.0, {"correct": 1.0})


def test_another_history_is_another_segment_with_a_row_of_its_own(parts: Any) -> None:
    members = attempts(parts, forgetful)
    assert {member.meta["segments"] for member in members} == {4}  # only one of the two that went on goes on
    assert all(member.meta["parts"] == {"correct": 1.0} for member in members)
    scored = scored_attempts([ScoredGroup(_group(members), tuple(Score(float(n)) for n in range(4)))])
    rows = rows_of_segments(scored)
    assert len(rows.mask) == 16
    assert int(rows.mask.sum()) == int(scored.mask.sum())
    number = torch.arange(4.0)[:, None].expand(scored.mask.shape)
    assert rows.pick(number).amax(1).tolist() == [float(n) for n in range(4) for _ in range(4)]
    assert worst_difference(parts[0], members) < 1e-4


def test_the_answer_has_openais_shape(parts: Any) -> None:
    seen: list[ChatCompletion] = []

    async def look(client: Any, task: Any) -> float:
        seen.append(await client.chat.completions.create(model="mine", messages=[{"role": "user", "content": "hi"}]))
        return 0.0

    attempts(parts, look, size=1)
    (answer,) = seen
    assert (answer.object, answer.model, answer.choices[0].message.role) == ("chat.completion", "mine", "assistant")
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def raises(client: Any, task: Any) -> float:
    await agent(client, task)
    raise KeyError("order")


async def hangs(client: Any, task: Any) -> float:
    await client.chat.completions.create(messages=[{"role": "user", "content": "hi"}])
    await asyncio.sleep(60)
    return 1.0


async def says_nothing(client: Any, task: Any) -> float:
    return 1.0


async def talks_on(client: Any, task: Any) -> float:
    for _ in range(5):
        await client.chat.completions.create(messages=[{"role": "user", "content": "hi"}])
    return 1.0


async def floods(client: Any, task: Any) -> float:
    await client.chat.completions.create(messages=[{"role": "user", "content": "x" * 5000}])
    return 1.0


async def returns_nothing(client: Any, task: Any) -> Any:
    await client.chat.completions.create(messages=[{"role": "user", "content": "hi"}])


async def own_timeout(client: Any, task: Any) -> Any:
    await returns_nothing(client, task)
    raise TimeoutError("the shop's server")


async def cancels(client: Any, task: Any) -> Any:
    await returns_nothing(client, task)
    raise asyncio.CancelledError


async def scores_in_words(client: Any, task: Any) -> Any:
    await returns_nothing(client, task)
    return Score("great")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rollout", "end", "code"),
    [
        (own_timeout, End.ENV_ERROR, "raised"),
        (cancels, End.ENV_ERROR, "raised"),
        (scores_in_words, End.ENV_ERROR, "contract"),
        (raises, End.ENV_ERROR, "raised"),
        (hangs, End.ENV_ERROR, "timeout"),
        (says_nothing, End.ENV_ERROR, "contract"),
        (talks_on, End.TURN_LIMIT, None),
        (floods, End.ENV_ERROR, "contract"),
        (returns_nothing, End.ENV_ERROR, "contract"),
    ],
)
def test_every_ending_has_a_name(parts: Any, rollout: Any, end: End, code: str | None) -> None:
    for member in attempts(parts, rollout, size=2, turns=3, seconds=0.5):
        assert (member.end, member.error.code if member.error else None) == (end, code)


def test_what_cannot_be_carried_is_refused() -> None:
    with pytest.raises(ContractError, match="is not a rollout"):
        RolloutScenarios(lambda client, task: 1.0, [1])
    with pytest.raises(ContractError, match="is not a message"):
        plain_message("hello")


def test_messages_are_read_as_the_server_reads_them() -> None:
    """Whoever writes for OpenAI's API finds the same door here: other objects, parts, and JSON in a text."""
    call = FunctionCall("c1", Function("find", '{"order": 7}'))
    read = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"order": 7}}}
    said = {"role": "assistant", "content": "", "tool_calls": [read]}
    assert plain_message(AssistantMessage(None, [call])) == said
    assert plain_message({"role": "assistant", "content": None, "tool_calls": [call]}) == said
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    assert plain_message({"role": "developer", "content": parts}) == {"role": "system", "content": "Be brief."}
    with pytest.raises(ContractError, match="only text is supported"):
        plain_message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "…"}}]})
    with pytest.raises(ContractError, match="a tool call cannot be read"):
        plain_message(AssistantMessage(None, [FunctionCall("c1", Function("find", "{order"))]))
