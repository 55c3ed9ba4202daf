"""The `groupwise` command: a table of commands, and the one place where errors become messages.

Nothing heavy is imported here. Each command is named by a string and imported when it is called.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from cyclopts import App, Parameter
from cyclopts.exceptions import CycloptsError

from groupwise import __version__
from groupwise.errors import ConfigError, GroupwiseError, ResourceError
from groupwise.extras import missing_extra
from groupwise.products import COMMANDS as PRODUCT_COMMANDS
from groupwise.products import Command
from groupwise.reporting.text import in_any_encoding, tolerate_any_text

HELP = """Group Relative Policy Optimization: a policy makes a group of attempts at a task, and each attempt learns from
its score relative to the group. Start with `groupwise demo`."""

COMMANDS = {
    "init": Command("groupwise.commands.init:init", "Write a settings file for what you have, by four questions."),
    "train": Command("groupwise.commands.training:train", "Train from a settings file."),
    "resume": Command("groupwise.commands.training:resume", "Continue a run from its last checkpoint.", "[RUN]"),
    "stop": Command("groupwise.commands.training:stop", "Ask a running run to save and stop.", "[RUN]"),
    "rollout": Command(
        "groupwise.commands.rollout:rollout", "Sample a few groups to see whether there is anything to learn."
    ),
    "doctor": Command(
        "groupwise.commands.doctor:doctor", "Check this machine, and a settings file before you train.", "[CONFIG]"
    ),
    "plan": Command("groupwise.commands.plan:estimate", "Estimate memory, time and speed of a run on GPUs.", "MODEL"),
    "runs": Command("groupwise.commands.runs:runs", "List the runs."),
    "show": Command("groupwise.commands.runs:show", "Show a run: its curve, its metrics and its hints.", "[RUN]"),
    "plot": Command("groupwise.commands.runs:plot", "Plot a metric of one or several runs.", "[RUN...]"),
    "groups": Command(
        "groupwise.commands.runs:groups", "Divide a recorded step's attempts by any grouping strategy.", "[RUN]"
    ),
    "report": Command("groupwise.commands.runs:report", "Write a run's report.html again.", "[RUN]"),
    "eval": Command("groupwise.commands.training:evaluate", "Evaluate a run's policy on new tasks.", "[RUN]"),
    "check": Command(
        "groupwise.commands.workflow_files:check", "Check whether a workflow is sound and obeys its rules."
    ),
    "simulate": Command(
        "groupwise.commands.workflow_analysis:simulate", "Simulate a workflow and report its performance."
    ),
    "score": Command("groupwise.commands.workflow_analysis:score_file", "Score a workflow, and explain the score."),
    "convert": Command(
        "groupwise.commands.workflow_files:convert",
        "Convert a workflow to YAWL, BPMN, PNML, Actions, Argo, Airflow, WfCommons, Mermaid, SVG, PNG or JSON.",
    ),
    "edit": Command(
        "groupwise.commands.workflow_edits:edit", "Change a workflow by hand, and see what that does to its score."
    ),
    "diff": Command("groupwise.commands.workflow_files:diff", "Show the differences between two workflows."),
    "serve": Command("groupwise.commands.service:serve", "Run the HTTP service with its live page."),
    **PRODUCT_COMMANDS,
}
GROUPS = {
    "config": (
        "Show and check settings.",
        {
            "show": Command("groupwise.commands.config:show", "Show settings with all defaults filled in.", "[CONFIG]"),
            "check": Command("groupwise.commands.config:check", "Check a settings file and list every mistake."),
            "schema": Command("groupwise.commands.config:schema", "Print the JSON Schema of settings files."),
        },
    ),
    "reward": (
        "Try rewards before a run depends on them.",
        {"check": Command("groupwise.commands.reward:check", "Find out what a reward can be fooled with.", "REWARD")},
    ),
    "sampler": (
        "Run vLLM servers that sample for a language model.",
        {
            "start": Command(
                "groupwise.commands.sampler:start", "Start a server with a model.", "MODEL [-- VLLM-ARGS]"
            ),
            "status": Command("groupwise.commands.sampler:status", "List the servers that were started here."),
            "stop": Command("groupwise.commands.sampler:stop", "Stop servers that were started here.", "[URL...]"),
        },
    ),
    "keys": (
        "Manage the service's API keys.",
        {
            "add": Command("groupwise.commands.service:add", "Create a key and show it once."),
            "list": Command("groupwise.commands.service:listed", "List the keys."),
            "revoke": Command("groupwise.commands.service:revoke", "Revoke a key."),
        },
    ),
}

# Commands that go on where they were when they are given again.
REPEATED = ("compare", "search", "sweep")


class Interrupted(GroupwiseError):
    code = "interrupted"


def build_app() -> App:
    # No --no-option for switches, no --empty-option for lists, and no default shown where it is nothing.
    plain = Parameter(negative=(), show_default=lambda value: None if value in (None, ()) or value is False else value)
    # Plain text, because importing a Markdown renderer makes --help slower.
    # Cyclopts would end the process at Ctrl-C without a word; `run` says how to continue.
    app = App(
        name="groupwise", help=HELP, help_format="plaintext", version=__version__, default_parameter=plain,
        suppress_keyboard_interrupt=False,
    )  # fmt: skip
    for name, command in COMMANDS.items():
        command.register(app, name, "groupwise")
    for group, (summary, commands) in GROUPS.items():
        within = App(name=group, help=summary)
        for name, command in commands.items():
            command.register(within, name, f"groupwise {group}")
        app.command(within)
    app.register_install_completion_command(help="Install completion for your shell: bash, zsh or fish.")
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    words = list(sys.argv[1:] if arguments is None else arguments)
    tolerate_any_text(sys.stdout)
    tolerate_any_text(sys.stderr)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Carry out one command line. The exit status: 0 done, 1 failed, 2 misused, 130 interrupted."""
    try:
        with _warnings_on_stderr():
            result = build_app()(words, exit_on_error=False, print_error=False, result_action="return_value")
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        complain(
            GroupwiseError(" ".join(str(error).split()) or type(error).__name__, hint=_where_to_look(words)), words
        )
        return 2
    except KeyboardInterrupt:
        complain(Interrupted("interrupted", hint=_how_to_continue(words)), words)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        problem = _as_message(error)
        complain(problem, words)
        return 2 if isinstance(problem, ConfigError) else 1


