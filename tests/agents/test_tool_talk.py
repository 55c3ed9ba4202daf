"""`groupwise chat --tools`: a tiny model that was taught a few calls, and real tools."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.commands import talk as talk_to
from groupwise.agents.conversation.call_formats import read_reply
from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.rollouts import ConversationLimits, Conversations
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.settings import AgentConfig
from groupwise.agents.tools.function_tool import ToolError, tool
from groupwise.agents.tools.tool_sources import find_tools
from groupwise.agents.tools.toolbox import Toolbox, ToolResult, WithTools
from groupwise.cli import run
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.tiny import tiny_model
from groupwise.types import End, Task

TOOLS = '''
from __future__ import annotations
import threading
from groupwise.agents.tools.function_tool import tool

woken = threading.Event()

@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b

@tool(timeout=600)
def nap() -> str:
    woken.wait(600)
    return "up"
'''
LOOP = '@add {"a": 7, "b": 7}'
TAUGHT = {
    "add": ['So:\n@add {"a": 2, "b": 3}', "It is 5."],
    "two": ['@add {"a": 1, "b": 1}\n@ad {"a": 2}', "2 or so."],
    "loop": [LOOP, LOOP, LOOP, LOOP],
    "nap": ["@nap", "Yawn."],
    "hi": ["Hello."],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tools as a file, and the model beside it."""
    place = tmp_path_factory.mktemp("caller")
    (place / "tools.py").write_text(TOOLS)
    model, tokenizer = teach(place)
    model.save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    return place


def teach(place: Path) -> tuple[Any, Any]:
    """A model that says what it was taught, token for token."""
    model, tokenizer = tiny_model(layers=2, width=64)
    frame, box = Frame(tokenizer), Toolbox(find_tools(str(place / "tools.py")))
    sys.modules["user_code_tools"].woken.set()
    ids, own = zip(*(conversation(frame, box, asked, said) for asked, said in TAUGHT.items()), strict=True)
    pad = torch.nn.utils.rnn.pad_sequence
    tokens, mask = pad(ids, batch_first=True), pad(own, batch_first=True)[:, 1:]
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        logits = model(input_ids=tokens).logits[:, :-1][mask]
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:][mask])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss.item() < 0.05:
            return model, tokenizer
    raise AssertionError(f"the model did not learn: {loss.item()}")


