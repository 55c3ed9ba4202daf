"""The table of formats: which are known, how one is found by name, and how yours is added.

docs/tools.md lists which chat template has which.
"""

from groupwise.agents.conversation.call_formats.json_calls import (
    DEEPSEEK,
    HARMONY,
    KIMI,
    LINES,
    LLAMA,
    MISTRAL,
    named,
    objects,
)  # fmt: skip
from groupwise.agents.conversation.call_formats.parameter_calls import (
    Tags,
    gemma_calls,
    python_calls,
    tagged_parameters,
)  # fmt: skip
from groupwise.agents.conversation.call_formats.reading import CallFormat
from groupwise.errors import ConfigError

RESULTS = ("<tool_response>", "</tool_response>")
ADD = (
    "Name one in language.tool_format, or add your own with groupwise.agents.conversation.call_formats.register_format "
    "(docs/tools.md shows one)."
)

# Tried in this order. What a template writes must be read back exactly, so a wrong one is never taken.
FORMATS: list[CallFormat] = [
    objects("tagged", "<tool_call>", "</tool_call>", RESULTS),
    MISTRAL,
    LLAMA,
    LINES,
    tagged_parameters(
        "functions",
        Tags("<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", "\n"),
        ("<tool_call>",), ("</tool_call>", *RESULTS),
    ),
    tagged_parameters(
        "glm", Tags("<tool_call>", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"),
        (), (*RESULTS, "<|observation|>"),
    ),
    HARMONY,
    gemma_calls("gemma", "<|tool_call>", "<tool_call|>", '<|"|>', ("<|tool_response>", "<tool_response|>")),
    gemma_calls("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    python_calls(
        "python", "<|tool_call_start|>", "<|tool_call_end|>", ("<|tool_response_start|>", "<|tool_response_end|>")
    ),
    python_calls("bare_python", "", ""),
    DEEPSEEK,
    tagged_parameters("dsml", Tags(
        '<｜DSML｜invoke name="', '">', '<｜DSML｜parameter name="', ">", "", "</｜DSML｜parameter>",
        "</｜DSML｜invoke>", kind='" string="?"',
    ), ("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>")),
    tagged_parameters("atem", Tags(
        '<atem:invoke name="', '">', '<atem:parameter name="', '">', "", "</atem:parameter>", "</atem:invoke>"
    ), ("<atem:function_calls>",), ("</atem:function_calls>", "<tool_output", "</tool_output>")),
    tagged_parameters("invoke", Tags(
        '<invoke name="', '">', '<parameter name="', '">', "", "</parameter>", "</invoke>"
    ), ("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    KIMI,
    objects("action", "<|START_ACTION|>", "<|END_ACTION|>", ("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>")),
    objects("granite", "<|tool_call|>", "<|/tool_call|>", ("<|tool_response|>",)),
    objects("calls", "<tool_calls>", "</tool_calls>"),
    objects("toolcall", "<TOOLCALL>", "</TOOLCALL>"),
    objects("apertus", "<|tools_prefix|>", "<|tools_suffix|>", keyed=True),
    named("functionary", "<function=", ">", "</function>"),
]  # fmt: skip


def register_format(form: CallFormat) -> CallFormat:
    """Make a format known, before the others; one of the same name is replaced. Return it."""
    FORMATS[:] = [form, *(known for known in FORMATS if known.name != form.name)]
    return form


def named_format(name: str) -> CallFormat:
    """Return the format of that name; refuse one that nobody knows."""
    found = next((form for form in FORMATS if form.name == name), None)
    if found is None:
        names = ", ".join(sorted(form.name for form in FORMATS))
        message = f"there is no tool-call format {name!r}; there are {names}"
        raise ConfigError(message, hint=ADD, field="language.tool_format")
    return found
