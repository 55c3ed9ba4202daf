"""What a text setting can make the program load, and what a key with scope `train` may name there: one table.

It is an allow list. A name is compared with names we know, or resolved to a file or run that the key can reach; nothing
is recognised by its spelling. What a row does not allow needs scope `admin`, and so does text in a setting or option
without a row. The rows of settings that all products share are below; a product declares its own beside its settings.
"""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from groupwise.config.fields import Options, Setting, settings_of
from groupwise.config.setting_names import layout_of
from groupwise.config.training_config import TrainingConfig
from groupwise.errors import GroupwiseError
from groupwise.products import find

MOST_FILES = 100_000  # in one data folder; more would take too long to check for links


class NotAllowed(GroupwiseError):
    """A setting names something that the key may not name."""

    code = "forbidden"


@dataclass(frozen=True)
class Reach:
    """What a key can reach on the machine: files below `data`, its own runs, and the models that it was given.

    Its jobs have at most `workers` worker processes, because the kernel limits the memory of each on its own.
    """

    data: Path | None = None
    run: Callable[[str], Path | None] = lambda name: None
    models: tuple[str, ...] = ()
    workers: int = 16


class NameSource(Protocol):
    """Where names come from."""

    def resolved(self, name: str, reach: Reach) -> str | None:
        """The name of exactly what will be loaded; None if it is not one of these."""

    def like(self, name: str) -> Collection[str]:
        """Names that a wrong one may have meant."""


@dataclass(frozen=True)
class Known:
    """Names that are listed here, or in a registry: `module:attribute`, a collection or a function that returns one.

    The registry of an optional package is only imported for names with its `prefix`.
    """

    names: tuple[str, ...] = ()
    registry: str = ""
    prefix: str = ""

    def resolved(self, name: str, reach: Reach) -> str | None:
        return name if name in self.like(name) else None

    def like(self, name: str) -> Collection[str]:
        if not self.registry or not name.startswith(self.prefix):
            return self.names
        module, _, attribute = self.registry.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ImportError:
            return self.names
        return [*self.names, *(self.prefix + known for known in (found() if callable(found) else found))]


@dataclass(frozen=True)
class DataFile:
    """A file or folder in the service's data folder, after resolving links; `prefix` comes before its path."""

    prefix: str = ""

    def resolved(self, name: str, reach: Reach) -> str | None:
        if reach.data is None or not name.startswith(self.prefix):
            return None
        try:
            base = reach.data.resolve(strict=True)
            path = (base / name.removeprefix(self.prefix)).resolve(strict=True)
            inside = path != base and all(_is_inside(base, file) for file in _files(path))
        except (OSError, ValueError, RuntimeError):  # no such file, a null character, a loop of links
            return None
        return f"{self.prefix}{path}" if inside else None

    def like(self, name: str) -> Collection[str]:
        return ()


@dataclass(frozen=True)
class OwnRun:
    """A run of the same key, by its name."""

    def resolved(self, name: str, reach: Reach) -> str | None:
        path = reach.run(name)
        return None if path is None else str(path.resolve())

    def like(self, name: str) -> Collection[str]:
        return ()


@dataclass(frozen=True)
class GivenModel:
    """A model that the operator lists: `groupwise serve --allow-model`."""

    def resolved(self, name: str, reach: Reach) -> str | None:
        return name if name in reach.models else None

    def like(self, name: str) -> Collection[str]:
        return ()


@dataclass(frozen=True)
class Numbered:
    """A known name, alone or with a number: `tiny`, `tiny@7`."""

    name: str

    def resolved(self, name: str, reach: Reach) -> str | None:
        kind, at, number = name.partition("@")
        numbered = number.isascii() and number.isdecimal() and len(number) < 10
        return name if kind == self.name and (numbered or not at) else None

    def like(self, name: str) -> Collection[str]:
        return (self.name,)


@dataclass(frozen=True)
class Row:
    """One text setting, or one option of a free table: what it names, and where a `train` key's names come from.

    Without `train`, only `admin` may set it. `is_plain` says that it names nothing, so that any text will do.
    `separator` divides a text with several names.
    """

    setting: str
    names: str
    train: tuple[NameSource, ...] = ()
    is_plain: bool = False
    separator: str = ""


