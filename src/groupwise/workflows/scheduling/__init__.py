"""Schedules of one run of a graph of tasks that are never longer than HEFT's, by a policy that corrects its order.

improve(work, evaluations=1000).makespan
"""

from groupwise.workflows.scheduling.instances import read_instances, work_of_document
from groupwise.workflows.scheduling.search import improve
from groupwise.workflows.scheduling.shipped import load_policy

__all__ = ["improve", "load_policy", "read_instances", "work_of_document"]
