"""GitHub Actions, Argo and Airflow: valid, the same when read again, and refused where they have no words."""

from __future__ import annotations

import random
import re
import sys
from types import ModuleType
from typing import Any, ClassVar

import pytest
import yaml

from groupwise.errors import ConfigError
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    Handling,
    Instances,
    Loop,
    Parallel,
    Retry,
    Sequence,
    rewritten,
)
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress, airflow, argo, read_workflow, write_workflow
from groupwise.workflows.files import github_actions as actions
from groupwise.workflows.files.step_dag import WorkflowStep, steps_of
from tests.workflows.designs import random_block
from tests.workflows.files.schemas import mistakes, needs_schemas

STEPS = ("sequence", "parallel", "order")
FORMATS = {"actions": actions, "argo": argo, "airflow": airflow}
NASTY = (
    "${x}",
    "a: [b",
    "'''\n\"\"\"",
    "\\",
    "# no",
    "ü ✓ \u202e",
    "* & !",
    "true",
    "12",
    "a\x07b",
    "-",
    "A",
    "a",
    "a-",
    "_a",
)


def steps_design(rng: random.Random, format_: str) -> Document:
    """A random design of what the format has words for."""

    def varied(block: Block) -> Block:
        if not isinstance(block, Activity) or rng.random() < 0.4:
            return block
        pool, timeout = rng.choice([None, "gpu"]), rng.choice([None, 90.0, 3600.0])
        retry = Retry(rng.randint(0, 3), rng.choice([0.0, 2.5]), rng.choice([1.0, 2.0]))
        return Activity(
            block.name, Handling(pool=pool, timeout=timeout, retry=Retry() if format_ == "actions" else retry)
        )

    design = Design("a design", rewritten(random_block(rng, rng.randint(1, 25), STEPS), varied))
    return document_of(design)


def needs(document: Document) -> set[tuple[str, tuple[str, ...], Handling]]:
    steps = steps_of(document, "")
    label = {step.id: step.label for step in steps}
    return {(step.label, tuple(sorted(label[need] for need in step.needs)), step.handling) for step in steps}


@needs_schemas
@pytest.mark.parametrize("format_", ["actions", "argo"])
@pytest.mark.parametrize("seed", range(12))
def test_exports_are_valid_and_come_back(format_: str, seed: int) -> None:
    module: Any = FORMATS[format_]
    document = steps_design(random.Random(seed), format_)
    written = module.write(document)
    assert mistakes(format_, yaml.safe_load(written)) == []
    again = module.read(written)
    assert needs(again) == needs(document)
    assert again.name == document.name
    assert again.notes == ()
    assert module.write(again) == written
    assert module.read(module.write(again)) == again
    assert {activity for activity, _, _ in needs(document)} == {step.label for step in steps_of(again, "")}
    lift(again)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("root", "said"),
    [
        (
            Choice((Activity("a"), Activity("b")), (0.5, 0.5)),
            "has no choices, but 'xor_split_1' chooses between 'a', 'b'",
        ),
        (Loop(Activity("again"), 0.5), "has no loops, but 'again' can be repeated"),
        (Cancellable(Activity("a"), 0.5), "(cannot cancel|has no choices)"),
        (Instances(Activity("many"), 2, 3, 1), "has no multi-instance steps, but 'many' has 2 to 3 instances"),
        (Activity("late", Handling(delay=5)), "cannot express a delay of 5 s for 'late'"),
        (Activity("soon", Handling(due=9)), "cannot express a due time of 9 s for 'soon'"),
        (Activity("x", Handling(scheduling="due")), "cannot express scheduling by due for 'x'"),
    ],
)
def test_what_a_format_has_no_words_for_is_refused_by_name(format_: str, root: Block, said: str) -> None:
    module: Any = FORMATS[format_]
    with pytest.raises(CannotExpress, match=said):
        module.write(document_of(Design("d", root)))


def test_each_format_refuses_what_only_it_cannot_say() -> None:
    def refused(module: Any, handling: Handling, name: str = "x") -> str:
        with pytest.raises(CannotExpress) as error:
            module.write(document_of(Design("d", Activity(name, handling))))
        return error.value.message

    assert "cannot express retries (2) for 'x'" in refused(actions, Handling(retry=Retry(2)))
    assert "needs a whole number for growth" in refused(argo, Handling(retry=Retry(2, 1, 1.5)))
    assert "needs a whole number for a time limit" in refused(argo, Handling(timeout=0.5))
    assert "the pool 'a b'" in refused(argo, Handling(pool="a b"))
    assert "only doubles pauses" in refused(airflow, Handling(retry=Retry(2, 1, 3.0)))
    assert "would evaluate the '${{' in" in refused(actions, Handling(), "${{ secrets.KEY }}")
    assert "would evaluate the '{{' in" in refused(argo, Handling(), "{{workflow.name}}")


