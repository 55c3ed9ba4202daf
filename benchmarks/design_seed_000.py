"""What the first description of workflow generation promises of diversity, memory, self-correction and learning.

    python benchmarks/design_seed_000.py --json                 # about half an hour on one core
    python benchmarks/design_seed_000.py --parts diversity      # a minute

All calls have the settings of `examples/grpo.xml`. diversity: the share of generations in which each of the four
targets holds, and all of them, over requirements drawn as in training. memory: the hit rate after the second of two
requirements of one family, which have the same activities and pools but other durations and demand, with a memory that
was empty before the first. learning: the mean score of the policy's likeliest designs on a fixed set of requirements
before and after calls with --learn, and on requirements that no call was about; without learning the policy never
changes, so its gain is 0. The policy is the one that ships, or an untrained one. losses: calls without the three losses
of self-correction, and with one of them alone at a high coefficient; how much that changes the loss of the policy's
samples (exploration: minus their entropy) and the score of its likeliest designs. phases: one long
call with learning, its phases and its convergence table. Intervals are 95%, Student's t over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import print_result

from groupwise.config.sections import TrainingSettings
from groupwise.designer.construction import construct
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.design_call import DesignSettings
from groupwise.designer.diversity import targets_of
from groupwise.designer.learning import likeliest
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy, load_policy
from groupwise.designer.prediction_correction import LossTerms
from groupwise.designer.problem import DesignProblem
from groupwise.designer.results.outcome import convergence_table, phases
from groupwise.designer.sampling import PolicyChooser, PolicyView
from groupwise.designer.tasks import PreparedRequirements, random_requirements, score_design
from groupwise.workflows.requirements import Requirements

Found = tuple[dict[str, Any], dict[str, Any]]
SETTINGS = DesignSettings.read(Path(__file__).parents[1] / "examples" / "grpo.xml")
FIRST = 5_000_000_000
# Student's t, two-sided 95%, by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
LOSSES = {"performance": "performance_loss_coef", "structural": "structural_loss_coef", "exploration": "entropy_coef"}
# Coefficients that make each loss matter about as much as the score does, to see what it does.
STRONG = {"performance_loss_coef": 20.0, "structural_loss_coef": 1.0, "entropy_coef": 0.1}
# The designs of an untrained policy are complex and hard to predict; the policy that ships has little entropy left.
ROOM = {"untrained": ("performance", "structural"), "pretrained": ("exploration",)}
STARTS = ("pretrained", "untrained")
# Samples of a policy for each requirement, by which its losses are measured, and the generations of a call that learns.
SAMPLES, CALL = 32, 4


def designer(policy: GraphPolicy, **rest: Any) -> Designer:
    learning = {**SETTINGS.learning, **rest.pop("learning", {})}
    given = {"settings": SETTINGS.generation, "stopping": SETTINGS.stopping, **rest}
    return Designer(policy, given.pop("memory", None), **given, **(learning if given.get("learn") else {}))


def interval(values: list[float]) -> tuple[float, float]:
    """The mean and the half-width of its interval."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return mean, float("nan")
    return mean, STUDENT.get(count - 1, 1.96) * statistics.stdev(values) / count**0.5


def diversity_part(options: argparse.Namespace) -> Found:
    policy, rows, bests = load_policy(), [], []
    targets = {**targets_of(SETTINGS.cfg.generation), "novelty": SETTINGS.cfg.generation.novelty}

    def settings(problem: DesignProblem) -> GenerationSettings:
        off = {"structural_diversity": 0.0, "temporal_diversity": 0.0, "resource_diversity": 0.0, "novelty": 0.0}
        return SETTINGS.generation(problem).model_copy(update=off if options.careless else {})

    for number in range(options.requirements):
        requirements = random_requirements(FIRST + number)
        with designer(policy, seed=number, settings=settings) as made:
            session = made.begin(requirements)
            for _ in session.search(None, SETTINGS.generations):
                pass
        bests.append(session.history[-1].best)
        for one in session.history:
            measured = {**one.diversity.distinct, "novelty": one.novelty}
            held = {f"{name} held": value >= targets[name] for name, value in measured.items() if value is not None}
            distance = {f"{name} distance": value for name, value in one.diversity.distance.items()}
            size = len(requirements.activities)
            rows.append({"activities": size, "generation": one.number, **measured, **held, **distance})
    names = ("structural", "temporal", "resource", "novelty")
    shares = {name: [row[f"{name} held"] for row in rows if f"{name} held" in row] for name in names}
    claims: dict[str, Any] = {f"{name}_held": statistics.fmean(shares[name]) for name in names}
    claims |= {f"{name}_mean": statistics.fmean(row[name] for row in rows if row[name] is not None) for name in names}
    everything = [all(row.get(f"{name} held", True) for name in names) for row in rows]
    large = [ok for row, ok in zip(rows, everything, strict=True) if row["activities"] >= 10]
    claims |= {"diversity_held": statistics.fmean(everything), "diversity_held_10_up": statistics.fmean(large)}
    claims["best_score"] = statistics.fmean(bests)
    return {**claims, "generations": len(rows), "generations_10_up": len(large)}, {"generations": rows}


