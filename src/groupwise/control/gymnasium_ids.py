"""Gymnasium ids: how copies of one are made, and what is said of an id that does not exist."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from groupwise.config.nameable import DataFile, Known, Reach, row_of
from groupwise.control.multitask import SUITES
from groupwise.errors import ConfigError, MissingExtra
from groupwise.products import names
from groupwise.user_code import load_module

if TYPE_CHECKING:
    import gymnasium

IMPORTED: dict[str, ModuleType] = {}  # files and modules of the user's that have registered their environments
# Which of our extras installs what a module of Gymnasium's environments needs.
EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "classic_control": "control", "toy_text": "control", "ale_py": "atari"}
# Packages that register their environments when they are imported, by how their ids begin.
FAMILIES = {
    "Meta-World/": "metaworld", "MiniGrid-": "minigrid", "BabyAI-": "minigrid", "Fetch": "gymnasium_robotics",
    "AntMaze": "gymnasium_robotics", "PointMaze": "gymnasium_robotics", "highway-": "highway_env",
    "mo-": "mo_gymnasium", "Panda": "panda_gym", "procgen": "procgen_gym", "BrowserGym/": "browsergym",
}  # fmt: skip

LONGEST_ID = 1000  # characters, with the file or module before it
DATA = (".jsonl", ".json", ".parquet", ".csv")  # never an environment for control


def make_copy(id: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """One copy, without Gymnasium's time limit and checker; an error explains what is wrong with the id."""
    if len(id) > LONGEST_ID:
        message = f"an environment's id has {len(id):,} characters; the limit is {LONGEST_ID}"
        raise ConfigError(message, hint="gymnasium.pprint_registry() lists Gymnasium's ids.", field="task.environment")
    gym = import_gymnasium()
    if id.startswith("ALE/"):
        register_atari(gym)
    if ":" in id:
        id = import_module_of(id)[1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            # Without Gymnasium's own limit: `step` counts for all copies.
            copy: gymnasium.Env[Any, Any] = gym.make(id, disable_env_checker=True, max_episode_steps=-1, **options)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and id not in gym.registry:
            raise unknown(id, gym, error) from error
        raise missing(id, gym, error) from error
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv, ImportError) as error:
        raise unknown(id, gym, error) from error
    except gym.error.Error as error:
        raise ConfigError(f"cannot create {id}: {error}", field="task.environment") from error
    return copy


def import_module_of(id: str) -> tuple[ModuleType, str]:
    """Import the file or module before the colon, which may register environments, and return it and what follows."""
    place, _, name = id.rpartition(":")

    def refuse(fault: str) -> ConfigError:
        hint = "Write FILE.py:ID or MODULE:ID, where importing it calls gymnasium.register, or FILE.py:FUNCTION."
        return ConfigError(f"{id} names {place}, which {fault}", hint=hint, field="task.environment")

    # Importing a file again would register its environments again.
    if place not in IMPORTED:
        IMPORTED[place] = load_module(place, refuse)
    return IMPORTED[place], name


def import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        hint = 'Install it: pip install "groupwise[control]"'
        raise MissingExtra("this environment needs gymnasium, which is not installed", hint=hint) from error
    return gymnasium


def register_atari(gym: Any) -> None:
    try:
        import ale_py
    except ImportError as error:
        hint = 'Install it: pip install "groupwise[atari]"'
        raise MissingExtra("Atari games need ale-py, which is not installed", hint=hint) from error
    gym.register_envs(ale_py)


def unknown(id: str, gym: Any, error: Exception) -> ConfigError:
    """Why there is no such environment, and which one was probably meant."""
    name, _, version = id.rpartition("-v")
    # The same name in another version is the likeliest mistake.
    versions = [known for known in gym.registry if name and known.rpartition("-v")[0] == name]
    newest = max(versions, key=_version, default=id)
    if newest != id and _version(newest) > _version(id):
        message, meant = f"{id} no longer exists", newest
    elif newest != id:
        message, meant = f"{id} does not exist: {name} has no version {version}", newest
    elif isinstance(error, ImportError):
        message, meant = f"cannot create {id}: {error}", ""
    else:
        message, meant = f"there is no environment {id}", nearest(id, [*gym.registry, *SUITES])
        module = next((module for start, module in FAMILIES.items() if id.startswith(start)), "")
        if other := product_with(id):
            hint = (
                f"Set task.product = \"{other}\", whose environments include it; this run's product is for Gymnasium's."
            )
            return ConfigError(message, hint=hint, field="task.product")
        if module and module not in IMPORTED:
            hint = f"Write {module}:{id}, so that the package {module}, which registers it, is imported first."
            return ConfigError(message, hint=hint, field="task.environment")
    hint = f"Did you mean {meant!r}?" if meant else "gymnasium.pprint_registry() lists Gymnasium's ids."
    if id not in gym.registry and not meant and ":" not in id:
        hint = f"{hint} One of yours is named as FILE.py:ID or FILE.py:CLASS."
    return ConfigError(message, hint=hint, field="task.environment")


def product_with(name: str) -> str:
    """The product that this environment belongs to: by its name, or because it is a file of data; "" if to none."""
    path = Path(name)
    is_file = path.suffix in DATA or (path.exists() and path.suffix != ".py")
    for product in names():
        row = row_of(product, "task.environment")
        for source in row.train if row is not None else ():
            known = isinstance(source, Known) and source.resolved(name, Reach()) is not None
            if known or (is_file and isinstance(source, DataFile) and not source.prefix):
                return product
    return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """The closest known name, ignoring version and case; "" if none is close."""
    folded = {_bare(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_bare(name), folded, 1, 0.65)
    return folded[found[0]] if found else ""


def missing(id: str, gym: Any, error: Exception) -> MissingExtra:
    module = str(gym.spec(id).entry_point)
    extra = next((extra for part, extra in EXTRAS.items() if part in module), None)
    hint = f'Install it: pip install "groupwise[{extra}]"' if extra else str(error)
    return MissingExtra(f"{id} needs a package that is not installed: {error}", hint=hint)


def _bare(id: str) -> str:
    name, mark, version = id.rpartition("-v")
    return (name if mark and version.isdigit() else id).casefold()


def _version(id: str) -> int:
    tail = id.rpartition("-v")[2]
    return int(tail) if tail.isascii() and tail.isdecimal() and len(tail) < 10 else -1
