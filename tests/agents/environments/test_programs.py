"""Agent programs in training: real processes with OpenAI's client, at a real door to the tiny model."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.custom_rollout import CustomRollouts
from groupwise.agents.conversation.rollouts import ConversationLimits
from groupwise.agents.environments.programs import ProgramScenarios
from groupwise.agents.environments.registry import find_scenarios
from groupwise.agents.openai.door import Door
from groupwise.config import TaskSettings, load_config
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.tiny import tiny_model
from groupwise.types import End, Task, Trajectory

pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai")
PROGRAM = f"{sys.executable} {Path(__file__).parents[2] / 'fixtures' / 'agent_program.py'}"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=16) as engine:
        yield engine.start()


class Watched(CustomRollouts):
    """Keeps every sample that the engine made, to compare with what the attempts recorded."""

    sampled: list[Sampled]

    async def say(self, *given: Any, **changes: Any) -> Sampled:
        self.sampled.append(await super().say(*given, **changes))
        return self.sampled[-1]


def attempts(
    engine: Engine, tasks: list[Any], *, turns: int = 4, score: str = "line", size: int = 1
) -> tuple[list[Trajectory], list[Sampled]]:
    scenarios = ProgramScenarios(PROGRAM, tasks, score=score)
    talk = Watched(
        engine, Frame(engine.tokenizer), scenarios.rollout, SamplingParams(max_new_tokens=8), group_size=size, seed=5,
        limits=ConversationLimits(turns=turns),
    )  # fmt: skip
    talk.sampled = []
    groups = talk.collect([Task(str(number), task, number) for number, task in enumerate(tasks)])
    talk.close()
    return [member for group in groups for member in group.members], talk.sampled


def test_what_a_program_is_trained_on_is_what_was_sampled_for_it(engine: Engine) -> None:
    plain = {"question": "Who?", "callback": True, "plain": True, "calls": 2}
    found, sampled = attempts(engine, [{"question": "What is it?"}, plain], size=2)
    assert [attempt.end for attempt in found] == [End.FINISHED] * 4
    recorded = sorted(tuple(a.actions[a.mask]) for a in found)
    logps = np.sort(np.concatenate([a.behavior_logp[a.mask] for a in found]))
    assert len(sampled) == 8
    made = {tuple(one.ids) for one in sampled}
    # Every attempt is two samples, token by token.
    assert all(any(ids == a + b for a in made for b in made) for ids in recorded)
    assert np.array_equal(logps, np.sort(np.concatenate([one.logp for one in sampled])))
    assert all(attempt.rewards.sum() == 0.25 for attempt in found[2:])
    assert all(attempt.meta["parts"]["letters"] >= 0 for attempt in found)
    # The second call continues the first: one row in training, not two.
    assert {attempt.meta["segments"] for attempt in found} == {1}


def test_how_a_program_ends_is_how_its_attempt_ends(engine: Engine) -> None:
    task = {"question": "?", "plain": True}
    tasks = [{**task, "fails": True}, {**task, "silent": True}]
    (failed, silent), _ = attempts(engine, tasks)
    assert (failed.end, silent.end) == (End.ENV_ERROR, End.ENV_ERROR)
    assert failed.error is not None
    assert "ended with status 1: it went wrong" in failed.error.message
    assert silent.error is not None
    assert "reported no score; its last line is 'thinking aloud'" in silent.error.message
    (limited,), _ = attempts(engine, [{**task, "calls": 2}], turns=1)
    assert limited.end is End.TURN_LIMIT
    exits, _ = attempts(engine, [{**task, "exit": status} for status in (0, 1, 7)], score="exit")
    assert [attempt.rewards.sum() for attempt in exits[:2]] == [1.0, 0.0]
    assert (exits[1].end, exits[2].end) == (End.FINISHED, End.ENV_ERROR)


def test_a_program_that_cannot_run_is_one_sentence(engine: Engine, tmp_path: Path) -> None:
    scenarios = ProgramScenarios("no-such-agent", [{}])
    talk = CustomRollouts(engine, Frame(engine.tokenizer), scenarios.rollout, SamplingParams(), group_size=1, seed=1)
    (group,) = talk.collect([Task("0", {}, 0)])
    talk.close()
    assert "'no-such-agent' cannot be started" in str(group.members[0].error)
    for environment, options, said in (
        ("program:agent", {}, "a program needs tasks"),
        ("program:", {"tasks": "x"}, "x: "),
        ("program:agent", {"tasks": str(tmp_path / "tasks.jsonl"), "score": "words"}, "is not a way to report"),
    ):
        (tmp_path / "tasks.jsonl").write_text("{}\n")
        with pytest.raises(ConfigError, match=said):
            find_scenarios(TaskSettings(product="agent", environment=environment, options=options))


class Slow:
    """Someone who takes long to answer, and notices when nobody waits any more."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def complete(self, *given: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.left.set()
            raise


def test_strangers_wrong_requests_and_clients_that_leave() -> None:
    async def visit() -> None:
        door, slow = Door(), Slow()
        url = await door.open()
        label = door.admit(slow).label  # type: ignore[arg-type]
        hello = {"messages": [{"role": "user", "content": "hello"}]}
        own = {"authorization": f"Bearer {label}"}
        async with httpx.AsyncClient(trust_env=False) as client:
            strange = await client.post(f"{url}/chat/completions", json=hello, headers={"authorization": "Bearer me"})
            assert (strange.status_code, strange.json()["error"]["message"]) == (
                401, "no attempt under way has this label",
            )  # fmt: skip
            for body, said in (
                (b"{", "not valid JSON"),
                (b"{}", "no messages"),
                (json.dumps({**hello, "n": 2}).encode(), "one complete answer"),
                (json.dumps({**hello, "response_format": {"type": "json_object"}}).encode(), "response_format"),
            ):
                wrong = await client.post(
                    f"{url}/chat/completions", content=body, headers={"x-groupwise-attempt": label}
                )
                assert wrong.status_code in (400, 401)
                assert said in wrong.text or body == b"{"
            scored = await client.post(f"{url}/score", json={"score": "high"}, headers=own)
            assert (scored.status_code, scored.json()["error"]["field"]) == (400, "score")
            assert (await client.get(f"{url}/models")).json()["data"][0]["id"] == "policy"
            assert (await client.get(f"{url}/nothing")).status_code == 404
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{url}/chat/completions", json=hello, headers=own, timeout=0.5)
            await asyncio.wait_for(slow.left.wait(), 30)
            # The label may also be the model's name.
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{url}/chat/completions", json={**hello, "model": label}, timeout=0.5)
        await door.close()

    asyncio.run(visit())


def test_a_settings_file_names_a_program_and_its_tasks_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"question": "What is it?"}\n{"question": "Who is it?"}\n')
    (tmp_path / "agent.py").write_text("")
    settings = tmp_path / "run.toml"
    options = 'options = { tasks = "tasks.jsonl", score = "exit" }'
    settings.write_text(f'[task]\nproduct = "agent"\nenvironment = "program:python agent.py"\n{options}\n')
    scenarios = find_scenarios(load_config(settings).task)
    assert isinstance(scenarios, ProgramScenarios)
    assert scenarios.command[0] == "python"
    assert Path(scenarios.command[1]).resolve() == (tmp_path / "agent.py").resolve()
    assert {scenarios.training(0, 0)["question"], scenarios.held_out(0, 9)[0]["question"]} == {
        "What is it?",
        "Who is it?",
    }
