"""WfCommons instances as work for machines: a task takes its runtime over the speed, its files the network's time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.evaluation.schedule import TaskGraph, transfer
from groupwise.workflows.files import read_workflow
from groupwise.workflows.files.steps import steps_of

SPEEDS = (1.0, 1.0, 1.5, 2.0)
GIGABIT = 1e9 / 8


def work_of_document(document: Document, speeds: Sequence[float] = SPEEDS, bandwidth: float = GIGABIT) -> TaskGraph:
    """The tasks of a document on machines of these speeds, `bandwidth` bytes per second between any two of them.

    What a task hands on to another are the files that the one writes and the other reads.
    """
    if document.requirements is None:
        raise ConfigError(
            f"{document.name}: it says nothing of runtimes", hint="Schedule a workflow whose file has an execution."
        )
    known, sizes = document.requirements.activities, document.requirements.data
    steps = steps_of(document, "A schedule")
    number = {step.id: place for place, step in enumerate(steps)}
    after = {}
    for step in steps:
        reads = set(known[step.label].reads)
        for need in step.needs:
            shared = reads.intersection(known[steps[number[need]].label].writes)
            after[number[need], number[step.id]] = transfer(sum(sizes.get(file, 0.0) for file in shared), bandwidth)
    runtimes = [known[step.label].duration.mean for step in steps]
    durations = tuple(tuple(runtime / speed for speed in speeds) for runtime in runtimes)
    return TaskGraph(tuple(step.label for step in steps), durations, after)


def read_instances(folder: Path, speeds: Sequence[float] = SPEEDS) -> dict[str, TaskGraph]:
    """Every WfCommons instance of a folder by the name of its file."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ConfigError(f"{folder} holds no WfCommons instance", hint="Name a folder of *.json files.")
    return {path.stem: work_of_document(read_workflow(path), speeds) for path in paths}


def application_of(instance: str) -> str:
    """What an instance is a run of: `montage` of montage-chameleon-2mass-005d-001."""
    return instance.split("-")[0]
