"""Which thoughts a model writes, found from its chat template."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from groupwise.language.chat_templates import PLAIN_TEMPLATE, chat_ids, chat_text
from groupwise.language.thought_formats import hidden_tokens, prompt_end, split_answer, thought_format
from groupwise.language.tiny import character_tokenizer
from groupwise.thoughts import THINK, ThoughtFormat

TRL = find_spec("trl")
GEMMA = ("<|channel>thought", "<channel|>")
SHIPPED = {
    "qwen3": ThoughtFormat(), "qwen3_instruct_2507": ThoughtFormat(), "deepseek_r1_distill": ThoughtFormat(),
    "glm4moe": ThoughtFormat(), "llama3_1": ThoughtFormat(), "nemotron_3_nano": ThoughtFormat(),
    "gemma4": ThoughtFormat((GEMMA,)), "gptoss": ThoughtFormat(messages=True),
    "muse_glimmer": ThoughtFormat(messages=True),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_the_marks_of_templates_in_use_are_known(name: str) -> None:
    if TRL is None or TRL.origin is None:
        pytest.skip("TRL is not installed")
    tokenizer = character_tokenizer()
    tokenizer.chat_template = (Path(TRL.origin).parent / "chat_templates" / f"{name}.jinja").read_text()
    assert thought_format(tokenizer) == SHIPPED[name]


UNKNOWN = (
    "{%- for m in messages %}{{ '<|' + m.role + '|>' }}"
    "{%- if m.reasoning_content %}{{ '<musing>\\n' + m.reasoning_content + '\\n</musing>\\n' }}{% endif %}"
    "{{- m.content + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def test_marks_that_nobody_told_us_of_are_read_off_the_template() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = UNKNOWN
    assert thought_format(tokenizer).marks == (("<musing>", "</musing>"),)
    assert split_answer(tokenizer, [], "<musing>15?</musing>14")[:2] == ("15?", "14")
    assert split_answer(tokenizer, [], "<musing>14")[:2] == ("14", "")


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{{ messages[0].content }}", "{% for"])
def test_a_template_that_tells_nothing_is_taken_to_mean_think(template: str) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = f"{{# reasoning #}}{template}"
    assert thought_format(tokenizer).marks == (THINK,)


def with_template(template: object) -> Any:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def musing(key: str, opens: str = "[muse]", closes: str = "[/muse]", between: str = " ") -> str:
    return (
        f"{{% for m in messages %}}{{% if m.{key} %}}{opens}{{{{ m.{key} }}}}{closes}{between}{{% endif %}}"
        "{{ m.content }}{% endfor %}"
    )


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_is_found_under_any_of_its_keys(key: str) -> None:
    assert thought_format(with_template(musing(key))) == ThoughtFormat((("[muse]", "[/muse]"),))


@pytest.mark.parametrize(
    ("template", "marks"),
    [
        (musing("reasoning", "<a>x<b>\n", "\n</b><c>"), ("<b>", "</b>")),
        (musing("reasoning", "muse:", "[/muse]"), THINK),
        (musing("reasoning", "[muse]", "end"), THINK),
        (musing("reasoning", "[muse]", "[muse]"), THINK),
        (musing("reasoning", "[a muse]", "[/muse]"), THINK),
        (musing("reasoning", "<" + "m" * 40 + ">", "</m>"), ("<" + "m" * 40 + ">", "</m>")),
        (musing("reasoning", "<" + "m" * 41 + ">", "</m>"), THINK),
        # The answer must come behind the thought.
        ("{% for m in messages %}{{ m.content }}[a]{{ m.reasoning }}[b]{% endfor %}", THINK),
        (musing("musing"), THINK),
    ],
)
def test_the_tags_around_a_thought_are_its_marks(template: str, marks: tuple[str, str]) -> None:
    assert thought_format(with_template(template)).marks == (marks,)


def test_all_known_marks_of_all_templates_count_and_messages_before_any() -> None:
    several = {"default": "{{ '</think>' }}", "tool_use": "{{ '[/THINK]' }}"}
    assert thought_format(with_template(several)).marks == (THINK, ("[THINK]", "[/THINK]"))
    assert thought_format(with_template("{{ '<|message|></think>' }}")) == ThoughtFormat(messages=True)
    assert thought_format(with_template(None)) == ThoughtFormat()
    tokenizer = with_template("{{ '[/THINK]' }}")
    assert thought_format(tokenizer).marks == (("[THINK]", "[/THINK]"),)
    tokenizer.chat_template = "{{ '</seed:think>' }}"
    assert thought_format(tokenizer).marks == (("<seed:think>", "</seed:think>"),)


def test_a_prompt_that_opens_a_thought_is_seen_in_its_last_sixteen_tokens() -> None:
    tokenizer = character_tokenizer()

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    assert prompt_end(tokenizer, ids("0123456789abcdefg")) == "123456789abcdefg"
    assert prompt_end(tokenizer, ids("ab<|end|>")) == "ab<|end|>"
    assert prompt_end(tokenizer, []) == ""
    assert split_answer(tokenizer, ids("Why? <think>\n"), "15?</think>14")[:2] == ("15?", "14")
    assert split_answer(tokenizer, ids("Why? <think>\n"), "14")[:2] == ("14", "")
    assert split_answer(tokenizer, ids("Why?"), "14")[:2] == ("", "14")


def test_special_tokens_are_hidden_unless_they_delimit_thoughts_or_calls() -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "<call>", "<other>"]})
    tokenizer.add_tokens(["word"])

    def hidden(*marks: str) -> set[str]:
        return set(tokenizer.convert_ids_to_tokens(sorted(hidden_tokens(tokenizer, marks))))

    usual = {"<pad>", "<unk>", "<bos>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"}
    assert hidden() >= {"<pad>", "<unk>", "<bos>", "<|end|>", "<call>", "<other>"}
    assert hidden() <= {*usual, "<call>", "<other>"}
    assert hidden() - hidden("\n<call>{") == {"<call>"}


def test_a_model_without_a_template_is_written_to_in_words() -> None:
    tokenizer = with_template(None)
    talk = [
        {"role": "system", "content": " Add. "},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": ""},
    ]
    words = "System: Add.\n\nUser: 1+1?\n\nAssistant: 2<|end|>\n\nUser:\n\n"
    assert chat_text(tokenizer, talk) == f"{words}Assistant:"
    assert chat_text(tokenizer, talk, add_generation_prompt=False) == words
    assert "eos_token" in PLAIN_TEMPLATE


SHOWN = "{{ tools }}|{{ add_generation_prompt }}|{{ enable_thinking }}|{{ eos_token }}|{{ messages[0].content }}"


def test_a_template_sees_messages_tools_options_and_special_tokens() -> None:
    tokenizer = with_template(SHOWN)
    talk = [{"role": "user", "content": "Hi"}]
    assert chat_text(tokenizer, talk) == "None|True||<|end|>|Hi"
    said = chat_text(tokenizer, talk, tools=[{"a": 1}], add_generation_prompt=False, options={"enable_thinking": False})
    assert said == "[{'a': 1}]|False|False|<|end|>|Hi"
    # What a conversation decides itself is not an option.
    said = chat_text(tokenizer, talk, options={"add_generation_prompt": False, "tools": 7, "messages": []})
    assert said == "None|True||<|end|>|Hi"


def test_one_of_several_templates_is_chosen_by_name_or_by_the_tools() -> None:
    tokenizer = with_template({"default": "plain", "tool_use": "with tools", "other": "another"})
    talk = [{"role": "user", "content": "Hi"}]
    assert chat_text(tokenizer, talk) == "plain"
    assert chat_text(tokenizer, talk, tools=[{"a": 1}]) == "with tools"
    assert chat_text(tokenizer, talk, chat_template="other") == "another"


def test_the_tokens_of_a_chat_are_those_of_its_text_and_no_more() -> None:
    tokenizer = character_tokenizer()
    talk = [{"role": "user", "content": "Hi"}]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    assert tokenizer.encode("a")[0] == 2
    assert tokenizer.decode(chat_ids(tokenizer, talk)) == "<|user|>Hi<|end|><|assistant|>"
    tokenizer.chat_template = "{{ enable_thinking }}"
    assert tokenizer.decode(chat_ids(tokenizer, talk, {"enable_thinking": "yes"})) == "yes"
