"""Run a generation of workflow designs stage by stage and log what each stage did. Takes seconds.

The designer does all of this itself (`Designer.design`).

    python examples/workflow_monitoring.py [--requirements examples/workflows/loan.yaml] [--generations 3]
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy, load_policy
from groupwise.designer.results.outcome import GenerationMetrics
from groupwise.errors import ConfigError
from groupwise.workflows import read_requirements

LOAN = Path(__file__).parent / "workflows" / "loan.yaml"
logger = logging.getLogger("designer")


def start() -> GraphPolicy:
    """Return the policy that ships, or an untrained one."""
    try:
        return load_policy()
    except ConfigError:
        torch.manual_seed(0)
        return GraphPolicy().eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requirements", type=Path, default=LOAN)
    parser.add_argument("--generations", type=int, default=3)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    with Designer(start(), learn=True) as designer:
        grpo = designer.begin(read_requirements(options.requirements), options.requirements.parent)
        evaluator, policy = grpo.evaluator, grpo.policy
        assert policy is not None
        for _ in range(options.generations):
            metrics = GenerationMetrics()
            metrics.start()

            # Generate candidates
            candidates = grpo.generate()

            # Evaluate and score
            for candidate in candidates:
                result = evaluator.evaluate(candidate)
                metrics.record(result)

            # Update policy
            update = policy.update(candidates, metrics)
            metrics.record(update)
            grpo.select(metrics)

            # Log performance
            logger.info("Generation metrics: %s", metrics)
        best = grpo.outcome().best
    logger.info("Best design: a %s from generation %d, score %.4f.", best.origin, best.generation, best.total)


if __name__ == "__main__":
    main()
