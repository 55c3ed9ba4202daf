"""`groupwise chat | export | sft | demo`: the commands for language models."""

import io
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.conversation.chat_format import NotPlainText
from groupwise.agents.conversation.turn import Response
from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.agents.export import export_run
from groupwise.agents.model_start import find_chat_model
from groupwise.agents.settings import AgentConfig
from groupwise.agents.strategies import find_strategy
from groupwise.agents.tools.toolbox import Toolbox, ToolResult, find_tools
from groupwise.config import AdvantageSettings, LossSettings, TrainingConfig, load_config
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
from groupwise.reporting.history import History
from groupwise.reporting.live_run import run_events, start_run
from groupwise.reporting.report import write_report
from groupwise.reporting.text import course, curve, printable
from groupwise.training.folder import create_run, find_run
from groupwise.types import Sample

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
    greedy: Annotated[bool, Parameter(help="Always the likeliest token.")] = False,
    max_new_tokens: Annotated[int | None, Parameter(help="Longest answer; the run's own if not given.")] = None,
    stop: Annotated[tuple[str, ...], Parameter(help="A text that ends an answer.")] = (),
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


def export(
    run: RunName,
    folder: Annotated[Path, Parameter(help="Where to; made if it is not there.")],
    *,
    adapter: Annotated[bool, Parameter(help="The LoRA adapter alone, for PEFT.")] = False,
    step: Annotated[int | None, Parameter(help="Which checkpoint; the newest if not given.")] = None,
    force: Annotated[bool, Parameter(help="Replace an earlier export.")] = False,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Write a run's language model as a folder that `AutoModelForCausalLM.from_pretrained` loads."""
    path = find_run(run, str(runs_dir))
    written = export_run(path, folder, adapter=adapter, step=step, force=force)
    if common.json:
        answer(written)
        return
    loader = "PeftModel.from_pretrained" if adapter else "AutoModelForCausalLM.from_pretrained"
    print(f"{written['kind']} weights of {path.name} at step {written['step']} are in {folder}")
    print(f"load them with {loader}, or talk to them: groupwise chat {folder}")


def sft(
    config: SettingsFile, *, runs_dir: OwnRunsDir = None, set_: Overrides = (), quiet: Quiet = False,
    common: Common = Common(),
) -> int:  # fmt: skip
    """Fine-tune a language model on right answers first, with the settings file that `train` will use.

    Each step learns from rollout.tasks_per_step demonstrations. The sections loss and advantage have no effect.
    """
    overrides = (*set_, *([f"run.output_dir={runs_dir}"] if runs_dir else []))
    cfg = supervised(load_config(config, overrides))
    path, status = start_run(cfg, json=common.json, quiet=quiet)
    if status == 0 and not common.json and not quiet:
        later = config if load_config(config).task.product == "language" else "SETTINGS.toml"
        words = f"next: groupwise train {later} --set policy.model_name={path}\n      groupwise chat {path}"
        Console(stderr=True, soft_wrap=True).print(words, highlight=False, markup=False)
    return status


def supervised(cfg: TrainingConfig) -> TrainingConfig:
    """The settings of a warm start: one pass of plain likelihood, whatever the loss of the later run is."""
    plain = {**cfg.sections, "loss": LossSettings(), "advantage": AdvantageSettings()}
    return TrainingConfig.from_dict(plain).replace(
        product="warm-start", use_reference_model=False, num_epochs=1, kl_stop=None
    )


SETTINGS = Path(str(files("groupwise.agents")))
GRPO_SETTINGS = "column_addition.toml"
SHOWN_SUMS = 5

OPENING = """A language model of 0.9 million weights, made from scratch, learns two-digit sums on one core.
A sum is asked as 07+95 and answered from the units up, as on paper: 201."""
WARM_START = "1. Warm start: it imitates right answers until it has the form, and about a third of the sums."
SCORES = "2. GRPO: it answers each sum 4 times, and every answer learns from its score relative to its group."

NEXT = """Look at it:    {report}
Try next:      {groupwise} chat {run}          ask it 12+34
               {groupwise} show {run}
               {groupwise} eval {run} --seed 7 --samples 8
               {groupwise} export {run} my-model
               {groupwise} train {settings} --set policy.model_name={warm} --set loss.loss_type=sapo"""


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Any number; a fresh one each time if not given.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> int:
    """Teach a tiny language model to add: a warm start, then GRPO, in about two minutes on one core."""
    seed = int(time.time()) % 100_000 if seed is None else seed
    console = Console(quiet=common.json)
    console.print(f"{OPENING}\nSeed {seed}: `groupwise demo --seed {seed}` repeats it.", highlight=False)
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
        words = f"stopped; go on with: groupwise resume {path}"
        if path == warm:
            words += f"\n    and then: groupwise train {SETTINGS / GRPO_SETTINGS} --set policy.model_name={path}"
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    else:
        _tell(console, history, seconds)
        command = "groupwise" if shutil.which("groupwise") else sys.argv[0]
        words = NEXT.format(report=report, run=path, warm=warm, groupwise=command, settings=path / "config.toml")
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    return 130 if stopped else 0


def _train_stage(
    settings: str, seed: int, runs_dir: Path, console: Console, *, title: str, model: Path | None = None
) -> tuple[Path, bool]:
    """Make a run of a settings file and follow it: its folder, and whether it was interrupted."""
    start = [f"policy.model_name={model}"] if model else []
    cfg = load_config(SETTINGS / settings, [f"run.seed={seed}", f"run.output_dir={runs_dir}", *start])
    cfg = product_of(cfg).prepare(cfg)
    path = create_run(cfg)
    console.print(f"\n[bold]{title}[/bold]", highlight=False)
    quiet = console.quiet or not console.is_terminal
    last = deque(run_events(path, cfg, quiet=quiet), maxlen=1).pop()
    if quiet and not console.quiet:
        steps, rewards = History.read(path).series("eval/accuracy")
        console.print("share of held-out sums that are right, by step", style="dim")
        print(curve(course(steps, rewards), min(console.width, 72), 8, steps=(steps[0], steps[-1])), flush=True)
    return path, last.data["reason"] == "stopped"


def _tell(console: Console, history: History, seconds: float) -> None:
    """Before and after, in numbers and in answers."""
    scores = history.series("eval/accuracy")[1]
    asked = int(history.last("eval/attempts") or 0)
    told = history.samples()
    first, last = told[min(told)], told[max(told)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("asked", "right", "before", "after"):
        table.add_column(name)
    for prompt, sample in list(last.items())[:SHOWN_SUMS]:
        table.add_row(prompt, sample.expected, _said(first.get(prompt)), _said(sample))
    console.print()
    console.print(table)
    console.print(
        f"\nBefore GRPO: {scores[0]:.0%} of {asked} unseen sums right.  After: [bold]{scores[-1]:.0%}[/bold].\n"
        f"Answered greedily; {seconds:.0f} s in all, on one core.\n",
        highlight=False,
    )


def _said(sample: Sample | None) -> Text:
    if sample is None:
        return Text("")
    return Text(f"{sample.text} ✓", "green") if sample.correct else Text(f"{sample.text} ✗", "red")
