"""The designer product: a graph policy learns from groups of designs for the same requirements."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.designer.declaration import DESIGNER, check
from groupwise.designer.learning import Collation, DesignReward, Drafts, likeliest, scorer_of
from groupwise.designer.memory import Recalls, RememberingSource, open_memory
from groupwise.designer.policy import GraphPolicy, first_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.results.report import report_sections
from groupwise.designer.tasks import RequirementsLibrary, held_out, own_requirements
from groupwise.memory.run_start import start_from
from groupwise.rollout.backends import make_workers
from groupwise.training.batch_source import NumberedTasks
from groupwise.training.checkpoint import checkpoint_folders
from groupwise.training.session import Parts
from groupwise.types import Policy, Tensors
from groupwise.workflows.requirements import Requirements

__all__ = ["build", "check", "open_run", "prepare", "report_sections"]


def prepare(cfg: TrainingConfig) -> TrainingConfig:
    """Make groups of `generation.batch_size` designs, unless the settings give `rollout.num_generations`."""
    if cfg.rollout.num_generations != DESIGNER.defaults["num_generations"]:
        return cfg
    return cfg.replace(num_generations=cfg.generation.batch_size)


def open_run(run_dir: Path, cfg: TrainingConfig, *, learning: bool) -> TrainingConfig:
    """Take the memory of a run that has no checkpoint yet back to where the run found it."""
    path = str(cfg.task.options.get("memory", ""))
    if learning and path:
        with open_memory(path, cfg.memory) as memory:
            start_from(run_dir, memory.store, begun=any(checkpoint_folders(run_dir / "checkpoints")))
    return cfg


def build(cfg: TrainingConfig, requirements: Mapping[str, Requirements] | None = None) -> Parts:
    """The parts of a run. Without `requirements` or `task.options.requirements` it trains on synthetic ones."""
    check(cfg)
    library = RequirementsLibrary(requirements or own_requirements(cfg))
    policy = first_policy(cfg)
    workers = make_workers(cfg.rollout, scorer_of, (library.own, cfg.to_dict()["correction"]))

    def problem_of(task_id: str) -> DesignProblem:
        return library(task_id).problem

    memory = str(cfg.task.options.get("memory", ""))
    recalls = Recalls(open_memory(memory, cfg.memory), problem_of) if memory else None
    source = RememberingSource(
        cfg,
        recalls,
        # Ten million tasks for each seed, so that runs with different seeds never share one.
        tasks=NumberedTasks(lambda number: library.task(cfg.run.seed * 10_000_000 + number)),
        rollout=Drafts(cfg, policy, library, recalls),
        reward=DesignReward(library, cfg.correction, workers),
        workers=workers,
        collate=Collation(problem_of),
        reference=_frozen(policy) if cfg.policy.use_reference_model else None,
    )
    return Parts(policy, source, greedy_evaluation(cfg, library), notes=_notes(cfg, library))


def _notes(cfg: TrainingConfig, library: RequirementsLibrary) -> tuple[str, ...]:
    # What the run does, and which settings of its sections have no part in it.
    about = f"{len(library.own)} requirements of your own" if library.own else "synthetic requirements"
    does = f"This run trains the designer's policy on {about}, {cfg.rollout.num_generations} designs for each at a time"
    idle = "the selection in [generation] (elites, tournaments, edits, diversity, workers) and the weights in [scoring]"
    memory = "" if cfg.task.options.get("memory") else "; [memory] needs task.options.memory"
    return (
        f"{does}. To design with these settings: groupwise design --config. Only there {idle} have an effect{memory}.",
    )


def _frozen(policy: GraphPolicy) -> Callable[[Tensors], Tensor]:
    # The log-probabilities of the policy as it is now: the reference of the KL term.
    reference = copy.deepcopy(policy).eval()

    def logp(inputs: Tensors) -> Tensor:
        with torch.no_grad():
            return reference.evaluate(inputs).logp

    return logp


def greedy_evaluation(cfg: TrainingConfig, library: RequirementsLibrary) -> Callable[[Policy], dict[str, float]]:
    """Score the likeliest design for each of the held-out requirements (or the user's own, where they are given)."""
    tasks = held_out(cfg, library)

    def evaluation(policy: Policy) -> dict[str, float]:
        totals = [likeliest(cast(GraphPolicy, policy), library(task.id), task.seed)[1].total for task in tasks]
        return {
            "eval/reward_mean": float(np.mean(totals)),
            "eval/reward_std": float(np.std(totals)),
            "eval/reward_min": float(np.min(totals)),
            "eval/attempts": float(len(totals)),
        }

    return evaluation
