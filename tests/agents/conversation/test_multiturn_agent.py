"""The multi-turn agent on the real tiny model and engine, with real files."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise import Agent, AgentConfig, MultiTurnAgent
from groupwise.agents.conversation.call_formats import read_reply
from groupwise.agents.conversation.chat_format import Frame, NotPlainText
from groupwise.agents.conversation.compression import ContextFull
from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.agents.conversation.multiturn_agent import SUM_UP, BadMessage, ConversationOver, as_toolbox
from groupwise.agents.conversation.store import ConversationBusy, ConversationNotFound, ConversationStore
from groupwise.agents.conversation.turn import EXAMPLES, GUIDANCE, MEMORY, TemplateShape, is_note, unanswered_calls
from groupwise.agents.environments.contract import ToolCall
from groupwise.agents.memory.facts import Fact, facts_in_lines
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.agents.strategies import UnknownStrategy
from groupwise.agents.tools.toolbox import Toolbox
from groupwise.compat import create_value_function
from groupwise.errors import ContractError
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.tiny import tiny_model


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 600))


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return load_model("tiny@14")


@pytest.fixture
def talker(language: LanguageModel) -> Any:
    """Makes an agent that is closed at the end of an `async with`."""

    @asynccontextmanager
    async def make(*, config: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[MultiTurnAgent]:
        settings = AgentConfig(**{"max_new_tokens": 12, **(config or {})})
        async with MultiTurnAgent(settings, **{"language": language, **options}) as agent:
            yield agent

    return make


def test_the_first_lines_of_the_implementation_guide() -> None:
    async def lines() -> None:
        agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
        await agent.initialize()
        value_fn = create_value_function(model=agent.model, gamma=0.99, gae_lambda=0.95)
        assert value_fn.model is agent.model
        assert agent.tokenizer is agent.language.tokenizer
        await agent.close()

    run(lines())


def test_the_third_example_of_the_migration_guide() -> None:
    async def example() -> None:
        config = AgentConfig(model_name="tiny", max_new_tokens=16)
        agent = Agent(config)
        await agent.initialize()
        response = await agent.generate_response("Hello")
        assert isinstance(response, str)
        assert response
        assert response != await agent.generate_response("Hello"), "another answer has another seed"
        assert response == await agent.generate_response("Hello", seed=0)
        await agent.close()

        dialogue_db = DialogueDatabase()
        multiturn_agent = MultiTurnAgent(model_config=config, max_conversation_turns=20, dialogue_database=dialogue_db)
        await multiturn_agent.initialize()
        context = await multiturn_agent.start_conversation(user_id="user123")
        response = await multiturn_agent.generate_multiturn_response(
            context.conversation_id, user_message="Hello, I need help with my order", strategy="customer_service"
        )
        assert response.text
        assert response.metadata["state"]["issue"] == "order"
        assert response.context.strategy == "customer_service"
        await multiturn_agent.close()

    run(example())


def test_a_model_that_is_not_loaded_says_what_to_call() -> None:
    with pytest.raises(ContractError, match="await agent.initialize"):
        _ = MultiTurnAgent(AgentConfig(model_name="tiny")).model


def test_many_conversations_at_once_say_what_each_says_alone(talker: Any) -> None:
    async def hold(agent: MultiTurnAgent, number: int) -> list[str]:
        context = await agent.start_conversation(f"user{number}", seed=number, strategy="sales")
        name = context.conversation_id
        return [(await agent.generate_multiturn_response(name, text)).text for text in ("hi", "we need a desk", "bye")]

    async def both() -> None:
        async with talker() as agent:
            together = await asyncio.gather(*(hold(agent, n) for n in range(12)))
            alone = [await hold(agent, n) for n in range(3)]
            assert together[:3] == alone
            assert len({tuple(texts) for texts in together}) == 12

    run(both())


def test_the_pieces_are_the_answer_and_every_turn_carries_its_tokens(talker: Any) -> None:
    async def stream() -> None:
        async with talker(config={"system_prompt": "be brief"}) as agent:
            context = await agent.start_conversation("ann")
            for message in ("hi", "and then?"):
                async with agent.stream_multiturn_response(context.conversation_id, message) as turn:
                    with pytest.raises(ContractError, match="not been answered yet"):
                        _ = turn.response
                    pieces = [piece async for piece in turn]
                assert "".join(pieces) == turn.response.text
                assert turn.response.tokens <= 12
            after = await agent.context(context.conversation_id)
            assert after == turn.response.context
            assert [m["role"] for m in after.messages] == ["system", "user", "assistant", "user", "assistant"]
            shown = agent.tokenizer.decode(after.ids)
            assert shown.startswith("<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>")
            assert "<|user|>and then?<|end|><|assistant|>" in shown
            with pytest.raises(ConversationNotFound):
                await agent.generate_multiturn_response("nobody", "hi")

    run(stream())


def test_an_answer_left_early_or_cancelled_stays_as_far_as_it_came(talker: Any) -> None:
    endless = {"temperature": 0.0, "max_new_tokens": 1900}  # tiny@14 goes on and on after "hi"

    async def leave() -> None:
        async with talker(config=endless) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            async with agent.stream_multiturn_response(name, "hi") as turn:
                async for _ in turn:
                    break
            assert turn.response.end == "cancelled"
            assert 0 < turn.response.tokens < 1900
            shown = agent.tokenizer.decode(turn.response.context.ids)
            assert shown.endswith(f"<|assistant|>{turn.response.text}"), "the model remembers what was shown, no more"
            task = asyncio.create_task(agent.generate_multiturn_response(name, "hi"))
            while not agent.engine._requests:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            messages = (await agent.context(name)).messages
            assert [m["role"] for m in messages] == ["user", "assistant"] * 2
            assert messages[1]["content"] == turn.response.text

    run(leave())


def test_strategies_lead_the_conversation_and_their_state_is_reported(talker: Any) -> None:
    async def lead() -> None:
        async with talker(strategy="sales") as agent:
            context = await agent.start_conversation("ann")
            name = context.conversation_id
            assert context.state["stage"] == "opening"
            first = await agent.generate_multiturn_response(name, "We need a help desk for 12 people.")
            assert first.context.state["stage"] == "needs"
            (told,) = [m["content"] for m in first.context.messages if is_note(m, GUIDANCE)]
            assert "at the stage: needs" in told
            assert told in agent.tokenizer.decode(first.context.ids)
            second = await agent.generate_multiturn_response(name, "hmm", strategy="educational")
            assert second.context.strategy == "educational"
            assert second.context.state["level"] == "intermediate"
            third = await agent.generate_multiturn_response(name, "I don't understand")
            assert third.metadata["state"]["mode"] == "simplify"
            with pytest.raises(UnknownStrategy):
                await agent.generate_multiturn_response(name, "hi", strategy="educationl")

    run(lead())


def test_a_conversation_resumed_says_what_it_would_have_said(talker: Any, tmp_path: Path) -> None:
    texts = ["hi", "we need a desk", "too expensive", "ok"]

    async def hold(store: Path, name: str, some: Sequence[str]) -> list[str]:
        async with talker(store=store, strategy="sales") as agent:
            if some[0] == texts[0]:
                await agent.start_conversation("ann", conversation_id=name, seed=3)
            return [(await agent.generate_multiturn_response(name, text)).text for text in some]

    file = tmp_path / "talks.db"
    whole = run(hold(file, "whole", texts))
    parts = [run(hold(file, "parts", some))[0] for some in ([text] for text in texts)]
    assert parts == whole
    a, b = (ConversationStore(file).load(name) for name in ("whole", "parts"))
    assert (a.ids, a.messages, a.state) == (b.ids, b.messages, b.state)


def test_a_conversation_goes_on_with_another_models_tokens(talker: Any, tmp_path: Path) -> None:
    """Another chat format: the tokens are not its own, and the messages are read anew."""
    other = load_model("tiny@14")
    other.tokenizer.chat_template = other.tokenizer.chat_template.replace("<|end|>", "\\n")

    async def hold(**options: Any) -> Any:
        async with talker(store=tmp_path / "talks.db", **options) as agent:
            if "language" not in options:
                await agent.start_conversation("ann", conversation_id="a")
            response = await agent.generate_multiturn_response("a", "hi")
            return response, agent.tokenizer.decode(response.context.ids)

    first, _ = run(hold())
    _, shown = run(hold(language=other))
    assert shown.startswith(f"<|user|>hi\n<|assistant|>{first.text}\n<|user|>hi\n<|assistant|>")


KILLED = """
import asyncio, sys
from groupwise import AgentConfig, MultiTurnAgent
async def main():
    config = AgentConfig(model_name="tiny@14", temperature=0.0, max_new_tokens=int(sys.argv[2]))
    agent = MultiTurnAgent(config, store=sys.argv[1], strategy="sales")
    await agent.initialize()
    await agent.start_conversation("ann", conversation_id="a")
    async with agent.stream_multiturn_response("a", "We need a desk.") as turn:
        async for piece in turn:
            print("speaking", flush=True)