def relative(requirements: Requirements, seed: int) -> Requirements:
    """Another requirement of the family: other durations, other demand."""
    rng = np.random.default_rng([seed, 17])
    activities = {
        name: one.model_copy(
            update={"duration": one.duration.model_copy(update={"mean": one.duration.mean * rng.uniform(0.7, 1.4)})}
        )
        for name, one in requirements.activities.items()
    }
    rate = requirements.demand.arrivals_per_second
    assert rate is not None
    demand = requirements.demand.model_copy(update={"arrivals_per_second": rate * rng.uniform(0.6, 0.9)})
    return requirements.model_copy(update={"activities": activities, "demand": demand, "name": "second"})


def memory_part(options: argparse.Namespace) -> Found:
    policy, rows = load_policy(), []
    for number in range(options.requirements):
        first = random_requirements(FIRST + 1000 + number)
        with open_memory(":memory:", SETTINGS.cfg.memory) as memory, designer(policy, memory=memory) as made:
            for _ in made.begin(first).search(None, 3):
                pass
            second = made.begin(relative(first, number))
            assert second.memory is not None
            hit = bool(second.memory.recall)
            for _ in second.search(None, 3):
                pass
            used = sum(one.origins.get("memory", 0) for one in second.history)
            rows.append({"hit": hit, "rate": memory.hit_rate, "candidates": used})
    return {
        "memory_hit_rate": statistics.fmean(row["rate"] for row in rows),
        "memory_hit_rate_min": min(row["rate"] for row in rows),
        "memory_second_hits": statistics.fmean(row["hit"] for row in rows),
        "memory_candidates": statistics.fmean(row["candidates"] for row in rows),
        "memory_families": len(rows),
    }, {"families": rows}


def fixed_set(first: int, count: int) -> list[PreparedRequirements]:
    return [PreparedRequirements.of(random_requirements(first + n, 12)) for n in range(count)]


def first_policy(start: str, seed: int) -> GraphPolicy:
    if start == "pretrained":
        return load_policy()
    torch.manual_seed(seed)
    return GraphPolicy().eval()


def measured(policy: GraphPolicy, requirements: list[PreparedRequirements]) -> dict[str, Any]:
    """The scores of a policy's likeliest designs, and the mean losses and entropy of its samples."""
    found: dict[str, list[float]] = {"scores": [], **{name: [] for name in LOSSES}}
    for prepared in requirements:
        found["scores"].append(likeliest(policy, prepared)[1].total)
        chooser = PolicyChooser(PolicyView(policy, prepared.problem), np.random.default_rng(0))
        plans = construct(prepared.problem, chooser, SAMPLES)
        found["exploration"].append(float(chooser.log_probabilities(plans).sum(1).mean()))
        terms = LossTerms(prepared.problem.requirements, 1.0, 1.0)
        losses = [terms.of(design, score_design(prepared, design)) for design in prepared.drafter(plans)]
        found["performance"].append(statistics.fmean(one for one, _ in losses))
        found["structural"].append(statistics.fmean(one for _, one in losses))
    return {"scores": found["scores"], **{name: statistics.fmean(found[name]) for name in LOSSES}}


def learned(policy: GraphPolicy, mine: list[PreparedRequirements], seed: int, rounds: int, **learning: Any) -> None:
    """Rounds of calls with --learn, one call for each of the requirements in every round."""
    for number in range(rounds):
        with designer(policy, learn=True, learning=learning, seed=1000 * seed + number) as made:
            for prepared in mine:
                for _ in made.begin(prepared.problem.requirements).search(None, CALL):
                    pass


