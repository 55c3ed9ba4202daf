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
PENALTIES = ("frequency_penalty", "presence_penalty")
LIMITS = ("max_completion_tokens", "max_tokens")
TEMPLATE = ("chat_template_kwargs", "reasoning_effort")
UNDERSTOOD = {
    "model", "messages", "prompt", "tools", "tool_choice", "stream", "stream_options", "n", "stop", "seed", "top_k",
    "logprobs", "top_logprobs", "response_format", "logit_bias", "parallel_tool_calls",
    *NUMBERS, *LIMITS, *TEMPLATE, *PENALTIES,
}  # fmt: skip
# Parameters that do not change an answer.
NO_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# Parameters accepted only with the value that changes nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {"echo": (False,), "best_of": (1,), "suffix": ("",)}
MOST_LOGPROBS = 20
ANY_JSON = {"type": "object"}
MOST_ANSWERS = 64
MOST_STOPS, LONGEST_STOP = 64, 1000  # every token of an answer is compared with each of them
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
    prompt: str | None = None
    logprobs: int | None = None
    penalties: tuple[float, float, Mapping[int, float]] | None = None
    schema: Mapping[str, Any] | None = None
    forced: tuple[str, ...] = ()  # names of the tools of which one must be called
    parallel: bool = True


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
    text = _prompt(given) if "prompt" in given else None
    tools, forced = _tools(given)
    schema = _schema(given.get("response_format", {"type": "text"}))
    if forced and schema is not None:
        message = "response_format and a tool_choice that forces a call exclude each other"
        raise RequestError(message, hint="Send one of them.", field="tool_choice")
    return CompletionRequest(
        messages=() if text is not None else tuple(map(read_message, _objects(given, "messages"))),
        tools=tools,
        forced=forced,
        parallel=given.get("parallel_tool_calls", True) is not False,
        prompt=text,
        logprobs=_logprobs(given),
        penalties=_penalties(given),
        schema=schema,
        params=_params(given, usual),
        count=count,
        seed=_whole(given, "seed", None, -(1 << 63), (1 << 63) - 1),
        stream=stream,
        stream_usage=bool(options.get("include_usage", False)),
        options=read_template_options(given),
    )


def _prompt(given: Mapping[str, Any]) -> str:
    prompt = given["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or "messages" in given:
        raise RequestError(f"prompt is {prompt!r:.80}, not one text", field="prompt")
    return prompt


def _tools(given: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """The tools that are offered, and the names of those of which one must be called, if one must."""
    choice = given.get("tool_choice", "auto")
    tools = _objects(given, "tools") if given.get("tools") and choice != "none" else ()
    if choice in ("auto", "none"):
        return tools, ()
    # Only what a forced call is made from; otherwise they are between the client and the model's template.
    functions = [function for tool in tools if isinstance(function := tool.get("function", tool), dict)]
    names = [str(function.get("name")) for function in functions]
    for function in functions:
        if not isinstance(function.get("parameters") or {}, dict):
            message = f"the parameters of tool {function.get('name')!r:.60} are {function['parameters']!r:.60}"
            raise RequestError(message, hint="They must be a JSON schema: an object.", field="tools")
    wanted = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if choice != "required" and not isinstance(wanted, dict):
        message = f"tool_choice is {json.dumps(choice):.80}, not auto, none, required or a function"
        raise RequestError(message, field="tool_choice")
    forced = names if wanted is None else [name for name in names if name == wanted.get("name")]
    if not forced:
        what = "a tool" if wanted is None else f"the tool {wanted.get('name')!r:.60}"
        message = f"tool_choice asks for {what}, but the request has no such tool"
        raise RequestError(message, hint=f"Its tools are {', '.join(names) or 'none'}.", field="tool_choice")
    return tools, tuple(forced)


def _logprobs(given: Mapping[str, Any]) -> int | None:
    """How many alternatives to report with every token; None reports nothing, 0 only what was chosen."""
    asked, most = given.get("logprobs", False), _whole(given, "top_logprobs", 0, 0, MOST_LOGPROBS)
    if not isinstance(asked, bool):  # the older form of /v1/completions: a number of alternatives
        return int(_whole(given, "logprobs", 0, 0, MOST_LOGPROBS))
    if most and not asked:
        raise RequestError("top_logprobs is set, but logprobs is not true", field="top_logprobs")
    return int(most) if asked else None


def _penalties(given: Mapping[str, Any]) -> tuple[float, float, Mapping[int, float]] | None:
    """The frequency and the presence penalty, and the biases of tokens; None if nothing is set."""
    frequency, presence = (_number(given, name) if name in given else 0.0 for name in PENALTIES)
    bias = given.get("logit_bias", {})
    try:
        biases = {int(token): float(value) for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        message = f"logit_bias is {bias!r:.80}, not an object of token ids and numbers"
        raise RequestError(message, field="logit_bias") from None
    if any(token < 0 or not abs(value) <= LARGEST for token, value in biases.items()):
        raise RequestError(f"logit_bias is {bias!r:.80}, with a token or number out of range", field="logit_bias")
    return (frequency, presence, biases) if frequency or presence or biases else None


def _schema(wanted: Any) -> Mapping[str, Any] | None:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_JSON
    found = wanted.get("json_schema", {}) if kind == "json_schema" else None
    schema = found.get("schema") if isinstance(found, dict) else None
    if not isinstance(schema, dict):
        message = f"response_format is {wanted!r:.80}, not a text, json_object or json_schema with a schema"
        raise RequestError(message, field="response_format")
    return schema


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
        if len(stop) > MOST_STOPS or any(len(text) > LONGEST_STOP for text in stop):
            message = f"stop has {len(stop)} strings, the longest of {max(map(len, stop))} characters"
            hint = f"The limits are {MOST_STOPS} strings of {LONGEST_STOP:,} characters."
            raise RequestError(message, hint=hint, field="stop")
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