asyncio.run(main())
"""


def test_a_process_killed_in_the_midst_of_an_answer_loses_nothing_that_was_accepted(
    talker: Any, tmp_path: Path
) -> None:
    file = tmp_path / "talks.db"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(file), "1500"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"speaking\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    left = ConversationStore(file).load("a")
    assert [m["role"] for m in left.messages] == ["system", "user"], "the question, and nothing of half an answer"
    assert left.state["stage"] == "needs"
    assert (left.ids, left.draws) == ((), 0)

    async def go_on() -> None:
        async with talker(store=file) as agent:
            response = await agent.generate_multiturn_response("a", "We need a desk.")
            assert [m["role"] for m in response.context.messages] == ["system", "user", "assistant"], "not asked twice"
            assert response.context.state["stage"] == "needs"

    run(go_on())


def test_two_on_one_conversation_one_is_answered_and_one_is_told(talker: Any) -> None:
    async def both() -> None:
        async with talker() as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            outcomes = await asyncio.gather(
                *(agent.generate_multiturn_response(name, text) for text in ("one", "two")), return_exceptions=True
            )
            answered, told = outcomes
            assert isinstance(told, ConversationBusy)
            assert "is already being answered" in told.message
            assert [m["content"] for m in (await agent.context(name)).messages] == ["one", answered.text]
            assert (await agent.generate_multiturn_response(name, "two")).text

    run(both())


def test_two_agents_on_one_file_lose_no_message_that_was_accepted(talker: Any, tmp_path: Path) -> None:
    """The second takes the conversation over while the first is answering: the first is told, its question stays."""
    endless = {"temperature": 0.0, "max_new_tokens": 300}

    async def both() -> None:
        file = tmp_path / "talks.db"
        async with talker(store=file, config=endless) as first, talker(store=file) as second:
            await first.start_conversation("ann", conversation_id="a")
            slow = first.stream_multiturn_response("a", "hi")
            assert await anext(slow)
            quick = await second.generate_multiturn_response("a", "two")
            with pytest.raises(ConversationBusy, match="the user's message was stored, this answer was not"):
                async for _ in slow:
                    pass
            messages = (await first.context("a")).messages
            assert [m["content"] for m in messages] == ["hi", "two", quick.text]

    run(both())


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ("", "bad_message", r"empty\nSend between 1 character and 262,144 bytes"),
        (" \n ", "bad_message", "empty"),
        ("x" * 2**20, "bad_message", "has 1,048,576 bytes; the limit is 262,144"),
        ("x" * 4000, "context_full", "alone needs 4003 tokens, but the model's context is 2048"),
        ("a<|end|>b", "not_plain_text", "is a special token"),
        (None, "bad_message", "a NoneType, not text"),
    ],
)
def test_a_message_that_cannot_be_taken_is_refused_and_harms_nothing(
    talker: Any, message: str, code: str, said: str
) -> None:
    async def send() -> None:
        async with talker() as agent:
            context = await agent.start_conversation("ann", seed=1)
            with pytest.raises((BadMessage, ContextFull, NotPlainText), match=said) as refusal:
                await agent.generate_multiturn_response(context.conversation_id, message)
            assert refusal.value.code == code
            assert await agent.context(context.conversation_id) == context
            assert (await agent.generate_multiturn_response(context.conversation_id, "hi")).text

    run(send())


def test_a_conversation_ends_after_its_turns(talker: Any) -> None:
    async def hold() -> None:
        async with talker(max_conversation_turns=2) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            for _ in range(2):
                await agent.generate_multiturn_response(name, "hi")
            with pytest.raises(ConversationOver, match="has used up its 2 turns"):
                await agent.generate_multiturn_response(name, "hi")

    run(hold())
    with pytest.raises(ContractError, match="not 5"):
        MultiTurnAgent(5)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="must be at least 1"):
        MultiTurnAgent("tiny", max_conversation_turns=0)


@pytest.mark.parametrize("user_id", ["", "  ", "a\nb", "x" * 201, None])
def test_a_user_without_a_name_is_refused(talker: Any, user_id: Any) -> None:
    async def start() -> None:
        async with talker() as agent:
            with pytest.raises(ContractError, match="must be 1 to 200 printable characters on one line"):
                await agent.start_conversation(user_id)

    run(start())


@pytest.mark.parametrize("seed", ["7", 1.5, 2**62])
def test_a_seed_that_cannot_be_kept_is_refused(talker: Any, seed: Any) -> None:
    async def start() -> None:
        async with talker() as agent:
            with pytest.raises(ContractError, match="must be a whole number"):
                await agent.start_conversation("ann", seed=seed)

    run(start())


@pytest.mark.parametrize("summarise", ["extract", "model"])
def test_a_long_conversation_always_fits_and_keeps_its_beginning(talker: Any, summarise: str) -> None:
    async def hold() -> None:
        async with talker(config={"system_prompt": "be brief"}, summarise=summarise) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            compressed = 0
            for turn in range(8):
                text = f"Message {turn}: " + "words and more " * 24 if turn else "We need a desk."
                response = await agent.generate_multiturn_response(name, text, "sales")
                compressed += response.compressed
                assert len(response.context.ids) <= agent.engine.max_length
            assert 1 <= compressed <= 4, "not at every turn"
            shown = agent.tokenizer.decode(response.context.ids)
            assert shown.startswith("<|system|>@recall query<|end|><|system|>be brief")
            assert "<|user|>We need a desk.<|end|>" in shown
            assert re.search(r"earlier messages left out|Summary of \d+ messages", shown)
            assert "at the stage: needs" in shown, "what the strategy asks for is not what is left out"
            assert "Message 7" in shown
            assert response.context.turns == 8

    run(hold())


def test_near_dialogues_are_shown_once_and_under_a_budget(talker: Any) -> None:
    database = DialogueDatabase()
    near = database.add([{"role": "user", "content": "refund please"}, {"role": "assistant", "content": "Gladly."}])
    database.add([{"role": "user", "content": "opening hours"}])
    huge = database.add([{"role": "user", "content": "refund " * 200}])

    async def ask() -> None:
        async with talker(dialogue_database=database) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            first = await agent.generate_multiturn_response(name, "I want a refund")
            assert first.examples == (near,)
            assert huge not in first.examples
            (shown,) = [m["content"] for m in first.context.messages if is_note(m, EXAMPLES)]
            assert "user: refund please\nassistant: Gladly." in shown
            assert shown in agent.tokenizer.decode(first.context.ids)
            again = await agent.generate_multiturn_response(name, "a refund, I said")
            assert again.examples == ()

    run(ask())


def test_every_question_is_shown_the_nearest_dialogues_that_were_not_shown_yet(talker: Any) -> None:
    database = DialogueDatabase()
    # The fewer other words, the nearer: from the nearest to the farthest, two by two.
    numbers = [database.add([{"role": "user", "content": "refund" + " a" * more}]) for more in range(5)]
    database.add([{"role": "user", "content": "hours"}])

    async def ask() -> None:
        async with talker(dialogue_database=database) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            shown = [(await agent.generate_multiturn_response(name, "refund")).examples for _ in range(4)]
            assert shown == [tuple(numbers[:2]), tuple(numbers[2:4]), (numbers[4],), ()]
            other = (await agent.start_conversation("ben")).conversation_id
            assert (await agent.generate_multiturn_response(other, "refund")).examples == tuple(numbers[:2])

    run(ask())


GREEDY = {"temperature": 0.0, "max_new_tokens": 40}
CALL, ANSWER = '@look {"order": 7}', "It is on its way."


def taught(*said: str, results: int = 1) -> LanguageModel:
    """A small model that has learned one conversation by heart: every turn of its own follows results "sent"."""
    model, tokenizer = tiny_model(seed=1, layers=2, width=64)
    frame = Frame(tokenizer)
    between = frame.following([{"role": "tool", "content": "sent"}] * results, True)
    ids = frame.opening([{"role": "user", "content": "where is 7?"}], Toolbox([Orders().look]).schemas)
    for number, text in enumerate(said):
        ids += [*(between if number else []), *tokenizer.encode(text + "<|end|>", add_special_tokens=False)]
    learned = torch.tensor([ids])
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        model(input_ids=learned, labels=learned).loss.backward()
        optimiser.step()
    return LanguageModel(model, tokenizer, "taught")


@pytest.fixture(scope="module")
def caller() -> LanguageModel:
    return taught(CALL, ANSWER)


class Orders:
    """A tool; `wait` holds its results back."""

    def __init__(self) -> None:
        self.wait = 0.0
        self.asked: list[int] = []

    async def look(self, order: int) -> str:
        self.asked.append(order)
        await asyncio.sleep(self.wait)
        return "sent"


def test_tools_are_called_within_a_turn_and_their_results_are_read(talker: Any, caller: LanguageModel) -> None:
    async def ask() -> None:
        orders = Orders()
        async with talker(language=caller, tools=[orders.look], config=GREEDY) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            async with agent.stream_multiturn_response(name, "where is 7?") as turn:
                words = "".join([piece async for piece in turn])
            response = turn.response
            assert orders.asked == [7]
            assert response.text == words == ANSWER, "a call is no words"
            assert response.metadata["tool_calls"] == 1
            assert [m["role"] for m in response.context.messages] == ["user", "assistant", "tool", "assistant"]
            assert response.context.messages[1]["tool_calls"][0]["function"]["arguments"] == {"order": 7}

    run(ask())


def test_a_call_that_nobody_waited_for_is_told_before_the_conversation_goes_on(
    talker: Any, caller: LanguageModel
) -> None:
    async def ask() -> None:
        orders = Orders()
        orders.wait = 30
        async with talker(language=caller, tools=[orders.look], config=GREEDY) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            task = asyncio.create_task(agent.generate_multiturn_response(name, "where is 7?"))
            while not orders.asked:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            orders.wait = 0
            response = await agent.generate_multiturn_response(name, "and?")
            assert [m["role"] for m in response.context.messages][:4] == ["user", "assistant", "tool", "user"]
            assert response.context.messages[2]["content"] == "error: the person stopped it"

    run(ask())


def test_a_call_left_by_a_process_that_ended_gets_a_result_that_says_so(caller: LanguageModel) -> None:
    called = read_reply(CALL, Frame(caller.tokenizer).form, 0).as_message()
    (told,) = unanswered_calls([{"role": "user", "content": "where is 7?"}, called])
    assert (told["role"], told["content"]) == ("tool", "error: it was not run")
    assert told["tool_call_id"] == called["tool_calls"][0]["id"]
    assert unanswered_calls([called, told]) == ()


def test_a_model_that_never_stops_calling_is_stopped(talker: Any) -> None:
    async def ask() -> None:
        orders, stuck = Orders(), taught(*[CALL] * 4)
        async with talker(language=stuck, tools=[orders.look], config=GREEDY, max_rounds=3) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            response = await agent.generate_multiturn_response(name, "where is 7?")
            assert len(orders.asked) == len(response.results) == 3
            told = response.context.messages[-1]["content"]
            assert told == "error: no more than 3 rounds of calls in one answer"
            assert (await agent.generate_multiturn_response(name, "so?")).tokens

    run(ask())


REFUSED, LEFT_OUT = "{{ raise_exception('no system here') }}", ""
SHOWN = "{{ m.role[0] }}:{{ m.content }};"


def shape_of(first: str, later: str) -> TemplateShape:
    """Of a template that treats a system message at the beginning, and one further on, in these ways."""
    tokenizer = load_model("tiny").tokenizer
    tokenizer.chat_template = (
        "{%- for m in messages -%}{%- if m.role == 'system' and loop.first -%}" + first
        + "{%- elif m.role == 'system' -%}" + later + "{%- else -%}" + SHOWN + "{%- endif -%}{%- endfor -%}a:"
    )  # fmt: skip
    return TemplateShape(Frame(tokenizer))


@pytest.mark.parametrize(
    ("first", "later", "wanted"),
    [
        (SHOWN, SHOWN, ["system s\n\nt", "user u\n\nv", "assistant a", "system n", "user w"]),
        (SHOWN, REFUSED, ["system s\n\nt", "user u\n\nv", "assistant a", "user n\n\nw"]),
        (SHOWN, LEFT_OUT, ["system s\n\nt", "user u\n\nv", "assistant a", "user n\n\nw"]),
        (REFUSED, REFUSED, ["user s\n\nt\n\nu\n\nv", "assistant a", "user n\n\nw"]),
        (LEFT_OUT, LEFT_OUT, ["user s\n\nt\n\nu\n\nv", "assistant a", "user n\n\nw"]),
    ],
)
def test_messages_take_the_shape_that_a_template_allows(first: str, later: str, wanted: list[str]) -> None:
    said = ["system s", "system t", "user u", "user v", "assistant a", "system n", "user w"]
    messages = [dict(zip(("role", "content"), text.split(), strict=True)) for text in said]
    fitted = shape_of(first, later).fit(messages, opening=True)
    assert [f"{m['role']} {m['content']}" for m in fitted] == wanted


def test_a_model_without_a_chat_template_goes_on_with_the_text() -> None:
    bare = load_model("tiny@14")
    bare.tokenizer.chat_template = None

    async def ask() -> None:
        async with Agent(AgentConfig(max_new_tokens=5), language=bare) as agent:
            assert await agent.generate_response("2+2=")
            with pytest.raises(ContextFull, match="not empty"):
                await agent.generate_response("")

    run(ask())


def test_new_weights_are_used_at_once(talker: Any) -> None:
    async def ask() -> None:
        language = load_model("tiny@14")
        async with talker(language=language, config={"temperature": 0.0}) as agent:
            before = await agent.generate_response("hi")
            with torch.no_grad():
                for parameter in agent.model.parameters():
                    parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
            assert await agent.generate_response("hi") != before
            agent.use(load_model("tiny@14"))
            assert await agent.generate_response("hi") == before

    run(ask())


def asked(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_names_and_seeds_at_their_limits_are_taken_and_beyond_them_refused(talker: Any) -> None:
    most = 2**62 - 1

    async def start() -> None:
        async with talker() as agent:
            long = await agent.start_conversation("u" * 200, conversation_id="c" * 200, seed=most)
            assert (long.user_id, long.conversation_id, long.seed) == ("u" * 200, "c" * 200, most)
            assert (await agent.start_conversation("ann", seed=-most)).seed == -most
            assert (await agent.start_conversation("ann", seed=0)).seed == 0
            own = await agent.start_conversation("ann", conversation_id="mine")
            assert own.seed == int.from_bytes(hashlib.sha256(b"mine").digest()[:7], "big")
            for wrong in ("", " ", "c" * 201, "a\tb"):
                with pytest.raises(ContractError, match="conversation_id is .*: it must be 1 to 200 printable"):
                    await agent.start_conversation("ann", conversation_id=wrong)
            with pytest.raises(ContractError, match="between ±4,611,686,018,427,387,904"):
                await agent.start_conversation("ann", seed=-(2**62))

    run(start())


def test_an_agent_refuses_settings_that_make_no_sense(language: LanguageModel) -> None:
    for wrong in ({"max_rounds": 0}, {"max_conversation_turns": 0}, {"summarise": "short"}):
        with pytest.raises(ContractError, match="must be at least 1|must be 'extract', 'model' or"):
            MultiTurnAgent("tiny", language=language, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownStrategy, match="salse"):
        MultiTurnAgent("tiny", language=language, strategy="salse")
    agent = MultiTurnAgent("tiny", language=language, max_rounds=1, max_conversation_turns=1)
    assert (agent.max_rounds, agent.max_conversation_turns, agent.toolbox) == (1, 1, None)
    box = Toolbox([Orders().look])
    assert as_toolbox(box) is box
    assert as_toolbox(()) is None
    made = as_toolbox(iter([Orders().look]))
    assert made is not None
    assert [schema["function"]["name"] for schema in made.schemas] == ["look"]


@pytest.mark.parametrize(("wanted", "reserve"), [(12, 12), (512, 512), (513, 512), (2000, 512)])
def test_room_for_an_answer_is_kept_but_no_more_than_a_quarter_of_the_context(
    talker: Any, wanted: int, reserve: int
) -> None:
    """The frame of a question takes three tokens; the context is 2,048."""

    async def ask() -> None:
        async with talker(config={"max_new_tokens": wanted}) as agent:
            context = await agent.start_conversation("ann")
            most = 2048 - reserve
            fits = await agent.take(context, "x" * (most - 3), None)
            made = await agent.prompt(fits)
            assert (len(made.ids), made.compressed) == (most, False)
            more = await agent.take(context, "x" * (most - 2), None)
            with pytest.raises(ContextFull, match=f"alone needs {most + 1} tokens, but the model's context is 2048"):
                await agent.prompt(more)

    run(ask())


def test_a_message_is_measured_in_bytes(talker: Any) -> None:
    async def send() -> None:
        async with talker() as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            for text in ("x" * 2**18, "é" * 2**17):
                with pytest.raises(ContextFull):
                    await agent.generate_multiturn_response(name, text)
            for text, size in (("x" * (2**18 + 1), "262,145"), ("é" * (2**17 + 1), "262,146")):
                with pytest.raises(BadMessage, match=f"has {size} bytes; the limit is 262,144"):
                    await agent.generate_multiturn_response(name, text)

    run(send())


def test_a_conversation_is_compressed_to_three_fifths_of_the_room_but_the_newest_question_is_never_cut(
    talker: Any,
) -> None:
    """With system prompt and frame, a question takes 13 tokens more than its letters."""
    room = 2048 - 12
    part = room * 3 // 5

    async def ask() -> None:
        async with talker(config={"system_prompt": "be brief"}, max_conversation_turns=None) as agent:
            context = await agent.start_conversation("ann")
            said = [m for n in range(30) for m in (asked(f"{n} {'words ' * 10}"), {**asked("ok"), "role": "assistant"})]
            context = replace(context, messages=(*context.messages, *said))
            lengths = [100, *(size - 13 - less for size in (part, room) for less in (80, 40, 20, 1, 0)), part]
            for length in lengths:
                made = await agent.prompt(await agent.take(context, "x" * length, None))
                assert made.compressed
                ids = made.ids
                shown = agent.tokenizer.decode(ids)
                assert "<|system|>be brief" in shown
                assert shown.endswith(f"{'x' * length}<|end|><|assistant|>")
                assert len(ids) <= (part if length + 13 <= part - 80 else room)
                assert ("left out" in shown or "Summary" in shown) == (length + 13 <= room - 40)
            # What just fits stays whole.
            short = replace(context, messages=context.messages[:-6])
            whole = (await agent.prompt(await agent.take(short, "x", None))).ids
            again = await agent.prompt(await agent.take(short, "x" * (1 + room - len(whole)), None))
            assert (len(again.ids), again.compressed) == (room, False)

    run(ask())


def test_a_message_sent_again_while_it_waits_is_taken_once(talker: Any) -> None:
    async def send() -> None:
        async with talker(max_conversation_turns=2, strategy="sales") as agent:
            context = await agent.start_conversation("ann")
            first = await agent.take(context, "hi", None)
            assert await agent.take(first, "hi", None) is first
            second = await agent.take(first, "hello?", None)
            assert [m["content"] for m in second.messages if m["role"] == "user"] == ["hi", "hello?"]
            assert await agent.take(second, "hello?", None) is second, "also when no turn is left"
            with pytest.raises(ConversationOver):
                await agent.take(second, "hi", None)
            answered = replace(first, messages=(*first.messages, {**asked("a"), "role": "assistant"}))
            answered = replace(answered, heard=len(answered.messages))
            assert (await agent.take(answered, "hi", None)).turns == 2, "an answered question may be asked again"

    run(send())


def test_without_a_limit_a_conversation_goes_on(talker: Any) -> None:
    async def send() -> None:
        async with talker(max_conversation_turns=None) as agent:
            context = await agent.start_conversation("ann")
            for number in range(25):
                context = await agent.take(context, f"message {number}", None)
            assert context.turns == 25

    run(send())


def test_guidance_is_told_again_only_when_it_has_changed(talker: Any) -> None:
    async def lead() -> None:
        async with talker(strategy="educational") as agent:
            context = await agent.start_conversation("ann")
            told = []
            for text in ("hello", "hello there", "I don't understand"):
                context = await agent.take(context, text, None)
                told.append(sum(is_note(m, GUIDANCE) for m in context.messages))
            assert told == [1, 1, 2]
            assert context.state["mode"] == "simplify"
            # The strategy named anew is the same one, with the state it had; another one begins anew.
            named, unnamed = [await agent.take(context, "so", strategy) for strategy in ("educational", None)]
            assert (named.state, named.messages) == (unnamed.state, unnamed.messages)
            other = await agent.take(context, "so", "sales")
            assert await agent.take(replace(context, strategy="sales", state={}), "so", "educational") != named
            assert (other.strategy, "mode" in other.state) == ("sales", False)

    run(lead())


def test_stored_tokens_count_only_for_the_same_words_template_options_and_tools(talker: Any) -> None:
    async def mark(**options: Any) -> str:
        async with talker(**options) as agent:
            return str(agent.frame_mark)

    other = load_model("tiny@14")
    other.tokenizer.chat_template = other.tokenizer.chat_template.replace("<|end|>", "\n")
    wider = load_model("tiny@14")
    wider.tokenizer.add_tokens(["zz"])
    kinds: list[dict[str, Any]] = [
        {}, {"language": other}, {"language": wider}, {"tools": [Orders().look]},
        {"config": {"chat_template_kwargs": {"mood": "glad"}}}, {"config": {"chat_template_kwargs": {"mood": "sad"}}},
    ]  # fmt: skip
    marks = [run(mark(**kind)) for kind in kinds]
    assert len(set(marks)) == len(kinds)
    assert run(mark(config={"temperature": 0.5}, max_rounds=2)) == marks[0]


@pytest.fixture
def recorded() -> Any:
    """Has an agent's engine tell what it is asked for."""

    def record(agent: MultiTurnAgent) -> list[Any]:
        seen: list[Any] = []
        submit = agent.engine.submit

        def recording(ids: Any, *rest: Any) -> Any:
            seen.append((list(ids), *rest))
            return submit(ids, *rest)

        agent.engine.submit = recording  # type: ignore[method-assign]
        return seen

    return record


