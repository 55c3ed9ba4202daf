"""The scripted judge for every test of this folder; a test that takes `fault` runs once for each it knows."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from groupwise.rewards.judge.judge_reward import RulerRewardFunction
from groupwise.rewards.judge.rubrics import GENERAL


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripted_judge", Path(__file__).parent / "scripted.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["scripted_judge"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPTED = _load()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", SCRIPTED.FAULTS.values(), ids=SCRIPTED.FAULTS)


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module `scripted.py`: a server, its answers and faults, and groups to be judged."""
    return SCRIPTED


@pytest.fixture
def server() -> Iterator[Any]:
    with SCRIPTED.serving() as server:
        yield server


@pytest.fixture
def judge(server: Any) -> Iterator[Callable[..., RulerRewardFunction]]:
    """Makes judges that ask the scripted server, do not wait long, and fall back unless told otherwise.

    Their rubric is the general one without its gate, so that a total is the mean of its parts; every group is asked
    about once.
    """
    made: list[RulerRewardFunction] = []

    def make(**settings: Any) -> RulerRewardFunction:
        quick = {"base_url": server.url, "model": "openai/gpt-4", "timeout": 10.0, "pause": 0.01, "api_key": "k"}
        quick |= {"fallback_enabled": True, "consistency_share": 0.0, "rubric": replace(GENERAL, gate=None)}
        made.append(RulerRewardFunction(**{**quick, **settings}))
        return made[-1]

    yield make
    for one in made:
        one.close()
