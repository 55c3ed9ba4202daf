"""What a recorded run took beyond its tasks: the overhead per task with which a schedule takes as long as the record.

A record of tasks with runtimes, as in WfFormat, leaves out what happens between them: queueing, submission, transfers
and jobs that the workflow system adds by itself. Without start times only their sum is known, from the makespan. It is
expressed as seconds by which every task is longer.
"""

from dataclasses import replace

from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation.schedule import TaskGraph, list_schedule, task_graph_of
from groupwise.workflows.requirements import Requirements

CLOSE = 1e-3  # of the recorded makespan
MOST_STEPS = 12


def with_overhead(requirements: Requirements, seconds: float) -> Requirements:
    """The requirements with every activity that much longer."""
    activities = {
        name: one.model_copy(
            update={"duration": one.duration.model_copy(update={"mean": one.duration.mean + seconds})}
        )
        for name, one in requirements.activities.items()
    }  # fmt: skip
    return requirements.model_copy(update={"activities": activities})


def overhead_per_task(design: Design, requirements: Requirements, makespan: float) -> float:
    """The overhead with which one run of the design takes `makespan` seconds; 0 if it takes longer without any."""
    graph, _ = task_graph_of(design, requirements)
    low, took = 0.0, list_schedule(graph).makespan
    if took >= makespan:
        return 0.0
    # The makespan grows by at least one overhead, and along a straight line between changes of the critical path:
    # the secant comes close in a few steps, and the bracket keeps it there.
    high, longest = makespan - took, list_schedule(_longer(graph, makespan - took)).makespan
    for _ in range(MOST_STEPS):
        seconds = low + (makespan - took) * (high - low) / (longest - took)
        found = list_schedule(_longer(graph, seconds)).makespan
        if abs(found - makespan) <= CLOSE * makespan:
            return seconds
        if found < makespan:
            low, took = seconds, found
        else:
            high, longest = seconds, found
    return low


def _longer(graph: TaskGraph, seconds: float) -> TaskGraph:
    durations = tuple(tuple(time + seconds for time in row) for row in graph.durations)
    return replace(graph, durations=durations, alone={task: time + seconds for task, time in graph.alone.items()})