def test_the_model_sums_up_greedily_in_the_room_it_is_given(talker: Any, recorded: Any) -> None:
    async def sum_up() -> None:
        async with talker(config={"max_new_tokens": 30, "temperature": 0.9}, summarise="model") as agent:
            seen = recorded(agent)
            talk = [asked("hi"), {"role": "assistant", "content": None}]
            first = await agent.summarise(talk, 8)
            assert first == await agent.summarise(talk, 8)
            for room in (0, 1000):
                await agent.summarise(talk, room)
            assert [params.max_new_tokens for _, params, *_ in seen] == [8, 8, 1, 30]
            assert {(params.temperature, seed) for _, params, seed in seen} == {(0.0, 0)}
            shown = agent.tokenizer.decode(seen[0][0])
            assert shown == f"<|system|>{SUM_UP}<|end|><|user|>user: hi\nassistant: <|end|><|assistant|>"
            await agent.summarise([asked("many words " * 400)], 8)
            assert 0.9 * (2048 - 30) < len(seen[-1][0]) <= 2048 - 30

    run(sum_up())


def test_examples_take_an_eighth_of_the_room_at_most(talker: Any) -> None:
    """(2,048 - 8) // 8 = 255 tokens, with the words around them."""
    frame = len("<|u|>") - 2 + len("Dialogues like this one, to learn from:\n\nExample:\nuser: ")

    async def ask(length: int) -> tuple[int, ...]:
        database = DialogueDatabase()
        database.add([asked("refund " + "x" * (length - 7))])
        async with talker(dialogue_database=database, config={"max_new_tokens": 8}) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            response = await agent.generate_multiturn_response(name, "refund")
            return tuple(response.examples)

    assert len(run(ask(255 - frame))) == 1
    assert run(ask(256 - frame)) == ()


