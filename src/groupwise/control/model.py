"""`ControlModel`: a run with the calls of Stable-Baselines3: `learn`, `predict`, `save`, `load`, `evaluate_policy`.

    model = ControlModel("CartPole-v1", "grpo", seed=1).learn(100_000)
    action, _ = model.predict(obs)
    mean, std = evaluate_policy(model, "CartPole-v1", n_eval_episodes=20)
    model.save("cartpole.zip")

A model is a run folder and its policy. Saving zips that folder (settings, events and the newest checkpoint), so a model
loaded in another process acts the same and continues training as if it had never stopped.
"""

import io
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from groupwise.config import TaskSettings, TrainingConfig, load_config
from groupwise.control.environments import make_environment
from groupwise.control.grpo import make_policy
from groupwise.control.policy import Network
from groupwise.errors import CheckpointError, ConfigError, RunError
from groupwise.files import open_regular, write_output
from groupwise.machine_memory import in_words, memory_limit
from groupwise.products import find
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.training.checkpoint import checkpoint_folders, choose_checkpoint
from groupwise.training.folder import create_run, read_config, write_config
from groupwise.training.session import Parts, execute
from groupwise.types import Array, Box, Event, VectorEnvironment

Algorithm: TypeAlias = Literal["grpo", "ppo"]

PRODUCTS = {"grpo": "control", "ppo": "ppo"}
# A model is evaluated by its user and saved on request, so its run does neither by itself.
QUIET = {"eval_steps": 0, "group_log_steps": 0, "save_steps": 1_000_000}
# The only files that `load` unpacks.
SAVED = re.compile(r"config\.toml|events\.jsonl|checkpoints/\d+/(model\.safetensors|state\.pt|COMPLETE)")
EVALUATION_SEED = 2_000_000


def tuned_settings(environment: str, algorithm: Algorithm) -> TrainingConfig:
    """The settings of `configs/<algorithm>/<environment>.toml` if there is one, else the product's defaults."""
    if algorithm not in PRODUCTS:
        raise ConfigError(f"algorithm = {algorithm!r} is not known", hint="Use grpo or ppo.", field="task.product")
    here = Path(__file__)
    # In a wheel the files are inside the package, in a checkout at its root.
    for folder in (here.parents[1] / "configs", here.parents[3] / "configs"):
        if (path := folder / algorithm / f"{environment}.toml").is_file():
            return load_config(path)
    return TrainingConfig(environment=environment, product=PRODUCTS[algorithm])


class ControlModel:
    """A policy for one environment that learns by GRPO or by PPO.

    Any setting can be given by name and overrides the tuned ones. `network(inputs, outputs)` makes a torch module for
    the actor, and one for the critic, in place of the usual layers. `folder` keeps the run for `groupwise show` and
    `groupwise report`; without it the run is deleted with the model.
    """

    def __init__(
        self,
        environment: str = "CartPole-v1",
        algorithm: Algorithm = "grpo",
        *,
        network: Network | None = None,
        folder: str | Path | None = None,
        **settings: Any,
    ) -> None:
        cfg = tuned_settings(environment, algorithm).replace(**{**QUIET, **settings})
        self._set_up(cfg, network, folder)

    def _set_up(self, cfg: TrainingConfig, network: Network | None, folder: str | Path | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="groupwise-") if folder is None else None
        self.cfg = cfg.replace(output_dir=str(folder or self._temporary.name))  # type: ignore[union-attr]
        self.path: Path | None = None
        self.num_timesteps = self.num_steps = 0
        self._network = network
        # For sampled predictions only: predicting does not disturb training.
        self._rng = np.random.default_rng([cfg.run.seed, 2])
        self.policy = make_policy(cfg, make_environment(cfg.task), network)

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        total_steps: int | None = None,
        callback: Callable[[Event], object] | None = None,
    ) -> Self:
        """Train for this many more environment steps or iterations; `callback` gets every event of the run.

        Without a number the settings decide. A second call continues where the first one ended.
        """
        cfg = self._extended(total_timesteps, total_steps)
        self.path = self.path or create_run(cfg)
        for event in execute(self.path, self._build, cfg):
            if event.type == "step":
                self.num_steps, self.num_timesteps = event.step, int(event.data["totals"]["samples"])
            if callback is not None:
                callback(event)
        self.cfg = cfg
        return self

    def _extended(self, timesteps: int | None, steps: int | None) -> TrainingConfig:
        if timesteps is not None and steps is not None:
            message = f"total_timesteps = {timesteps} and total_steps = {steps} both set the length of training"
            raise ConfigError(message, hint="Pass one of them: environment steps or iterations.")
        if timesteps is not None:
            # Every iteration takes at least one environment step, so num_episodes never ends the run first.
            limit = self.num_timesteps + timesteps
            return self.cfg.replace(total_samples=limit, num_episodes=max(limit, self.cfg.training.num_episodes))
        if steps is not None:
            return self.cfg.replace(total_samples=None, num_episodes=self.num_steps + steps)
        return self.cfg

    def _build(self, cfg: TrainingConfig) -> Parts:
        parts: Parts = import_module(find(cfg.task.product).implementation).build(cfg, network=self._network)
        self.policy = parts.policy  # type: ignore[assignment]
        return parts

    def predict(self, obs: Array, deterministic: bool = True, action_mask: Array | None = None) -> tuple[Array, None]:
        """The action for an observation [D], or for several [N, D]: the likeliest one, or a sample.

        The second value is always None: these policies keep no state between steps.
        """
        rows = np.atleast_2d(np.asarray(obs, np.float32))
        mask = None if action_mask is None else np.atleast_2d(action_mask)
        space = self.policy.action_space
        if deterministic:
            actions = self.policy.greedy(rows, mask)
        else:
            actions, _ = self.policy.act(rows, self._rng.random((len(rows), *space.shape)), mask)
        if isinstance(space, Box):
            actions = np.clip(actions, space.low, space.high).astype(np.float32)
        return (actions[0] if np.ndim(obs) == 1 else actions), None

    def save(self, path: str | Path) -> Path:
        """Write the model to one .zip file and return its path."""
        newest = next(iter(checkpoint_folders(self.path / "checkpoints")), None) if self.path else None
        if self.path is None or newest is None:
            hint = "Call learn() first."
            raise RunError("this model has not learned anything yet, so there is nothing to save", hint=hint)
        target = Path(path) if Path(path).suffix == ".zip" else Path(f"{path}.zip")
        files = [self.path / "config.toml", self.path / "events.jsonl", *sorted(newest.iterdir())]
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.relative_to(self.path))
        write_output(target, content.getvalue())
        return target

    @classmethod
    def load(cls, path: str | Path, *, network: Network | None = None, folder: str | Path | None = None) -> Self:
        """The model saved at `path`. A model with a custom network needs that `network` again."""
        source = Path(path) if Path(path).exists() else Path(f"{path}.zip")
        with tempfile.TemporaryDirectory(prefix="groupwise-") as unpacked:
            _unpack(source, Path(unpacked))
            cfg = read_config(Path(unpacked))
            model = cls.__new__(cls)
            model._set_up(cfg, network, folder)
            # A new folder, so that two loaded copies never share a run.
            model.path = create_run(model.cfg.replace(run_name=None))
            _unpack(source, model.path)
        write_config(model.path, model.cfg)
        checkpoint = choose_checkpoint(model.path)
        try:
            model.policy.load_state_dict(checkpoint.model)
            model.num_steps, model.num_timesteps = checkpoint.step, int(checkpoint.state["samples"])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"the checkpoint in {source} does not say how many samples it has seen") from error
        except RuntimeError as error:
            message = f"the weights in {source} do not fit the network: {str(error).splitlines()[-1].strip()}"
            raise CheckpointError(message, hint="Pass load() the `network` that the model was created with.") from error
        return model


