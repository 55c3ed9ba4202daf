"""Papers this package builds on, each with its central experiment repeated in seconds: does the effect appear?

paper_result      what an experiment reports: the claim, whether it appeared, and the numbers; open it first
grpo_replication  the group mean in place of a critic (arXiv 2402.03300)
pcgrad            projecting conflicting gradients (arXiv 2001.06782)
softmod           soft modules for several tasks (arXiv 2003.13661)
gpmixture         an infinite mixture of Gaussian processes (arXiv 2006.11441)
"""

from collections.abc import Callable, Sequence

from groupwise.control.papers import gpmixture, pcgrad, softmod
from groupwise.control.papers import grpo_replication as grpo
from groupwise.control.papers.paper_result import PaperFinding, Progress

# Each experiment by name, with its default number of seeds.
PAPERS: dict[str, tuple[Callable[[Sequence[int], Progress], PaperFinding], int]] = {
    "grpo": (grpo.experiment, 8),
    "pcgrad": (pcgrad.experiment, 10),
    "softmod": (softmod.experiment, 6),
    "gpmixture": (gpmixture.experiment, 8),
}