def test_every_answer_has_the_next_seed_and_the_session_of_its_conversation(
    talker: Any, caller: LanguageModel, recorded: Any
) -> None:
    async def ask() -> None:
        async with talker(language=caller, tools=[Orders().look], config=GREEDY) as agent:
            seen = recorded(agent)
            name = (await agent.start_conversation("ann", seed=40)).conversation_id
            response = await agent.generate_multiturn_response(name, "where is 7?")
            await agent.generate_multiturn_response(name, "and?")
            assert [(seed, session) for _, _, seed, session, _ in seen[:3]] == [(40 + n, name) for n in range(3)]
            made = len(caller.tokenizer.encode(CALL)) + len(caller.tokenizer.encode(ANSWER)) + 2  # with their ends
            assert (response.tokens, response.end, len(response.results)) == (made, "stop", 1)
            assert response.context.draws == 2
            assert response.context.messages[1]["tool_calls"][0]["id"] == "t0000n000"
            assert response.results[0].as_message() == response.context.messages[2]
            # What the model reads next begins with the very tokens of all that was before.
            assert tuple(seen[1][0][: len(seen[0][0])]) == tuple(seen[0][0])
            assert tuple(seen[2][0][: len(response.context.ids)]) == response.context.ids

    run(ask())


def test_a_conversation_is_free_again_after_a_message_that_was_refused(talker: Any) -> None:
    async def send() -> None:
        async with talker() as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            with pytest.raises(RuntimeError), agent.working_on(name):
                with pytest.raises(ConversationBusy), agent.working_on(name):
                    pass
                with agent.working_on("another"):
                    raise RuntimeError
            with agent.working_on(name):
                pass

    run(send())