def _unpack(source: Path, target: Path) -> None:
    """Unpack a saved model; refuse an archive with any file that `save` does not write."""
    try:
        with open_regular(source) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            strange = [name for name in names if not SAVED.fullmatch(name)]
            if strange or "config.toml" not in names:
                message = f"{source} is not a saved model: it contains {', '.join(strange[:3]) or 'no config.toml'}"
                raise CheckpointError(message, hint="Save one with model.save(path).")
            size, most = sum(entry.file_size for entry in archive.infolist()), memory_limit() // 4
            if size > most:
                raise CheckpointError(f"{source} would unpack to {in_words(size)}; at most {in_words(most)} is allowed")
            archive.extractall(target)
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no saved model at {source}") from error
    # An encrypted or unknown entry is a RuntimeError or NotImplementedError of zipfile, which is one too.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        hint = "Save it again: the file may be truncated."
        raise CheckpointError(f"{source} cannot be read: {error}", hint=hint) from error


def evaluate_policy(
    model: Any,
    environment: str | VectorEnvironment | Any,
    n_eval_episodes: int = 10,
    *,
    deterministic: bool = True,
    seed: int = EVALUATION_SEED,
) -> tuple[float, float]:
    """Mean and standard deviation of the return over `n_eval_episodes` episodes with seeds from `seed` on.

    `model` is anything with `predict`; the environment is a name, a `VectorEnvironment` or a Gymnasium environment.
    """
    seeds = range(seed, seed + n_eval_episodes)
    if isinstance(environment, str):
        environment = make_environment(TaskSettings(environment=environment))
    if hasattr(environment, "observation_size"):
        returns = evaluate_greedy(environment, _Predictor(model, deterministic), seeds)[0]
    else:
        returns = np.array([_episode(model, environment, start, deterministic) for start in seeds])
    return float(np.mean(returns)), float(np.std(returns))


class _Predictor:
    def __init__(self, model: Any, deterministic: bool) -> None:
        self.model, self.deterministic = model, deterministic

    def greedy(self, obs: Array, mask: Array | None = None) -> Array:
        masked = {} if mask is None else {"action_mask": mask}
        actions: Array = self.model.predict(obs, deterministic=self.deterministic, **masked)[0]
        return actions


def _episode(model: Any, environment: Any, seed: int, deterministic: bool) -> float:
    obs, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action, _ = model.predict(np.asarray(obs), deterministic=deterministic)
        obs, reward, terminated, truncated, _ = environment.step(action)
        total += float(reward)
        over = terminated or truncated
    return total
