"""Designs for unseen requirements: a policy trained once, beside searches that begin anew for each.

    python benchmarks/workflow_design.py --json --folder runs/design --jobs 2      # about 80 minutes on one core
    python benchmarks/workflow_design.py --json --quick                            # a minute
    python benchmarks/workflow_design.py --tune --jobs 2                           # chooses the rivals' settings
    python benchmarks/workflow_design.py --json --folder runs/design --placebo placebo.safetensors --figure out.svg

`design_sets` has the requirements, `design_rivals` the rivals and what counts as an evaluation, `design_statistics`
the measures. For every arm and budget: the gap to the best score anybody found for that requirement, relative to it,
and the hypervolume of cycle time, cost and control-flow complexity between an ideal point (what no design goes below,
and no split at all) and a reference point (1.1 times the median of 64 designs of random keys that keep up), as a share
of that box. Interquartile means over requirements and seeds, with stratified bootstrap intervals over seeds.

Claims: `fewer_evaluations` is 1,024 over the evaluations after which the policy has the gap of the best rival at 1,024
(0: never), on requirements drawn like those of training, by size too; `_shifted`, `_derived` (and those of ten
activities or more among them) and `_hypervolume` likewise, `placebo_…` for the policy named by --placebo.
`break_even_requirements` is after how many requirements the evaluations of training are saved.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import math
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from design_rivals import ARMS, GRIDS, NEEDS, SETTINGS, Meter
from design_sets import KINDS, SIZES, Held, named_sets
from design_statistics import BUDGETS, Table, band, break_even, fewer_evaluations, hypervolume, relative_gap
from record import kept, print_result
from rich.progress import track

from groupwise.designer.heuristics import HEURISTICS, heuristic_keys
from groupwise.designer.policy import PRETRAINED, facts_of, load_policy
from groupwise.errors import ConfigError
from groupwise.reporting.statistics import Interval

TUNING_SEED = 800_000
TRAINED = ("policy", "placebo")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One requirement, one arm, one seed; `policy` is the file of a trained arm."""

    held: Held
    arm: str
    seed: int
    settings: Mapping[str, Any]
    folder: str | None = None
    policy: str = ""

    @property
    def name(self) -> str:
        """What its result is kept under: other weights or settings are another job."""
        mark = fingerprint(self.policy) if self.policy else zlib.crc32(repr(sorted(self.settings.items())).encode())
        return f"{self.held.kind}-{self.held.name}-{self.arm}-{mark:08x}-{self.seed}".replace(" ", "_")


def run(job: Job) -> dict[str, Any]:
    return kept(job.folder, job.name, lambda: measure(job))


def measure(job: Job) -> dict[str, Any]:
    ideal, reference = box(job.held)
    meter = Meter(job.held.requirements, BUDGETS[-1])
    wall, cpu = time.perf_counter(), time.process_time()
    if job.arm in TRAINED:
        meter.of_scored(searched(job))
    else:
        ARMS[job.arm](meter, job.seed, **job.settings)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    scores = np.maximum.accumulate([one.score for one in meter.seen])
    points = np.array([one.objectives for one in meter.seen])
    ends = [min(budget, len(scores)) for budget in BUDGETS]
    return {
        "requirement": job.held.name, "kind": job.held.kind, "size": job.held.size, "arm": job.arm, "seed": job.seed,
        "scores": [float(scores[end - 1]) for end in ends],
        "volumes": [hypervolume(points[:end], ideal, reference) for end in ends],
        "evaluations": len(meter.seen), "proposed": meter.proposed, "wall": wall, "cpu": cpu,
    }  # fmt: skip


def searched(job: Job) -> Iterator[tuple[Any, Any]]:
    """The designs of a trained policy in the order it evaluates them, with their scores."""
    from groupwise.config.sections import TrainingSettings
    from groupwise.designer.declaration import GenerationSettings
    from groupwise.designer.pipeline import Designer

    # Small generations, because the next one learns from the last; never stopping early, because every arm has the same
    # budget; and the simulation seed of the other arms.
    designer = Designer(
        policy_of(job.policy), None, GenerationSettings(batch_size=8), stopping=TrainingSettings(), seed=job.seed
    )
    session = designer.begin(job.held.requirements)
    session.evaluator.seed = 0
    for metrics in session.run(BUDGETS[-1]):
        yield from ((result.candidate.design, result.score) for result in metrics.results)


