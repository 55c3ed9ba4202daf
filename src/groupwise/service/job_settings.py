"""Turn a training request into the settings of a run."""

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.config.nameable import Reach, permitted
from groupwise.errors import ConfigError
from groupwise.files import write_atomic
from groupwise.machine_memory import check_fits
from groupwise.service.schemas import TrainRequest

FEW = 20  # with fewer prompts than this, all are trained on and evaluation uses `HELD_OUT`
HELD_OUT = (
    "Where is my package?",
    "I was charged twice this month.",
    "My order arrived damaged.",
    "How do I return these shoes?",
    "Can you change my delivery address?",
    "The app does not let me log in.",
    "I want to cancel my subscription.",
    "Do you ship to Canada?",
)
# Weights of judge, learned and heuristic reward, among those requested.
COMPOSITION = {"ruler": 0.4, "neural": 0.3, "preset": 0.3}
# A model made from scratch can take a far larger learning rate than a pretrained one.
RATES, USUAL_RATE = {"tiny": 3e-3}, 1e-5
OURS = ("task.environment",)  # of a request with prompts: the service writes them to a file
LANGUAGE: dict[str, dict[str, Any]] = {
    "task": {"product": "language"},
    # As many workers as groups; `/api/scale` changes their number.
    "rollout": {"num_generations": 16, "tasks_per_step": 2, "backend": "processes", "num_workers": 2},
    "sampling": {"max_new_tokens": 48},
    "optim": {"warmup_ratio": 0.0, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "num_epochs": 2},
    "run": {
        "save_steps": 5, "eval_steps": 10, "eval_episodes": 8, "eval_samples": 16, "eval_by": "drawn", "threads": 1,
    },
}  # fmt: skip


def wanted_settings(request: TrainRequest, reach: Reach | None) -> TrainingConfig:
    """The checked settings for a request; prompts are written to a file when the job starts.

    With a `reach`, they name only what a key with scope `train` may name, and by what it stands for.
    """
    cfg = _settings(request)
    check_fits(cfg)
    if reach is None:
        return cfg
    return permitted(cfg, reach, ours=() if request.prompts is None else OURS)


def _settings(request: TrainRequest) -> TrainingConfig:
    if request.config is not None:
        cfg = TrainingConfig.from_dict(request.config)
        if cfg.run.output_dir != "runs":
            message = f"run.output_dir = {cfg.run.output_dir!r}: the service decides where runs are stored"
            raise ConfigError(message, hint="Leave it out.", field="run.output_dir")
        return cfg
    assert request.prompts is not None
    nested: dict[str, dict[str, Any]] = {name: dict(section) for name, section in LANGUAGE.items()}
    nested["task"] |= {"environment": "prompts.jsonl", "options": {"check": "none"}}
    nested["policy"] = {"model_name": request.model}
    nested["reward"] = _reward(request)
    nested["training"] = {"num_episodes": request.num_iterations}
    nested["run"] |= {"seed": request.seed}
    nested["optim"]["learning_rate"] = RATES.get(request.model, USUAL_RATE)
    return TrainingConfig.from_dict(nested)


def run_name(request: TrainRequest, cfg: TrainingConfig) -> str:
    """The requested name, or one derived from the task."""
    chosen = request.name or cfg.run.run_name
    if chosen == "latest":
        hint = "Choose another name."
        raise ConfigError("run_name 'latest' is reserved: it always means the newest run", hint=hint, field="name")
    if chosen:
        return chosen
    about = "chat" if request.prompts else Path(cfg.task.environment).stem
    slug = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")[:40] or "run"
    return f"{slug}-{uuid.uuid4().hex[:6]}"


def write_settings(
    request: TrainRequest, reach: Reach | None, run: str, runs_dir: Path, config: Path, prompts: Path
) -> None:
    """Write the files the job's process reads: settings, and prompts if there are any."""
    # Checked again, because what a name stands for may have changed while the job was waiting.
    cfg = wanted_settings(request, reach).replace(run_name=run, output_dir=str(runs_dir))
    if request.prompts is not None:
        options: dict[str, Any] = {"check": "none"}
        held_out = request.held_out or (list(HELD_OUT) if len(request.prompts) < FEW else [])
        if held_out:
            judged = prompts.with_suffix(".held-out.jsonl")
            _write_prompts(judged, held_out)
            options["eval_file"] = str(judged.resolve())
        _write_prompts(prompts, request.prompts)
        cfg = cfg.replace(environment=str(prompts.resolve()), options=options)
    write_atomic(config, json.dumps(cfg.to_dict()).encode())


def _reward(request: TrainRequest) -> dict[str, Any]:
    asked = {"ruler": request.use_ruler_rewards, "neural": request.use_neural_rewards}
    names = [name for name, wanted in asked.items() if wanted]
    if not names:
        return {"name": request.reward}
    weights = [COMPOSITION[name] for name in names] + [COMPOSITION["preset"]]
    options = {
        "components": [*names, request.reward],
        "weights": [weight / sum(weights) for weight in weights],
        "normalization_method": "weighted_average",
    }
    if request.use_ruler_rewards:
        # The guide's request must work without a judge: sending it counts as choosing the fallback, which is flagged.
        options["fallback_enabled"] = True
    return {"name": "multi_objective", "options": options}


def _write_prompts(path: Path, prompts: Sequence[str]) -> None:
    write_atomic(path, "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts).encode())