def _as_message(error: Exception) -> GroupwiseError:
    """What to tell the user about an error, whatever it is."""
    missing = missing_extra(error)
    if missing is not None:
        return missing
    if isinstance(error, GroupwiseError):
        return error
    # PyTorch reports memory that it cannot get as a RuntimeError.
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        hint = "Try smaller policy.hidden_sizes, rollout.num_generations or rollout.tasks_per_step."
        return ResourceError(f"not enough memory: {error}", hint=hint)
    hint = "Internal error. Run again with --debug to see the traceback, and please report it."
    return GroupwiseError(f"{type(error).__name__}: {error}", hint=hint)


def complain(error: GroupwiseError, words: Sequence[str]) -> None:
    """Report an error: as JSON on stdout with --json, as text on stderr otherwise."""
    # The options of a command line that could not be parsed are only known as words.
    if "--debug" in words:
        traceback.print_exc()
    if "--json" in words:
        print(json.dumps(error.as_dict(), ensure_ascii=not in_any_encoding(sys.stdout)))
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"       {error.hint}", file=sys.stderr)


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Show what the package logs as a warning, such as settings that have no effect."""
    # Bound to the present stderr, which tests and redirections replace.
    logger, handler = logging.getLogger("groupwise"), logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _how_to_continue(words: Sequence[str]) -> str:
    if words and words[0] in REPEATED:
        return "Repeat the same command to continue; what was finished is kept."
    return "Continue a training run with `groupwise resume`."


def _where_to_look(words: Sequence[str]) -> str:
    known = words and words[0] in (*COMMANDS, *GROUPS)
    return f"`groupwise {words[0]} --help` lists its options." if known else "`groupwise --help` lists the commands."


if __name__ == "__main__":
    main()