@needs_schemas
def test_whatever_tasks_are_called_the_files_hold() -> None:
    document = document_of(Design("n: [x]\n# '", Sequence(tuple(map(Activity, NASTY)))))
    for format_ in ("actions", "argo"):
        module: Any = FORMATS[format_]
        written = module.write(document)
        assert mistakes(format_, yaml.safe_load(written)) == []
        assert [step.label for step in steps_of(module.read(written), "")] == list(NASTY)
        assert module.read(written).name == document.name


class Operator:
    """Stands in for Airflow's: it remembers what it was given."""

    made: ClassVar[dict[str, Operator]] = {}

    def __init__(self, **given: Any) -> None:
        self.given, self.upstream = given, []  # type: ignore[var-annotated]
        assert given["task_id"].isidentifier()
        assert given["task_id"] not in Operator.made
        Operator.made[given["task_id"]] = self

    def set_upstream(self, tasks: list[Operator]) -> None:
        self.upstream += [task.given["task_display_name"] for task in tasks]


class Dag:
    def __init__(self, **given: Any) -> None:
        self.given = given

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> dict[str, Operator]:
    names = ("airflow", "airflow.providers", "airflow.providers.standard", "airflow.providers.standard.operators")
    for name in (*names, "airflow.providers.standard.operators.bash"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["airflow"].DAG = Dag  # type: ignore[attr-defined]
    sys.modules["airflow.providers.standard.operators.bash"].BashOperator = Operator  # type: ignore[attr-defined]
    monkeypatch.setattr(Operator, "made", {})
    return Operator.made


@pytest.mark.parametrize("seed", range(12))
def test_an_airflow_file_runs_and_says_what_was_meant(seed: int, stand_in: dict[str, Operator]) -> None:
    document = steps_design(random.Random(seed), "airflow")
    exec(compile(airflow.write(document), "dag.py", "exec"), {})  # noqa: S102 - to see that it runs
    made = {task.given["task_display_name"]: task for task in Operator.made.values()}
    for label, before, handling in needs(document):
        given = made[label].given
        assert tuple(sorted(made[label].upstream)) == before
        assert given.get("retries", 0) == handling.retry.most
        assert given.get("pool") == handling.pool
        if handling.timeout is not None:
            assert given["execution_timeout"].total_seconds() == handling.timeout
        if handling.retry != Retry():
            assert given["retry_delay"].total_seconds() == handling.retry.pause
            assert given["retry_exponential_backoff"] == (handling.retry.growth == 2 and handling.retry.pause > 0)
    assert len(made) == len(needs(document))


def test_no_name_breaks_out_of_an_airflow_file(stand_in: dict[str, Operator]) -> None:
    names = (*NASTY, "');import os#", "{{ 7*7 }}", '"""\nraise SystemExit')
    pools = (("p'\nraise SystemExit", 1),)
    design = Design("'''\nraise SystemExit", Sequence(tuple(map(Activity, names))), pools)
    exec(compile(airflow.write(document_of(design)), "dag.py", "exec"), {})  # noqa: S102 - to see that it runs
    assert {task.given["task_display_name"] for task in Operator.made.values()} == set(names)


JOBS = """
name: CI
on: push
env: {A: 1}
jobs:
  build:
    runs-on: windows-latest
    timeout-minutes: 10
    steps: [{run: make}]
  test:
    needs: build
    if: github.ref == 'main'
    runs-on: ubuntu-latest
    steps: [{run: make test}]
"""


def test_a_workflow_of_other_people_is_read_and_says_what_it_leaves_out() -> None:
    document = actions.read(JOBS.encode())
    build, test = steps_of(document, "")
    assert build == WorkflowStep("build", handling=Handling(pool="windows-latest", timeout=600.0))
    assert test == WorkflowStep("test", needs=("build",))
    assert set(document.notes) == {
        "env is not kept",
        "job build: what its steps do is not kept",
        "job test: what its steps do is not kept",
        "job test: if is not kept",
    }


ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: diamond}
spec:
  entrypoint: main
  serviceAccountName: me
  templates:
  - name: main
    dag:
      tasks:
      - {name: A, template: echo}
      - {name: B, template: echo, dependencies: [A]}
      - {name: C, template: echo, depends: "A.Succeeded && B"}
  - name: echo
    retryStrategy: {limit: 3, backoff: {duration: 1m, factor: "2"}}
    activeDeadlineSeconds: 30
    container: {image: alpine}
