"""The table of products, and the border between a product and the rest of the package.

A product is declared in a light module: its name, its settings and their defaults, its metrics. It is implemented in
another, which may import torch and is imported only when a run asks for it:

    prepare(cfg) -> cfg                      pin what might change later, before the run folder exists
    check(cfg)                               refuse settings that no run can be made of; may return notes; required.
                                             `Product.checks` may name a lighter module that has it, without torch
    open_run(run_dir, cfg, *, learning)      -> cfg; use what the run keeps in its own folder
    build(cfg) -> Parts                      policy, source of batches and evaluation; required
    report_sections(run_dir, cfg)            -> HTML sections that the product adds to a run's report

Nothing outside a product's folder knows its name, except the table below. Other packages add products as entry points
of the group "groupwise.products", in the same form. docs/architecture.md builds one in forty lines.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from groupwise.errors import ConfigError, ContractError
from groupwise.machine_memory import check_fits

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from cyclopts import App

    from groupwise.config import TrainingConfig
    from groupwise.training.session import Parts

logger = logging.getLogger(__name__)

PRODUCTS: Mapping[str, str] = {
    "control": "groupwise.control.declaration:CONTROL",
    "ppo": "groupwise.control.declaration:PPO",
    "language": "groupwise.agents.declaration:LANGUAGE",
    "agent": "groupwise.agents.declaration:AGENT",
    "warm-start": "groupwise.agents.declaration:WARM_START",
    "designer": "groupwise.designer.declaration:DESIGNER",
    "code": "groupwise.programs.declaration:CODE",
}
"""`task.product` → where it is declared. The first row is the product of settings that only name an environment."""


class Command(NamedTuple):
    """A command of `groupwise`: where its function is, one line about it, and its optional arguments for the help."""

    function: str
    summary: str
    arguments: str = ""

    def register(self, app: App, name: str, prefix: str) -> None:
        """Add the command to the application; its function is imported when it is called."""
        usage = {"usage": f"Usage: {prefix} {name} [OPTIONS] {self.arguments}"} if self.arguments else {}
        app.command(self.function, name=name, help=self.summary, **usage)


COMMANDS: Mapping[str, Command] = {
    "chat": Command("groupwise.agents.commands:chat", "Chat with a run's language model.", "[RUN]"),
    "demo": Command("groupwise.agents.commands:demo", "Teach a tiny language model to add, in about two minutes."),
    "export": Command("groupwise.agents.commands:export", "Save a run's language model as a Hugging Face folder."),
    "sft": Command("groupwise.agents.commands:sft", "Fine-tune a language model on correct answers, as a warm start."),
    "design": Command("groupwise.designer.commands:design", "Design a workflow for requirements."),
    "feedback": Command(
        "groupwise.designer.commands:feedback",
        "Record how a design performed in production, so the next design can use it.",
    ),
    "requirements": Command(
        "groupwise.designer.commands:requirements",
        "Make requirements from an event log or a description, or check that they can be met.",
    ),
    "solve": Command(
        "groupwise.programs.commands:solve", "Find a program that solves a problem, and show the search tree."
    ),
    "search": Command(
        "groupwise.programs.commands:search",
        "Find programs for many problems, resumably.",
        "[FAMILY...]",
    ),
    "compare": Command(
        "groupwise.control.commands:compare",
        "Train several settings with the same seeds, and say which differences are significant.",
        "[FILE...]",
    ),
    "sweep": Command(
        "groupwise.control.sweep.commands:sweep",
        "Train many settings, and say which of them matter and which to take.",
        "[FILE...]",
    ),
    "paper": Command("groupwise.control.commands:paper", "Repeat a paper's central experiment in seconds."),
}
"""The commands of the products by name."""
REMOVED: Mapping[str, str] = {
    "scheduling": "learning added little to HEFT. Use groupwise.workflows.evaluation.schedule.heft for schedules.",
}
SERVICES: Mapping[str, str] = {
    "chat": "groupwise.agents.chat_service",
    "workflows": "groupwise.designer.workflow_worker",
}
"""The modules behind the service's requests: a light one for chat, and the worker process for workflows."""
STARTERS: Mapping[str, tuple[str, str]] = {
    "data": ("groupwise.agents.starter:DATA", "data, and a reward for what a model answers"),
    "environment": ("groupwise.control.starter:ENVIRONMENT", "an environment, for a policy to act in"),
    "process": ("groupwise.designer.commands:PROCESS", "a process to improve: an event log or a workflow"),
    "problem": ("groupwise.programs.starter:PROBLEM", "a problem that a program should solve"),
}
"""What `groupwise init` can begin with: where its `reporting.starter.Starter` is, and what it is in words."""
PLUG_INS = "groupwise.products"
# A declaration that imports one of these would slow down every command that only reads settings.
HEAVY = ("torch", "transformers", "gymnasium", "numba", "matplotlib")
REQUIRED = ("check", "build")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that the runs of a product report. In `name`, `*` stands for any part: `eval/*/reward_mean`.

    Metrics with the same `panel` share a chart, where `label` names the line; `worry` says when to look closer.
    """

    name: str
    meaning: str
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""
    panel: str = ""
    label: str = ""
    worry: str = ""


@dataclass(frozen=True, kw_only=True)
class Product:
    """Everything the package knows about a product before a run asks for it.

    `sections` are the settings it has beside the common ones: its own `config.fields.Section` classes, or shared ones
    of `config.sections`. `defaults` replace general defaults, by flat name. `nameable` are its rows in the table of
    `config.nameable`: what texts in its settings can load, and who may name it. `checks` is `module:function` of its
    check, where a module without torch has it. `language_model` says that its policy
    can be chatted with and exported; `warm_start` names the product that gives it a supervised start. `grouped` says
    that a step samples `rollout.tasks_per_step` groups, which many ranks can share.
    """

    name: str
    summary: str
    implementation: str
    checks: str = ""
    sections: tuple[type[Any], ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    nameable: tuple[Any, ...] = ()
    language_model: bool = False
    warm_start: str = ""
    grouped: bool = True

    def check(self, cfg: TrainingConfig) -> tuple[str, ...]:
        """Refuse settings that no run can be made of, here or at all; return what else to know. It writes nothing."""
        check_fits(cfg)
        module, _, function = self.checks.partition(":")
        check = getattr(import_module(module), function) if module else self._module().check
        return tuple(check(cfg) or ())

    def prepare(self, cfg: TrainingConfig) -> TrainingConfig:
        """Pin what might change later, such as the model to start from. Called before there is a run folder."""
        return self._settings("prepare", cfg, cfg)

    def open_run(self, run_dir: Path, cfg: TrainingConfig, *, learning: bool) -> TrainingConfig:
        """The settings to build the run in this folder with, to go on `learning` or only to be evaluated."""
        return self._settings("open_run", cfg, run_dir, cfg, learning=learning)

    def build(self, cfg: TrainingConfig) -> Parts:
        """The parts of a run."""
        # Parts is known by what it has: importing its class here would import torch.
        parts: Parts = self._module().build(cfg)
        if not hasattr(parts, "policy") or not hasattr(parts, "source"):
            raise broken_border(self.name, f"build must return training.session.Parts, not {type(parts).__name__}")
        return parts

    def report_sections(self, run_dir: Path, cfg: TrainingConfig) -> Sequence[str]:
        """HTML sections for the run's report."""
        add: Callable[..., Sequence[str]] | None = getattr(self._module(), "report_sections", None)
        return add(run_dir, cfg) if add is not None else ()

    def _settings(self, function: str, cfg: TrainingConfig, *given: Any, **options: Any) -> TrainingConfig:
        change = getattr(self._module(), function, None)
        if change is None:
            return cfg
        changed = change(*given, **options)
        if not isinstance(changed, type(cfg)):
            raise broken_border(self.name, f"{function} must return a TrainingConfig, not {type(changed).__name__}")
        return changed

    def _module(self) -> ModuleType:
        module = import_module(self.implementation)
        for function in REQUIRED:
            if not _takes_settings(getattr(module, function, None)):
                raise broken_border(self.name, f"{self.implementation} must have a function {function}(cfg)")
        return module


