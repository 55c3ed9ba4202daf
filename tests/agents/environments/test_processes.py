"""Environments in worker processes: what one of them does to its process touches no other conversation."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.agents.environments.contract import Reply, Transition
from groupwise.agents.environments.worker_environments import InProcesses
from groupwise.errors import ContractError
from groupwise.types import End, Task
from groupwise.workers import WorkerLost

sys.path.insert(0, str(Path(__file__).parent))
import odd_environments as odd


@pytest.fixture(scope="module")
def processes() -> Iterator[InProcesses]:
    with InProcesses(odd.Dies, workers=2, seconds=1.0) as made:
        yield made


async def talk(processes: InProcesses, payload: str) -> Transition:
    environment = processes.make()
    try:
        await environment.reset(Task("odd/1", payload, 1))
        while True:
            transition = await environment.step(Reply("yes"))
            if transition.end is not None:
                return transition
    finally:
        await environment.close()


async def outcomes(processes: InProcesses, payloads: list[str]) -> list[Transition | BaseException]:
    return await asyncio.gather(*(talk(processes, payload) for payload in payloads), return_exceptions=True)


def test_conversations_are_held_in_other_processes(processes: InProcesses) -> None:
    found = asyncio.run(outcomes(processes, ["fine"] * 8))
    assert all(isinstance(t, Transition) and t.end is End.FINISHED and t.reward == 1.0 for t in found)
    places = {t.parts["process"] for t in found if isinstance(t, Transition)}
    assert len(places) == 2
    assert os.getpid() not in places


def test_what_an_environment_raises_is_told_and_its_worker_goes_on(processes: InProcesses) -> None:
    broken, fine = asyncio.run(outcomes(processes, ["raises", "fine"]))
    assert isinstance(broken, ContractError)
    assert "KeyError" in broken.message
    assert isinstance(fine, Transition)


@pytest.mark.parametrize("fate", ["dies", "hangs"])
def test_a_worker_that_is_lost_fails_its_own_conversations_and_is_replaced(processes: InProcesses, fate: str) -> None:
    lost, fine = asyncio.run(outcomes(processes, [fate, "fine"]))
    assert isinstance(lost, WorkerLost)
    assert isinstance(fine, Transition)
    assert all(isinstance(t, Transition) for t in asyncio.run(outcomes(processes, ["fine"] * 4)))


def test_nothing_is_left_when_it_is_closed() -> None:
    processes = InProcesses(odd.Echo, workers=1)
    (fine,) = asyncio.run(outcomes(processes, ["fine"]))
    assert isinstance(fine, Transition)
    processes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(fine.parts["process"]), 0)
    with pytest.raises(WorkerLost, match="closed"):
        asyncio.run(talk(processes, "fine"))
