"""A problem's prompt as tokens, in the model's own chat format, and the checks it must pass."""

from collections.abc import Iterable, Sequence
from typing import Any

from groupwise.agents.conversation.chat_format import special_tokens, template_refusal
from groupwise.agents.data.problems import Problem
from groupwise.agents.data.rows import refused
from groupwise.errors import ConfigError
from groupwise.language.chat_templates import chat_ids


def prompt_ids(tokenizer: Any, problem: Problem, limit: int) -> list[int]:
    """Return the prompt's tokens up to the model's turn; a model without a chat template gets the plain text.

    A prompt that leaves no room for an answer in a context of `limit` tokens is refused.
    """
    insist_on_plain_text(problem, special_tokens(tokenizer))
    if tokenizer.chat_template is None and isinstance(problem.prompt, str):
        ids = tokenizer.encode(problem.prompt)
    elif tokenizer.chat_template is None:
        message = f"{problem.label} is a list of messages, but the model has no chat template"
        raise ConfigError(message, hint="Write the prompt as one text.")
    else:
        said = problem.messages
        try:
            ids = chat_ids(tokenizer, said)
        except Exception as error:  # a template is a program and raises what it likes
            raise template_refusal(error, said, f"{problem.label}: ", "task.environment") from error
    insist_on_room(problem, len(ids) + 1, limit)
    return list(ids)


def insist_on_plain_text(problem: Problem, special: Sequence[str], demonstration: str = "") -> None:
    for token in special:
        if token in problem.text or token in demonstration:
            message = f"{problem.label} contains {token!r}, which is a special token of the model"
            raise refused(message, "Rephrase it without that, or leave the row out.")


def insist_on_room(problem: Problem, tokens: int, limit: int) -> None:
    if tokens > limit:
        message = f"{problem.label} needs {tokens} tokens with its answer, but the model's context is {limit}"
        raise refused(message, "Shorten it or leave it out, or choose a model with a longer context.")


def check_prompts(problems: Iterable[Problem], tokenizer: Any, limit: int) -> None:
    """Refuse prompts that cannot be asked, before a run starts.

    To stay fast, only prompts that may fail are encoded: the first with each order of roles, and long ones. A token is
    at least one byte, so half the limit leaves room for the chat format around a short prompt.
    """
    seen: set[tuple[str, ...]] = set()
    special = special_tokens(tokenizer)
    for problem in problems:
        insist_on_plain_text(problem, special)
        if problem.roles not in seen or len(problem.text.encode()) >= limit // 2:
            prompt_ids(tokenizer, problem, limit)
            seen.add(problem.roles)
