"""`groupwise chat | export | sft | demo`: the commands for language models."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.errors import ConfigError, ContractError
from groupwise.products import product_of
from groupwise.reporting.command_options import (
    RUNS,
    Common,
    Overrides,
    OwnRunsDir,
    Quiet,
    RunName,
    RunsDir,
    SettingsFile,
    answer,
)
from groupwise.reporting.text import course, curve, printable

if TYPE_CHECKING:
    from groupwise.config import TrainingConfig
    from groupwise.reporting.history import History
    from groupwise.types import Sample


if TYPE_CHECKING:
    from groupwise.agents.conversation.chat import ChatSession, Event
    from groupwise.agents.environments.contract import BrokenCall, ToolCall
    from groupwise.agents.tools.toolbox import ToolResult


HELP = """/reset  start over
/exit   quit (also Ctrl-D)
/help   show this list
Ctrl-C  stop the answer; at the prompt, quit"""
SHOWN_CALLS = 16
TOOL_SECONDS = 30.0  # as the default of tools.timeout
CUT = {
    "length": "cut off after {tokens} tokens; --max-new-tokens allows more",
    "context": "cut off: the model's context is limited to {limit} tokens; /reset starts over",
    "cancelled": "stopped",
}


def chat(
    run: Annotated[str, Parameter(help='A run\'s name or folder, "latest", a model folder, or "tiny".')] = "latest",
    *,
    system: Annotated[str | None, Parameter(help="System prompt.")] = None,
    temperature: Annotated[float | None, Parameter(help="0 is greedy. Default: the run's temperature.")] = None,
    greedy: Annotated[bool, Parameter(help="Always choose the most likely token.")] = False,
    max_new_tokens: Annotated[int | None, Parameter(help="Maximum tokens per answer. Default: the run's.")] = None,
    stop: Annotated[tuple[str, ...], Parameter(help="Stop the answer at this text.")] = (),
    seed: Annotated[int, Parameter(help="Random seed; the same seed and messages give the same answers.")] = 0,
    tools: Annotated[
        tuple[str, ...],
        Parameter(help="Tools the model may call: FILE.py, module:name, or MCP: servers.json, https://…, mcp:COMMAND."),
    ] = (),
    max_rounds: Annotated[int, Parameter(help="Rounds of tool calls allowed before the model must answer.")] = 8,
    strategy: Annotated[str | None, Parameter(help="Conversation strategy, such as sales or educational.")] = None,
    store: Annotated[Path | None, Parameter(help="File to save conversations in; created if missing.")] = None,
    conversation: Annotated[str | None, Parameter(help="Conversation in the store to continue or start.")] = None,
    memory: Annotated[Path | None, Parameter(help="File to remember facts about you in; created if missing.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Chat with a run's policy or with a model.

    In a terminal this is an interactive conversation; otherwise each line of standard input is one message.
    With --tools, the model can call tools and read their results before it answers.
    """
    from groupwise.agents.conversation.chat import ChatSession
    from groupwise.agents.model_start import find_chat_model
    from groupwise.agents.settings import AgentConfig
    from groupwise.agents.strategies import find_strategy
    from groupwise.agents.tools.tool_sources import find_tools
    from groupwise.agents.tools.toolbox import Toolbox

    if greedy and temperature:
        raise ConfigError(f"--greedy and --temperature {temperature} contradict each other", hint="Use only one.")
    if conversation is not None and store is None:
        raise ConfigError(f"--conversation {conversation} requires a store", hint="Add --store FILE.")
    if strategy is not None:
        find_strategy(strategy)
    chosen: dict[str, Any] = {
        "system_prompt": system, "temperature": 0.0 if greedy else temperature, "max_new_tokens": max_new_tokens,
        "stop": stop or None, "memory": None if memory is None else str(memory),
    }  # fmt: skip
    given = {name: value for name, value in chosen.items() if value is not None}
    if max_rounds < 1:
        raise ConfigError(f"--max-rounds {max_rounds} leaves no round for tools", hint="Use 1 or more.")
    toolbox = Toolbox(find_tools(*tools), timeout=TOOL_SECONDS) if tools else None
    language, own = find_chat_model(run, str(runs_dir))
    config = AgentConfig(**{**own, **given})
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # invalid bytes must not end the conversation
    with ExitStack() as closing:
        if toolbox is not None:
            closing.callback(toolbox.close)
        held = closing.enter_context(ChatSession(
            language, config, seed, toolbox, max_rounds, strategy=strategy, store=store, conversation_id=conversation
        ))  # fmt: skip
        if common.json or not sys.stdin.isatty():
            answer_lines(held, json=common.json)
        else:
            talk(held, run)
        if store is not None and not common.json:
            print(f"saved conversation {held.context.conversation_id} in {store}", file=sys.stderr)


def answer_lines(conversation: ChatSession, *, json: bool) -> None:
    """Answer every non-empty line of the input; a line that is refused gets an empty answer."""
    from groupwise.agents.conversation.chat_format import NotPlainText
    from groupwise.agents.tools.toolbox import ToolResult

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
            last = conversation.answers[-1]
            thought = {"reasoning": last.reasoning} if last.reasoning else {}
            answer({"text": last.text, **thought, **last.metadata, **called})
        else:
            print(flush=True)


