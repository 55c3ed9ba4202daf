"""Papers this builds on, each with its central experiment repeated in seconds: does the effect appear?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.control.papers import gpmixture, grpo, pcgrad, softmod
from groupwise.control.papers.finding import PaperFinding, Progress

# By name the experiment, and from how many seeds it is made unless told otherwise.
PAPERS: dict[str, tuple[Callable[[Sequence[int], Progress], PaperFinding], int]] = {
    "grpo": (grpo.experiment, 8),
    "pcgrad": (pcgrad.experiment, 10),
    "softmod": (softmod.experiment, 6),
    "gpmixture": (gpmixture.experiment, 8),
}
