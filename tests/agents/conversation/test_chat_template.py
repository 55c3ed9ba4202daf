"""What a chat template does is found by letting it render; the short form of benchmarks/templates.py."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from groupwise.agents.agent import AgentConfig
from groupwise.agents.conversation.call_formats import FORMATS, CallFormat, read_reply, register_format
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.conversation.streaming import SpeechStream
from groupwise.agents.data.problems import Problem
from groupwise.agents.environments.contract import Observation
from groupwise.agents.warm_start import DemonstratedAnswers, demonstration_row
from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import load_model
from groupwise.language.tiny import character_tokenizer, tiny_model

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import templates

pytest.importorskip("trl")
BASE = templates.trained_base()
ASK = {"role": "user", "content": "6*7?"}
ANSWER = {"role": "assistant", "content": "42"}
CALL = {
    "role": "assistant", "content": "",
    "tool_calls": [{"id": "t0000n000", "type": "function", "function": {"name": "find", "arguments": {"x": 1}}}],
}  # fmt: skip
TOOL = {
    "type": "function",
    "function": {"name": "find", "description": "d", "parameters": {"properties": {"x": {"type": "integer"}}}},
}


def shipped(name: str) -> Any:
    return templates.tokenizer_for((templates.shipped() / f"{name}.jinja").read_text(encoding="utf8"), BASE)


@pytest.mark.parametrize(
    ("name", "form", "rewritten"),
    [
        ("deepseek_r1_distill", "deepseek", 0), ("gemma4_v5", "gemma", 1), ("glm4moe", "glm", 1),
        ("gptoss", "harmony", 3), ("idefics3", None, 0), ("lfm2_v2", "python", 0), ("muse_glimmer", "atem", 0),
        ("nemotron_3_super", "functions", 1), ("phi3", None, 0), ("qwen3", "tagged", 6),
    ],
)  # fmt: skip
def test_a_template_of_each_kind_is_followed_token_by_token(name: str, form: str | None, rewritten: int) -> None:
    seen = templates.Bench(shipped(name)).run()
    assert (seen.format, seen.failures, len(seen.rewritten)) == (form, [], rewritten)


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("gptoss", {"<|return|>", "<|call|>"}), ("gemma4_v5", {"<turn|>", "<|tool_response>"}),
        ("glm4moe", {"<|user|>", "<|observation|>"}), ("gemma3", {"<end_of_turn>"}), ("phi3", {"<|end|>"}),
    ],
)  # fmt: skip
def test_sampling_stops_where_the_template_ends_a_turn(name: str, ends: set[str]) -> None:
    tokenizer = shipped(name)
    assert set(tokenizer.convert_ids_to_tokens(Frame(tokenizer).end_ids)) == ends


def test_the_engine_stops_at_further_ends() -> None:
    model, tokenizer = tiny_model(seed=0)
    prompt, params = tokenizer.encode("hi"), SamplingParams(max_new_tokens=8, temperature=0.0)
    with Engine(model, tokenizer) as engine:
        free = engine.generate([(prompt, 0)], params)[0]
    with Engine(model, tokenizer, ends=[int(free.ids[1])]) as engine:
        stopped = engine.generate([(prompt, 0)], params)[0]
    assert (stopped.end, len(stopped)) == ("stop", list(free.ids).index(free.ids[1]) + 1)


def test_a_result_does_not_repeat_the_mark_that_the_model_ended_its_call_with() -> None:
    frame = Frame(shipped("glm4moe"))
    mark = frame.tokenizer.convert_tokens_to_ids("<|observation|>")
    ids = frame.following([{"role": "tool", "content": "7"}], ended=True, after=[mark])
    assert frame.tokenizer.decode([mark, *ids]).startswith("<|observation|>\n<tool_response>\n7\n")


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        ("gemma3", "42<end_of_turn>"), ("qwen3", "<think>\n\n</think>\n\n42<|im_end|>"),
        ("glm4moe", "\n<think></think>\n42<eos>"),
        ("deepseek_r1_distill", "42<｜end▁of▁sentence｜>"), ("nemotron_3_super", "</think>42<|im_end|>"),
    ],
)  # fmt: skip
def test_both_supervised_paths_learn_the_turn_of_the_template(name: str, learned: str) -> None:
    class Sums:
        def demonstration(self, problem: Problem) -> str:
            return "42"

    frame = Frame(shipped(name))
    answer = DemonstratedAnswers(Sums(), frame, 9999).row(Problem(ASK["content"], "42"))  # type: ignore[arg-type]
    conversation = demonstration_row(frame, Observation((ASK,)), [ANSWER])
    for ids, own in (answer, conversation):
        assert frame.tokenizer.decode(ids[own]) == learned
        wanted = frame.tokenizer.apply_chat_template([ASK, ANSWER], return_dict=False)
        assert list(ids)[: len(wanted)] == wanted


def own_format(body: str) -> Any:
    """A template with a format of its own: `body` writes the call `c`."""
    made = character_tokenizer(10_000)
    made.add_tokens([AddedToken("<|im_end|>", special=True)])
    made.chat_template = (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for call in m.tool_calls or [] %}{% set c = call.function %}" + body + "{% endfor %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    return made


@pytest.mark.parametrize(
    "body",
    [
        '<do>{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}</do>',
        "[[RUN]]{{ c.name }}[[WITH]]{{ c.arguments | tojson }}[[END]]",
        "<run={{ c.name }}>{% for k, v in c.arguments | items %}<with {{ k }}>{{ v }}</with>{% endfor %}</run>",
    ],
)
def test_an_unknown_format_is_worked_out_from_a_call(body: str) -> None:
    tokenizer = own_format(body)
    frame = Frame(tokenizer)
    ids, own = frame.demonstration([ASK], [CALL], [TOOL])
    assert ids == tokenizer.apply_chat_template([ASK, CALL], tools=[TOOL], return_dict=False)
    said = tokenizer.decode([token for token, mine in zip(ids, own, strict=True) if mine])
    reply = read_reply(said.removesuffix("<|im_end|>"), frame.form, 0, tools=[TOOL])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("find", {"x": 1})]


RIDDLE = "{{ c.name | reverse }}~{% for k, v in c.arguments | items %}{{ v }}~{% endfor %}"


def test_a_format_that_nobody_knows_is_named_and_can_be_added() -> None:
    tokenizer = own_format("call~probe~" + RIDDLE)
    with pytest.raises(ConfigError, match=r"writes tool calls as 'call~probe~eborp~one two~7~True~'") as caught:
        Frame(tokenizer).opening([ASK], [TOOL])
    assert "register_format" in caught.value.hint
    with pytest.raises(ConfigError, match="there is no tool-call format 'riddle'; there are action"):
        Frame(tokenizer, tool_format="riddle")
    riddle = CallFormat(
        "riddle", find=lambda text: iter(text.split("?~")[1:]), read=lambda raw, schemas: (raw.strip(), {}),
        write=lambda calls: "".join(f"?~{call.name}" for call in calls), begins=("?~",),
    )  # fmt: skip
    register_format(riddle)
    try:
        frame = Frame(tokenizer, tool_format="riddle")
        ids, own = frame.demonstration([ASK], [CALL], [TOOL])
        said = tokenizer.decode([token for token, mine in zip(ids, own, strict=True) if mine])
        assert said == "?~find<|im_end|>", "a template that cannot write the format gets the call as text"
    finally:
        FORMATS.remove(riddle)


def test_a_template_that_never_ends_is_refused_in_a_sentence() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ConfigError, match="the model's chat template cannot be used: it takes longer") as caught:
        _ = Frame(tokenizer).end_ids
    assert "\n" not in caught.value.message


def test_a_model_without_a_chat_template_converses_in_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    """GPT-2's tokenizer has none. The end-of-text token is what its turns end with."""
    language = load_model("tiny@14")
    language.tokenizer.chat_template = None
    frame = Frame(language.tokenizer, "'gpt2'")
    talk = [{"role": "system", "content": "Be brief."}, ASK, ANSWER, {"role": "user", "content": "why?"}]
    text = "System: Be brief.\n\nUser: 6*7?\n\nAssistant: 42<|end|>\n\nUser: why?\n\nAssistant:"
    decode = language.tokenizer.decode
    assert decode(frame.opening(talk)) == text
    ids, own = frame.demonstration(talk[:2], [ANSWER])
    assert decode([token for token, mine in zip(ids, own, strict=True) if mine]) == " 42<|end|>"
    assert (
        decode([*ids[: own.index(True)], *language.tokenizer.encode(" 42<|end|>")])
        + decode(frame.following(talk[3:], ended=True))
        == text
    )

    async def seed() -> int:
        async with MultiTurnAgent(AgentConfig(max_new_tokens=3), language=language) as agent:
            started = await agent.start_conversation("ada")
            for _ in range(2):
                answer = await agent.generate_multiturn_response(started.conversation_id, "Where is my order?")
            return answer.context.turns

    caplog.set_level(logging.WARNING)
    Frame(language.tokenizer, "'gpt2'")
    assert EventLoop("seed").run(seed()) == 2
    said = [record.message for record in caplog.records if "'gpt2' has no chat template" in record.message]
    assert len(said) == 1