def messages(lines: Iterator[str] | Any) -> Iterator[str]:
    """Yield the non-empty lines up to /exit."""
    for line in lines:
        text = line.strip()
        if text == "/exit":
            return
        if text:
            yield text


def talk(conversation: ChatSession, name: str) -> None:
    """Hold a conversation in the terminal until the user quits."""
    with suppress(ImportError):
        import readline  # noqa: F401  # enables the arrow keys, if Python was built with it
    print(f"Chatting with {name}. Type /help for commands.")
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
    """Run the user's command, or answer their message."""
    if line == "/reset":
        conversation.reset()
        print("Started a new conversation.")
    elif line == "/help":
        print(HELP)
    elif line.startswith("/") and line[1:].isalpha():
        print(f"Unknown command {line}; /help lists the commands.")
    elif line:
        show_answer(conversation, line)


def show_answer(conversation: ChatSession, message: str) -> None:
    """Print the answer as it is generated. Ctrl-C stops it; a second Ctrl-C before it has stopped is re-raised."""
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
        print("(the conversation no longer fits, so earlier turns were shortened for the model)")
    end = "cancelled" if stopped else last.end
    if end in CUT:
        print(f"({CUT[end].format(tokens=last.tokens, limit=conversation.engine.max_length)})")


def show_events(events: Iterator[Event]) -> None:
    """Print thoughts (dimmed) and text as they arrive, and one line for every call and every result."""
    from groupwise.agents.conversation.streaming import ThoughtPiece
    from groupwise.agents.environments.contract import Reply

    within, thinking = False, False
    for event in events:
        if isinstance(event, ThoughtPiece):
            Console().print(Text(printable(event.text), "dim"), end="", soft_wrap=True)
            within = thinking = True
            continue
        if isinstance(event, str):
            print(f"\n\n{event}" if thinking else event, end="", flush=True)
            within, thinking = not event.endswith("\n"), False
            continue
        thinking = False
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
    """Format a call as Python would write it."""
    from groupwise.agents.environments.contract import BrokenCall

    if isinstance(call, BrokenCall):
        return call.text
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def call_facts(result: ToolResult) -> dict[str, Any]:
    from groupwise.agents.environments.contract import ToolCall

    call = result.call
    asked = {"name": call.name, "arguments": call.arguments} if isinstance(call, ToolCall) else {"text": call.text}
    return {**asked, "outcome": result.outcome, "content": result.content, "seconds": round(result.seconds, 4)}