def conversation(frame: Frame, box: Toolbox, asked: str, said: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = frame.opening([{"role": "user", "content": asked}], box.schemas)
    own = [False] * len(ids)
    for turn, text in enumerate(said):
        new = frame.tokenizer.encode(f"{text}<|end|>", add_special_tokens=False)
        ids, own = [*ids, *new], [*own, *[True] * len(new)]
        reply = read_reply(text, frame.form, turn)
        results = asyncio.run(box.run(reply.tool_calls, reply.broken))
        new = frame.following([result.as_message() for result in results], ended=True) if results else []
        ids, own = [*ids, *new], [*own, *[False] * len(new)]
    return torch.tensor(ids), torch.tensor(own)


@pytest.fixture(scope="module")
def language(folder: Path) -> LanguageModel:
    return load_model(str(folder / "model"))


Talk = Callable[..., ChatSession]


@pytest.fixture
def talk(folder: Path, language: LanguageModel) -> Iterator[Talk]:
    made: list[ChatSession] = []

    def start(**options: Any) -> ChatSession:
        config = AgentConfig(temperature=0.0, max_new_tokens=60)
        box = Toolbox(find_tools(str(folder / "tools.py")))
        sys.modules["user_code_tools"].woken.clear()
        made.append(ChatSession(language, config, toolbox=box, **options))
        return made[-1]

    yield start
    sys.modules["user_code_tools"].woken.set()
    for one in made:
        one.__exit__()


def test_results_are_fed_back_and_words_alone_are_shown(talk: Talk) -> None:
    conversation = talk()
    assert "".join(conversation.reply("add")) == "So:It is 5."
    user, call, result, answer = conversation.messages
    assert call["content"] == TAUGHT["add"][0]
    assert call["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 2, "b": 3}}
    assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "name": "add", "content": "5"}
    assert (user["content"], answer["content"]) == ("add", "It is 5.")


def test_every_call_and_result_is_an_event(talk: Talk) -> None:
    events = list(talk().events("two"))
    assert [type(event).__name__ for event in events[:3]] == ["Reply", "ToolResult", "ToolResult"]
    assert [event.outcome for event in events[1:3]] == ["ok", "unknown_tool"]  # type: ignore[union-attr]
    assert "".join(event for event in events[3:] if isinstance(event, str)) == "2 or so."


def test_rounds_have_a_limit_and_the_model_is_told(talk: Talk) -> None:
    conversation = talk(max_rounds=2)
    results = [event for event in conversation.events("loop") if isinstance(event, ToolResult)]
    assert [result.outcome for result in results] == ["ok", "ok", "too_many"]
    list(conversation.reply("hi"))
    told = [message["content"] for message in conversation.messages if message["role"] == "tool"]
    assert told[:3] == ["14", "14", "error: no more than 2 rounds of calls in one answer"]
    text = conversation.tokenizer.decode(conversation._ids)
    assert "<|tool|>error: no more than 2 rounds of calls in one answer<|end|><|user|>hi<|end|>" in text


def test_a_person_sees_calls_and_results_and_can_stop_a_tool(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talk()
    lines = iter(["add", "/reset", "two", "/reset", "nap", "hi", "/exit"])

    def type_line(prompt: str) -> str:
        line = next(lines)
        if line == "nap":
            threading.Thread(target=interrupt, args=({*threading.enumerate()},), daemon=True).start()
        return line

    def interrupt(before: set[threading.Thread]) -> None:
        """Press Ctrl-C as soon as the tool runs."""
        while not any(thread.name == "tool" for thread in {*threading.enumerate()} - before):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    monkeypatch.setattr("builtins.input", type_line)
    talk_to(conversation, "the caller")
    shown = capsys.readouterr().out
    assert "So:\n  → add(a=2, b=3)\n  ← 5\nIt is 5.\n" in shown
    assert "  → add(a=1, b=1)\n  → ad(a=2)\n  ← 2\n  ← unknown_tool: error: there is no tool 'ad'; did you m" in shown
    assert "  → nap()\n\n(stopped)\n" in shown
    assert [m["content"] for m in conversation.messages][1:4] == ["@nap", "error: the person stopped it", "hi"]


def test_a_conversation_without_tools_finds_no_calls(language: LanguageModel) -> None:
    with ChatSession(language, AgentConfig(temperature=0.0, max_new_tokens=30)) as plain:
        assert all(isinstance(event, str) for event in plain.events("add"))
        assert "tool_calls" not in plain.messages[-1]


def test_with_json_every_line_is_one_object_with_its_calls(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\n/reset\nhi\n"))
    words = ["chat", str(folder / "model"), "--tools", str(folder / "tools.py"), "--greedy", "--json"]
    assert run(words) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["text"] == "2 or so."
    assert [(call["name"], call["outcome"]) for call in first["calls"]] == [("add", "ok"), ("ad", "unknown_tool")]
    assert first["calls"][0]["arguments"] == {"a": 1, "b": 1}
    assert (second["text"], second["calls"]) == ("Hello.", [])


class Asks:
    """Asks one thing, and is content with the first words it hears."""

    async def reset(self, task: Task) -> Observation:
        return Observation(({"role": "user", "content": task.payload},))

    async def step(self, reply: Reply) -> Transition:
        return Transition((), 1.0, End.FINISHED)


@tool(name="add")
def out_of_order(a: int, b: int) -> int:
    raise ToolError("out of order")


def test_conversations_with_tools_are_rolled_out_with_named_ends_and_counts(
    folder: Path, language: LanguageModel
) -> None:
    box = Toolbox(find_tools(str(folder / "tools.py")))
    wanted = {
        "add": (End.FINISHED, {"tool_calls": 1.0, "tool_errors": 0.0}, 2),
        "two": (End.FINISHED, {"tool_calls": 2.0, "tool_errors": 1.0, "tool_errors/unknown_tool": 1.0}, 2),
        "hi": (End.FINISHED, {"tool_calls": 0.0, "tool_errors": 0.0}, 1),
        "loop": (End.TURN_LIMIT, {"tool_calls": 3.0, "tool_errors": 0.0}, 3),
    }
    with Engine(language.model, language.tokenizer, slots=4) as engine:
        talk = Conversations(
            engine, Frame(language.tokenizer), lambda: WithTools(Asks(), box), SamplingParams(60, temperature=0.0),
            group_size=1, seed=0, limits=ConversationLimits(turns=3),
        )  # fmt: skip
        groups = talk.collect([Task(f"ask/{n}", asked, n) for n, asked in enumerate(wanted)])
        talk.make = lambda: WithTools(Asks(), Toolbox([out_of_order, box.tools["nap"]]), max_failures=1)
        (failed,) = talk.collect([Task("ask/9", "add", 9)])
        talk.close()
    for group in groups:
        (attempt,) = group.members
        end, parts, turns = wanted[group.task.payload]
        assert (attempt.end, attempt.meta["parts"], attempt.meta["turns"]) == (end, parts, turns)
        assert attempt.error is None
    (attempt,) = failed.members
    assert attempt.end is End.TOOL_FAILURE
    assert attempt.meta["parts"] == {"tool_calls": 1.0, "tool_errors": 1.0, "tool_errors/raised": 1.0}
    assert attempt.meta["messages"][-1]["content"] == "error: out of order"


MISTAKES = [
    ("nowhere.py", "", "there is no tools file 'nowhere.py'"),
    ("nowhere", "", "there is no tools file 'nowhere'"),
    ("empty.py", "x = 1", "there are no tools in 'empty.py'"),
    ("wrong.py", "x = (", "wrong.py cannot be imported: SyntaxError"),
    ("raises.py", "1 / 0", "raises.py cannot be imported: ZeroDivisionError: division by zero"),
    (
        "untyped.py",
        "from groupwise.agents.tools.function_tool import tool\n@tool\ndef f(x): ...",
        "'x' of the tool f has no type",
    ),
    ("no_such_module:x", "", "cannot be imported: ModuleNotFoundError"),
    ("json:nothing", "", "the module json has no 'nothing'"),
    ("json:__name__", "", "is 'json', not a tool or a list of tools"),
]


@pytest.mark.parametrize(("where", "code", "wanted"), MISTAKES)
def test_tools_that_cannot_be_used_are_said_before_there_is_a_model(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: str,
    code: str,
    wanted: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if code:
        Path(where).write_text(code)
    assert run(["chat", "tiny", "--tools", where]) == 2
    told = capsys.readouterr().err
    assert wanted in told
    assert "Traceback" not in told


def test_tools_of_a_module_by_name(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "shelf.py").write_text(
        "from tools import add\ndef plain(x: int) -> int: ...\nboth = [add, plain]\none = add"
    )
    assert [tool.name for tool in find_tools("shelf:both")] == ["add", "plain"]
    assert [tool.name for tool in find_tools("shelf:one")] == ["add"]


def test_a_model_that_cannot_call_tools_is_said(folder: Path, language: LanguageModel) -> None:
    tokenizer = load_model("tiny").tokenizer
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    with pytest.raises(ConfigError, match="no tool-call format"):
        ChatSession(
            LanguageModel(language.model, tokenizer, "x"),
            AgentConfig(),
            toolbox=Toolbox(find_tools(str(folder / "tools.py"))),
        )
    assert run(["chat", "tiny", "--max-rounds", "0"]) == 2


def test_the_example_file_works() -> None:
    box = Toolbox(find_tools(str(Path(__file__).parents[2] / "examples" / "tools.py")))
    text = """@calculate {"expression": "(2 + 3) * -4"}
@calculate {"expression": "2 ** 9"}
@convert {"amount": 10, "source": "USD"}
@time_in {"hours_from_utc": 20}"""
    reply = read_reply(text, Frame(load_model("tiny").tokenizer).form, 0)
    told = [result.content for result in asyncio.run(box.run(reply.tool_calls, reply.broken))]
    assert told == [
        "-20.0",
        "error: only numbers, + - * / and brackets are allowed",
        "9.00 EUR",
        "error: hours_from_utc must be from -12 to 14, not 20",
    ]
