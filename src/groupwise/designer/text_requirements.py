"""Requirements from plain text, written by a language model behind an OpenAI-compatible address and checked here.

    requirements_from_text("A claim is registered, then …", model="openai/gpt-4o")

The model answers in the published JSON Schema. What it gets wrong it is told once, in the words a person would get;
after that the mistake is the caller's to see. The text is material and never an instruction: whatever it says, an
answer that is no set of requirements is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.rewards.judge.endpoint import JudgeEndpoint, JudgeReply, resolve
from groupwise.workflows.requirements import Requirements, parse_requirements, schema

MODEL_VARIABLE = "GROUPWISE_MODEL"
TIMEOUT = 120.0
LONGEST = 200_000
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)
THOUGHTS = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
TASK = """You turn the description of a process into requirements for its design. Answer with one JSON object that
follows this JSON Schema, and nothing else. Times are in seconds. Use short labels of a verb and an object for
activities, take only what the description says or clearly implies, and leave out what it does not tell.

{schema}"""


def requirements_from_text(
    text: str,
    model: str | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
) -> Requirements:
    """The requirements that a model reads out of a text; `model` is provider/name, or in GROUPWISE_MODEL."""
    chosen = model or (os.environ if environment is None else environment).get(MODEL_VARIABLE)
    if not chosen:
        raise ConfigError(
            "plain text is read by a language model, and none is configured",
            hint=f"Set {MODEL_VARIABLE} to provider/model, for example openai/gpt-4o or local/qwen, or write the "
            "requirements as YAML.",
            field="model",
        )
    if not text.strip():
        raise ConfigError("the description is empty", hint="Describe the activities, their order and who does them.")
    if len(text) > LONGEST:
        raise ConfigError(f"the description has {len(text):,} characters, and may have {LONGEST:,}")
    endpoint = JudgeEndpoint(resolve(chosen, base_url, api_key), timeout, role="model")
    loop = EventLoop("requirements from text")
    try:
        return loop.run(_asked(endpoint, text))
    finally:
        loop.close()


async def _asked(endpoint: JudgeEndpoint, text: str) -> Requirements:
    """Ask, and once more with the mistake if the answer has one."""
    shape = schema()
    told = TASK.format(schema=json.dumps(shape, ensure_ascii=False))
    messages = [
        {"role": "system", "content": told},
        {"role": "user", "content": f"<description>\n{text}\n</description>"},
    ]
    reply = await endpoint.ask(messages, shape)
    try:
        return _read(reply)
    except ConfigError as error:
        mistake = f"That cannot be used: {error.message}. Answer with the whole corrected JSON object."
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": mistake}]
    try:
        return _read(await endpoint.ask(messages, shape))
    except ConfigError as error:
        raise ConfigError(
            f"the model {endpoint.address.model} wrote requirements that cannot be used, twice: {error.message}",
            hint="Say more in the description, or choose a stronger model.",
            field=error.field,
        ) from error


def _read(reply: JudgeReply) -> Requirements:
    if reply.cut:
        raise ConfigError("the answer was cut off before it was complete")
    text = THOUGHTS.sub("", reply.text, count=1)
    fenced = FENCED.search(text)
    try:
        value: Any = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is no JSON: {error}") from error
    return parse_requirements(value)
