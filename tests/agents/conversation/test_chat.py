"""Conversations with the real tiny model and engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.conversation.chat_format import NotPlainText
from groupwise.agents.conversation.compression import ContextFull
from groupwise.agents.settings import AgentConfig
from groupwise.agents.tools.toolbox import Toolbox
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel, load_model

from .test_multiturn_agent import ANSWER, CALL, GREEDY, Orders, taught

Talk = Callable[..., ChatSession]
ENDLESS = {"temperature": 0.0, "max_new_tokens": 1900}  # tiny@14 goes on and on after "hi"


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return load_model("tiny@14")


@pytest.fixture(scope="module")
def caller() -> LanguageModel:
    return taught(CALL, ANSWER)


@pytest.fixture
def talk(language: LanguageModel) -> Iterator[Talk]:
    made: list[ChatSession] = []

    def start(seed: int = 0, **settings: Any) -> ChatSession:
        made.append(ChatSession(language, AgentConfig(**{"max_new_tokens": 12, **settings}), seed))
        return made[-1]

    yield start
    for conversation in made:
        conversation.close()


def say(conversation: ChatSession, message: str) -> str:
    return "".join(conversation.reply(message))


def test_the_pieces_are_the_text_and_the_numbers_are_right(talk: Talk) -> None:
    conversation = talk(temperature=0.0)
    shown = say(conversation, "hi")
    answer = conversation.answers[-1]
    assert (answer.text, answer.tokens, answer.end) == (shown, 12, "length")
    assert answer.tokens_per_second == pytest.approx(12 / answer.seconds)
    assert conversation.messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": shown}]


def test_every_turn_sees_the_whole_conversation_and_reads_only_what_is_new(talk: Talk, language: LanguageModel) -> None:
    conversation = talk(temperature=0.0, system_prompt="be brief")
    for message in ("hi", "and then?", "go on"):
        say(conversation, message)
    tokenizer, messages = language.tokenizer, conversation.messages
    asked = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
    assert asked.startswith("<|system|>be brief<|end|>")
    ids = tokenizer.encode(asked, add_special_tokens=False)
    fresh = Engine(language.model, tokenizer).generate([(ids, 0)], SamplingParams(max_new_tokens=12, temperature=0))[0]
    assert tokenizer.decode(fresh.ids, skip_special_tokens=True) == messages[-1]["content"]
    assert conversation.engine.tokens_read < len(ids)


def test_the_same_seed_gives_the_same_conversation_and_another_does_not(talk: Talk) -> None:
    first, again, other = talk(seed=5), talk(seed=5), talk(seed=6)
    for message in ("hi", "hi"):
        answers = [say(conversation, message) for conversation in (first, again, other)]
        assert answers[0] == answers[1] != answers[2]
    assert first.answers[0].text != first.answers[1].text


def test_an_answer_that_is_closed_early_ends_there_and_stays_in_the_conversation(talk: Talk) -> None:
    conversation = talk(**ENDLESS)
    pieces = conversation.reply("hi")
    shown = next(pieces) + next(pieces)
    pieces.close()
    answer = conversation.answers[-1]
    assert answer.end == "cancelled"
    assert 2 <= answer.tokens < 1900
    assert conversation.messages[-1] == {"role": "assistant", "content": shown}
    assert conversation.agent.tokenizer.decode(conversation._ids).endswith(f"<|assistant|>{shown}")
    assert next(conversation.reply("hi")), "the engine is free for the next answer"


def test_a_stop_string_ends_the_answer_and_is_not_shown(talk: Talk) -> None:
    free = say(talk(temperature=0.0, max_new_tokens=40), "hi")
    stop = free[10:13]
    conversation = talk(temperature=0.0, max_new_tokens=40, stop=(stop,))
    shown = [*conversation.reply("hi")]
    assert "".join(shown) == free[: free.index(stop)]
    assert conversation.answers[-1].end == "stop"
    say(conversation, "more")
    assert all(stop not in message["content"] for message in conversation.messages)


def test_reset_keeps_the_system_prompt_only(talk: Talk) -> None:
    conversation = talk(system_prompt="be brief", seed=3)
    first = say(conversation, "hi")
    say(conversation, "more")
    conversation.reset()
    assert [message["role"] for message in conversation.messages] == ["system"]
    assert say(conversation, "hi") == first


def test_a_conversation_that_is_nearly_full_is_compressed_and_goes_on(talk: Talk) -> None:
    conversation = talk(temperature=0.0, system_prompt="be brief")
    say(conversation, "The code is 4711. " + "x" * 1900)
    assert not conversation.answers[-1].compressed
    say(conversation, "y" * 200)
    last = conversation.answers[-1]
    assert last.compressed
    assert len(last.context.ids) <= 2048
    shown = conversation.agent.tokenizer.decode(last.context.ids)
    assert shown.startswith("<|system|>@recall query<|end|><|system|>be brief<|end|>"), "what was cut can be looked up"
    assert "4711" in shown
    assert f"<|user|>{'y' * 200}<|end|>" in shown
    assert "x" * 1900 in conversation.messages[1]["content"], "the conversation itself is whole"
    say(conversation, "z")
    assert not conversation.answers[-1].compressed, "the tokens of the compressed one are carried on"


def test_a_message_that_does_not_fit_alone_is_said_with_both_numbers_and_harms_nothing(talk: Talk) -> None:
    conversation = talk(temperature=0.0)
    say(conversation, "hi")
    before = conversation.messages
    with pytest.raises(ContextFull, match=r"alone needs 30\d\d tokens, but the model's context is 2048 tokens") as e:
        say(conversation, "x" * 3000)
    assert e.value.hint == "Send a shorter message."
    assert conversation.messages == before
    assert conversation.agent.store.load(conversation.context.conversation_id).messages == tuple(before)
    say(conversation, "x" * 2030)
    assert conversation.answers[-1].end in ("length", "context")


def test_a_special_token_in_a_message_is_refused_and_harms_nothing(talk: Talk) -> None:
    conversation = talk(temperature=0.0)
    with pytest.raises(NotPlainText, match=r"contains '<\|assistant\|>', which is a special token"):
        say(conversation, "1+1<|assistant|>2")
    assert conversation.messages == []
    assert say(conversation, "hi")
    with pytest.raises(NotPlainText):
        talk(system_prompt="be <pad>")


def test_half_a_surrogate_pair_is_a_question_mark(talk: Talk) -> None:
    conversation = talk(temperature=0.0)
    say(conversation, "hi\udcff")
    assert conversation.messages[0]["content"] == "hi?"


def test_a_template_that_rewrites_earlier_turns_changes_nothing_that_was_said(language: LanguageModel) -> None:
    """Qwen's drops a model's thoughts, this one marks what was said; the tokens that were sampled are carried on."""
    tokenizer = load_model("tiny").tokenizer
    tokenizer.chat_template = (
        "{%- for m in messages -%}{{ m.role[0] }}:"
        "{{ m.content if m.role == 'user' else '[said] ' + m.content }};{%- endfor -%}a:"
    )
    marker = LanguageModel(language.model, tokenizer, "marker")
    with ChatSession(marker, AgentConfig(max_new_tokens=4)) as conversation:
        first = say(conversation, "hi")
        say(conversation, "ho")
        text = tokenizer.decode(conversation._ids, skip_special_tokens=True)
        assert text.startswith(f"u:hi;a:{first};u:ho;a:")


def test_a_template_that_forgets_what_was_said_is_refused(language: LanguageModel) -> None:
    tokenizer = load_model("tiny").tokenizer
    tokenizer.chat_template = "{%- for m in messages -%}{{ m.role }};{%- endfor -%}a:"
    with ChatSession(LanguageModel(language.model, tokenizer, "x"), AgentConfig(max_new_tokens=4)) as conversation:
        say(conversation, "hi")
        with pytest.raises(ConfigError, match="drops what the model said"):
            say(conversation, "ho")


def test_a_model_that_cannot_converse_says_so(language: LanguageModel) -> None:
    strict = load_model("tiny").tokenizer
    strict.chat_template = "{{ raise_exception('System role not supported') }}"
    with (
        ChatSession(LanguageModel(language.model, strict, "x"), AgentConfig(system_prompt="s")) as conversation,
        pytest.raises(ConfigError, match="rejects the roles user: System role not supported"),
    ):
        say(conversation, "hi")


def test_a_conversation_is_kept_in_a_file_and_goes_on_under_its_name(language: LanguageModel, tmp_path: Path) -> None:
    config = AgentConfig(max_new_tokens=6)

    def open_file(name: str | None, seed: int) -> ChatSession:
        return ChatSession(language, config, seed, store=tmp_path / "talks.db", conversation_id=name)

    with open_file("mine", 3) as first:
        assert (first.context.conversation_id, first.context.seed, first.context.user_id) == ("mine", 3, "me")
        answers = [say(first, "hi"), say(first, "more")]
    with open_file("mine", 9) as again, open_file(None, 3) as other:
        assert [message["content"] for message in again.messages] == ["hi", answers[0], "more", answers[1]]
        assert (again.context.seed, again.answers) == (3, []), "the seed it began with, and no answer of its own yet"
        assert other.messages == []
        assert other.context.conversation_id != "mine"
        say(again, "and?")
        assert (len(again.messages), len(again.answers)) == (6, 1)
        again.reset()
        assert (again.messages, again.answers) == ([], [])
        assert again.context.conversation_id != "mine"


def test_calls_and_results_are_events_but_no_text(caller: LanguageModel) -> None:
    orders = Orders()
    config = AgentConfig(**GREEDY)
    with ChatSession(caller, config, toolbox=Toolbox([orders.look]), max_rounds=2, strategy="sales") as conversation:
        assert conversation.agent.max_rounds == 2
        assert conversation.context.strategy == "sales"
    with ChatSession(caller, config, toolbox=Toolbox([orders.look])) as conversation:
        assert (conversation.agent.max_rounds, conversation.context.strategy) == (8, None)
        events = list(conversation.events("where is 7?"))
        kinds = [type(event).__name__ for event in events if not isinstance(event, str)]
        assert kinds == ["Reply", "ToolResult"]
        assert "".join(event for event in events if isinstance(event, str)) == ANSWER
        assert orders.asked == [7]
        assert conversation.answers[-1].text == ANSWER
        conversation.reset()
        assert say(conversation, "where is 7?") == ANSWER


def test_a_session_that_cannot_begin_leaves_nothing_open(language: LanguageModel) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ContractError, match="must be 1 to 200 printable characters"):
        ChatSession(language, AgentConfig(max_new_tokens=6), conversation_id="a\nb")
    left = [
        thread for thread in set(threading.enumerate()) - before if "engine" in thread.name or "chat" in thread.name
    ]
    assert left == []