def plain(*settings: str) -> tuple[Row, ...]:
    """Rows of settings whose text loads nothing."""
    return tuple(Row(setting, "nothing", is_plain=True) for setting in settings)


REWARDS = Known(registry="groupwise.rewards.registry:KNOWN")
COMMON: tuple[Row, ...] = (
    Row("task.product", "a product, built in or installed", (Known(registry="groupwise.products:names"),)),
    Row("run.output_dir", "the folder of the runs, which the service decides", (Known(("runs",)),)),
    # W&B starts a process of its own, which may send what it finds in the environment.
    Row("run.report_to", "a tracker that writes into the run's folder", (Known(("tensorboard",)),)),
    Row("policy.model_name", "a model: tiny, a run of yours, or one that the operator allows",
        (Numbered("tiny"), GivenModel(), OwnRun())),
    Row("reward.name", "a built-in reward", (REWARDS,)),
    Row("reward.options.components", "built-in rewards", (REWARDS,)),
    Row("reward.options.teacher", "a built-in reward", (Known(("heuristic", "none")), REWARDS)),
    Row("reward.options.model", "a judge: the default, or one that the operator allows",
        (Known(("openai/gpt-4",)), GivenModel())),
    Row("reward.options.rubric", "a built-in rubric", (Known(registry="groupwise.rewards.judge.rubrics:RUBRICS"),)),
    Row("reward.options.preferences", "a file in the data folder", (DataFile(),)),
    Row("reward.options.base_url", "the address of a judge's server"),
    Row("reward.options.cache_path", "a file to keep verdicts in"),
    Row("reward.options.record_path", "a file to write verdicts to"),
    Row("reward.options.api_key", "a secret, which settings never hold"),
    Row("reward.options.fallback", "a reward object, which settings cannot make"),
    # The run would talk to whatever listens there, and write its weights into the folder.
    Row("vllm.servers", "the addresses of vLLM servers"),
    Row("vllm.folder", "a folder that the run writes weights to"),
    Row("reward.options.heuristic", "a reward object, which settings cannot make"),
    Row("rollout.ray_address", "the address of a Ray cluster"),
    # Ray's own processes listen on every interface, and run what anyone sends them.
    Row("rollout.backend", "where attempts run: local or processes", (Known(("local", "processes")),)),
    *plain(
        "rollout.when_worker_lost", "run.run_name", "run.eval_by", "rollout.sampler", "vllm.weights",
        "vllm.on_lost",
        "policy.device", "policy.architecture", "language.quantization", "language.dtype",
        # A template runs in a sandbox and loads nothing, whatever it is told.
        "language.chat_template_kwargs", "language.tool_format",
        # Names of a model's layers, and PEFT's own words; other options that are text may import a module.
        *(f"language.lora_options.{name}" for name in (
            "target_modules", "exclude_modules", "modules_to_save", "target_parameters", "layers_pattern", "bias",
            "init_lora_weights", "rank_pattern", "alpha_pattern",
        )),
        "advantage.estimator", "advantage.baseline_type", "advantage.advantage_scale", "advantage.std_type",
        "advantage.backend",
        "loss.loss_type", "loss.importance_level", "loss.clip_scheduler_type", "loss.kl_estimator",
        "optim.lr_scheduler_type", "optim.gradient_surgery", "ranks.sharding", "grouping.group_strategy",
        "grouping.scale_group", "grouping.weight_group",
        "grouping.baseline_group", "grouping.group_weight_method", "scoring.normalization",
        "reward.options.normalization_method", "reward.options.name", "reward.options.expected",
        "reward.options.pattern", "reward.options.tags", "reward.options.json_keys", "reward.options.keywords",
        "reward.options.forbidden", "reward.options.facts", "reward.options.expected_responses",
    ),
)  # fmt: skip
"""The rows of settings that do not belong to one product alone."""


def row_of(product: str, setting: str) -> Row | None:
    """The row of a setting; a product's own comes before the common one."""
    return next((row for row in (*find(product).nameable, *COMMON) if row.setting == setting), None)