@lru_cache
def policy_of(path: str) -> Any:
    import torch

    torch.set_num_threads(1)
    return load_policy(path)


@lru_cache
def fingerprint(path: str) -> int:
    """A number that differs where weights do."""
    weights = policy_of(path).state_dict()
    return zlib.crc32(b"".join(weights[name].numpy().tobytes() for name in sorted(weights)))


def box(held: Held) -> tuple[list[float], list[float]]:
    """The ideal and the reference point of the hypervolume."""
    meter = Meter(held.requirements, 64)
    rows = np.random.default_rng(0).random((64, meter.construction.genes))
    finite = [one.objectives for one in meter.of_keys(rows) if math.isfinite(one.objectives[0])]
    best = meter.scorer.references
    ideal = np.array([best.cycle_time, best.cost, 0.0])
    middle = np.median(finite, axis=0) if finite else 10 * ideal
    return ideal.tolist(), np.maximum(1.1 * middle, 1.5 * ideal + 1e-9).tolist()


# From rows to claims.


class Campaign:
    """Every row, as tables [seeds, requirements, budgets] of shortfalls."""

    def __init__(self, rows: Iterable[Row], seeds: Sequence[int]) -> None:
        self.seeds = list(seeds)
        self.rows = {(row["requirement"], row["arm"], row["seed"]): row for row in rows}
        self.arms = list(dict.fromkeys(arm for _, arm, _ in self.rows))
        self.held = {row["requirement"]: (row["kind"], row["size"]) for row in self.rows.values()}
        self.best = {name: self._best(name) for name in self.held}

    def _best(self, name: str) -> float:
        return max(row["scores"][-1] for (requirement, _, _), row in self.rows.items() if requirement == name)

    def names(self, kind: str, size: int | None = None) -> list[str]:
        return [name for name, held in self.held.items() if held[0] == kind and size in (None, held[1])]

    def gaps(self, arm: str, names: Sequence[str]) -> Table:
        scores = np.array([[self.rows[name, arm, seed]["scores"] for name in names] for seed in self.seeds])
        return relative_gap(scores, np.array([self.best[name] for name in names]))

    def missing_volume(self, arm: str, names: Sequence[str]) -> Table:
        return 1 - np.array([[self.rows[name, arm, seed]["volumes"] for name in names] for seed in self.seeds])

    def fewer(self, arm: str, names: Sequence[str], measure: str = "gaps") -> tuple[str, Interval]:
        tables = {one: getattr(self, measure)(one, names) for one in self.arms}
        return fewer_evaluations(tables[arm], {one: tables[one] for one in self.arms if one not in TRAINED})

    def curves(self, kind: str) -> dict[str, dict[str, list[list[float | None]]]]:
        """By arm, for each budget: value, low and high of gap and hypervolume."""
        found = {}
        for arm in self.arms:
            gap, missing = band(self.gaps(arm, self.names(kind))), band(self.missing_volume(arm, self.names(kind)))
            volume = [Interval(1 - one.value, 1 - one.high, 1 - one.low) for one in missing]
            found[arm] = {"gap": [one.as_list() for one in gap], "hypervolume": [one.as_list() for one in volume]}
        return found

    def seconds(self) -> dict[str, dict[str, float]]:
        """By arm, for a requirement: mean wall and processor seconds, and evaluations."""
        return {
            arm: {
                what: float(np.mean([row[what] for (_, one, _), row in self.rows.items() if one == arm]))
                for what in ("wall", "cpu", "evaluations", "proposed")
            }
            for arm in self.arms
        }


