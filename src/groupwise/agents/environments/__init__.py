"""Environments: the other side of a conversation. Authors see messages, never tokens.

contract             what an environment and its scenarios must offer; start here to write your own
registry             `task.environment` → scenarios
checker              finds out whether an environment keeps the contract
worker_environments  the same in a worker: another process or machine
conversation         scenarios with a scripted, rule-based or model-played user
task                 a goal and a function that checks it; problems with one answer as one turn
equipped             scenarios with the tools of a run's settings
programs             agent programs that speak OpenAI's API, one process for every attempt
verifiers_episodes   environments of the package verifiers, played in an environment of its own
verifiers_driver     what runs there
orders               questions about a shop, answered with tools on a real database
worked_sums          sums whose written working counts
textarena            single-player games of TextArena
"""

from groupwise.agents.environments.contract import (
    BrokenCall,
    Environment,
    Observation,
    Reply,
    Scenarios,
    ToolCall,
    Transition,
)

__all__ = ["BrokenCall", "Environment", "Observation", "Reply", "Scenarios", "ToolCall", "Transition"]
