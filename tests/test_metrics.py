"""The registry of metrics: every number that a run logs has a row, and the document is written from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.metrics import COMMON, about, reference, registry, true_metrics
from groupwise.products import PRODUCTS, find
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Event

ROOT = Path(__file__).parents[1]
CART = {
    "hidden_sizes": [8], "num_generations": 4, "tasks_per_step": 2, "num_episodes": 2, "eval_steps": 1,
    "eval_episodes": 2, "threads": 1, "max_episode_steps": 20, "dynamic_sampling": False,
}  # fmt: skip
WORDS = {
    "model_name": "tiny", "environment": "addition", "max_new_tokens": 5, "num_generations": 4, "tasks_per_step": 2,
    "num_episodes": 1, "eval_steps": 1, "eval_episodes": 2, "threads": 1,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "control": CART,
    "ppo": CART,
    "language": WORDS,
    "warm-start": WORDS,
    "agent": {**WORDS, "environment": "orders", "max_new_tokens": 8},
    "code": {
        **WORDS, "environment": "programs",
        "num_episodes": 3,
        "options": {"families": "word_problems", "warm_steps": 1, "search_every": 1, "search_budget": 8},
    },
    "designer": {
        "environment": "worlds", "num_generations": 4, "tasks_per_step": 1, "num_episodes": 1, "eval_steps": 1,
        "eval_episodes": 1, "threads": 1,
    },
}  # fmt: skip
# A metric in these units is what they say it is, whatever the run.
BOUNDS = {"share": (-1e-6, 1 + 1e-6), "r": (-1 - 1e-6, 1 + 1e-6), "s": (0.0, float("inf"))}
COUNTED = {"actions", "attempts", "groups", "steps", "passes", "tokens", "calls", "workers", "requests", "GiB"}


def numbers(event: Event) -> dict[str, float | None]:
    found = dict(event.data["metrics"])
    for table in ("timing", "totals"):
        found |= {f"{table}/{name}": value for name, value in event.data.get(table, {}).items()}
    return found


# Those that load a model or build designs take seconds each; the other products are tried in every run of the tests.
@pytest.mark.parametrize(
    "product",
    [*("control", "ppo", "language", "warm-start"),
     *(pytest.param(name, marks=pytest.mark.long) for name in ("agent", "code", "designer"))],
)  # fmt: skip
def test_every_number_that_a_run_logs_is_in_the_registry(product: str, tmp_path: Path) -> None:
    settings = {"product": product, "output_dir": str(tmp_path), **RUNS[product]}
    known, seen = registry(product), set[str]()
    cfg = TrainingConfig.from_dict(settings)
    declared = find(product)
    cfg = declared.prepare(cfg)
    for event in execute(create_run(cfg), declared.build, cfg):
        if event.type not in ("step", "eval"):
            continue
        for name, value in numbers(event).items():
            metric = about(name, known)
            assert metric is not None, f"{name} has no row: add one to groupwise.metrics or to the product"
            assert metric.meaning
            assert metric.unit == "share" or not name.endswith("_share"), f"{name} is a share, not {metric.unit!r}"
            low, high = BOUNDS.get(metric.unit, (0.0 if metric.unit in COUNTED else -float("inf"), float("inf")))
            assert value is None or low <= value <= high, f"{name} = {value} is not in {metric.unit!r}"
            seen.add(name)
    assert {"eval/reward_mean", "timing/total", "timing/processor", "timing/memory"} <= seen
    if product == "warm-start":
        assert "loss/supervised" in seen


def test_every_product_has_a_run_here() -> None:
    assert RUNS.keys() == PRODUCTS.keys()


def test_names_are_declared_once_and_share_a_panels_unit() -> None:
    assert len({metric.name for metric in COMMON}) == len(COMMON)
    panels: dict[str, set[str]] = {}
    for metric in COMMON:
        if metric.panel:
            panels.setdefault(metric.panel, set()).add(metric.unit)
    assert {panel: units for panel, units in panels.items() if len(units) > 1} == {}, "lines of one chart share an axis"


def test_a_products_own_row_comes_first_and_keeps_its_place_on_the_page() -> None:
    own = find("control").metrics[0]
    found = about("eval/reward_mean", registry("control"))
    assert found is not None
    assert (found.meaning, found.panel) == (own.meaning, "Reward")
    assert about("eval/walker/reward_mean", registry("control")) is not None
    assert about("no/such", registry("control")) is None
    assert registry("not installed") == COMMON


def test_steps_that_imitate_have_no_reward_whatever_an_earlier_version_logged() -> None:
    old = {"reward/mean": 0.3, "loss/total": -1.0, "loss/policy": -1.0, "loss/supervised": 2.0, "policy/entropy": 1.0}
    assert true_metrics(old) == {"loss/supervised": 2.0, "policy/entropy": 1.0}
    assert true_metrics({"reward/mean": 0.3, "loss/total": 0.1}) == {"reward/mean": 0.3, "loss/total": 0.1}


def test_the_reference_is_written_from_the_registry() -> None:
    command = "python -m groupwise.metrics > docs/reference/metrics.md"
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == reference(), command
