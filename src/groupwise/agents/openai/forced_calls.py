"""`tool_choice` other than "auto": a grammar in which nothing but calls of the named tools can be written.

The grammar is made from the model's own format: one call is written with a name and arguments that stand out, and what
is around them is what every call must have. Formats that write arguments in another way than JSON cannot be forced.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.conversation.call_formats.reading import CallFormat, read_reply
from groupwise.agents.environments.contract import ToolCall
from groupwise.agents.openai.requests import RequestError

NAME, ARGUMENTS = "stand_in_for_a_name", {"stand_in": "for arguments"}
MOST_FORCED = 8  # calls of one forced turn


def forced_grammar(form: CallFormat, tools: Sequence[Mapping[str, Any]], names: Sequence[str], several: bool) -> str:
    """A grammar (llguidance's Lark) for one call of these tools, or for several."""
    before, between, after = _around(form)
    rules, choices = [], []
    for number, tool in enumerate(tools):
        function = tool.get("function", tool)
        if function.get("name") not in names:
            continue
        schema = _declared_only(function.get("parameters") or {})
        # Compact, because some formats end a call with its line.
        schema = {"type": "object", **schema, "x-guidance": {"whitespace_flexible": False}}
        said = _quoted(before + str(function["name"]) + between)
        rules.append(
            f"call_{number}: {said} arguments_{number} {_quoted(after)}\narguments_{number}: %json {json.dumps(schema)}"
        )
        choices.append(f"call_{number}")
    twice = form.write([ToolCall("a", NAME, ARGUMENTS)]) * 2
    most = MOST_FORCED if several and len(read_reply(twice, form, 0).tool_calls) == 2 else 1
    return "\n".join([f"start: call{{1,{most}}}", f"call: {' | '.join(choices)}", *rules])


def _declared_only(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """No arguments but those that are declared, unless the tool says that it takes others."""
    elsewhere = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"}  # where arguments may be declared, too
    return parameters if elsewhere & parameters.keys() else {"additionalProperties": False, **parameters}


def _around(form: CallFormat) -> tuple[str, str, str]:
    """What a call has before its name, between name and arguments, and after them."""
    text = form.write([ToolCall("a", NAME, ARGUMENTS)])
    before, named, rest = text.partition(NAME)
    between, written, after = rest.partition(json.dumps(ARGUMENTS, ensure_ascii=False))
    again = before + NAME + between + json.dumps(ARGUMENTS, separators=(",", ":")) + after
    (found,) = read_reply(again, form, 0).tool_calls[:1] or (None,)
    if not named or not written or found is None or (found.name, dict(found.arguments)) != (NAME, ARGUMENTS):
        message = f"tool_choice: this model writes calls in the format {form.name!r}, which cannot be forced"
        raise RequestError(message, hint='Use tool_choice "auto" or "none".', field="tool_choice")
    return before, between, after


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else '""'
