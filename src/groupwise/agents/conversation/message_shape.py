"""How a chat template wants its messages. Templates agree on roles and content, and on little else.

Some want a call's arguments as an object, some as JSON in a string; some drop calls beside empty content, or take a
call's name from its id; thoughts have three names. What a template wants is found by trying.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.agents.environments.contract import ToolCall
from groupwise.errors import ContractError
from groupwise.types import Message

THOUGHTS = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class MessageShape:
    """What a template reads: `thoughts` is the key of a turn's thought, None if it reads none.

    With `parts`, content is a list of parts, as templates for pictures want it.
    """

    arguments_as_text: bool = False
    empty: str | None = ""
    named_ids: bool = False
    thoughts: str | None = THOUGHTS[0]
    parts: bool = False

    @classmethod
    def for_calls(cls) -> Iterator["MessageShape"]:
        """Yield the shapes to try, the commonest first."""
        for named_ids in (False, True):
            for as_text in (False, True):
                for empty in ("", None):
                    yield cls(as_text, empty, named_ids)

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages in this shape."""
        ids: dict[str, str] = {}
        return [self._fit(message, ids) for message in messages]

    def _fit(self, message: Message, ids: dict[str, str]) -> Message:
        fitted = dict(message)
        if message["role"] == "assistant":
            thought = next((fitted.pop(key) for key in THOUGHTS if fitted.get(key)), "")
            if thought and self.thoughts:
                fitted[self.thoughts] = thought
        if message.get("tool_calls"):
            fitted["tool_calls"] = [self._call(call, ids) for call in message["tool_calls"]]
            fitted["content"] = message.get("content") or self.empty
        if message.get("tool_call_id") in ids:
            fitted["tool_call_id"] = ids[str(message["tool_call_id"])]
        if self.parts and isinstance(fitted.get("content"), str):
            fitted["content"] = [{"type": "text", "text": fitted["content"]}]
        return fitted

    def _call(self, call: Mapping[str, Any], ids: dict[str, str]) -> dict[str, Any]:
        function = dict(call["function"])
        arguments = function.get("arguments", {})
        if self.arguments_as_text and not isinstance(arguments, str):
            function["arguments"] = json.dumps(arguments, ensure_ascii=False)
        elif not self.arguments_as_text and isinstance(arguments, str):
            function["arguments"] = _parsed(arguments, function.get("name"))
        fitted = {**call, "function": function}
        if self.named_ids:
            # Kimi writes the id in place of the name and counts calls over the whole conversation.
            ids[str(call["id"])] = fitted["id"] = f"functions.{function['name']}:{len(ids)}"
        return fitted


def _parsed(arguments: str, name: Any) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        message = f"the arguments of a call to {name!r:.64} are not valid JSON: {arguments[:60]!r}"
        raise ContractError(message, hint="Write them as a JSON object.") from None


def call_message(calls: Sequence[ToolCall]) -> Message:
    """Return a turn of the model that makes these calls, in the form of chat APIs."""
    made = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in calls
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}
