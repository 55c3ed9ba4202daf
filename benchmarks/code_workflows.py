"""Programs for held-out problems: chance, tree search, GRPO alone, search and GRPO taking turns, and a placebo.

    python benchmarks/code_workflows.py --folder DIR --jobs 2 --json

Problems of three families made here and one of reasoning-gym, three levels each, with wordings that training never
shows. An evaluation is one program run on one problem; equal programs cost one for every arm. Arms:

    random    legal programs drawn from the grammar
    mcts      tree search with the grammar's own prior, with the settings that were tuned for it
    grpo      programs drawn from a policy trained by GRPO alone, with as many evaluations in training as `loop` had
    loop      tree search with the policy of `loop` as prior: rounds of search, then GRPO and what was found, in turn
    placebo   the same as `loop`, trained with scores shuffled inside every group and every tree

Beside them `grpo+search` and `loop policy` tell which part of a difference is the training's and which the search's.
Every learned arm begins with the same steps of warm start: random legal programs, which teach the form alone. Settings
were tuned with seeds from 100 on and the validation split; seeds 0 to 2 and the test split are reported. Jobs that are
done are kept in the folder, trainings that were interrupted go on from their checkpoint.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from record import kept, print_result

from groupwise.config import load_config
from groupwise.language.engine import Engine, SamplingParams
from groupwise.programs.language.evaluation import ProgramEvaluator
from groupwise.programs.language.grammar import random_program
from groupwise.programs.language.program import CodeProblem, Split
from groupwise.programs.learning.model import load_policy, whole_text
from groupwise.programs.learning.prior import SEARCH, LanguagePrior, together
from groupwise.programs.learning.product import build
from groupwise.programs.learning.rollout import held_out, prompt_ids
from groupwise.programs.problems import FAMILIES
from groupwise.programs.search.program_search import Prior, Uniform, explore
from groupwise.programs.search.search_settings import SearchSettings
from groupwise.training.folder import create_run, inspect_run, read_config
from groupwise.training.session import execute
from groupwise.training.token_attempts import answer_text, sampling_seed

SETTINGS = Path(__file__).parent / "code_workflows.toml"
MARKS = (1, 4, 16, 64, 256)
MOST = {"random": 256, "mcts": 256, "grpo": 64, "loop": 64, "placebo": 16, "grpo+search": 16, "loop policy": 16}
REDRAWN = 4
LEVELS = 3
Found = list[int | None]
"""Problem by problem, at which evaluation it was solved."""


def problems_of(seed: int, count: int, split: Split = "test") -> list[CodeProblem]:
    """The held-out problems that a seed is judged on: as many of every family and level."""
    return held_out(tuple(FAMILIES), LEVELS, count * LEVELS * len(FAMILIES), 10_000 * (seed + 1), split)


def by_chance(problem: CodeProblem, budget: int, seed: int) -> int | None:
    rng = random.Random(f"{problem.id} {seed}")
    return first_solved(problem, (random_program(problem, rng) for _ in range(REDRAWN * budget)), budget)


def by_search(
    problem: CodeProblem, budget: int, seed: int, prior: Prior, settings: SearchSettings = SEARCH
) -> int | None:
    tree = explore(problem, prior, budget, settings=settings, seed=seed)
    return next((record.number for record in tree.records if record.judged.solved), None)


def first_solved(problem: CodeProblem, programs: Iterator[str], budget: int) -> int | None:
    """At which evaluation a stream of programs solves a problem; a program that was seen before costs nothing."""
    evaluate, seen = ProgramEvaluator(problem), set()
    for text in programs:
        found = evaluate(text)
        if (key := found.key or text) in seen:
            continue
        seen.add(key)
        if len(seen) > budget:
            return None
        if found.solved:
            return len(seen)
    return None


def by_policy(run: Path, problems: Sequence[CodeProblem], budget: int, seed: int) -> Found:
    policy, language = load_policy(run)
    limit = read_config(run).sampling.max_new_tokens
    with Engine(policy.model, language.tokenizer, slots=256) as engine:
        found: Found = []
        for number, problem in enumerate(problems):
            prompt = prompt_ids(language.tokenizer, problem, engine.max_length)
            requests = [(prompt, sampling_seed(seed, number, member)) for member in range(REDRAWN * budget)]
            drawn = engine.generate(requests, SamplingParams(max_new_tokens=limit))
            texts = (whole_text(problem, answer_text(language.tokenizer, sampled)) for sampled in drawn)
            found.append(first_solved(problem, texts, budget))
    return found


def trained(arm: str, seed: int, folder: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Train an arm, or go on with its training; its course, and how many evaluations and seconds it took."""
    path, began = folder / f"run-{arm}-{seed}", time.process_time()
    if not path.is_dir():
        fixed = [f"run.seed={seed}", f"run.output_dir={folder}", f"run.run_name={path.name}"]
        create_run(load_config(SETTINGS, [*fixed, *ARM_SETTINGS[arm], *changes]))
    if inspect_run(path).state != "finished":
        for _ in execute(path, build):
            pass
    return {"run": str(path.resolve()), "cpu_seconds": time.process_time() - began, **course(path)}


