"""Airflow: a Python file with one DAG; written only.

Texts are written with `ascii`, so that no name of a task can break out of its quotes.
"""

from collections.abc import Iterator

from groupwise.workflows.blocks import Retry
from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import CannotExpress, Format
from groupwise.workflows.files.step_dag import WorkflowStep, refuse_handling, safe_names, steps_of

TITLE = "Airflow"
HEAD = '''"""Written by Groupwise. Fill in what each task does."""

from datetime import datetime, timedelta

from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:  # Airflow 2
    from airflow.operators.bash import BashOperator
'''


def write(document: Document) -> bytes:
    steps = steps_of(document, TITLE)
    names = safe_names({step.id: step.id for step in steps}, "A-Za-z0-9_", "task", longest=200)
    dag = safe_names({"": document.name}, "A-Za-z0-9_", "workflow", longest=200)[""]
    lines = [HEAD]
    lines += [f"# Needs the pool {pool!a} with {count} slots." for pool, count in document.servers]
    lines.append("with DAG(")
    lines.append(f"    dag_id={dag!r},")
    lines.append(f"    description={document.name!a},")
    lines.append("    schedule=None,")
    # Airflow requires a start date, and with catchup=False it has no effect.
    lines.append("    start_date=datetime(2000, 1, 1),")
    lines.append("    catchup=False,")
    lines.append("):")
    lines.append("    tasks = {}")
    for step in steps:
        lines += [f"    {line}" for line in _task(step, names[step.id])]
    for step in steps:
        if step.needs:
            needed = ", ".join(f"tasks[{names[need]!r}]" for need in step.needs)
            lines.append(f"    tasks[{names[step.id]!r}].set_upstream([{needed}])")
    return ("\n".join(lines) + "\n").encode("ascii")


def _task(step: WorkflowStep, name: str) -> Iterator[str]:
    refuse_handling(step, TITLE, only=("retry", "timeout", "pool", "priority"))
    handling, retry = step.handling, step.handling.retry
    yield f"tasks[{name!r}] = BashOperator("
    yield f"    task_id={name!r},"
    yield f"    task_display_name={step.label!a},"
    # A placeholder that succeeds.
    yield '    bash_command="true",'
    if len(step.needs) > 1:
        yield '    trigger_rule="all_success",'
    if retry != Retry():
        yield f"    retries={retry.most},"
        yield f"    retry_delay=timedelta(seconds={retry.pause!r}),"
        # Airflow only knows constant pauses and doubled ones.
        if retry.growth not in (1.0, 2.0) and retry.pause:
            raise CannotExpress(f"{TITLE} only doubles pauses, but those of {step.label!r} grow {retry.growth:g} times")
        yield f"    retry_exponential_backoff={retry.growth == 2.0 and retry.pause > 0},"
    if handling.timeout is not None:
        yield f"    execution_timeout=timedelta(seconds={handling.timeout!r}),"
    if handling.pool is not None:
        yield f"    pool={handling.pool!a},"
    if handling.priority:
        yield f"    priority_weight={handling.priority},"
        # Otherwise Airflow adds up the priorities of all downstream tasks.
        yield '    weight_rule="absolute",'
    if step.documentation:
        yield f"    doc={step.documentation!a},"
    yield ")"


FORMAT = Format("airflow", TITLE, (".py",), write=write)