def test_thoughts_of_all_rounds_are_kept_apart_from_the_answer(talker: Any) -> None:
    async def ask() -> None:
        thinker = taught(f"<think>hm</think>{CALL}", f"<think>so</think>{ANSWER}")
        async with talker(language=thinker, tools=[Orders().look], config=GREEDY) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            async with agent.stream_multiturn_response(name, "where is 7?") as turn:
                words = "".join([piece async for piece in turn])
            response = turn.response
            assert (words, response.text, response.reasoning) == (ANSWER, ANSWER, "hm\n\nso")
            kept = [m.get("reasoning_content") for m in response.context.messages if m["role"] == "assistant"]
            assert kept == ["hm", "so"]
            said = [m["content"] for m in response.context.messages if m["role"] == "assistant"]
            assert said == [CALL, ANSWER]

    run(ask())


def test_every_call_of_a_turn_beyond_the_last_round_gets_a_result(talker: Any) -> None:
    async def ask() -> None:
        both, orders = f'{CALL}\n@look {{"order": 8}}', Orders()
        stuck = taught(both, both, both, results=2)
        async with talker(language=stuck, tools=[orders.look], config=GREEDY, max_rounds=1) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            response = await agent.generate_multiturn_response(name, "where is 7?")
            assert sorted(orders.asked) == [7, 8]
            assert response.text == "", "calls are no words, although nothing else was said"
            assert [m["role"] for m in response.context.messages] == ["user", *["assistant", "tool", "tool"] * 2]
            results = [m for m in response.context.messages if m["role"] == "tool"]
            limit = "error: no more than 1 rounds of calls in one answer"
            assert [m["content"] for m in results] == ["sent", "sent", limit, "error: it was not run"]
            calls = [c["id"] for m in response.context.messages for c in m.get("tool_calls", ())]
            assert [m["tool_call_id"] for m in results] == calls == [f"t000{n}n00{i}" for n in (0, 1) for i in (0, 1)]

    run(ask())


