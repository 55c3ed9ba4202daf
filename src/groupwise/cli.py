"""The `groupwise` command: a table of commands, and the one place where errors become words.

Nothing heavy is imported here: every command names its function and is loaded when it is called.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from groupwise import __version__
from groupwise.errors import ConfigError, GroupwiseError

HELP = """Group Relative Policy Optimization: a policy makes a group of attempts, each learns from its score
relative to its group. Start with `groupwise demo`."""

COMMANDS = {
    "demo": ("groupwise.commands.demo:demo", "Teach a tiny language model to add, with a report to look at."),
    "rollout": ("groupwise.commands.rollout:rollout", "Look at the groups of a training before it begins."),
    "train": ("groupwise.commands.training:train", "Train from a settings file."),
    "sft": ("groupwise.commands.training:sft", "Teach a language model right answers first, supervised."),
    "resume": ("groupwise.commands.training:resume", "Go on with a run exactly where it stood."),
    "stop": ("groupwise.commands.training:stop", "Ask a running run to save and stop."),
    "runs": ("groupwise.commands.runs:runs", "List the runs."),
    "show": ("groupwise.commands.runs:show", "Show one run: its curve, its numbers, its hints."),
    "plot": ("groupwise.commands.runs:plot", "Draw one number of one or several runs."),
    "report": ("groupwise.commands.runs:report", "Write a run's report.html again."),
    "eval": ("groupwise.commands.evaluation:evaluate", "Judge a run's policy on fresh tasks."),
    "compare": (
        "groupwise.commands.compare:compare",
        "Train several settings from the same seeds, and say which differences may be claimed.",
    ),
    "paper": (
        "groupwise.commands.papers:paper",
        "Repeat a paper's experiment in seconds: does its effect appear?",
    ),
    "chat": ("groupwise.commands.chat:chat", "Talk to a run's language model."),
    "export": ("groupwise.commands.export:export", "Write a run's language model as a Hugging Face folder."),
    "check": ("groupwise.commands.workflow_analysis:check", "Check whether a workflow is sound and keeps its rules."),
    "simulate": ("groupwise.commands.workflow_analysis:simulate", "Tell how a workflow performs."),
    "score": ("groupwise.commands.workflow_analysis:score_file", "Score a workflow, and explain the score."),
    "feedback": ("groupwise.commands.design:feedback", "Tell how a design really did, for the next one."),
    "convert": ("groupwise.commands.workflow_files:convert", "Write a workflow in another format."),
    "diff": ("groupwise.commands.workflow_files:diff", "Tell what differs between two workflows."),
    "design": ("groupwise.commands.design:design", "Design a workflow for requirements."),
    "requirements": (
        "groupwise.commands.workflow_files:requirements",
        "Make requirements from an event log or a text, or check that they can be met.",
    ),
    "solve": ("groupwise.commands.programs:solve", "Search a program that solves a problem, and show the tree."),
    "search": ("groupwise.commands.programs:search", "Search programs for many problems, resumably."),
    "serve": ("groupwise.commands.service:serve", "Serve everything over HTTP, with a live page."),
    "doctor": (
        "groupwise.commands.doctor:doctor",
        "Check this machine, and a settings file before a run.",
    ),
}
CONFIG_COMMANDS = {
    "show": ("groupwise.commands.settings:show", "Show settings with every default filled in."),
    "schema": ("groupwise.commands.settings:schema", "Print the JSON Schema of settings files."),
    "check": ("groupwise.commands.settings:check", "Check a settings file and name every mistake."),
}
KEYS_COMMANDS = {
    "add": ("groupwise.commands.service:add", "Make a key and show it, once."),
    "list": ("groupwise.commands.service:listed", "List the keys."),
    "revoke": ("groupwise.commands.service:revoke", "Make a key worthless."),
}


class Interrupted(GroupwiseError):
    code = "interrupted"


def build_app() -> App:
    app = App(name="groupwise", help=HELP, version=__version__)
    for name, (function, summary) in COMMANDS.items():
        app.command(function, name=name, help=summary)
    for name, summary, commands in (
        ("config", "Show and check settings.", CONFIG_COMMANDS),
        ("keys", "Say who may use a service.", KEYS_COMMANDS),
    ):
        group = App(name=name, help=summary)
        for inner, (function, about) in commands.items():
            group.command(function, name=inner, help=about)
        app.command(group)
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Carry out one command line; the exit status: 0 done, 1 failed, 2 misused, 130 interrupted."""
    try:
        result = build_app()(words, exit_on_error=False, print_error=False, result_action="return_value")
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        complain(GroupwiseError(_sentence(error), hint=_where_to_look(words)), words)
        return 2
    except GroupwiseError as error:
        complain(error, words)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        complain(Interrupted("interrupted", hint="A run that was training goes on with `groupwise resume`."), words)
        return 130
    except MemoryError as error:
        hint = "Try smaller policy.hidden_sizes, rollout.num_generations or rollout.tasks_per_step."
        complain(GroupwiseError(f"not enough memory: {error}", hint=hint), words)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        cause = _groupwise_cause(error)
        if cause is not None:
            complain(cause, words)
            return 1
        hint = "This should not happen. Run again with --debug for the whole story, and please report it."
        complain(GroupwiseError(f"{type(error).__name__}: {error}", hint=hint), words)
        return 1


def _groupwise_cause(error: BaseException) -> GroupwiseError | None:
    """Our own error behind a foreign one: cyclopts wraps what a command's module raises when it is imported."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, GroupwiseError):
        cause = cause.__cause__
    return cause


def complain(error: GroupwiseError, words: Sequence[str]) -> None:
    """Say what went wrong: as JSON on stdout with --json, in plain words on stderr otherwise."""
    if "--debug" in words:
        traceback.print_exc()
    if "--json" in words:
        print(json.dumps(error.as_dict(), ensure_ascii=False))
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"       {error.hint}", file=sys.stderr)


def _where_to_look(words: Sequence[str]) -> str:
    if words and words[0] in COMMANDS:
        return f"`groupwise {words[0]} --help` lists its options."
    return "`groupwise --help` lists the commands."


def _sentence(error: CycloptsError) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
