"""What is checked of the settings of a language run, a conversation run and a warm start, before there is a run.

None of this needs torch, so that `groupwise config check` answers at once.
"""

from collections.abc import Sequence
from typing import Any

from groupwise.agents.conversation.call_formats import named_format
from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.data.dataset import DataProblems, find_problems, listed
from groupwise.agents.data.problems import Problem, Problems
from groupwise.agents.data.rows import refused
from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.equipped import EquippedScenarios, scenarios_of
from groupwise.agents.environments.registry import names_scenarios
from groupwise.agents.environments.verifiers_episodes import VerifiersScenarios
from groupwise.agents.tools.tool_sources import described
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.samplers.vllm_server import check_sampler
from groupwise.rewards.registry import add_reward, find_reward
from groupwise.rollout.backends import insist_local
from groupwise.types import Message, Reward, Task

add_reward("program", "groupwise.agents.program_reward:ProgramTestReward")


def check_language_run(cfg: TrainingConfig) -> tuple[str, ...]:
    check_tool_format(cfg)
    check_sampler(cfg)
    return usable_problems(find_problems(cfg.task), find_reward(cfg.reward))[1]


def check_agent_run(cfg: TrainingConfig) -> tuple[str, ...]:
    """Refuse settings that no run can be made of; return which tools the model will have."""
    scenarios = scenarios_of(cfg)
    if cfg.task.options.get("memory") and isinstance(scenarios, RolloutScenarios):
        message = "task.options.memory has no effect on a rollout function, which writes its own messages"
        raise ConfigError(message, hint="Let the function use a UserMemory itself.", field="task.options.memory")
    find_reward(cfg.reward)
    check_tool_format(cfg)
    check_sampler(cfg)
    return tools_found(scenarios)


def check_warm_start(cfg: TrainingConfig) -> None:
    insist_local(cfg.rollout, "a warm start makes no attempts")
    if talks(cfg):
        scenarios = scenarios_of(cfg)
        check_tool_format(cfg)
        demonstration_of(scenarios, scenarios.training(cfg.run.seed, 0))
        return
    problems = find_problems(cfg.task)
    for problem in listed_problems(problems) or [problems.training(cfg.run.seed, 0)]:
        problems.demonstration(problem)


def check_tool_format(cfg: TrainingConfig) -> None:
    """Refuse the name of a format that neither we nor code of the user's own has registered."""
    if cfg.language.tool_format is not None:
        named_format(cfg.language.tool_format)


def usable_problems(problems: Problems, reward: Reward | None) -> tuple[Problems, tuple[str, ...]]:
    """Return the problems that the reward can score fairly, and a note about those that are left out.

    A reward may have a method `unfit(tasks)`, which returns the ids of tasks to leave out, each with the reason.
    Generated problems are not listed, so such a reward can refuse them only one at a time.
    """
    unfit = getattr(reward, "unfit", None)
    if not isinstance(problems, DataProblems) or unfit is None:
        return problems, ()
    if problems.same_columns and getattr(reward, "by_columns", False):
        first = next(iter(problems))
        if not unfit([Task(first.place, first)]):
            return problems, ()
    tasks = [Task(problem.place, problem) for problem in problems]
    faults = unfit(tasks)
    if not faults:
        return problems, ()
    verb = "is" if len(faults) == 1 else "are"
    return problems.without(faults), (f"{len(faults)} of {len(tasks)} tasks {verb} left out: {listed(faults)}",)


def tools_found(scenarios: Scenarios) -> tuple[str, ...]:
    """What else the run will talk to, for a person; servers are started for this and stopped again."""
    if isinstance(scenarios, VerifiersScenarios):
        scenarios.close()
        return (f"{len(scenarios.train) + len(scenarios.test)} tasks of {scenarios.name}, an environment of verifiers",)
    if not isinstance(scenarios, EquippedScenarios):
        return ()
    try:
        return tuple(described(scenarios.toolbox.tools.values()))
    finally:
        scenarios.close()


def talks(cfg: TrainingConfig) -> bool:
    """Whether what is imitated are conversations, not answers."""
    tools = getattr(cfg, "tools", None)  # settings of a language run have none
    return names_scenarios(cfg.task) or bool(tools and tools.sources)


def demonstration_of(scenarios: Any, scenario: Any) -> Sequence[Message]:
    """Return the scenario's demonstration; refuse scenarios that have none."""
    if not hasattr(scenarios, "demonstration"):
        hint = "Add a method demonstration(scenario) that returns messages, or train without a warm start."
        raise refused(f"{scenarios.name!r} has no demonstrations to imitate", hint)
    messages: Sequence[Message] = scenarios.demonstration(scenario)
    return messages


def listed_problems(problems: Problems) -> Sequence[Problem]:
    """Return all training problems if they are listed; generated ones are checked when they are drawn."""
    return problems.train if isinstance(problems, DataProblems) else []