GRPO_ALONE = ["task.options.search_every=0", "rollout.tasks_per_step=32", "optim.learning_rate=3e-4"]
ARM_SETTINGS: dict[str, list[str]] = {
    "warm": ["task.options.search_every=0", "optim.lr_scheduler_type=constant", "run.eval_steps=0"],
    "loop": [],
    "placebo": ["task.options.placebo=true"],
    "grpo": [*GRPO_ALONE, "loss.beta=0.02", "policy.use_reference_model=true", "optim.learning_rate=5e-4"],
    "tried": GRPO_ALONE,
}


def course(path: Path) -> dict[str, Any]:
    """pass@1 of the policy by evaluation, and the evaluations that training took."""
    from groupwise.reporting.history import History

    history = History.read(path)
    steps, rates = history.series("eval/pass@1")
    return {
        "steps": list(steps), "pass1": list(rates), "evaluations": history.last("programs/evaluations"),
        "pass16": history.last("eval/pass@16"), "format": history.last("eval/format"),
        "search_solved": list(history.series("search/solved_share")[1]),
    }  # fmt: skip


def warmed(seed: int, folder: str, steps: int) -> list[str]:
    """The settings that make an arm begin with the seed's warm start, which all arms share."""
    changes = [f"task.options.warm_steps={steps}", f"training.num_episodes={steps}"]
    run = kept(folder, f"train-warm-{seed}", partial(trained, "warm", seed, Path(folder), changes))
    return [f"task.options.start={run['run']}"]


