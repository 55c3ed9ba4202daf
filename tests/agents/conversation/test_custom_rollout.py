"""An agent written against an OpenAI client is trained on the very tokens that were sampled for it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.completion_client import (
    AssistantMessage,
    ChatCompletion,
    Completed,
    CompletionClient,
    Function,
    FunctionCall,
    RolloutScenarios,
    plain_message,
)
from groupwise.agents.conversation.custom_rollout import (
    CustomRollouts,
    TokenSegment,
    _score,
    rollout_for,
    rows_of_segments,
)
from groupwise.agents.conversation.rollouts import ConversationLimits
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer, tiny_model
from groupwise.training.estimators import scored_attempts
from groupwise.types import End, Group, Score, ScoredGroup, Task, Trajectory

TOOLS = [{"type": "function", "function": {"name": "status", "parameters": {"properties": {"order": {}}}}}]


@pytest.fixture(scope="module")
def parts() -> Any:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=16) as engine:
        yield model, tokenizer, engine


def attempts(parts: Any, rollout: Any, size: int = 4, temperature: float = 1.0, **limits: Any) -> list[Trajectory]:
    _, tokenizer, engine = parts
    params = SamplingParams(max_new_tokens=8, temperature=temperature)
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


class Canned:
    """Answers every call alike, and keeps what it was asked."""

    def __init__(self, reply: Reply, end: str = "stop") -> None:
        self.reply, self.end, self.asked = reply, end, []  # type: ignore[var-annotated]

    async def complete(self, *asked: Any) -> Any:
        self.asked.append(asked)
        return Completed(self.reply, self.end == "stop", 10, 3)


def create(who: Canned, **options: Any) -> ChatCompletion:
    return asyncio.run(CompletionClient(who).create(messages=[], **options))


@pytest.mark.parametrize(
    ("reply", "end", "finish"),
    [
        (Reply("hi"), "stop", "stop"),
        (Reply("hi"), "length", "length"),
        (Reply("hi"), "context", "length"),
        (Reply("@f", (ToolCall("c1", "f", {"a": 1}),)), "stop", "tool_calls"),
        (Reply("@f", (ToolCall("c1", "f", {"a": 1}),)), "length", "length"),
    ],
)
def test_an_answer_says_why_it_ended(reply: Reply, end: str, finish: str) -> None:
    answer = create(Canned(reply, end))
    (choice,) = answer.choices
    assert choice.finish_reason == finish
    assert choice.message.content == (None if reply.tool_calls else "hi")
    calls = [FunctionCall("c1", Function("f", '{"a": 1}'))] if reply.tool_calls else None
    assert choice.message.tool_calls == calls
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 3, 13)
    assert (answer.model, answer.object) == ("policy", "chat.completion")


def test_answers_are_numbered_and_thoughts_apart() -> None:
    client = CompletionClient(Canned(Reply("hi", reasoning="so")))

    async def twice() -> list[ChatCompletion]:
        return [await client.chat.completions.create(messages=[], model="mine") for _ in range(2)]

    answers = asyncio.run(twice())
    assert [(answer.id, answer.model) for answer in answers] == [("call-1", "mine"), ("call-2", "mine")]
    said = answers[0].choices[0].message
    assert said.model_dump() == {"role": "assistant", "content": "hi", "reasoning_content": "so"}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 0}, 0),
    ],
)
def test_the_newer_name_of_a_limit_goes_before_the_older(options: dict[str, int], most: int | None) -> None:
    who = Canned(Reply("hi"))
    create(who, tools=TOOLS, temperature=0.1, n=1, stream=False, **options)
    assert who.asked == [([], TOOLS, most, {})]


def test_options_of_the_template_are_passed_on_and_others_refused() -> None:
    who = Canned(Reply("hi"))
    create(who, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert who.asked[0][3] == {"enable_thinking": False}
    for options in ({"stream": True}, {"n": 2}, {"n": 0}):
        with pytest.raises(ContractError, match="returns one complete answer per call"):
            create(who, **options)
    with pytest.raises(ContractError, match="does not accept 'logprobs' here"):
        create(who, logprobs=True)
    assert len(who.asked) == 1


def test_a_segment_goes_on_with_its_own_messages_and_tools_when_it_is_free() -> None:
    first, second, third = ({"role": "user", "content": text} for text in "abc")
    segment = TokenSegment(0, "tools", [first, second])
    assert segment.continues_in([first, second, third], "tools")
    for messages in ([first, second], [first], [first, third, second], [second, first, third], []):
        assert not segment.continues_in(messages, "tools")
    assert not segment.continues_in([first, second, third], "others")
    segment.busy = True
    assert not segment.continues_in([first, second, third], "tools")
    assert TokenSegment(0, "", [first, second], {0: "", 1: "so"}).messages == [
        first, {**second, "reasoning_content": "so"},
    ]  # fmt: skip


@pytest.mark.parametrize("outcome", [1, 0.5, True, np.float32(0.5), Score(0.5, {"a": 1.0}), -3])
def test_a_finite_number_or_a_score_is_an_outcome(outcome: Any) -> None:
    score = _score(outcome)
    assert type(score.total) is float
    assert score.total == (outcome.total if isinstance(outcome, Score) else outcome)
    assert score.parts == (outcome.parts if isinstance(outcome, Score) else {})


@pytest.mark.parametrize("outcome", [None, "1", float("nan"), float("inf"), [1.0], Score(float("nan"))])
def test_anything_else_is_not(outcome: Any) -> None:
    with pytest.raises(ContractError, match="the rollout returned"):
        _score(outcome)


def test_a_rollout_function_takes_a_client_and_a_task_and_trains_no_critic() -> None:
    async def lonely(client: Any) -> float:
        return 1.0

    with pytest.raises(ContractError, match="is not a rollout"):
        RolloutScenarios(lonely, [1])
    scenarios = RolloutScenarios(agent, [1, 2])
    assert scenarios.name == "agent"
    assert RolloutScenarios(agent, [1, 2], name="mine").name == "mine"
    assert rollout_for(scenarios) == (CustomRollouts, agent, rows_of_segments)
    with pytest.raises(ConfigError, match="a critic cannot be trained on a rollout function"):
        rollout_for(scenarios, critic=True)
    with pytest.raises(ContractError, match="no environment to make"):
        scenarios.make()


def test_segments_become_rows_of_their_own() -> None:
    """Two attempts: tokens 1 to 5 in segments of 2 and 3, and tokens 6 and 7 in one whose number is 2."""

    def attempt(ids: list[int], segments: list[int], mask: list[bool]) -> Trajectory:
        tokens = np.array(ids)
        return Trajectory(
            f"m{ids[0]}", "t", "g", obs=np.array(segments), actions=tokens, mask=np.array(mask),
            behavior_logp=-tokens.astype(np.float32), versions=np.zeros(len(ids), np.int64),
            rewards=np.zeros(len(ids)), end=End.FINISHED, terminated=True,
        )  # fmt: skip

    members = [
        attempt([1, 2, 3, 4, 5], [0, 0, 1, 1, 1], [False, True, False, True, True]),
        attempt([6, 7], [2, 2], [False, True]),
    ]
    rows = rows_of_segments(scored_attempts([ScoredGroup(_group(members), (Score(1.0), Score(0.0)))]))
    assert rows.inputs["input_ids"].tolist() == [[1, 2, 0], [3, 4, 5], [6, 7, 0]]
    assert rows.inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 0]]
    assert rows.mask.tolist() == [[False, True, False], [False, True, True], [False, True, False]]
    assert torch.equal(rows.inputs["action_mask"], rows.mask)
    assert rows.behavior_logp.tolist() == [[-1, -2, 0], [-3, -4, -5], [-6, -7, 0]]
    assert rows.pick is not None
    advantages = torch.tensor([[10.0, 20, 30, 40, 50], [60, 70, 0, 0, 0]])
    assert rows.pick(advantages).tolist() == [[10, 20, 0], [30, 40, 50], [60, 70, 0]]


def asked(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


@pytest.fixture
def submitted(parts: Any) -> Any:
    """What the engine is asked for: (ids, params, seed, session)."""
    seen: list[Any] = []
    submit = parts[2].submit

    def recording(ids: Any, *rest: Any) -> Any:
        seen.append((list(ids), *rest))
        return submit(ids, *rest)

    parts[2].submit = recording
    yield seen
    del parts[2].submit


def test_a_call_that_does_not_fit_ends_the_attempt_and_what_was_said_before_counts(parts: Any) -> None:
    """The frame of a question takes three tokens, and the context 2,048."""

    def floods_after(length: int) -> Any:
        async def rollout(client: Any, task: Any) -> float:
            await client.create(messages=[asked("hi")])
            await client.create(messages=[asked("x" * (length - 3))])
            return 1.0

        return rollout

    (last,), (full,) = (attempts(parts, floods_after(length), size=1) for length in (2047, 2048))
    assert (last.end, last.meta["segments"], last.rewards.sum()) == (End.FINISHED, 2, 1.0)
    assert (full.end, full.error, full.meta["segments"], full.rewards.sum()) == (End.TRUNCATED, None, 1, 0.0)
    assert full.meta["prompt"] == "hi"


def test_a_call_may_ask_for_fewer_tokens_than_the_run_allows_but_not_for_more(parts: Any, submitted: Any) -> None:
    async def rollout(client: Any, task: Any) -> float:
        for most in (2, 8, 100, None):
            await client.create(messages=[asked("hi")], max_tokens=most)
        return 1.0

    attempts(parts, rollout, size=1)
    assert [params.max_new_tokens for _, params, *_ in submitted] == [2, 8, 8, 8]


def test_the_model_is_called_as_often_as_the_limit_says(parts: Any) -> None:
    def calls(count: int) -> Any:
        async def rollout(client: Any, task: Any) -> float:
            for _ in range(count):
                await client.create(messages=[asked("hi")])
            return 1.0

        return rollout

    (within,), (beyond,) = (attempts(parts, calls(count), size=1, turns=3) for count in (3, 4))
    assert (within.end, within.meta["turns"], within.rewards.sum()) == (End.FINISHED, 3, 1.0)
    assert (beyond.end, beyond.meta["turns"], beyond.rewards.sum()) == (End.TURN_LIMIT, 3, 0.0)


def test_segments_have_sessions_of_their_own_and_every_call_another_seed(parts: Any, submitted: Any) -> None:
    attempts(parts, forgetful, size=2)
    sessions = [session for *_, session in submitted]
    assert len(submitted) == len({seed for _, _, seed, _ in submitted}) == 10
    assert set(sessions) == {("own/0", member, segment) for member in range(2) for segment in range(4)}
    assert sessions.count(("own/0", 1, 0)) == 2, "the one that goes on stays in its session"


def test_of_several_segments_the_one_that_knows_most_goes_on(parts: Any) -> None:
    """Two greedy calls at once get the same answer, so both segments fit until one of them has gone on."""

    async def rollout(client: Any, task: Any) -> float:
        first, _ = await asyncio.gather(*(client.create(messages=[asked("hi")]) for _ in range(2)))
        messages = [asked("hi"), first.choices[0].message]
        for question in "ab":
            answer = await client.create(messages=[*messages, asked(question)])
            messages += [asked(question), answer.choices[0].message]
        return 1.0

    (member,) = attempts(parts, rollout, size=1, temperature=0.0)
    assert member.meta["segments"] == 2
    starts = np.flatnonzero(member.mask & ~np.append(False, member.mask[:-1]))
    assert member.obs[starts].tolist() == [0, 0, 0, 1]


def test_other_options_open_another_segment_and_tools_in_another_order_do_not(parts: Any, submitted: Any) -> None:
    def tool(**more: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}, **more}}

    async def rollout(client: Any, task: Any) -> float:
        first = await client.create(messages=[asked("hi")], tools=[tool(description="d")])
        talk = [asked("hi"), first.choices[0].message, asked("so?")]
        same = [dict(reversed(list(tool(description="d").items())))]
        await client.create(messages=talk, tools=same)
        again = [*talk[:2], asked("no?")]
        await client.create(messages=again, tools=same, extra_body={"chat_template_kwargs": {"mood": "glad"}})
        await client.create(messages=again, tools=[tool(description="e")])
        return 1.0

    (member,) = attempts(parts, rollout, size=1)
    assert [session[2] for *_, session in submitted] == [0, 0, 1, 2]
    assert member.meta["segments"] == 3


def test_a_segment_that_was_never_answered_is_left_out(parts: Any) -> None:
    async def rollout(client: Any, task: Any) -> float:
        with pytest.raises(ConfigError):
            await client.create(messages=[asked("hi")], max_tokens=-1)
        await client.create(messages=[asked("hi there")])
        return 2.0

    (member,) = attempts(parts, rollout, size=1)
    assert (member.end, member.meta["segments"], member.meta["turns"]) == (End.FINISHED, 1, 2)
    assert set(member.obs.tolist()) == {1}
    assert member.meta["prompt"] == "hi there"
    assert "".join(member.meta["tokens"]).startswith("<|user|>hi there<|end|><|assistant|>")
    assert member.rewards[np.flatnonzero(member.mask)[-1]] == 2.0


def test_special_tokens_are_text_in_what_a_model_said_and_refused_in_a_question(parts: Any) -> None:
    async def rewrites(client: Any, task: Any) -> float:
        said = {"role": "assistant", "content": "a<|end|>b"}
        await client.create(messages=[asked("hi"), said, asked("so?")])
        return 1.0

    async def shouts(client: Any, task: Any) -> float:
        await client.create(messages=[asked("a<|end|>b")])
        return 1.0

    (member,) = attempts(parts, rewrites, size=1)
    assert "".join(member.meta["tokens"]).startswith("<|user|>hi<|end|><|assistant|>a< |end|>b<|end|><|user|>so?")
    (refused,) = attempts(parts, shouts, size=1)
    assert refused.error is not None
    assert (refused.error.where, refused.error.code) == ("rollout", "not_plain_text")


def test_time_stands_still_while_the_model_answers(parts: Any) -> None:
    seen: list[float | None] = []

    async def rollout(client: Any, task: Any) -> float:
        clock = client.who.clock
        submit = parts[2].submit

        def recording(*given: Any) -> Any:
            seen.append(clock.when())
            return submit(*given)

        parts[2].submit = recording
        began = clock.when()
        try:
            await client.create(messages=[asked("hi")])
        finally:
            del parts[2].submit
        now = asyncio.get_running_loop().time()
        seen.extend((clock.when() - began, clock.when() - now))
        return 1.0

    attempts(parts, rollout, size=1, seconds=50.0)
    paused, later, left = seen
    assert paused is None
    assert later is not None
    assert left is not None
    assert later > 0
    assert 40 < left <= 50
    seen.clear()


def test_a_failure_is_the_rollouts_and_says_how_long_it_may_take(parts: Any) -> None:
    (raised,), (late,) = (attempts(parts, rollout, size=1, seconds=0.5) for rollout in (raises, hangs))
    assert raised.error is not None
    assert late.error is not None
    assert (raised.error.where, raised.error.message) == ("rollout", "the rollout raised KeyError: 'order'")
    assert late.error.message == "the rollout took longer than 0.5 s between two calls to the model"
    assert (late.error.where, late.error.hint) == ("rollout", "Raise rollout.turn_timeout.")
    assert raised.rewards.sum() == late.rewards.sum() == 0


def test_what_follows_a_turn_is_rendered_after_all_that_was_said_before(parts: Any) -> None:
    """A template that counts messages shows which of them it was given."""
    tokenizer = character_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ loop.index0 }}:{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )

    async def talks(client: Any, task: Any) -> float:
        messages: list[Any] = [asked("a"), asked("b")]
        for _ in range(3):
            answer = await client.create(messages=messages)
            messages += [answer.choices[0].message, asked("c"), asked("d")]
        return 1.0

    (member,) = attempts((None, tokenizer, parts[2]), talks, size=1)
    text = tokenizer.decode(member.actions)
    assert member.meta["segments"] == 1
    assert re.findall(r"<\|user\|>(\d+):", text) == ["0", "1", "3", "4", "6", "7"]