def names() -> tuple[str, ...]:
    """The names of all products, plug-ins last."""
    return (*PRODUCTS, *_plug_ins())


def product_of(cfg: TrainingConfig) -> Product:
    return find(cfg.task.product)


def service_module(name: str) -> Any:
    """The module in `SERVICES`, imported now."""
    return import_module(SERVICES[name])


@cache
def find(name: str) -> Product:
    """The declaration of a product; a `ConfigError` says which there are."""
    if name in PRODUCTS:
        module, _, attribute = PRODUCTS[name].partition(":")
        declared: Product = getattr(import_module(module), attribute)
        return declared
    if name in REMOVED:
        raise ConfigError(f"the product {name!r} was removed: {REMOVED[name]}", field="task.product")
    if name in _plug_ins():
        return _plugged_in(name, _plug_ins()[name])
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Products are {', '.join(names())}."
    raise ConfigError(f"task.product = {name!r} is not a product", hint=hint, field="task.product")


@cache
def _plug_ins() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    found = {point.name: point for point in entry_points(group=PLUG_INS)}
    for name in found.keys() & PRODUCTS.keys():
        logger.warning("%s", broken_border(name, "a plug-in needs a name of its own; this one is taken"))
    return {name: point for name, point in found.items() if name not in PRODUCTS}


def _plugged_in(name: str, point: EntryPoint) -> Product:
    """Load a plug-in's declaration and hold it to the rules of the border."""
    # Only what this declaration imports counts: the process may have loaded torch long before.
    before = {module for module in HEAVY if module in sys.modules}
    declared = point.load()
    heavy = [module for module in HEAVY if module in sys.modules and module not in before]
    if heavy:
        raise broken_border(name, f"its declaration {point.module} must not import {heavy[0]}")
    if not isinstance(declared, Product):
        raise broken_border(name, f"its entry point {point.value} must be a Product, not {declared!r:.80}")
    broken = broken_rule(declared, name)
    if broken:
        raise broken_border(name, broken)
    return declared


def broken_rule(product: Product, name: str) -> str:
    """The first rule of the border that a declaration breaks; "" when it keeps them all.

    Rules about settings are checked where the settings are: `config.setting_names.layout_of`.
    """
    metrics = [metric.name for metric in product.metrics]
    if product.name != name:
        return f"its name must be that of its row, {name!r}, not {product.name!r}"
    if len(set(metrics)) < len(metrics):
        return f"the metric {max(metrics, key=metrics.count)!r} is declared several times"
    for metric in product.metrics:
        if metric.better not in ("higher", "lower", ""):
            return f"metric {metric.name!r} must be better 'higher', 'lower' or '', not {metric.better!r}"
    return ""


def broken_border(name: str, rule: str) -> ContractError:
    return ContractError(
        f"the product {name!r} breaks a rule for products: {rule}",
        hint="docs/architecture.md lists the rules under 'A new product'.",
        field="task.product",
    )


def _takes_settings(function: Any) -> bool:
    """Whether a function can be called with the settings alone."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        return False
    return True
