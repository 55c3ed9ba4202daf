"""Requirements from plain text: a language model behind an OpenAI-compatible endpoint writes them, and we check them.

    requirements_from_text("A claim is registered, then …", model="openai/gpt-4o")

The model answers in the published JSON Schema. If its answer is invalid, it gets the error message and one more try;
after that the caller gets the error. The text is data, never instructions: whatever it says, an answer that is not a
valid set of requirements is refused.
"""

import json
import os
import re
from collections.abc import Mapping

from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.readers import load_json
from groupwise.rewards.judge.endpoint import JudgeEndpoint, JudgeReply, resolve
from groupwise.thoughts import without_thoughts
from groupwise.workflows.requirements import Requirements, parse_requirements, schema

MODEL_VARIABLE = "GROUPWISE_MODEL"
TIMEOUT = 120.0
LONGEST = 200_000
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)
TASK = """You turn the description of a process into requirements for its design. Answer with one JSON object that
follows this JSON Schema, and nothing else. Times are in seconds. Label each activity with
a verb and an object, and include only what the description says or clearly implies.

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
    """Let a model turn a text into requirements; `model` is provider/name, by default from GROUPWISE_MODEL."""
    chosen = model or (os.environ if environment is None else environment).get(MODEL_VARIABLE)
    if not chosen:
        raise ConfigError(
            "reading plain text requires a language model, but none is configured",
            hint=f"Set {MODEL_VARIABLE} to provider/model, for example openai/gpt-4o or local/qwen, or write the "
            "requirements as YAML.",
            field="model",
        )
    if not text.strip():
        hint = "Describe the activities, their order and who performs them."
        raise ConfigError("the description is empty", hint=hint)
    if len(text) > LONGEST:
        raise ConfigError(f"the description has {len(text):,} characters; the limit is {LONGEST:,}")
    endpoint = JudgeEndpoint(resolve(chosen, base_url, api_key), timeout, role="model")
    loop = EventLoop("requirements from text")
    try:
        return loop.run(_asked(endpoint, text))
    finally:
        loop.close()


async def _asked(endpoint: JudgeEndpoint, text: str) -> Requirements:
    # Ask, and ask again with the error message if the answer is invalid.
    shape = schema()
    instructions = TASK.format(schema=json.dumps(shape, ensure_ascii=False))
    messages = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": f"<description>\n{text}\n</description>"},
    ]
    reply = await endpoint.ask(messages, shape)
    try:
        return _read(reply)
    except ConfigError as error:
        mistake = f"That is not valid: {error.message}. Answer with the complete corrected JSON object."
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": mistake}]
    try:
        return _read(await endpoint.ask(messages, shape))
    except ConfigError as error:
        raise ConfigError(
            f"the model {endpoint.address.model} wrote invalid requirements twice: {error.message}",
            hint="Add more detail to the description, or use a stronger model.",
            field=error.field,
        ) from error


def _read(reply: JudgeReply) -> Requirements:
    if reply.cut:
        raise ConfigError("the answer was cut off")
    text = without_thoughts(reply.text)
    fenced = FENCED.search(text)
    return parse_requirements(load_json(fenced[1] if fenced else text))
