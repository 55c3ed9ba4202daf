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

from groupwise.config import TrainingConfig, load_config
from groupwise.control.environments import make_environment
from groupwise.control.grpo import make_policy
from groupwise.control.gymnasium_environment import action_count
from groupwise.control.policy import Network
from groupwise.control.provided import name_of_environment
from groupwise.control.spaces import Interface, interface_of
from groupwise.errors import CheckpointError, ConfigError, RunError
from groupwise.files import open_regular, write_output
from groupwise.machine_memory import in_words, memory_limit
from groupwise.products import find
from groupwise.training.checkpoint import checkpoint_folders, choose_checkpoint
from groupwise.training.folder import create_run, read_config, write_config
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Array, Event

Algorithm: TypeAlias = Literal["grpo", "ppo"]

PRODUCTS = {"grpo": "control", "ppo": "ppo"}
# A model is evaluated by its user and saved on request, so its run does neither by itself.
QUIET = {"eval_steps": 0, "group_log_steps": 0, "save_steps": 1_000_000}
# Environments that begin so take the tuned settings of one of them.
FAMILIES = {"ALE/": "ALE/Pong-v5"}
# The only files that `load` unpacks.
SAVED = re.compile(r"config\.toml|events\.jsonl|checkpoints/\d+/(model\.safetensors|state\.pt|COMPLETE)")


def tuned_settings(environment: str, algorithm: Algorithm) -> TrainingConfig:
    """The settings of `configs/<algorithm>/<environment>.toml`, else of its family's, else the product's defaults."""
    if algorithm not in PRODUCTS:
        raise ConfigError(f"algorithm = {algorithm!r} is not known", hint="Use grpo or ppo.", field="task.product")
    here = Path(__file__)
    # In a wheel the files are inside the package, in a checkout at its root.
    for folder in (here.parents[1] / "configs", here.parents[3] / "configs"):
        for name in (environment, *(known for start, known in FAMILIES.items() if environment.startswith(start))):
            if (path := folder / algorithm / f"{name}.toml").is_file():
                return load_config(path).replace(environment=environment)
    return TrainingConfig(environment=environment, product=PRODUCTS[algorithm])


class Predicts:
    """`predict`, for whatever has the `interface` to an environment and `choose`s among rows of numbers."""

    interface: Interface

    def choose(self, rows: Array, deterministic: bool, mask: Array | None = None) -> Array:
        raise NotImplementedError

    def predict(self, obs: Any, deterministic: bool = True, action_mask: Any = None) -> tuple[Any, None]:
        """The action for one observation of the environment, or for a batch of them: the likeliest one, or a sample.

        Observations and actions are those of the environment's spaces: what training did to them is part of the model.
        The second value is always None: these policies keep no state between steps.
        """
        rows, single = self.interface.rows(obs)
        given = self.interface.mask(obs) if action_mask is None else action_mask
        mask = None if given is None else self.interface.mask_rows(given, len(rows))
        chosen = self.choose(rows, deterministic, mask)
        return (self.interface.one_action(chosen) if single else self.interface.actions(chosen)), None


