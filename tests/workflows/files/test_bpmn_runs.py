"""An engine runs what is written: SpiffWorkflow takes exported designs from start to end, and data decide the way."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Choice, Design, Parallel, PartialOrder, Sequence, activities
from groupwise.workflows.document import document_of
from groupwise.workflows.files.bpmn import write
from groupwise.workflows.requirements import parse_requirements
from tests.workflows.designs import FLAT, random_design

# SpiffWorkflow 3.2 cannot have multiple instances behind a loop.
WITHOUT_LOOPS = ("sequence", "parallel", "order", "instances")


def run(content: bytes, rng: random.Random, decided: dict[str, str] | None = None) -> list[str]:
    """Run to the end, choices made by `decided` or by chance; the names of the tasks in the order they were done."""
    from lxml import etree
    from SpiffWorkflow.bpmn.parser.BpmnParser import BpmnParser
    from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
    from SpiffWorkflow.util.task import TaskState

    root = etree.fromstring(content)
    parser = BpmnParser()
    parser.add_bpmn_xml(root, filename="design.bpmn")
    process = next(root.iter("{*}process")).get("id")
    workflow = BpmnWorkflow(parser.get_spec(process), parser.get_subprocess_specs(process))
    choices = _choices(root)
    done = []
    for _ in range(2_000):
        if workflow.is_completed():
            return done
        ready = workflow.get_tasks(state=TaskState.READY)
        if not ready:
            workflow.refresh_waiting_tasks()
            ready = workflow.get_tasks(state=TaskState.READY)
        task = rng.choice(ready)
        chosen = {name: rng.choice([*targets, "elsewhere"]) for name, targets in choices.items()}
        broken = {e.text: rng.random() < 0.1 for e in root.iter("{*}condition")}
        task.data.update(chosen | broken | (decided or {}) | {"numberOfCompletedInstances": rng.randint(0, 3)})
        task.run()
        if type(task.task_spec).__name__ in ("NoneTask", "UserTask"):
            done.append(task.task_spec.bpmn_name)
    raise AssertionError("it does not end")


def _choices(root: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for expression in root.iter("{*}conditionExpression"):
        asked = re.fullmatch(r"(\w+) == '(.*)'", expression.text)
        assert asked is not None
        found.setdefault(asked[1], []).append(asked[2])
    return found


@pytest.mark.parametrize("seed", range(30))
def test_random_designs_run_to_their_end(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 12), FLAT)
    done = run(write(document_of(design)), rng)
    assert set(done) <= {activity.name for activity in activities(design.root)}


def test_data_decide_which_branch_is_taken() -> None:
    design = Design("d", Choice((Activity("yes"), Activity("no"), Activity("maybe")), (0.2, 0.3, 0.5)))
    content = write(document_of(design))
    taken = [run(content, random.Random(0), {"xor_split_1_goes_to": way})[0] for way in ("yes", "no", "maybe", "else")]
    assert taken == ["yes", "no", "maybe", "maybe"]


def test_orders_are_kept_and_everything_is_done() -> None:
    parts = tuple(Activity(name) for name in "abcd")
    order = PartialOrder(parts, frozenset({(0, 1), (0, 2), (2, 3)}))
    content = write(document_of(Design("d", Sequence((order, Activity("z"))))))
    for seed in range(10):
        done = run(content, random.Random(seed))
        assert Counter(done) == Counter("abcdz")
        assert done.index("a") < done.index("b")
        assert done.index("a") < done.index("c") < done.index("d") < done.index("z")


def test_instances_run_as_often_as_they_should() -> None:
    from groupwise.workflows.blocks import Instances

    body = Instances(Sequence((Activity("a"), Activity("b"))), 3, 3, 3)
    content = write(document_of(Design("d", Parallel((body, Instances(Activity("c"), 2, 2, 2))))))
    assert Counter(run(content, random.Random(0))) >= Counter({"a": 3, "b": 3, "c": 2})


def test_a_knock_out_ends_the_case_after_the_other_branches() -> None:
    known = {name: {"duration": {"mean": 1}, "pools": ["clerk"]} for name in "abcd"}
    known["a"]["knock_out"] = 0.5
    requirements = parse_requirements({"name": "r", "activities": known, "pools": {"clerk": {}}})
    both = Parallel((Sequence((Activity("a"), Activity("b"))), Activity("c")))
    content = write(document_of(Design("d", Sequence((both, Activity("d")))), requirements))
    on = run(content, random.Random(1), {"passed_1_goes_to": "b", "passed_2_goes_to": "d"})
    assert Counter(on) == Counter("abcd")
    out = run(content, random.Random(1), {"passed_1_goes_to": "merge_1", "passed_2_goes_to": "ended_1"})
    assert Counter(out) == Counter("ac")