def permitted(cfg: TrainingConfig, reach: Reach, ours: Collection[str] = ()) -> TrainingConfig:
    """The settings with every name replaced by what it stands for, if a `train` key may name it all.

    `ours` are settings that the service itself has made.
    """
    for declared in layout_of(cfg.task.product).settings.values():
        asked = getattr(getattr(cfg, declared.section), declared.name)
        if declared.name.endswith("workers") and (asked or 0) > reach.workers:
            message = f"{declared.path} = {asked}: with scope 'train' a job has at most {reach.workers} workers"
            raise NotAllowed(message, hint="More need scope 'admin'.", field=declared.path)
    changed: dict[str, Any] = {}
    for declared in _settings(cfg):
        value = getattr(getattr(cfg, declared.section), declared.name)
        if declared.path not in ours and value is not None:
            resolved = _resolved(cfg.task.product, declared, value, reach)
            if resolved != value:
                changed[declared.flat] = resolved
    return cfg.replace(**changed) if changed else cfg


def _settings(cfg: TrainingConfig) -> Iterator[Setting]:
    for section in layout_of(cfg.task.product).sections.values():
        yield from (declared for declared in settings_of(section).values() if declared.kind in (str, Options))


def _resolved(product: str, declared: Setting, value: Any, reach: Reach) -> Any:
    if isinstance(value, Options):
        options: Mapping[str, Any] = value
        return Options({
            name: _allowed(f"{declared.path}.{name}", _option_row(product, declared.path, name), given, reach)
            for name, given in options.items()
        })  # fmt: skip
    row = row_of(product, declared.path)
    usual = find(product).defaults.get(declared.flat, declared.default)
    return value if row is None and value == usual else _allowed(declared.path, row, value, reach)


def _option_row(product: str, table: str, name: str) -> Row | None:
    """The row of one option, or that of the whole table."""
    return row_of(product, f"{table}.{name}") or row_of(product, table)


def _allowed(setting: str, row: Row | None, value: Any, reach: Reach) -> Any:
    """The value with its names resolved; a list is allowed if each of its members is."""
    if isinstance(value, tuple):
        return tuple(_allowed(setting, row, member, reach) for member in value)
    if row is None:
        # A number or a truth value names nothing, unless a row says that the program takes it for a name.
        if not isinstance(value, str):
            return value
        raise _refused(setting, value, row)
    if row.is_plain:
        return value
    if not isinstance(value, str):
        raise _refused(setting, value, row)
    names = value.split(row.separator) if row.separator else [value]
    found = [_first(row, name.strip() if row.separator else name, reach) for name in names]
    # A path that contains the separator would be read as two.
    if any(name is None or (row.separator and row.separator in name) for name in found):
        raise _refused(setting, value, row)
    return row.separator.join(name for name in found if name is not None)


def _first(row: Row, name: str, reach: Reach) -> str | None:
    resolved = (source.resolved(name, reach) for source in row.train)
    return next((name for name in resolved if name is not None), None)


def _refused(setting: str, value: Any, row: Row | None) -> NotAllowed:
    if row is None or not row.train:
        what = "text in this option" if row is None else f"this setting ({row.names})"
        return NotAllowed(f"{setting} = {value!r:.80}: {what} needs scope 'admin'", hint="Leave it out.", field=setting)
    near = difflib.get_close_matches(str(value), [name for one in row.train for name in one.like(str(value))], 1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    message = f"{setting} = {value!r:.80}: with scope 'train' it may only name {row.names}"
    return NotAllowed(message, hint=f"{meant}Anything else needs scope 'admin'.", field=setting)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or everything below a folder."""
    yield path
    if path.is_dir():
        for number, file in enumerate(path.rglob("*")):
            if number >= MOST_FILES:
                raise ValueError(f"{path} has more than {MOST_FILES:,} files")
            yield file


def _is_inside(base: Path, file: Path) -> bool:
    # Only files and folders: a pipe or a device would hang whoever reads it.
    real = file.resolve(strict=True)
    return real.is_relative_to(base) and (real.is_file() or real.is_dir())