def claims_of(campaign: Campaign, training_evaluations: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claims, and the intervals of those that have one."""
    claims: dict[str, Any] = {}
    intervals: dict[str, Any] = {}

    def claim(name: str, arm: str, names: Sequence[str], measure: str = "gaps") -> None:
        if names and set(campaign.arms) - set(TRAINED):
            rival, found = campaign.fewer(arm, names, measure)
            claims[name] = found.value
            claims[f"{name}_best_rival"] = rival
            intervals[name] = found.as_list()[1:]

    for arm in [arm for arm in TRAINED if arm in campaign.arms]:
        prefix = "" if arm == "policy" else "placebo_"
        for kind in KINDS:
            suffix = "" if kind == "in" else f"_{kind}"
            claim(f"{prefix}fewer_evaluations{suffix}", arm, campaign.names(kind))
            claim(f"{prefix}fewer_evaluations_hypervolume{suffix}", arm, campaign.names(kind), "missing_volume")
        larger = [name for name in campaign.names("derived") if campaign.held[name][1] >= SIZES[0]]
        claim(f"{prefix}fewer_evaluations_derived_10_up", arm, larger)
        for size in sorted({size for kind, size in campaign.held.values() if kind == "in"}):
            claim(f"{prefix}fewer_evaluations_{size}", arm, campaign.names("in", size))
    if training_evaluations is not None and "fewer_evaluations" in claims:
        claims["training_evaluations"] = int(training_evaluations)
        paid_back = break_even(int(training_evaluations), claims["fewer_evaluations"])
        claims["break_even_requirements"] = paid_back if math.isfinite(paid_back) else None
    return claims, intervals


# Settings of the rivals.


def tune(options: argparse.Namespace, missing: Mapping[str, str]) -> dict[str, Any]:
    """For each rival every setting of its grid, by the mean gap at the last budget; and the portfolio of heuristics."""
    held = named_sets(options.sizes, 2, TUNING_SEED, ["in"])["in"]
    found: dict[str, Any] = {"portfolio": portfolio(held)}
    for arm in [arm for arm in options.arms if arm in GRIDS and arm not in missing]:
        tried = [{**one, **({"first": found["portfolio"]} if "first" in one else {})} for one in GRIDS[arm]]
        jobs = [Job(one, arm, 0, settings) for settings in tried for one in held]
        scores = np.array([row["scores"][-1] for row in executed(jobs, options.jobs, arm)])
        table = scores.reshape(len(tried), len(held))
        gaps = 1 - (table / table.max(0)).mean(1)
        found[arm] = [{**tried[n], "gap": round(float(gaps[n]), 5)} for n in np.argsort(gaps, kind="stable").tolist()]
        print(arm, found[arm][0], file=sys.stderr, flush=True)
    return found


def portfolio(held: Sequence[Held], most: int = 8) -> list[int]:
    """The heuristics of which, one after the other, each adds most to the best that those before it found."""
    table = np.array([_heuristic_scores(one) for one in held])
    chosen: list[int] = []
    best = np.zeros(len(held))
    while len(chosen) < most:
        better = np.maximum(table, best[:, None]).mean(0)
        if better.max() <= best.mean():
            break
        chosen.append(int(better.argmax()))
        best = np.maximum(best, table[:, chosen[-1]])
    return chosen


def _heuristic_scores(held: Held) -> Table:
    """The score of every heuristic, relative to the best of them."""
    meter = Meter(held.requirements, len(HEURISTICS))
    rows = np.array([heuristic_keys(meter.construction.problem, one) for one in HEURISTICS])
    scores = np.array([one.score for one in meter.of_keys(rows)])
    return scores / scores.max()


def executed(jobs: Sequence[Job], processes: int, what: str) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(processes) as pool:
        return list(track(pool.map(run, jobs), what, len(jobs), disable=not sys.stderr.isatty()))


# The picture.

TITLES = {"in": "as in training", "shifted": "shifted demand", "derived": "derived from files"}
NAMES = {
    "policy": "trained policy", "placebo": "placebo policy", "nsga2": "NSGA-II", "nsga2_seeded": "NSGA-II, seeded",
    "ga": "GA", "cma_es": "CMA-ES", "random": "random", "heuristics": "heuristics", "sampler": "untrained sampler",
}  # fmt: skip
FLOOR = 0.0007  # what is closer to the best known is drawn here


def draw(curves: Mapping[str, Mapping[str, Any]], width: float) -> Any:
    """Gaps over evaluations, a panel for each set, a line with its interval for each arm."""
    from matplotlib.figure import Figure

    from groupwise.reporting.canvas import INK, MANY

    arms = [arm for arm in NAMES if any(arm in found for found in curves.values())]
    colours = {arm: INK if arm == "policy" else MANY[number % len(MANY)] for number, arm in enumerate(arms)}
    figure = Figure(figsize=(width, 0.42 * width))
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (kind, found) in zip(panels, curves.items(), strict=True):
        for arm in [arm for arm in arms if arm in found]:
            gaps = np.maximum(np.array(found[arm]["gap"], np.float64).T, FLOOR)
            _draw_arm(axes, arm, gaps, colours[arm])
        _finish(axes, TITLES[kind])
    panels[0].set_ylabel("gap to the best known score")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=5, frameon=False, fontsize=8, columnspacing=1.6, handlelength=1.8)
    figure.subplots_adjust(left=0.075, right=0.975, top=0.93, bottom=0.26, wspace=0.14)
    return figure


def _draw_arm(axes: Any, arm: str, gaps: Table, colour: str) -> None:
    strong = arm == "policy"
    dash: Any = (0, (4, 2)) if arm == "placebo" else "-"
    axes.fill_between(BUDGETS, gaps[1], gaps[2], color=colour, alpha=0.13, linewidth=0)
    axes.plot(
        BUDGETS,
        gaps[0],
        linestyle=dash,
        color=colour,
        linewidth=2.6 if strong else 1.3,
        label=NAMES[arm],
        zorder=3 if strong else 2,
    )


def _finish(axes: Any, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    from groupwise.reporting.canvas import MUTED

    axes.set_title(title, loc="left", fontsize=9, color=MUTED, pad=5)
    axes.set_xscale("log", base=4)
    axes.set_yscale("log")
    axes.set_xlim(1, BUDGETS[-1])
    axes.set_ylim(FLOOR, 0.5)
    axes.set_xticks(BUDGETS)
    axes.set_yticks([0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda budget, _: f"{budget:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda gap, _: f"{100 * gap:g}%"))
    axes.set_xlabel("evaluations")


def write_figure(path: Path, curves: Mapping[str, Any]) -> None:
    from groupwise.reporting.canvas import render

    path.write_bytes(render(lambda width: draw(curves, width), 10.0, path.suffix.lstrip(".")))


# The command.


def main() -> None:
    options = parsed()
    files = {"policy": options.policy, "placebo": options.placebo}
    missing = {arm: why for arm in options.arms if (why := not_runnable(arm, files))}
    if options.tune:
        print_result("workflow_design_tuning", {}, raw=tune(options, missing), not_run=missing)
        return
    sets = named_sets(options.sizes, options.count, kinds=options.sets)
    held = [one for kind in sets for one in (sets[kind][:2] if options.quick else sets[kind])]
    seeds = list(range(options.seeds))
    jobs = [
        Job(one, arm, seed, SETTINGS.get(arm, {}), options.folder, files.get(arm) or "")
        for one in held for seed in seeds for arm in options.arms if arm not in missing
    ]  # fmt: skip
    campaign = Campaign(executed(jobs, options.jobs, "searches"), seeds)
    curves = {kind: campaign.curves(kind) for kind in sets if campaign.names(kind)}
    if options.figure:
        write_figure(options.figure, curves)
    facts = facts_of(options.policy) if "policy" in campaign.arms else {}
    claims, intervals = claims_of(campaign, facts.get("evaluations"))
    print_result(
        "workflow_design", claims, seeds=seeds, intervals=intervals, not_run=missing,
        peers={package: version(package) for package in sorted(set(NEEDS.values())) if find_spec(package)},
        raw={
            "budgets": BUDGETS, "curves": curves, "seconds": campaign.seconds(), "settings": SETTINGS,
            "requirements": {kind: len(campaign.names(kind)) for kind in curves}, "best_known": campaign.best,
            "policy": facts,
        },
    )  # fmt: skip


def not_runnable(arm: str, files: Mapping[str, str | None]) -> str:
    """Why an arm cannot run; nothing if it can."""
    if arm in NEEDS and not find_spec(NEEDS[arm]):
        return f"pip install {NEEDS[arm]}"
    if arm not in TRAINED:
        return ""
    file = files[arm]
    if file is None:
        return "name a policy trained on shuffled rewards with --placebo"
    try:
        policy_of(file)
    except ConfigError as error:
        return error.message
    return ""


def parsed() -> argparse.Namespace:
    arms = ("policy", "placebo", *ARMS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="activities of drawn requirements")
    parser.add_argument("--count", type=int, default=6, help="drawn requirements of each size")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=arms, default=list(arms))
    parser.add_argument("--policy", default=PRETRAINED, help="the file of the policy; the one that ships unless told")
    parser.add_argument("--placebo", help="the file of a policy trained on rewards shuffled in their groups")
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time")
    parser.add_argument("--folder", help="keeps what is done, so that a campaign can go on another time")
    parser.add_argument("--figure", type=Path, help="draw the gaps into this file (.svg, .png or .pdf)")
    parser.add_argument("--quick", action="store_true", help="two requirements of ten activities a set, two seeds")
    parser.add_argument("--tune", action="store_true", help="try the rivals' settings on requirements of their own")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.count, options.seeds = [10], 2, 2
    return options


if __name__ == "__main__":
    main()