def grpo_steps(changes: Sequence[str], evaluations: float) -> list[str]:
    """As many steps of GRPO alone as the evaluations last."""
    rollout = load_config(SETTINGS, [*ARM_SETTINGS["grpo"], *changes]).rollout
    steps = max(1, int(evaluations // (rollout.tasks_per_step * rollout.num_generations)))
    return [f"training.num_episodes={steps}", f"run.eval_steps={max(1, steps // 4)}"]


def learned(seed: int, folder: str, count: int, warm: int, changes: Sequence[str]) -> dict[str, Any]:
    """Search and GRPO in turn, GRPO alone with the same evaluations, and the placebo: trained and judged."""
    place, problems = Path(folder), problems_of(seed, count)
    changes = [*warmed(seed, folder, warm), *changes]
    loop = kept(folder, f"train-loop-{seed}", partial(trained, "loop", seed, place, changes))
    steps = grpo_steps(changes, loop["evaluations"])
    grpo = kept(folder, f"train-grpo-{seed}", partial(trained, "grpo", seed, place, [*changes, *steps]))
    runs = {"loop": loop, "grpo": grpo}
    found = {
        "loop": judged("loop", folder, seed, partial(searched, Path(loop["run"]), problems, seed)),
        "grpo": judged("grpo", folder, seed, partial(sampled, Path(grpo["run"]), problems, seed)),
    }
    runs["placebo"] = kept(folder, f"train-placebo-{seed}", partial(trained, "placebo", seed, place, changes))
    return {
        **found,
        "placebo": judged("placebo", folder, seed, partial(searched, Path(runs["placebo"]["run"]), problems, seed)),
        "grpo+search": judged("grpo+search", folder, seed, partial(searched, Path(grpo["run"]), problems, seed)),
        "loop policy": judged("loop policy", folder, seed, partial(sampled, Path(loop["run"]), problems, seed)),
        "training": runs,
    }


def unlearned(seed: int, folder: str, count: int, warm: int, changes: Sequence[str]) -> dict[str, Any]:
    problems = problems_of(seed, count)

    def chance(budget: int) -> Found:
        return [by_chance(problem, budget, seed) for problem in problems]

    def uniform(budget: int) -> Found:
        return [by_search(problem, budget, seed, Uniform(), SearchSettings()) for problem in problems]

    return {
        "random": judged("random", folder, seed, chance),
        "mcts": judged("mcts", folder, seed, uniform),
        "problems": [{"id": p.id, "family": p.family, "level": p.difficulty} for p in problems],
    }


def searched(run: Path, problems: Sequence[CodeProblem], seed: int, budget: int) -> Found:
    policy, language = load_policy(run)
    prior = LanguagePrior(policy, language.tokenizer)
    return together(prior, [partial(by_search, problem, budget, seed) for problem in problems])


def sampled(run: Path, problems: Sequence[CodeProblem], seed: int, budget: int) -> Found:
    return by_policy(run, problems, budget, seed)


def judged(arm: str, folder: str, seed: int, find: Callable[[int], Found]) -> Found:
    def make() -> dict[str, Any]:
        import torch

        torch.set_num_threads(1)
        began = time.process_time()
        return {"solved_at": find(MOST[arm]), "cpu_seconds": time.process_time() - began}

    found: Found = kept(folder, f"test-{arm.replace(' ', '-')}-{seed}", make)["solved_at"]
    return found


TRIED: dict[str, list[str]] = {
    "plain": [],
    "slower": ["optim.learning_rate=1e-4"],
    "faster": ["optim.learning_rate=1e-3"],
    "more problems": ["rollout.tasks_per_step=64", "rollout.num_generations=4"],
    "larger groups": ["rollout.tasks_per_step=16", "rollout.num_generations=16"],
    "small steps": ["rollout.tasks_per_step=8"],
    "entropy": ["loss.entropy_coef=0.01"],
    "reference": ["loss.beta=0.02", "policy.use_reference_model=true"],
    "partial credit": ["task.options.partial_credit=0.3"],
    "near the reference": ["loss.beta=0.05", "policy.use_reference_model=true"],
    "reference, entropy": ["loss.beta=0.02", "policy.use_reference_model=true", "loss.entropy_coef=0.01"],
    "reference, faster": ["loss.beta=0.02", "policy.use_reference_model=true", "optim.learning_rate=5e-4"],
}
TUNING, TUNING_EVALUATIONS = (100, 101), 41_500


def tried(name: str, folder: str, count: int, warm: int) -> list[float]:
    """The share of validation problems that GRPO alone solves within 16 draws, seed by seed, with settings to try."""

    def make(seed: int) -> dict[str, Any]:
        changes = [*warmed(seed, folder, warm), *TRIED[name]]
        changes += [*grpo_steps(changes, TUNING_EVALUATIONS), "run.eval_steps=0"]
        place = Path(folder, name.replace(" ", "-"))
        run = Path(trained("tried", seed, place, changes)["run"])
        found = by_policy(run, problems_of(seed, count, "valid"), 16, seed)
        return {"share": float(np.mean([at is not None for at in found]))}

    return [float(kept(folder, f"tried-{name}-{seed}", partial(make, seed))["share"]) for seed in TUNING]


JOBS = (unlearned, learned)


def shares(found: np.ndarray, arm: str) -> dict[str, float]:
    """The share of problems solved within so many evaluations."""
    return {str(mark): float((found <= mark).mean()) for mark in MARKS if mark <= MOST[arm]}


def table(results: Sequence[dict[str, Any]], arm: str) -> np.ndarray:
    """[seeds, problems]: at which evaluation a problem was solved, infinity where it was not."""
    rows = [[np.inf if at is None else at for at in result[arm]] for result in results]
    return np.array(rows, float)


def bootstrapped(statistic: Callable[..., float], *tables: np.ndarray, repetitions: int = 2000) -> list[float]:
    """A 95% interval over seeds and problems, both drawn anew; the arms keep their pairs."""
    rng = np.random.default_rng(0)
    seeds, problems = tables[0].shape
    values = []
    for _ in range(repetitions):
        rows, columns = rng.integers(seeds, size=seeds), rng.integers(problems, size=(seeds, problems))
        values.append(statistic(*(one[rows[:, None], columns] for one in tables)))
    return [float(edge) for edge in np.quantile(values, (0.025, 0.975))]


def points(ours: np.ndarray, theirs: np.ndarray, mark: int = 16) -> float:
    return 100 * float((ours <= mark).mean() - (theirs <= mark).mean())


def saved(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How many times as many evaluations they need for the share that both reach within what they were given."""
    limits = MOST["loop"], MOST["mcts"]
    share = min((ours <= limits[0]).mean(), (theirs <= limits[1]).mean())
    return needed(theirs, share) / needed(ours, share)


def needed(found: np.ndarray, share: float) -> float:
    """The least number of evaluations that solves a share of the problems."""
    ordered = np.sort(found, axis=None)
    return float(ordered[max(0, round(share * ordered.size) - 1)])


def summary(results: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    arms = {arm: table(results, arm) for arm in MOST}
    loop, mcts, grpo = arms["loop"], arms["mcts"], arms["grpo"]
    training = {arm: [result["training"][arm] for result in results] for arm in ("loop", "grpo", "placebo")}
    rounds = {arm: np.mean([one["pass1"] for one in runs], 0).tolist() for arm, runs in training.items()}
    claims = {
        "gain_over_mcts": points(loop, mcts),
        "gain_over_grpo": points(loop, grpo),
        "fewer_evaluations_than_mcts": saved(loop, mcts),
        "pass1_by_round": rounds["loop"],
        "placebo_gain_over_mcts": points(arms["placebo"], mcts),
        "solved_at_16": {arm: shares(found, arm)["16"] for arm, found in arms.items()},
    }
    intervals = {
        "gain_over_mcts": bootstrapped(points, loop, mcts),
        "gain_over_grpo": bootstrapped(points, loop, grpo),
        "fewer_evaluations_than_mcts": bootstrapped(saved, loop, mcts),
        "placebo_gain_over_mcts": bootstrapped(points, arms["placebo"], mcts),
    }
    kinds = results[0]["problems"]
    raw = {
        "shares": {arm: shares(found, arm) for arm, found in arms.items()},
        "by_seed_at_16": {arm: (found <= 16).mean(1).tolist() for arm, found in arms.items()},
        "by_family_at_16": {arm: by_kind(found, kinds, "family") for arm, found in arms.items()},
        "by_level_at_16": {arm: by_kind(found, kinds, "level") for arm, found in arms.items()},
        "pass1": rounds,
        "training": training,
        "problems_per_seed": len(kinds),
    }
    return claims, intervals, raw


def by_kind(found: np.ndarray, kinds: Sequence[dict[str, Any]], what: str) -> dict[str, float]:
    names = np.array([str(one[what]) for one in kinds])
    return {name: float((found[:, names == name] <= 16).mean()) for name in sorted(set(names))}


def run_all(seeds: Sequence[int], jobs: int, *rest: Any) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {(job, seed): pool.submit(job, seed, *rest) for job in JOBS for seed in seeds}
        found = {key: future.result() for key, future in futures.items()}
    return [_joined([found[job, seed] for job in JOBS]) for seed in seeds]


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    training = {arm: one for part in parts for arm, one in part.get("training", {}).items()}
    return {**{name: value for part in parts for name, value in part.items()}, "training": training}


WARM, SHORT_WARM = 120, 30
SHORT = ["training.num_episodes=40", "task.options.search_problems=20", "run.eval_steps=20"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--problems", type=int, default=10, help="of each family and level, for every seed")
    parser.add_argument("--folder", default="code-workflows", help="where jobs and runs are kept")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--short", action="store_true", help="everything, in a few minutes, proving nothing")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], help="settings to change")
    parser.add_argument("--tune", action="store_true", help="try settings of GRPO alone on the validation split")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    changes = [*(SHORT if asked.short else []), *asked.changes]
    count = 2 if asked.short else asked.problems
    Path(asked.folder).mkdir(parents=True, exist_ok=True)
    if asked.tune:
        found = {name: tried(name, asked.folder, count, WARM) for name in TRIED}
        print_result("code_workflows_tuning", {"solved_at_16": found}, seeds=TUNING)
        return
    results = run_all(asked.seeds, asked.jobs, asked.folder, count, SHORT_WARM if asked.short else WARM, changes)
    claims, intervals, raw = summary(results)
    if asked.json:
        print_result("code_workflows", claims, seeds=asked.seeds, intervals=intervals, raw=raw)
        return
    for arm, found in raw["shares"].items():
        print(f"{arm:12}", "  ".join(f"{mark}: {share:.0%}" for mark, share in found.items()))
    for name, edges in intervals.items():
        print(f"{name}: {claims[name]:.1f} ({edges[0]:.1f} to {edges[1]:.1f})")


if __name__ == "__main__":
    sys.exit(main())