class ControlModel(Predicts):
    """A policy for one environment that learns by GRPO or by PPO.

    `environment` is an id, a Gymnasium environment (which is copied), a function that makes one, a Gymnasium vector
    environment, a `VectorEnvironment`, or a list or table of tasks. Any setting can be given by name and overrides the
    tuned ones. `network(inputs, outputs)` makes a torch module for the actor, and one for the critic, in place of the
    usual layers. `folder` keeps the run for `groupwise show` and `groupwise report`; without it the run is deleted with
    the model.
    """

    def __init__(
        self,
        environment: Any = "CartPole-v1",
        algorithm: Algorithm = "grpo",
        *,
        network: Network | None = None,
        folder: str | Path | None = None,
        **settings: Any,
    ) -> None:
        name = name_of_environment(environment)
        cfg = tuned_settings(name, algorithm).replace(**{**QUIET, **settings})
        self._set_up(cfg, interface_of(make_environment(cfg.task)), network, folder)

    def _set_up(
        self, cfg: TrainingConfig, interface: Interface, network: Network | None, folder: str | Path | None
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="groupwise-") if folder is None else None
        self.cfg = cfg.replace(output_dir=str(folder or self._temporary.name))  # type: ignore[union-attr]
        self.path: Path | None = None
        self.num_timesteps = self.num_steps = 0
        self._network = network
        # For sampled predictions only: predicting does not disturb training.
        self._rng = np.random.default_rng([cfg.run.seed, 2])
        self.interface = interface
        self.policy = make_policy(cfg, interface, network)

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        total_steps: int | None = None,
        callback: Callable[[Event], object] | None = None,
    ) -> Self:
        """Train for this many more environment steps or iterations; `callback` gets every event of the run.

        A callback that returns False ends the training after the current iteration, with a checkpoint.
        Without a number the settings decide. A second call continues where the first one ended.
        """
        cfg = self._extended(total_timesteps, total_steps)
        self.path = self.path or create_run(cfg)
        stop = StopFlag()
        for event in execute(self.path, self._build, cfg, stop):
            if event.type == "step":
                self.num_steps, self.num_timesteps = event.step, int(event.data["totals"]["samples"])
            if callback is not None:
                stop.raised = callback(event) is False or stop.raised
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

    def choose(self, rows: Array, deterministic: bool, mask: Array | None = None) -> Array:
        """The policy's own actions for observations that are rows of numbers already."""
        if deterministic:
            return self.policy.greedy(rows, mask)
        return self.policy.act(rows, self._rng.random((len(rows), *self.policy.action_space.shape)), mask)[0]

    def task(self, name: str) -> "TaskModel":
        """This model of a suite as it acts in one of its tasks: its `predict` takes what that environment returns."""
        if name not in self.interface.members:
            known = ", ".join(self.interface.members) or "it was not trained on a suite"
            raise ConfigError(f"the model has no task {name!r}", hint=f"Its tasks: {known}.", field="task.environment")
        return TaskModel(self, name)

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
    def load(
        cls,
        path: str | Path,
        *,
        environment: Any = None,
        network: Network | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """The model saved at `path`. A custom `network`, and an `environment` given as an object, are needed again."""
        source = Path(path) if Path(path).exists() else Path(f"{path}.zip")
        with tempfile.TemporaryDirectory(prefix="groupwise-") as unpacked:
            _unpack(source, Path(unpacked))
            cfg = read_config(Path(unpacked))
            weights = choose_checkpoint(Path(unpacked)).model
            if environment is not None:
                cfg = cfg.replace(environment=name_of_environment(environment))
            model = cls.__new__(cls)
            # The saved spaces will do to act; only learning needs the environment itself.
            saved = Interface.from_bytes(bytes(weights["spaces"].tolist())) if "spaces" in weights else None
            model._set_up(cfg, saved or interface_of(make_environment(cfg.task)), network, folder)
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


class TaskModel(Predicts):
    """A model of a suite in one of its tasks."""

    def __init__(self, model: ControlModel, name: str) -> None:
        self.model, self.name = model, name
        own = model.interface.members[name]
        self.interface = Interface(own["observation"], own["action"])

    def choose(self, rows: Array, deterministic: bool, mask: Array | None = None) -> Array:
        suite, own = self.model.interface, self.interface.observation_size
        wide = np.zeros((len(rows), suite.observation_size), np.float32)
        wide[:, :own] = rows
        wide[:, list(suite.members).index(self.name) - suite.tasks] = 1.0
        every, few = action_count(suite.action_space), action_count(self.interface.action_space)
        if mask is not None or few < every:
            allowed = np.zeros((len(rows), every), np.bool_)
            allowed[:, :few] = True if mask is None else mask
            mask = allowed
        return self.model.choose(wide, deterministic, mask)


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
