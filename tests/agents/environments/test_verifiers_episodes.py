"""An environment of verifiers with a tool, unmodified: what is trained on is what was sampled for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.custom_rollout import CustomRollouts
from groupwise.agents.conversation.rollouts import ConversationLimits
from groupwise.agents.environments.registry import find_scenarios
from groupwise.agents.environments.verifiers_episodes import VerifiersScenarios
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError, MissingExtra
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.tiny import tiny_model
from groupwise.types import Task

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("GROUPWISE_VERIFIERS", ROOT / ".venv-verifiers" / "bin" / "python"))
LOCAL = '{"taskset": {"task": {"tools": {"runtime": {"type": "subprocess"}}}}}'


def test_what_is_missing_is_one_sentence() -> None:
    for options, error, said in (
        ({"python": "/no/python"}, MissingExtra, "need a Python of their own"),
        ({"args": "{"}, ConfigError, "is not valid JSON"),
    ):
        with pytest.raises(error, match=said):
            find_scenarios(TaskSettings(product="agent", environment="verifiers:glossary", options=options))


class Watched(CustomRollouts):
    sampled: list[Sampled]

    async def say(self, *given: Any, **changes: Any) -> Sampled:
        self.sampled.append(await super().say(*given, **changes))
        return self.sampled[-1]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_tokens_of_an_environment_of_verifiers_are_those_that_are_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not PYTHON.exists():
        pytest.skip(f"verifiers is not installed: there is no {PYTHON} (make verifiers)")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "fixtures"))
    scenarios = VerifiersScenarios("verifiers_glossary", args=LOCAL, python=str(PYTHON))
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=8) as engine:
        talk = Watched(
            engine, Frame(tokenizer), scenarios.rollout, SamplingParams(max_new_tokens=12), group_size=2, seed=5,
            limits=ConversationLimits(turns=4, seconds=600.0),
        )  # fmt: skip
        talk.sampled = []
        (group,) = talk.collect([Task("0", 0, 0)])
        talk.close()
    scenarios.close()
    assert [attempt.error for attempt in group.members] == [None, None]
    assert len(talk.sampled) >= 2
    recorded = np.concatenate([a.actions[a.mask] for a in group.members])
    sampled = np.concatenate([one.ids for one in talk.sampled])
    assert np.array_equal(np.sort(recorded), np.sort(sampled))
    logps = np.concatenate([a.behavior_logp[a.mask] for a in group.members])
    assert np.array_equal(np.sort(logps), np.sort(np.concatenate([one.logp for one in talk.sampled])))
    assert all("correct" in attempt.meta["parts"] for attempt in group.members)
