"""Problems as prompt tokens, and prompts that cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.conversation import prompts
from groupwise.agents.conversation.prompts import check_prompts, insist_on_plain_text, insist_on_room, prompt_ids
from groupwise.agents.data.problems import Problem
from groupwise.errors import ConfigError
from groupwise.language.tiny import character_tokenizer

TOKENIZER = character_tokenizer()
TALK = ({"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?"})


def text(problem: Problem, tokenizer: Any = TOKENIZER, **options: Any) -> str:
    return str(tokenizer.decode(prompt_ids(tokenizer, problem, 500, options)))


def test_a_prompt_is_a_users_message_or_a_chat() -> None:
    assert text(Problem("1+1?", "2")) == "<|user|>1+1?<|end|><|assistant|>"
    assert text(Problem(TALK, "2")) == "<|system|>Add.<|end|><|user|>1+1?<|end|><|assistant|>"


def test_a_model_without_a_template_gets_plain_text_but_a_chat_in_words() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = None
    assert text(Problem("1+1?", "2"), tokenizer) == "1+1?"
    assert text(Problem(TALK, "2"), tokenizer) == "System: Add.\n\nUser: 1+1?\n\nAssistant:"


def test_a_problems_own_options_come_before_those_of_the_run() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }} {{ mood }} {{ size }}"
    own = Problem("1+1?", "2", columns={"chat_template_kwargs": {"mood": "glad"}})
    assert text(own, tokenizer, mood="sad", size=3) == "1+1? glad 3"
    assert text(Problem("1+1?", "2"), tokenizer, mood="sad", size=3) == "1+1? sad 3"


def test_a_prompt_leaves_room_for_one_token_at_least() -> None:
    problem = Problem("1+1?", "2", place="row 3")
    assert len(prompt_ids(TOKENIZER, problem, 8)) == 7
    with pytest.raises(ConfigError, match="row 3 needs 8 tokens with its answer, but the model's context is 7"):
        prompt_ids(TOKENIZER, problem, 7)
    insist_on_room(problem, 5, 5)
    with pytest.raises(ConfigError, match="needs 6 tokens"):
        insist_on_room(problem, 6, 5)


def test_special_tokens_are_refused_in_prompts_and_demonstrations() -> None:
    problem = Problem("1+1?", "2", place="row 3")
    insist_on_plain_text(problem, ["<|end|>"], "fine")
    with pytest.raises(ConfigError, match=r"row 3 contains '<\|end\|>', which is a special token"):
        insist_on_plain_text(problem, ["<pad>", "<|end|>"], "a<|end|>b")
    with pytest.raises(ConfigError, match=r"contains '<\|end\|>'"):
        prompt_ids(TOKENIZER, Problem("a<|end|>b", "2"), 100)


def test_a_template_that_refuses_names_the_problem() -> None:
    odd = Problem(({"role": "narrator", "content": "Once."},), "2", place="row 3")
    with pytest.raises(ConfigError, match="^row 3: ") as refused:
        prompt_ids(TOKENIZER, odd, 100)
    assert refused.value.field == "task.environment"


def test_only_prompts_that_may_fail_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each order of roles, those with options, and those of half the limit in bytes."""
    tried: list[Problem] = []
    whole = prompt_ids
    monkeypatch.setattr(prompts, "prompt_ids", lambda t, p, *rest: tried.append(p) or whole(t, p, *rest))
    first, second, chat, again = Problem("a", "1"), Problem("b", "1"), Problem(TALK, "1"), Problem(TALK, "2")
    half, less, wide = Problem("c" * 20, "1"), Problem("c" * 19, "1"), Problem("é" * 10, "1")
    own = Problem("d", "1", columns={"chat_template_kwargs": {"mood": "glad"}})
    check_prompts([first, second, chat, again, half, less, wide, own], TOKENIZER, 40)
    assert tried == [first, chat, half, wide, own]
    with pytest.raises(ConfigError, match="special token"):
        check_prompts([first, Problem("<|end|>", "1")], TOKENIZER, 40)
    with pytest.raises(ConfigError, match="needs 44 tokens"):
        check_prompts([first, Problem("e" * 40, "1")], TOKENIZER, 40)