def test_what_a_user_said_is_remembered_in_their_next_conversation_and_in_nobody_elses(
    talker: Any, tmp_path: Path
) -> None:
    async def talk() -> None:
        async with talker(config={"memory": str(tmp_path / "users.sqlite")}) as agent:
            first = await agent.start_conversation("id-1")
            await agent.generate_multiturn_response(first.conversation_id, "My sister's name is Ada.")
            for user, known in (("id-1", True), ("id-2", False)):
                other = await agent.start_conversation(user)
                question = "What is the name of my sister?"
                response = await agent.generate_multiturn_response(other.conversation_id, question)
                told = [m["content"] for m in response.context.messages if is_note(m, MEMORY)]
                assert told == (["What this user told you before:\n- My sister's name is Ada."] if known else [])
                assert ("Ada" in agent.tokenizer.decode(response.context.ids)) == known
            agent.memory.close()

    run(talk())


def test_a_user_who_asks_to_be_forgotten_in_mid_conversation_leaves_no_bytes(talker: Any, tmp_path: Path) -> None:
    async def talk() -> None:
        files = {"store": tmp_path / "talks.db", "memory": tmp_path / "users.sqlite"}
        async with talker(strategy="sales", **files) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            await agent.generate_multiturn_response(name, "We need a desk. I live at 12 Quetzal Street.")
            await agent.generate_multiturn_response(name, "My budget is 300 euros.")
            response = await agent.generate_multiturn_response(name, "Forget that I live at 12 Quetzal Street.")
            assert "Quetzal" not in agent.tokenizer.decode(response.context.ids)
            assert "budget" in str(response.context.messages)
            assert [fact.subject for fact in agent.memory.facts("ann")] == ["budget"]
            assert not any(b"Quetzal" in path.read_bytes() for path in tmp_path.iterdir())
            response = await agent.generate_multiturn_response(name, "Please forget everything about me.")
            assert [m["role"] for m in response.context.messages] == ["system", "system", "user", "assistant"]
            assert agent.memory.facts("ann") == []
            assert not any(b"300 euros" in path.read_bytes() for path in tmp_path.iterdir())
            after = await agent.generate_multiturn_response(name, "What is my budget?")
            assert "300" not in agent.tokenizer.decode(after.context.ids)
            agent.memory.close()

    run(talk())


