"""A run that is trained by many ranks and shown by the first: in processes that we start, or that torchrun did."""

from collections.abc import Callable
from pathlib import Path

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError, RankError
from groupwise.reporting.live_run import follow_run
from groupwise.training.ranks.communication import Ranks, joined, rank_here
from groupwise.training.ranks.launcher import launch


def train_on_ranks(
    path: Path, cfg: TrainingConfig, ranks: int, restarts: int, *, json: bool, quiet: bool, by_hand: bool = False
) -> int:
    """Train the run at `path` with so many ranks on this machine, all started again from its checkpoint if one dies."""
    answers = launch(follow_on_rank, path, cfg, json, quiet, by_hand, ranks=ranks, run=path, restarts=restarts)
    errors = [answer for answer in answers if isinstance(answer, GroupwiseError)]
    # That a connection is gone is what the others notice; the reason is better.
    for error in sorted(errors, key=lambda error: isinstance(error, RankError)):
        raise error
    return int(answers[0])


def follow_on_rank(path: Path, cfg: TrainingConfig, json: bool, quiet: bool, by_hand: bool) -> int | GroupwiseError:
    """What one of the processes does. A refusal is an answer: tried again it would be the same."""
    try:
        with joined(cfg) as ranks:
            return follow_run(path, cfg, json=json, quiet=quiet, by_hand=by_hand, ranks=ranks, signals=False)
    except GroupwiseError as error:
        return error


def on_present_ranks(cfg: TrainingConfig, work: Callable[[Ranks], int]) -> int:
    """`work` among the ranks that torchrun started this process with, if it did; only the first says what went wrong.

    torchrun starts again whatever ends with another status than 0. So a run that was stopped ends with 0 there.
    """
    try:
        with joined(cfg) as ranks:
            status = work(ranks)
            return status if ranks.alone else 0
    except GroupwiseError as error:
        if getattr(error, "shared", False) and rank_here() > 0:
            return 1
        raise
