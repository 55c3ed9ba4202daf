"""A run's scenarios, with the tools of its settings (`tools.sources`) added to every conversation.

The toolbox is made when the first conversation needs it, once in every process: a worker starts servers of its own.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.environments.contract import Environment, Scenarios
from groupwise.agents.environments.registry import find_scenarios
from groupwise.agents.tools.tool_sources import find_tools
from groupwise.agents.tools.toolbox import Toolbox, WithTools
from groupwise.config import TaskSettings, ToolsSettings, TrainingConfig
from groupwise.errors import ConfigError


class EquippedScenarios:
    """Scenarios whose conversations may call tools; everything else is the scenarios' own."""

    def __init__(self, scenarios: Scenarios, settings: ToolsSettings) -> None:
        self.scenarios, self.settings = scenarios, settings
        self._toolbox: Toolbox | None = None
        self._making = threading.Lock()

    @property
    def name(self) -> str:
        return self.scenarios.name

    def training(self, seed: int, number: int) -> Any:
        return self.scenarios.training(seed, number)

    def held_out(self, seed: int, count: int) -> Sequence[Any]:
        return self.scenarios.held_out(seed, count)

    def make(self) -> Environment:
        return WithTools(self.scenarios.make(), self.toolbox, self.settings.max_failures)

    @property
    def toolbox(self) -> Toolbox:
        with self._making:
            if self._toolbox is None:
                own = self.settings
                self._toolbox = Toolbox(
                    find_tools(*own.sources), timeout=own.timeout, longest_result=own.longest_result,
                    most_calls=own.most_calls,
                )  # fmt: skip
            return self._toolbox

    def close(self) -> None:
        if self._toolbox is not None:
            self._toolbox.close()
        self._toolbox = None

    def __getattr__(self, name: str) -> Any:
        # What not all scenarios have, such as `demonstration` and `shared`.
        if name.startswith("_") or name == "scenarios":
            raise AttributeError(name)
        return getattr(self.scenarios, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"scenarios": self.scenarios, "settings": self.settings}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["scenarios"], state["settings"])  # type: ignore[misc]


def scenarios_of(cfg: TrainingConfig, given: Scenarios | None = None) -> Scenarios:
    """The scenarios of a run, `given` in code or named by its settings, with the tools that these name."""
    return _equipped(given or find_scenarios(cfg.task), cfg.tools)


def scenarios_from(settings: Mapping[str, Any]) -> Scenarios:
    """The same from the plain settings that a worker is sent: its sections `task` and `tools`."""
    return _equipped(find_scenarios(TaskSettings(**settings["task"])), ToolsSettings(**settings.get("tools", {})))


def _equipped(scenarios: Scenarios, tools: ToolsSettings) -> Scenarios:
    if not tools.sources:
        return scenarios
    if isinstance(scenarios, RolloutScenarios):
        message = "tools.sources has no effect on a rollout function, which calls its own tools"
        raise ConfigError(message, hint="Load them there with find_tools(…).", field="tools.sources")
    return EquippedScenarios(scenarios, tools)