def test_forgetting_a_user_deletes_facts_conversations_and_dialogues(talker: Any, tmp_path: Path) -> None:
    async def talk() -> None:
        dialogues = DialogueDatabase(tmp_path / "dialogues.db")
        dialogues.add([{"role": "user", "content": "my zebra is ill"}], user="ann")
        files = {"store": tmp_path / "talks.db", "memory": tmp_path / "users.sqlite", "dialogue_database": dialogues}
        async with talker(**files) as agent:
            names = {user: (await agent.start_conversation(user)).conversation_id for user in ("ann", "bob")}
            for user, name in names.items():
                await agent.generate_multiturn_response(name, f"My zebra is called Ziggy-{user}.")
            assert await agent.forget("ann") == 3
            assert await agent.forget("ann") == 0
            with pytest.raises(ConversationNotFound):
                await agent.generate_multiturn_response(names["ann"], "Are you there?")
            assert [fact.value for fact in agent.memory.facts("bob")] == ["Ziggy-bob"]
            assert not any(b"Ziggy-ann" in path.read_bytes() for path in tmp_path.iterdir())
            agent.memory.close()

    run(talk())


def test_the_tool_for_looking_up_is_offered_once_something_was_left_out(talker: Any) -> None:
    async def talk() -> None:
        async with talker() as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            await agent.generate_multiturn_response(name, "The ferry to Rum leaves at 7:40.")
            await agent.generate_multiturn_response(name, "When does the ferry leave?")
            for turn in range(6):
                text = f"Message {turn}: " + "words and more " * 24
                response = await agent.generate_multiturn_response(name, text)
                offered = "@recall query" in agent.tokenizer.decode(response.context.ids)
                assert offered == (agent.recall_mark == response.context.frame)
            assert offered, "compressed by now"
            (result,) = await agent.tools(response.context, agent.recall_mark).run(
                [ToolCall("c1", "recall", {"query": "When does the ferry leave?"})]
            )
            assert result.content.splitlines()[0] == "user: The ferry to Rum leaves at 7:40."
            assert agent.tools(response.context, agent.frame_mark) is None

    run(talk())


def test_nothing_is_offered_to_a_model_that_is_not_to_look_up(talker: Any) -> None:
    async def talk() -> None:
        async with talker(recall=False) as agent:
            assert agent.recall_mark == ""

    run(talk())


def test_facts_of_a_model_are_kept_beside_those_of_the_rules(talker: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def found(text: str) -> list[Fact]:
        if "again" in text:
            raise TimeoutError("busy")
        return facts_in_lines("lucky charm: a horseshoe", text)

    async def talk() -> None:
        async with talker(memory=UserMemory(), extract=found) as agent:
            name = (await agent.start_conversation("ann")).conversation_id
            await agent.generate_multiturn_response(name, "My dog is called Rex, and a horseshoe brings me luck.")
            await agent.generate_multiturn_response(name, "I'm 34 years old, again.")
            assert {fact.subject for fact in agent.memory.facts("ann")} == {"dog name", "lucky charm"}
            assert "no facts could be extracted (TimeoutError: busy)" in caplog.text

    run(talk())
