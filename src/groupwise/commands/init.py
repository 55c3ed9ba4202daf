"""`groupwise init`: from what people have to a settings file that runs."""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.files import write_output
from groupwise.products import STARTERS
from groupwise.reporting.command_options import Common, answer, say

if TYPE_CHECKING:
    from groupwise.reporting.starter import Question, Starter, StarterFiles

Kind = Literal["data", "environment", "process", "problem"]
Text = str | None
WORDS = "What do you have?"


def init(
    *,
    kind: Annotated[Kind | None, Parameter(help=f"{WORDS} Known from the other options, if there are any.")] = None,
    data: Annotated[Text, Parameter(help="Your data: .jsonl, .json, .parquet or a folder.")] = None,
    reward: Annotated[
        Text, Parameter(help="What is right: own (a stub to edit), exact, number, contains, or your FILE.py:NAME.")
    ] = None,
    prompt: Annotated[Text, Parameter(help="Column of the prompts; usual names are found.")] = None,
    answer_: Annotated[Text, Parameter(name="--answer", help="Column of the right answers, if there is one.")] = None,
    model: Annotated[Text, Parameter(help="tiny, a folder, or a name on the Hugging Face hub.")] = None,
    environment: Annotated[Text, Parameter(help="A Gymnasium id, FILE.py, FILE.py:ID or FILE.py:CLASS.")] = None,
    process: Annotated[
        Text, Parameter(help="An event log (.csv, .xes, .gz), a workflow (.bpmn, .yawl …) or a description (.txt).")
    ] = None,
    problem: Annotated[Text, Parameter(help="What a program should do, in one sentence.")] = None,
    examples: Annotated[Text, Parameter(help='Examples of it: "[1, 7] -> 8; [2, 2] -> 4".')] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="The file to write.")] = None,
    force: Annotated[bool, Parameter(help="Replace files that exist.")] = False,
    common: Common = Common(),
) -> None:
    """Write a settings file for what you have. Four questions at most; options answer them in a script.

    The file is checked before it is written, and no file is replaced without --force.
    """
    options = {
        "data": data, "reward": reward, "prompt": prompt, "answer": answer_, "model": model,
        "environment": environment, "process": process, "problem": problem, "examples": examples,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    asking = sys.stdin.isatty() and not common.json
    chosen: str | None = kind or next((name for name in STARTERS if name in given), None)
    chosen = chosen or (asked_kind() if asking else needed_kind())
    place, _, name = STARTERS[chosen][0].partition(":")
    starter: Starter = getattr(import_module(place), name)
    if strange := [option for option in given if option not in starter.options]:
        known = ", ".join(f"--{option}" for option in starter.options)
        raise ConfigError(f"--{strange[0]} does not go with --kind {chosen}", hint=f"Its options are {known}.")
    answers = answered(starter, given, asking)
    begun, path = tried(starter, answers, out)
    written = [path, *(path.parent / other for other in begun.texts if other != begun.settings)]
    there = [file for file in written if file.exists()]
    again = shlex.join(["groupwise", "init", "--kind", chosen, *(w for n, v in answers.items() for w in (f"--{n}", v))])
    if there and not force:
        hint = f"Replace it with --force, or choose another name with --out. The command: {again} --force"
        if path not in there:
            hint = f"If it is yours, name a function in it: --reward {there[0]}:NAME. --force replaces it."
        raise ConfigError(f"{there[0]} exists already and was not changed", hint=hint)
    for file, text in zip(written, (begun.texts[begun.settings], *_others(begun)), strict=True):
        write_output(file, text)
    following = [command.format(file=shlex.quote(str(path))) for command in begun.commands]
    if common.json:
        files = [str(file) for file in written]
        answer({"kind": chosen, "settings": str(path), "files": files, "notes": begun.notes, "next": following})
        return
    say(*(f"wrote {file}" for file in written), *(f"note: {note}" for note in begun.notes))
    say(f"next: {following[0]}", *(f"      {command}" for command in following[1:]))
    if asking and answers != given:
        say(f"without questions: {again}")


def _others(begun: StarterFiles) -> list[str]:
    return [text for name, text in begun.texts.items() if name != begun.settings]


def needed_kind() -> str:
    known = "; ".join(f"{name} ({words})" for name, (_, words) in STARTERS.items())
    raise ConfigError("--kind is missing", hint=f"What do you have? {known}. For example --data my.jsonl.")


def asked_kind() -> str:
    from groupwise.reporting.starter import Question

    choices = tuple((name, words) for name, (_, words) in STARTERS.items())
    return ask(Question("kind", WORDS, "data", choices))


def answered(starter: Starter, given: dict[str, str], asking: bool) -> dict[str, str]:
    """The options, with what they leave open asked, or answered as usual."""
    answers = dict(given)
    while (question := starter.question(answers)) is not None:
        if asking:
            answers[question.option] = ask(question)
        elif question.usual:
            answers[question.option] = question.usual
        else:
            among = f" (one of {', '.join(name for name, _ in question.choices)})" if question.choices else ""
            example = f" For example --{question.option} {question.choices[0][0]}." if question.choices else ""
            raise ConfigError(f"--{question.option} is missing{among}", hint=f"{question.words}{example}")
    return answers


def ask(question: Question) -> str:
    """Ask on the terminal until there is an answer; a choice may be given by its number."""
    print(question.words)
    names = [name for name, _ in question.choices]
    for number, (name, words) in enumerate(question.choices, 1):
        print(f"  {number}  {name}{': ' if words else ''}{words}")
    while True:
        try:
            said = input(f"[{question.usual}] > " if question.usual else "> ").strip() or question.usual
        except EOFError:
            raise GroupwiseError("the questions were not answered", hint="Nothing was written.") from None
        if said.isdecimal() and 0 < int(said) <= len(names):
            return names[int(said) - 1]
        # A choice of rewards also takes a function of the user's own.
        if said and (not names or said in names or ":" in said):
            return said
        print(f"Please answer with one of {', '.join(names)}." if names else "Please answer.")


def tried(starter: Starter, answers: dict[str, str], out: Path | None) -> tuple[StarterFiles, Path]:
    """The files, and the path of the settings; checked beside each other in a folder that is then thrown away."""
    with tempfile.TemporaryDirectory(prefix="groupwise-init-") as name:
        folder = Path(name).resolve()
        trial = starter.write(answers, folder)
        for file, text in trial.texts.items():
            write_output(folder / file, text)
        notes = starter.check(folder / trial.settings)
    path = out or Path(trial.settings)
    begun = starter.write(answers, path.parent.resolve())
    if path.suffix != Path(begun.settings).suffix:
        raise ConfigError(f"--out {path} must end in {Path(begun.settings).suffix}", hint="Its suffix says what it is.")
    return replace(begun, notes=(*begun.notes, *notes)), path
