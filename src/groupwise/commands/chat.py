"""`groupwise chat`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.conversation.frame import NotPlainText
from groupwise.agents.conversation.turn import Response
from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.agents.model_start import find_chat_model
from groupwise.agents.settings import AgentConfig
from groupwise.agents.strategies import find_strategy
from groupwise.agents.tools.toolbox import Toolbox, ToolResult, find_tools
from groupwise.commands.options import RUNS, Common, RunsDir, answer
from groupwise.errors import ConfigError, ContractError
from groupwise.reporting.text import printable

HELP = """/reset  start over
/exit   leave (Ctrl-D too)
/help   this
Ctrl-C  end the answer; at the prompt, leave"""
SHOWN_CALLS = 16
CUT = {
    "length": "cut off after {tokens} tokens; --max-new-tokens allows more",
    "context": "cut off: the model takes no more than {limit} tokens; /reset starts over",
    "cancelled": "stopped",
}


def chat(
    run: Annotated[str, Parameter(help='A run\'s name or folder, "latest", a model folder, or "tiny".')] = "latest",
    *,
    system: Annotated[str | None, Parameter(help="What the model is told before the conversation.")] = None,
    temperature: Annotated[float | None, Parameter(help="The run's own if not given; 0 is greedy.")] = None,
    greedy: Annotated[bool, Parameter(negative=(), help="Always the likeliest token.")] = False,
    max_new_tokens: Annotated[int | None, Parameter(help="Longest answer; the run's own if not given.")] = None,
    stop: Annotated[tuple[str, ...], Parameter(negative=(), help="A text that ends an answer.")] = (),
    seed: Annotated[int, Parameter(help="The same seed and messages give the same answers.")] = 0,
    tools: Annotated[
        str | None, Parameter(help="Tools it may call: FILE.py with @tool functions, or module:name.")
    ] = None,
    max_rounds: Annotated[int, Parameter(help="How often in a row it may call them before it answers.")] = 8,
    strategy: Annotated[str | None, Parameter(help="How it is led: sales, educational and others.")] = None,
    store: Annotated[Path | None, Parameter(help="A file that keeps conversations; made if it is not there.")] = None,
    conversation: Annotated[str | None, Parameter(help="Its name in the store: go on with it, or begin it.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Talk to the policy of a run, or to a model.

    In a terminal it is a conversation. Otherwise every line of the input is a message, and is answered. With tools, the
    model may call them, and reads what comes of it, before it answers.
    """
    if greedy and temperature:
        raise ConfigError(f"--greedy and --temperature {temperature} contradict each other", hint="Give one of them.")
    if conversation is not None and store is None:
        raise ConfigError(f"--conversation {conversation} names one of a store", hint="Say which: --store FILE.")
    if strategy is not None:
        find_strategy(strategy)
    chosen: dict[str, Any] = {
        "system_prompt": system, "temperature": 0.0 if greedy else temperature, "max_new_tokens": max_new_tokens,
        "stop": stop or None,
    }  # fmt: skip
    given = {name: value for name, value in chosen.items() if value is not None}
    if max_rounds < 1:
        raise ConfigError(f"--max-rounds {max_rounds} leaves no round for tools", hint="Give 1 or more.")
    toolbox = Toolbox(find_tools(tools)) if tools else None
    language, own = find_chat_model(run, str(runs_dir))
    config = AgentConfig(**{**own, **given})
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are not text do not end a conversation
    with ChatSession(
        language, config, seed, toolbox, max_rounds, strategy=strategy, store=store, conversation_id=conversation
    ) as held:
        if common.json or not sys.stdin.isatty():
            answer_lines(held, json=common.json)
        else:
            talk(held, run)
        if store is not None and not common.json:
            print(f"conversation {held.context.conversation_id} is kept in {store}", file=sys.stderr)


