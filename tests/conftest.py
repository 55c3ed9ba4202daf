"""Small real runs, shared by the tests: a CartPole run takes a fraction of a second."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, so that a green suite stays green; `make explore` draws new ones.
# Time is not judged: on a busy machine any example may be slow.
settings.register_profile(
    "steady", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Without a GPU, kernels run in Triton's interpreter. Triton reads this when it is first imported, by whatever test.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

SMALL = {
    "hidden_sizes": [8],
    "num_generations": 4,
    "tasks_per_step": 2,
    "estimator": "group_rtg",
    "advantage_scale": "batch_std",
    "learning_rate": 3e-3,
    "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "num_epochs": 2,
    "num_episodes": 6,
    "eval_steps": 2,
    "eval_episodes": 4,
    "save_steps": 2,
}


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and tests of Ctrl-C would then wait for ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two tests of one name are refused: run in parallel, only one of them would be run."""
    twice = sorted(name for name, times in Counter(item.nodeid for item in items).items() if times > 1)
    if twice:
        raise pytest.UsageError(f"tests that share a name: {', '.join(twice)}")


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., Any]:
    """Settings of a run of a few quick steps; keyword arguments change any of them."""
    from groupwise.config import TrainingConfig

    def make(**changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**SMALL, "output_dir": str(tmp_path / "runs"), **changes})

    return make


@pytest.fixture(scope="session")
def numbers() -> Callable[[Path], dict[str, Any]]:
    """All that two equal runs must agree on: weights, and every step and evaluation without its timings."""
    from groupwise.training.events import read_events
    from groupwise.training.group_files import read_groups

    def read(path: Path) -> dict[str, Any]:
        events = read_events(path / "events.jsonl")
        newest = max((path / "checkpoints").iterdir(), key=lambda p: p.name)
        return {
            "weights": hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest(),
            "checkpoint": newest.name,
            "steps": [(e.step, e.data["metrics"], e.data["totals"]) for e in events if e.type == "step"],
            "evals": [(e.step, e.data["metrics"]) for e in events if e.type == "eval"],
            "groups": {p.name: read_groups(p) for p in sorted((path / "groups").glob("*.parquet"))},
            "end": [(e.step, e.data["reason"]) for e in events if e.type == "end"],
        }

    return read


@pytest.fixture(scope="session")
def tiny_language() -> ModuleType:
    """The module `training/tiny_language.py`: a language product of the smallest size, on a real model."""
    path = Path(__file__).parent / "training" / "tiny_language.py"
    spec = importlib.util.spec_from_file_location("tiny_language", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def finished_analyzer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A `GRPOvsPPOAnalyzer` that has compared courses which lay there as workers leave them: nothing is trained."""
    from groupwise.compat.comparison import GRPOvsPPOAnalyzer
    from groupwise.config import TrainingConfig
    from groupwise.control.comparison import campaign
    from groupwise.control.comparison.arms import default_algorithms
    from groupwise.control.comparison.campaign import Entry, job_of, settle
    from groupwise.control.comparison.worker import write_json
    from groupwise.reporting.comparison import Course

    folder = tmp_path_factory.mktemp("comparison")
    algorithms = {name: cfg for name, cfg in default_algorithms().items() if name != "PPO"}
    for (name, cfg), end in zip(algorithms.items(), (200.0, 480.0), strict=True):
        for seed in range(5):
            job = job_of(folder, Entry(name, cfg), seed, snapshot=seed == 0)
            settle(job)
            scores = (20.0, end / 2, end + seed)
            course = Course(name, "CartPole-v1", "CartPole-v1", seed, (0, 500, 1000), scores, 1.0, 0.9)
            write_json(job.result, [course.to_dict()])
    missing = {"PPO": TrainingConfig(product="ppo")}
    analyzer = GRPOvsPPOAnalyzer(folder, algorithms={**missing, **algorithms}, quiet=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "available", lambda product: not product.endswith("ppo"))
        analyzer.run_comparison(["CartPole-v1"], n_seeds=5)
    return analyzer