def test_a_template_that_leaves_out_the_turn_cannot_demonstrate() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match="leaves out the model's turn, so it cannot express demonstrations"):
        Frame(tokenizer).demonstration([ASK], [ANSWER])


def test_the_table_of_formats_says_which_template_has_which() -> None:
    lines = (Path(__file__).parents[3] / "docs/tools.md").read_text(encoding="utf8").splitlines()
    rows = [line.replace(r"\|", "").split("|") for line in lines if line.startswith("| `")]
    told = {row[1].strip(" `"): row[4].replace(" ", "") for row in rows if len(row) == 6}
    assert set(told) >= {form.name for form in FORMATS}
    by_template = {name: form for form, names in told.items() for name in names.split(",") if name}
    found = {name: Frame(shipped(name)).form for name in by_template}
    assert {name: form.name for name, form in found.items() if form} == by_template
    others = {file.stem for file in templates.shipped().glob("*.jinja")} - set(by_template)
    assert not [name for name in others if "training" not in name and Frame(shipped(name)).form]


@pytest.mark.parametrize("name", ["gemma4_v5", "lfm2_v2", "deepseekv3", "qwen3_5_think"])
def test_a_call_is_held_back_while_it_is_streamed(name: str) -> None:
    """Also where its marks are special tokens, which are not text otherwise."""
    frame = Frame(shipped(name))
    ids, own = frame.demonstration([ASK], [CALL], [TOOL])
    start = own.index(True)
    stream = SpeechStream(frame.tokenizer, ids[:start], held=frame.call_format().begins)
    given = [piece for token, mine in zip(ids, own, strict=True) if mine for piece in stream.feed(token)]
    assert [piece for piece in given if isinstance(piece, str)] == []
