"""Schedules of WfCommons instances: HEFT against list scheduling, which plans nothing ahead.

    python benchmarks/workflow_scheduling.py --data shared/data/wfcommons/instances --json

Four machines of speeds 1, 1, 1.5 and 2, with 1 Gbit/s between them. Both methods are deterministic, so there are no
seeds. A ratio below 1 means that HEFT's makespan is shorter.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.workflows.document import Document
from groupwise.workflows.evaluation.schedule import TaskGraph, heft, list_schedule
from groupwise.workflows.files import read_workflow
from groupwise.workflows.files.step_dag import steps_of

SPEEDS = (1.0, 1.0, 1.5, 2.0)
GIGABIT = 1e9 / 8


def task_graph_of(document: Document) -> TaskGraph:
    """The tasks of a WfCommons instance; what one hands to another are the files it writes and the other reads."""
    assert document.requirements is not None
    known, sizes = document.requirements.activities, document.requirements.data
    steps = steps_of(document, "A schedule")
    number = {step.id: place for place, step in enumerate(steps)}
    after = {}
    for step in steps:
        reads = set(known[step.label].reads)
        for need in step.needs:
            shared = reads.intersection(known[steps[number[need]].label].writes)
            after[number[need], number[step.id]] = sum(sizes.get(file, 0.0) for file in shared) / GIGABIT
    runtimes = [known[step.label].duration.mean for step in steps]
    durations = tuple(tuple(runtime / speed for speed in SPEEDS) for runtime in runtimes)
    return TaskGraph(tuple(step.label for step in steps), durations, after)


def compared(path: Path) -> dict[str, float]:
    graph = task_graph_of(read_workflow(path))
    planned, unplanned = heft(graph).makespan, list_schedule(graph).makespan
    return {"heft_seconds": planned, "list_seconds": unplanned, "ratio": planned / unplanned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="folders of WfCommons instances")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    raw = {path.stem: compared(path) for folder in options.data for path in sorted(Path(folder).glob("*.json"))}
    if not raw:
        reason = f"no WfCommons instance in {', '.join(options.data)}"
        print_result("workflow_scheduling", {}, seeds=[], not_run={"all": reason})
        return
    ratios = [one["ratio"] for one in raw.values()]
    claims: dict[str, Any] = {
        "instances": len(raw),
        "heft_to_list_mean_ratio": float(np.mean(ratios)),
        "heft_to_list_max_ratio": max(ratios),
    }
    print_result("workflow_scheduling", claims, seeds=[], raw=raw)


if __name__ == "__main__":
    main()
