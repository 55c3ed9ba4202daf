"""Small language runs, made once for all tests: two steps of the tiny model each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.config import TrainingConfig
from groupwise.training.folder import create_run
from groupwise.training.session import execute

LANGUAGE = {
    "product": "warm-start", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5,
    "num_generations": 4, "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 0,
    "learning_rate": 1e-2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "threads": 1,
    "warmup_ratio": 0.0, "lr_scheduler_type": "constant",
}  # fmt: skip

MakeRun = Callable[..., Path]


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Makes a finished run with some settings changed; the same settings give the same run."""
    base = tmp_path_factory.mktemp("language") / "runs"
    known: dict[str, Path] = {}

    def make(**changes: Any) -> Path:
        if repr(changes) not in known:
            cfg = TrainingConfig.from_dict({**LANGUAGE, "output_dir": str(base), **changes})
            path = create_run(cfg)
            build = warm_start.build if cfg.task.product == "warm-start" else product.build
            assert [event.type for event in execute(path, build)][-1] == "end"
            known[repr(changes)] = path
        return known[repr(changes)]

    return make
