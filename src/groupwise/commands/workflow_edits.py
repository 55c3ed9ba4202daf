"""`groupwise edit`: change a workflow by hand, and see what that does to its score and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from groupwise.errors import ConfigError
from groupwise.reporting.command_options import Common, RequirementsFile, WorkflowFile, answer, patiently, say

if TYPE_CHECKING:
    from groupwise.workflows.editing import Assessment, Edit, MoveActivity, Rule

Words = tuple[str, ...]
PLACES = ("before", "after", "beside")


def edit(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    move: Annotated[
        Words, Parameter(help='Move an activity: --move "sign contract before pay out loan" (or after, beside).')
    ] = (),
    assign: Annotated[Words, Parameter(help="Have another pool do an activity: --assign ACTIVITY=POOL.")] = (),
    staff: Annotated[Words, Parameter(help="Staff a pool: --staff POOL=COUNT.")] = (),
    chance: Annotated[Words, Parameter(help="Change a probability: --chance NAME=VALUE; --json lists the names.")] = (),
    rule: Annotated[Words, Parameter(help='Add a rule: --rule "precedes: A, B" or --rule "deadline: 3600".')] = (),
    seed: Annotated[int, Parameter(help="Seed of the simulation.")] = 0,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="Where to write the edited workflow.")] = None,
    common: Common = Common(),
) -> int:
    """Change a workflow or its requirements by hand, and compare its score with before.

    Edits happen in the order of the options above. The exit status is 1 if the result breaks a rule.
    """  # fmt: skip
    from groupwise.workflows.differences import compare_workflows
    from groupwise.workflows.document import document_of
    from groupwise.workflows.editing import Edited, applied, as_written, assess, chances, in_words
    from groupwise.workflows.files import write_workflow
    from groupwise.workflows.inspection import open_workflow

    opened = open_workflow(file, requirements)
    asked = opened.insist_on_requirements("editing")
    before = Edited(opened.design(), asked)
    edits = list(_edits(move, assign, staff, chance, rule))
    after = applied(before.design, asked, edits)
    with patiently(common.json):
        was, now = assess(before, seed=seed), assess(after, seed=seed)
    changes = list(compare_workflows(before.design, after.design).lines())
    if out is not None:
        write_workflow(document_of(after.design, after.requirements), out)
    if common.json:
        score = None if now.score is None else now.score.as_dict()
        answer({
            "file": str(file), "edits": in_words(edits), "changes": changes, "out": str(out) if out else None,
            "ok": not now.broken and not now.conflicts, "score": now.score.total if now.score else None,
            "before": was.score.total if was.score else None, "explanation": score and score["explanation"],
            "broken": [asdict(one) for one in now.broken], "contradictions": [str(one) for one in now.conflicts],
            "performance": asdict(now.performance) if now.performance else None,
            "chances": chances(after.requirements), "requirements": as_written(after.requirements),
        })  # fmt: skip
    else:
        say(*changes, *_lines(was, now), *([f"{out} written"] if out else []))
    return 1 if now.broken or now.conflicts else 0


def _lines(was: Assessment, now: Assessment) -> Iterator[str]:
    from groupwise.workflows.violations import in_time

    yield from (f"✗ the requirements contradict themselves: {one}" for one in now.conflicts)
    yield from (f"✗ {one}" for one in now.broken)
    if now.score is None:
        return
    before = "" if was.score is None else f" (before: {was.score.total:.3f})"
    yield f"score {now.score.total:.3f}{before}"
    if now.performance is not None:
        then = was.performance
        time, cost = now.performance.cycle_time, now.performance.cost
        yield f"time per case {in_time(time, 4)}" + (f" (before: {in_time(then.cycle_time, 4)})" if then else "")
        yield f"cost per case {cost:.4g}" + (f" (before: {then.cost:.4g})" if then else "")


def _edits(move: Words, assign: Words, staff: Words, chance: Words, rule: Words) -> Iterator[Edit]:
    from groupwise.workflows.editing import Assign, Chance, Staff

    yield from map(_move, move)
    for text in assign:
        yield Assign(*_pair(text, "--assign", "ACTIVITY=POOL"))
    for text in staff:
        pool, count = _pair(text, "--staff", "POOL=COUNT")
        if not count.isdecimal() or not 1 <= int(count) <= 100_000:
            raise ConfigError(f"--staff {text!r:.80} needs a whole number from 1 to 100000 after the =", field="staff")
        yield Staff(pool, int(count))
    for text in chance:
        name, value = _pair(text, "--chance", "NAME=VALUE")
        yield Chance(name, _number(value, f"--chance {text!r:.80}"))
    yield from map(_rule, rule)


def _move(text: str) -> MoveActivity:
    from groupwise.workflows.editing import MoveActivity

    for place in PLACES:
        first, found, other = text.partition(f" {place} ")
        if found:
            return MoveActivity(first.strip(), place, other.strip())  # type: ignore[arg-type]
    raise ConfigError(f"--move {text!r:.80} must be ACTIVITY before|after|beside ACTIVITY", field="move")


def _rule(text: str) -> Rule:
    from groupwise.workflows.editing import Rule

    name, _, rest = text.partition(":")
    if name.strip() == "deadline":
        return Rule("deadline", seconds=_number(rest, f"--rule {text!r:.80}"))
    first, _, then = rest.partition(",")
    return Rule(name.strip(), first.strip(), then.strip())


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, found, value = text.rpartition("=")
    if not found or not name.strip():
        raise ConfigError(f"{option} {text!r:.80} must have the form {form}", field=option.strip("-"))
    return name.strip(), value.strip()


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{where} needs a number of at least 0")
    return value
