"""What the designer that ships makes: whether a thousand designs are sound, their files valid, and how they differ.

    python benchmarks/workflow_designs.py --json                  # about two minutes

Generations of 32 for unseen requirements of 10, 30 and 60 activities. Every design is checked for soundness and for
the rules of its requirements, written as YAWL 4.0 and BPMN 2.0, held against the published schemas in `../shared/data`,
read again and compared. Diversity is what `designer.diversity` says it is, by generation, beside its targets.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from record import print_result
from rich.progress import track
from workflow_files import TRIALS

from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.diversity import FAMILIES, diversity_of, signature, targets_of
from groupwise.designer.generations import Candidate, Generations
from groupwise.designer.policy import PRETRAINED, load_policy
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.workflows.block_form import lift
from groupwise.workflows.document import document_of
from groupwise.workflows.files.formats import formats
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_design

FIRST = 4_000_000_000
SIZES = (10, 30, 60)
FILES = ("yawl", "bpmn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--designs", type=int, default=1000)
    parser.add_argument("--policy", default=PRETRAINED)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    policy = load_policy(options.policy)
    known = formats()
    found: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    for number in track(range(-(-options.designs // 32)), "generations", disable=options.json):
        prepared = PreparedRequirements.of(random_requirements(FIRST + number, SIZES[number % len(SIZES)]))
        made = Generations(policy, prepared, seed=number).propose(min(32, options.designs - len(found)))
        found += [looked_at(candidate, prepared, known) for candidate in made]
        generations.append(spread(made, prepared))
    print_result("workflow_designs", claims_of(found, generations), seeds=[FIRST], raw={"generations": generations})


def looked_at(candidate: Candidate, prepared: PreparedRequirements, known: dict[str, Any]) -> dict[str, Any]:
    """Whether a design is sound and keeps its rules, and by format whether its file is valid and comes back."""
    requirements = prepared.problem.requirements
    document = document_of(candidate.design, requirements)
    result: dict[str, Any] = {
        "sound": check_design(candidate.design).sound,
        "keeps rules": not broken_rules(candidate.design, requirements),
    }
    for name in FILES:
        content = known[name].write(document)
        result[f"{name} valid"] = not TRIALS[name].mistakes(content)
        result[f"{name} kept"] = lift(known[name].read(content)) == lift(document)
    return result


def spread(made: list[Candidate], prepared: PreparedRequirements) -> dict[str, Any]:
    """How different the designs of one generation are. None was proposed before, so all of them are new."""
    choices, free = (np.stack([getattr(one, name) for one in made]) for name in ("choices", "free"))
    found = diversity_of(prepared.problem, [signature(one.design, prepared.problem) for one in made], choices, free)
    return {
        "activities": len(prepared.problem.names),
        "designs": len(made),
        **{f"{family} diversity": 1.0 if (one := found.distinct[family]) is None else one for family in FAMILIES},
        **{f"{family} distance": found.distance[family] for family in FAMILIES},
        "novelty": len({candidate.key for candidate in made}) / len(made),
    }


def claims_of(found: list[dict[str, Any]], generations: list[dict[str, Any]]) -> dict[str, Any]:
    shares = {name: statistics.fmean(one[name] for one in found) for name in found[0]}
    means = {
        name: statistics.fmean(one[name] for one in generations) for name in generations[0] if name != "activities"
    }
    met = {
        f"{family} target met": statistics.fmean(one[f"{family} diversity"] >= target for one in generations)
        for family, target in targets_of(GenerationSettings()).items()
    }
    novel = statistics.fmean(one["novelty"] >= GenerationSettings().novelty for one in generations)
    return {"designs_made": len(found), **shares, **means, **met, "novelty target met": novel}


if __name__ == "__main__":
    main()
