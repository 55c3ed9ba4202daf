"""Reads and checks a chat-completions request. What cannot be honoured is refused by name, never silently ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from groupwise.agents.data.problems import template_options
from groupwise.errors import ContractError
from groupwise.types import Message

if TYPE_CHECKING:  # rollout workers read messages too, and load no model
    from groupwise.language.engine import SamplingParams

NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")
LIMITS = ("max_completion_tokens", "max_tokens")
TEMPLATE = ("chat_template_kwargs", "reasoning_effort")
UNDERSTOOD = {
    "model", "messages", "tools", "stream", "stream_options", "n", "stop", "seed", "top_k",
    *NUMBERS, *LIMITS, *TEMPLATE,
}  # fmt: skip
# Parameters that do not change an answer.
NO_EFFECT = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls",
}  # fmt: skip
# Parameters accepted only with the value that changes nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "logprobs": (False,), "logit_bias": ({},),
    "response_format": ({"type": "text"},), "tool_choice": ("auto",),
}  # fmt: skip
MOST_ANSWERS = 64
LARGEST = 1e9  # far above any sampling parameter that makes sense


class RequestError(ContractError):
    """The request cannot be answered; `field` names the parameter at fault."""

    code = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """How many answers to which messages, how to sample them, whether to stream, and options of the chat template."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    params: SamplingParams
    count: int
    seed: int | None
    stream: bool
    stream_usage: bool
    options: Mapping[str, Any] = field(default_factory=dict)


def read_request(body: bytes, usual: SamplingParams) -> CompletionRequest:
    """Parse a request body; `usual` fills in what it leaves out."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON") from None
    if not isinstance(given, dict):
        raise RequestError("the body is not a JSON object")
    # Clients send null for parameters that are not set.
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in UNDERSTOOD and name not in NO_EFFECT and value not in NEUTRAL.get(name, ()):
            raise RequestError(f"{name} = {json.dumps(value):.80} is not supported by this server", field=name)
    stream, options = bool(given.get("stream", False)), given.get("stream_options", {})
    if not isinstance(options, dict):
        raise RequestError(f"stream_options is {options!r:.80}, not an object", field="stream_options")
    # Only one answer can be streamed.
    count = _whole(given, "n", 1, 1, 1 if stream else MOST_ANSWERS)
    return CompletionRequest(
        messages=tuple(map(read_message, _objects(given, "messages"))),
        tools=_objects(given, "tools") if given.get("tools") else (),
        params=_params(given, usual),
        count=count,
        seed=_whole(given, "seed", None, -(1 << 63), (1 << 63) - 1),
        stream=stream,
        stream_usage=bool(options.get("include_usage", False)),
        options=read_template_options(given),
    )


def read_template_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the chat template; OpenAI's `reasoning_effort` is one of them."""
    effort = {"reasoning_effort": given["reasoning_effort"]} if given.get("reasoning_effort") is not None else {}
    try:
        return {**effort, **template_options(given.get("chat_template_kwargs"))}
    except ValueError as error:
        raise RequestError(str(error), field="chat_template_kwargs") from None


def _params(given: Mapping[str, Any], usual: SamplingParams) -> SamplingParams:
    changes: dict[str, Any] = {name: _number(given, name) for name in NUMBERS if name in given}
    if "top_k" in given:
        changes["top_k"] = _whole(given, "top_k", 0, 0, 1 << 31)
    limit = next((name for name in LIMITS if name in given), None)
    if limit is not None:
        changes["max_new_tokens"] = _whole(given, limit, 1, 1, 1 << 31)
    if "stop" in given:
        stop = given["stop"] if isinstance(given["stop"], list) else [given["stop"]]
        if not all(isinstance(text, str) and text for text in stop):
            raise RequestError(f"stop is {given['stop']!r:.80}, not a string or a list of strings", field="stop")
        changes["stop"] = tuple(stop)
    return replace(usual, **changes)


def _objects(given: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    found = given.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(item, dict) for item in found):
        raise RequestError(f"{name} is {found!r:.80}, not a list of at least one object", field=name)
    return tuple(found)


def read_message(given: Mapping[str, Any]) -> Message:
    """Return a message in the form chat templates expect: content as text, arguments of calls as objects."""
    message = {name: value for name, value in given.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = "".join(_text_part(part) for part in content)
    if message.get("role") == "developer":
        message["role"] = "system"
    if "tool_calls" in message:
        message["tool_calls"] = [_call(call) for call in _objects(message, "tool_calls")]
    return message


def _text_part(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise RequestError(f"a message contains {part!r:.80}; only text is supported", field="messages")
    return str(part["text"])


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    try:
        function = {"name": function["name"], "arguments": function["arguments"]}  # type: ignore[index]
        if isinstance(function["arguments"], str):
            function["arguments"] = json.loads(function["arguments"])
    except (TypeError, KeyError, ValueError, RecursionError):
        raise RequestError(f"a tool call cannot be read: {call!r:.120}", field="messages") from None
    return {"id": call.get("id"), "type": "function", "function": function}


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        raise RequestError(f"{name} is {value!r:.80}, not a number up to {LARGEST:g}", field=name)
    return float(value)


def _whole(given: Mapping[str, Any], name: str, default: Any, least: int, most: int) -> Any:
    value = given.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise RequestError(f"{name} is {value!r:.80}, not a whole number from {least} to {most}", field=name)
    return value
