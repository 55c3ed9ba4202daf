"""A problem's prompt as tokens, in the model's own chat format, and the checks it must pass."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groupwise.agents.conversation.chat_template import special_tokens, template_of
from groupwise.agents.data.problems import Problem
from groupwise.agents.data.rows import refused
from groupwise.errors import ConfigError


def prompt_ids(tokenizer: Any, problem: Problem, limit: int, options: Mapping[str, Any] | None = None) -> list[int]:
    """Return the prompt's tokens up to the model's turn; a model without a chat template gets the plain text.

    `options` are those of the chat template; the problem's own come first. A prompt that leaves no room for an answer
    in a context of `limit` tokens is refused.
    """
    if not problem.plain:
        insist_on_plain_text(problem, special_tokens(tokenizer))
    if (problem.plain or tokenizer.chat_template is None) and isinstance(problem.prompt, str):
        ids = tokenizer.encode(problem.prompt)
    else:
        template = template_of(tokenizer, {**(options or {}), **problem.template_options})
        try:
            ids = template.ids(template.text(problem.messages))
        except ConfigError as error:
            raise ConfigError(f"{problem.label}: {error.message}", hint=error.hint, field="task.environment") from error
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


def check_prompts(
    problems: Iterable[Problem], tokenizer: Any, limit: int, options: Mapping[str, Any] | None = None
) -> None:
    """Refuse prompts that cannot be asked, before a run starts.

    To stay fast, only prompts that may fail are encoded: the first with each order of roles, those with options of
    their own, and long ones. A token is at least one byte, so half the limit leaves room for the chat format around a
    short prompt.
    """
    seen: set[tuple[str, ...]] = set()
    special = special_tokens(tokenizer)
    for problem in problems:
        insist_on_plain_text(problem, special)
        if problem.roles not in seen or problem.template_options or len(problem.text.encode()) >= limit // 2:
            prompt_ids(tokenizer, problem, limit, options)
            seen.add(problem.roles)
