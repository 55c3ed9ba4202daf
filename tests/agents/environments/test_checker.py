"""The checker tells an author which promise an environment breaks, and finds nothing where all are kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.environments.checker import check_conversation_environment
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.orders import Orders
from groupwise.agents.environments.task import TaskEnvironment
from groupwise.types import Task

sys.path.insert(0, str(Path(__file__).parent))
import odd_environments as odd


def tasks(payload: Any = "Ada") -> list[Task]:
    return [Task(f"odd/{n}", payload, n) for n in range(2)]


def scenario_tasks(scenarios: Any) -> list[Task]:
    return [Task(f"{scenarios.name}/{n}", scenarios.training(0, n), n) for n in range(6)]


SOUND = [
    Orders(),
    ConversationEnvironment(
        [{"topic": "refund", "context": "Order delayed"}, {"topic": "b", "user_responses": ["?"]}], 6
    ),
    TaskEnvironment([{"goal": "What is 2 + 2?"}, {"goal": "And 3 + 3?"}], lambda task, messages: "no", max_turns=3),
]


@pytest.mark.parametrize("scenarios", SOUND, ids=lambda scenarios: scenarios.name)
def test_our_own_environments_keep_their_promises(scenarios: Any) -> None:
    assert check_conversation_environment(scenarios.make, scenario_tasks(scenarios)) == []


def test_an_environment_that_keeps_all_promises_passes() -> None:
    assert check_conversation_environment(odd.Echo, tasks()) == []


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (odd.NotATransition, "not_a_transition"),
        (odd.NotAsync, "not_async"),
        (odd.UnknownRole, "role"),
        (odd.SpeaksForTheModel, "role"),
        (odd.SpecialTokens, "special_token"),
        (odd.Chance, "reproducible"),
        (odd.Shared, "shared_state"),
        (odd.NeverEnds, "never_ends"),
        (odd.NotFinite, "not_finite"),
        (odd.Blocks, "blocking"),
        (odd.AfraidOfNothing, "odd_reply"),
        (odd.ChangesItsTask, "changes_task"),
        (odd.Silent, "says_nothing"),
    ],
)
def test_a_broken_promise_is_named_with_a_remedy(make: Any, code: str) -> None:
    given = tasks([]) if make is odd.ChangesItsTask else tasks()[:1]
    found = {failure.code: failure for failure in check_conversation_environment(make, given, most_turns=8)}
    assert code in found
    assert found[code].hint