def learning_part(options: argparse.Namespace) -> Found:
    mine, others = fixed_set(FIRST + 2000, options.set), fixed_set(FIRST + 3000, options.set)
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    for start in options.starts:
        runs = []
        for seed in range(options.seeds):
            policy = first_policy(start, seed)
            run = [(measured(policy, mine), measured(policy, others))]
            for number in range(options.rounds):
                learned(policy, mine, 100 * seed + number, 1, **rate)
                run.append((measured(policy, mine), measured(policy, others)))
            runs.append(run)
        raw[start] = runs
        for place, name in enumerate(("fixed", "held_out")):
            before = [statistics.fmean(run[0][place]["scores"]) for run in runs]
            gains = [statistics.fmean(run[-1][place]["scores"]) - old for run, old in zip(runs, before, strict=True)]
            gain, width = interval(gains)
            claims[f"{start}_{name}_before"] = statistics.fmean(before)
            claims |= {f"{start}_{name}_gain": gain, f"{start}_{name}_gain_95": width}
        # Without the requirements whose first likeliest design broke a rule, which alone can gain a lot.
        legal = [
            statistics.fmean(new - old for old, new in pairs if old > 0)
            for pairs in (list(zip(run[0][0]["scores"], run[-1][0]["scores"], strict=True)) for run in runs)
        ]
        gain, width = interval(legal)
        claims |= {f"{start}_legal_gain": gain, f"{start}_legal_gain_95": width}
    return claims, raw


def losses_part(options: argparse.Namespace) -> Found:
    """Calls without any of the losses and with each alone, from a policy that leaves room for it."""
    requirements = fixed_set(FIRST + 2000, options.set // 2)
    found: dict[str, list[dict[str, Any]]] = {}
    room = {start: mine for start, arms in ROOM.items() if (mine := [one for one in arms if one in options.losses])}
    for start, arms in room.items():
        for arm in ("none", *arms):
            coefficients = {c: STRONG[c] if name == arm else 0.0 for name, c in LOSSES.items()}
            runs = found[f"{start} {arm}"] = []
            for seed in range(options.seeds):
                policy = first_policy(start, seed)
                learned(policy, requirements, seed, options.rounds // 2, **coefficients)
                runs.append(measured(policy, requirements))
    claims: dict[str, Any] = {}
    for start, arms in room.items():
        for name in arms:
            pairs = list(zip(found[f"{start} {name}"], found[f"{start} none"], strict=True))
            effect, width = interval([one[name] - bare[name] for one, bare in pairs])
            claims[f"{name}_loss_without"] = statistics.fmean(bare[name] for _, bare in pairs)
            claims |= {f"{name}_loss_change": effect, f"{name}_loss_change_95": width}
            score, width = interval([statistics.fmean(a["scores"]) - statistics.fmean(b["scores"]) for a, b in pairs])
            claims |= {f"{name}_score_change": score, f"{name}_score_change_95": width}
    return claims, found


def phases_part(options: argparse.Namespace) -> Found:
    began = time.process_time()
    endless = TrainingSettings(early_stopping=False)
    with (
        open_memory(":memory:", SETTINGS.cfg.memory) as memory,
        designer(load_policy(), memory=memory, learn=True, stopping=endless) as made,
    ):
        for _ in made.begin(random_requirements(FIRST + 4001, 14)).search(None, 3):
            pass
        session = made.begin(random_requirements(FIRST + 4000, 14))
        for _ in session.run(10**9, options.long):
            pass
    history = session.history
    found = phases([one.best for one in history], SETTINGS.cfg.training.early_stopping_threshold)
    table = convergence_table(history, memory.hit_rate)
    raw = {
        "phases": [{"name": one.name, "first": one.first, "last": one.last, "gain": one.gain} for one in found],
        "convergence": {one.target.name: [one.value, one.met] for one in table},
        "best": [one.best for one in history],
        "mean": [one.mean for one in history],
        "entropy": [one.entropy for one in history],
        "policy_loss": [one.policy_loss for one in history],
        "held": [all(one.met.values()) for one in history],
    }
    claims: dict[str, Any] = {f"{one.name}_phase": [one.first, one.last, round(one.gain, 4)] for one in found}
    seconds = time.process_time() - began
    return {**claims, "generations_run": len(history), "phases_processor_s": seconds}, raw


PARTS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "diversity": diversity_part,
    "memory": memory_part,
    "learning": learning_part,
    "losses": losses_part,
    "phases": phases_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--requirements", type=int, default=20, help="requirements of diversity, families of memory")
    parser.add_argument("--set", type=int, default=8, help="requirements of the fixed set")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of calls over the fixed set")
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--careless", action="store_true", help="diversity: without targets to react to")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS), help="policies that learn")
    parser.add_argument("--learning-rate", type=float, help="of the part learning, instead of the settings' own")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--long", type=int, default=1000, help="generations of the long call")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    for name in options.parts:
        found, raw[name] = PARTS[name](options)
        claims |= found
        if not options.json:
            print(found, flush=True)
    print_result("design_seed_000", claims, seeds=list(range(options.seeds)), raw=raw)


if __name__ == "__main__":
    main()