def answer_lines(conversation: ChatSession, *, json: bool) -> None:
    """One answer for every line of the input that is not empty; an empty one for a line that is refused."""
    for line in messages(sys.stdin):
        if line == "/reset":
            conversation.reset()
            continue
        results: list[ToolResult] = []
        try:
            for event in conversation.events(line):
                if isinstance(event, ToolResult):
                    results.append(event)
                elif isinstance(event, str) and not json:
                    print(event, end="", flush=True)
        except NotPlainText as error:
            print(f"{error.message}. {error.hint}", file=sys.stderr)
            answer(error.as_dict()) if json else print(flush=True)
            continue
        if json:
            called = {"calls": [*map(call_facts, results)]} if conversation.toolbox else {}
            answer({**facts(conversation.answers[-1]), **called})
        else:
            print(flush=True)


def messages(lines: Iterator[str] | Any) -> Iterator[str]:
    """The messages among some lines, up to /exit."""
    for line in lines:
        text = line.strip()
        if text == "/exit":
            return
        if text:
            yield text


def talk(conversation: ChatSession, name: str) -> None:
    """A conversation with a person, until they leave it."""
    with suppress(ImportError):
        import readline  # noqa: F401  # the arrow keys, where Python was built with it
    print(f"Talking to {name}. /help lists what else can be said.")
    while True:
        try:
            line = input("> ").strip()
            if line == "/exit":
                return
            turn(conversation, line)
        except (EOFError, KeyboardInterrupt):
            print()
            return


def turn(conversation: ChatSession, line: str) -> None:
    """What a person said, carried out or answered."""
    if line == "/reset":
        conversation.reset()
        print("A new conversation.")
    elif line == "/help":
        print(HELP)
    elif line.startswith("/") and line[1:].isalpha():
        print(f"There is no {line}; /help lists what there is.")
    elif line:
        show_answer(conversation, line)


def show_answer(conversation: ChatSession, message: str) -> None:
    """The answer as it is made. Ctrl-C ends it; a second one, before it has ended, is passed on."""
    answered = len(conversation.answers)
    events = conversation.events(message)
    stopped = False
    try:
        show_events(events)
    except ContractError as error:
        print(f"{error.message}. {error.hint}")
        return
    except KeyboardInterrupt:
        events.close()
        stopped = True
        if len(conversation.answers) == answered:
            raise
    print()
    last = conversation.answers[-1]
    if last.compressed:
        print("(earlier turns no longer fit and were shortened for the model)")
    end = "cancelled" if stopped else last.end
    if end in CUT:
        print(f"({CUT[end].format(tokens=last.tokens, limit=conversation.engine.max_length)})")


def show_events(events: Iterator[str | Reply | ToolResult]) -> None:
    """Words as they come; a line for every call, and one for what came of it."""
    within = False
    for event in events:
        if isinstance(event, str):
            print(event, end="", flush=True)
            within = not event.endswith("\n")
            continue
        if within:
            print()
            within = False
        if isinstance(event, Reply):
            for call in event.written[:SHOWN_CALLS]:
                show_line("→", "cyan", spoken(call))
        elif event.ok:
            show_line("←", "green", event.content)
        else:
            show_line("←", "red", f"{event.outcome}: {event.content}")


def show_line(mark: str, colour: str, text: str) -> None:
    line = Text.assemble((f"  {mark} ", f"bold {colour}"), (printable(text), "dim"))
    Console().print(line, overflow="ellipsis", no_wrap=True)


def spoken(call: ToolCall | BrokenCall) -> str:
    """A call as Python would write it."""
    if isinstance(call, BrokenCall):
        return call.text
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def call_facts(result: ToolResult) -> dict[str, Any]:
    call = result.call
    asked = {"name": call.name, "arguments": call.arguments} if isinstance(call, ToolCall) else {"text": call.text}
    return {**asked, "outcome": result.outcome, "content": result.content, "seconds": round(result.seconds, 4)}


def facts(last: Response) -> dict[str, Any]:
    return {"text": last.text, **last.metadata}