def export(
    run: RunName,
    folder: Annotated[Path, Parameter(help="Destination folder; created if it does not exist.")],
    *,
    adapter: Annotated[bool, Parameter(help="Export only the LoRA adapter, for PEFT.")] = False,
    step: Annotated[int | None, Parameter(help="Step of the checkpoint to export. Default: the newest.")] = None,
    force: Annotated[bool, Parameter(help="Replace an earlier export.")] = False,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Export a run's language model to a folder that `AutoModelForCausalLM.from_pretrained` can load."""
    from groupwise.agents.export import export_run
    from groupwise.training.folder import find_run

    path = find_run(run, str(runs_dir))
    written = export_run(path, folder, adapter=adapter, step=step, force=force)
    if common.json:
        answer(written)
        return
    loader = "PeftModel.from_pretrained" if adapter else "AutoModelForCausalLM.from_pretrained"
    print(f"exported the {written['kind']} weights of {path.name} at step {written['step']} to {folder}")
    print(f"load them with {loader}, or chat with them: groupwise chat {folder}")


def sft(
    config: SettingsFile, *, runs_dir: OwnRunsDir = None, set_: Overrides = (),
    quiet: Quiet = False, common: Common = Common(),
) -> int:  # fmt: skip
    """Fine-tune a language model on correct answers, as a warm start before `train` with the same settings file.

    Each step trains on rollout.tasks_per_step demonstrations. The loss and advantage sections are ignored.
    """
    from groupwise.config import load_config
    from groupwise.reporting.live_run import start_run

    overrides = (*set_, *([f"run.output_dir={runs_dir}"] if runs_dir else []))
    cfg = supervised(load_config(config, overrides))
    path, status = start_run(cfg, json=common.json, quiet=quiet)
    if status == 0 and not common.json and not quiet:
        later = config if load_config(config).task.product == "language" else "SETTINGS.toml"
        words = f"next: groupwise train {later} --set policy.model_name={path}\n      groupwise chat {path}"
        Console(stderr=True, soft_wrap=True).print(words, highlight=False, markup=False)
    return status


def supervised(cfg: TrainingConfig) -> TrainingConfig:
    """The settings of a warm start: one pass of maximum likelihood, whatever loss the later run uses."""
    from groupwise.config import AdvantageSettings, LossSettings, TrainingConfig

    plain = {**cfg.sections, "loss": LossSettings(), "advantage": AdvantageSettings()}
    return TrainingConfig.from_dict(plain).replace(
        product="warm-start", use_reference_model=False, num_epochs=1, kl_stop=None
    )


SETTINGS = Path(str(files("groupwise.agents")))
GRPO_SETTINGS = "column_addition.toml"
SHOWN_SUMS = 5

OPENING = """A language model with 0.9 million weights learns two-digit addition from scratch on one core.
A question looks like 07+95, and the answer starts with the units, as on paper: 201."""
WARM_START = "1. Warm start: it imitates correct answers until it knows the format and gets about a third right."
SCORES = "2. GRPO: it answers each sum 4 times and learns from how each answer scores relative to its group."

NEXT = """See the report: {report}
Try next:       {groupwise} chat {run}          ask it 12+34
                {groupwise} show {run}
                {groupwise} eval {run} --seed 7 --samples 8
                {groupwise} export {run} my-model
                {groupwise} train {settings} --set policy.model_name={warm} --set loss.loss_type=sapo"""


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Random seed. Default: a new one each time.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> int:
    """Teach a tiny language model to add: a warm start, then GRPO. Takes about two minutes on one core."""
    from groupwise.reporting.history import History
    from groupwise.reporting.report import write_report

    seed = int(time.time()) % 100_000 if seed is None else seed
    console = Console(quiet=common.json)
    console.print(f"{OPENING}\nSeed {seed}: repeat this demo with `groupwise demo --seed {seed}`.", highlight=False)
    began = time.perf_counter()
    warm, stopped = _train_stage("column_addition_sft.toml", seed, runs_dir, console, title=WARM_START)
    warm_seconds = time.perf_counter() - began
    path = warm
    if not stopped:
        path, stopped = _train_stage(GRPO_SETTINGS, seed, runs_dir, console, title=SCORES, model=warm)
    seconds = time.perf_counter() - began
    report, history = write_report(path), History.read(path)
    scores, formats = history.series("eval/accuracy")[1], history.series("eval/format")[1]
    if common.json:
        answer(
            {
                "before": scores[0], "after": scores[-1], "format_before": formats[0], "warm_seconds": warm_seconds,
                "seconds": seconds, "seed": seed, "finished": not stopped, "warm_start": str(warm), "run": str(path),
                "report": str(report),
            }
        )  # fmt: skip
    elif stopped:
        words = f"Stopped. To continue: groupwise resume {path}"
        if path == warm:
            words += f"\n    and then:  groupwise train {SETTINGS / GRPO_SETTINGS} --set policy.model_name={path}"
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    else:
        _print_outcome(console, history, seconds)
        command = "groupwise" if shutil.which("groupwise") else sys.argv[0]
        words = NEXT.format(report=report, run=path, warm=warm, groupwise=command, settings=path / "config.toml")
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    return 130 if stopped else 0


def _train_stage(
    settings: str, seed: int, runs_dir: Path, console: Console, *, title: str, model: Path | None = None
) -> tuple[Path, bool]:
    """Run a settings file to its end; return the run's folder and whether it was interrupted."""
    from groupwise.config import load_config
    from groupwise.reporting.history import History
    from groupwise.reporting.live_run import run_events
    from groupwise.training.folder import create_run

    start = [f"policy.model_name={model}"] if model else []
    cfg = load_config(SETTINGS / settings, [f"run.seed={seed}", f"run.output_dir={runs_dir}", *start])
    cfg = product_of(cfg).prepare(cfg)
    path = create_run(cfg)
    console.print(f"\n[bold]{title}[/bold]", highlight=False)
    quiet = console.quiet or not console.is_terminal
    last = deque(run_events(path, cfg, quiet=quiet), maxlen=1).pop()
    if quiet and not console.quiet:
        steps, rewards = History.read(path).series("eval/accuracy")
        console.print("share of held-out sums answered correctly, by step", style="dim")
        print(curve(course(steps, rewards), min(console.width, 72), 8, steps=(steps[0], steps[-1])), flush=True)
    return path, last.data["reason"] == "stopped"


def _print_outcome(console: Console, history: History, seconds: float) -> None:
    """Print scores and sample answers before and after."""
    scores = history.series("eval/accuracy")[1]
    asked = int(history.last("eval/attempts") or 0)
    samples = history.samples()
    first, last = samples[min(samples)], samples[max(samples)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("sum", "correct", "before", "after"):
        table.add_column(name)
    for prompt, sample in list(last.items())[:SHOWN_SUMS]:
        table.add_row(prompt, sample.expected, _said(first.get(prompt)), _said(sample))
    console.print()
    console.print(table)
    console.print(
        f"\nWarm start: {scores[0]:.0%} of {asked} unseen sums correct.  After GRPO: [bold]{scores[-1]:.0%}[/bold].\n"
        f"Greedy answers; {seconds:.0f} s in total, on one core.\n",
        highlight=False,
    )


def _said(sample: Sample | None) -> Text:
    if sample is None:
        return Text("")
    return Text(f"{sample.text} ✓", "green") if sample.correct else Text(f"{sample.text} ✗", "red")
