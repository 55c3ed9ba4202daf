"""The seed's face of a comparison: `GRPOvsPPOAnalyzer`, a thin class over `groupwise.control.comparison`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.control.comparison.arms import BUDGET, KNOWN_SCALES, default_algorithms
from groupwise.control.comparison.campaign import Entry, compare, extras_of, product_module
from groupwise.errors import ConfigError
from groupwise.reporting.comparison import Comparison
from groupwise.reporting.comparison_page import Extras, as_json, write_comparison
from groupwise.reporting.comparison_table import progress_bar


class GRPOvsPPOAnalyzer:
    """Trains every algorithm in every environment with every seed, and reports which differences may be claimed.

        analyzer = GRPOvsPPOAnalyzer("comparison")
        analyzer.run_comparison(["CartPole-v1"], n_seeds=10)["headline"]

    Everything is stored in `folder`; calling an interrupted comparison again continues it. `algorithms` are settings by
    name, whose environment and seed are replaced; the default is PPO, GRPO-auto and GRPO-task with `total_samples`
    environment steps each. An algorithm whose product is not installed is reported as not available.
    """

    def __init__(
        self,
        folder: str | Path = "comparison",
        *,
        algorithms: Mapping[str, TrainingConfig] | None = None,
        total_samples: int = BUDGET,
        first_seed: int = 0,
        jobs: int | None = None,
        thresholds: Mapping[str, float] | None = None,
        quiet: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.algorithms = dict(algorithms) if algorithms is not None else None
        self.total_samples, self.first_seed, self.jobs = total_samples, first_seed, jobs
        self.thresholds, self.quiet = dict(thresholds or {}), quiet
        self.comparison: Comparison | None = None
        self.extras = Extras()
        measured = ("sample_efficiency", "final_performance", "training_stability", "group_fairness")
        self.metrics: dict[str, list[dict[str, Any]]] = {name: [] for name in measured}

    def run_comparison(self, env_suite: Sequence[str], n_seeds: int = 5) -> dict[str, Any]:
        """Train all runs that are missing and return the report's numbers; see `generate_report`."""
        if isinstance(env_suite, str) or not env_suite:
            raise ConfigError(f"env_suite = {env_suite!r} must be a list of environments", hint='["CartPole-v1"]')
        if n_seeds < 1:
            raise ConfigError(f"n_seeds = {n_seeds} must be at least 1", hint="Use at least 5 to support a claim.")
        entries = [
            Entry(name, cfg.replace(environment=environment), product_module(cfg))
            for environment in env_suite
            for name, cfg in (self.algorithms or default_algorithms(environment, self.total_samples)).items()
        ]
        seeds = range(self.first_seed, self.first_seed + n_seeds)
        with progress_bar(quiet=self.quiet) as bar:
            outcome = compare(self.folder, entries, seeds, jobs=self.jobs, progress=bar)
        self.comparison = Comparison(outcome.courses, outcome.failures, self.thresholds, known=KNOWN_SCALES)
        self.extras = extras_of(self.folder, entries, seeds[0])
        self._fill_metrics(self.comparison)
        return self.generate_report()

    def generate_report(self) -> dict[str, Any]:
        """Write `report.html` with its figures and data; return all numbers, and the page's path as `report`."""
        if self.comparison is None:
            raise ConfigError("there is nothing to report yet", hint="Call run_comparison first.")
        path = write_comparison(self.folder, self.comparison, self.extras)
        return {**as_json(self.comparison), "report": str(path)}

    def _fill_metrics(self, comparison: Comparison) -> None:
        for rows in self.metrics.values():
            rows.clear()
        for s in comparison.standings:
            named = {"algorithm": s.algorithm, "seeds": len(s.seeds)}
            final = {key: interval.as_list() for key, interval in s.final.items()}
            steady = {"seed_spread": s.seed_spread, "drawdown": s.drawdown, "collapses": s.collapses}
            fair = {key: interval.as_list() for key, interval in s.fairness.items()}
            self.metrics["sample_efficiency"].append({**named, "efficiency": s.efficiency.as_list()})
            self.metrics["final_performance"].append({**named, **final})
            self.metrics["training_stability"].append({**named, **steady})
            self.metrics["group_fairness"].append({**named, **fair})