"""


def test_an_argo_workflow_of_other_people_is_read() -> None:
    document = argo.read(ARGO.encode())
    handling = Handling(retry=Retry(3, 60, 2), timeout=30)
    assert [(step.id, step.needs, step.handling) for step in steps_of(document, "")] == [
        ("A", (), handling),
        ("B", ("A",), handling),
        ("C", ("A", "B"), handling),
    ]
    assert "spec.serviceAccountName is not kept" in document.notes
    assert document.name == "diamond"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{', '.join(f'*{a}' for _ in range(10))}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("jobs: }", "not valid YAML: did not find expected node content (at line 1, column 7)"),
        ("a:\n\t- b", "not valid YAML: found character that cannot start any token (at line 2, column 1)"),
        (BOMB, "aliases that stand for more than 200,000 values (at line 6"),
        ("jobs: &a [*a]", "a value contains itself (at line 1"),
        ("[" * 50_000, "nested too deeply: more than 200 levels (at line 1"),
        ("jobs:\n  a: {}\n  a: {}", "'a' is given twice (at line 3"),
        ("x: 1", "not a GitHub Actions workflow: it has no jobs"),
        ("jobs:\n  a: 3", "line 2: job 'a' must be a mapping, not 3"),
        ("jobs:\n  a: {}\n  b:\n    needs: [a, c]", "line 4: job 'b' needs 'c', which does not exist"),
        ("jobs:\n  a: {needs: b}\n  b: {needs: a}", "steps need each other in a cycle: "),
        ("jobs:\n  a:\n    needs: {b: c}", "line 3: the needs of job 'a' must be names of jobs"),
        ("jobs:\n  a:\n    timeout-minutes: -1", "line 3: timeout-minutes of job 'a' must be above 0, not -1"),
        ("jobs:\n  a:\n    timeout-minutes: [1]", "line 3: timeout-minutes of job 'a' must be above 0"),
        ("x" * (10 << 20), "larger than 2 MiB"),
        ("a: 2023-99-99", "not valid YAML: month must be in 1..12"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("- " * 30_000 + "x", "nested too deeply: more than 200 levels"),
    ],
    ids=lambda value: value[:20],
)
def test_bad_files_are_refused_with_line_and_reason(content: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        actions.read(content.encode())
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("kind: Workflow", "kind: Pod"), "line 3: not an Argo workflow: its kind is 'Pod'"),
        (("entrypoint: main", "entrypoint: mian"), "line 6: the entrypoint 'mian' is not a template"),
        (("dependencies: [A]", "dependencies: [Z]"), "'B' needs 'Z', which does not exist"),
        (("dependencies: [A]", "dependencies: [C]"), "steps need each other in a cycle: 'C' → 'B' → 'C'"),
        (("dependencies: [A]", 'when: "x"'), "line 13: task 'B' has when, which is not supported"),
        (("&& B", "|| B"), "line 14: depends 'A.Succeeded || B' is more than names joined by &&"),
        (("limit: 3", "limit: many"), "line 16: limit must be a number, not 'many'"),
        (("duration: 1m", "duration: soon"), "a duration must be like 30s, 5m or 1h, not 'soon'"),
        (("template: echo}", "template: ehco}"), "line 12: task 'A' has the template 'ehco', which does not exist"),
        (("activeDeadlineSeconds: 30", "activeDeadlineSeconds: -3"), "timeout is -3"),
        (("dag:", "steps:"), "the entrypoint 'main' has no dag"),
    ],
    ids=lambda value: value[1][:20] if isinstance(value, tuple) else "",
)
def test_bad_argo_files_are_refused_with_line_and_reason(change: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        argo.read(ARGO.replace(change[0], change[1], 1).encode())
    assert said in str(error.value)


def test_files_are_told_apart_by_what_is_in_them(tmp_path) -> None:  # type: ignore[no-untyped-def]
    document = document_of(Design("d", Sequence((Activity("a"), Parallel((Activity("b"), Activity("c")))))))
    for format_ in ("actions", "argo"):
        write_workflow(document, tmp_path / f"{format_}.yaml", format_)
        assert needs(read_workflow(tmp_path / f"{format_}.yaml")) == needs(document)
    write_workflow(document, tmp_path / "d.argo.yaml")
    assert b"argoproj.io" in (tmp_path / "d.argo.yaml").read_bytes()


PIECES = (
    "null",
    "[]",
    "{}",
    "-1",
    "1e400",
    ".inf",
    "&a",
    "*a",
    "true",
    "\t",
    "\x00",
    '"',
    "{",
    "]",
    "9" * 400,
    ": ",
    "\n",
)


@pytest.mark.parametrize(("format_", "text"), [("actions", JOBS), ("argo", ARGO)])
def test_whatever_is_wrong_with_a_file_it_is_refused_or_read(format_: str, text: str) -> None:
    module: Any = FORMATS[format_]
    rng = random.Random(format_)
    words = [found.span() for found in re.finditer(r"[\w.\-]+|\S", text)]
    refused = 0
    for _ in range(400):
        start, stop = rng.choice(words)
        try:
            module.read((text[:start] + rng.choice(PIECES) + text[stop:]).encode())
        except ConfigError as error:
            refused += bool(error.message)
    assert 100 < refused < 400
