"""Papers this package builds on, each with its central experiment repeated in seconds: does the effect appear?

paper_result      what an experiment reports: the claim, whether it appeared, and the numbers; open it first
grpo_replication  the group mean in place of a critic (arXiv 2402.03300)
pcgrad            projecting conflicting gradients (arXiv 2001.06782)
softmod           soft modules for several tasks (arXiv 2003.13661)
gpmixture         an infinite mixture of Gaussian processes (arXiv 2006.11441)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupwise.control.papers.paper_result import Experiment

# Each experiment by name: its module, and its default number of seeds.
PAPERS = {
    "grpo": ("grpo_replication", 8),
    "pcgrad": ("pcgrad", 10),
    "softmod": ("softmod", 6),
    "gpmixture": ("gpmixture", 8),
}


def experiment_of(name: str) -> Experiment:
    """The function that repeats a paper's experiment; its module is imported now."""
    experiment: Experiment = import_module(f"{__name__}.{PAPERS[name][0]}").experiment
    return experiment
