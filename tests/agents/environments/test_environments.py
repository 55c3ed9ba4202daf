"""Conversations with users of every kind, tasks with a checker, and scenarios found by name."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.data.problems import TASKS
from groupwise.agents.environments.contract import Listed, Reply, Transition
from groupwise.agents.environments.conversation import ConversationEnvironment, PlayedUser, endpoint
from groupwise.agents.environments.registry import find_scenarios, names_scenarios
from groupwise.agents.environments.task import OneTurnScenarios, TaskEnvironment
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, MissingExtra
from groupwise.types import End, Score, Task

REFUND = {"topic": "refund", "context": "Order delayed"}
SHIPPING = {"topic": "shipping", "context": "Track package"}


def talk(environment: Any, scenario: Any, *words: str) -> tuple[list[str], Transition]:
    """What the user says to these words, and the last transition."""

    async def hold() -> tuple[list[str], Transition]:
        one = environment.make()
        opened = await one.reset(Task("test/0", scenario))
        said = [message["content"] for message in opened.messages]
        for text in words:
            transition = await one.step(Reply(text))
            said += [message["content"] for message in transition.messages]
        return said, transition

    return asyncio.run(hold())


def test_a_scenario_of_topic_and_context_has_a_user_who_can_be_satisfied() -> None:
    environment = ConversationEnvironment(scenarios=[REFUND, SHIPPING], max_turns=6)
    said, last = talk(environment, REFUND, "What is it about?", "I am sorry; the refund is on its way.")
    assert said[0] == "I have a question about refund: Order delayed."
    assert said[1] == "It is about refund: Order delayed."
    assert (last.end, last.reward, last.parts) == (End.FINISHED, 1.0, {"satisfied": 1.0})
    said, last = talk(environment, REFUND, *["No."] * 6)
    assert (last.end, last.reward) == (End.TURN_LIMIT, 0.0)


def test_a_scripted_user_says_its_lines_and_leaves() -> None:
    scenario = {"opening": "Hi.", "system": "Be kind.", "user_responses": ["My lamp is broken.", "Thanks."]}
    said, last = talk(ConversationEnvironment([scenario]), scenario, "Hello", "Oh", "Bye")
    assert said == ["Be kind.", "Hi.", "My lamp is broken.", "Thanks."]
    assert (last.end, last.reward) == (End.FINISHED, 0.0)


def test_a_truncated_reply_is_answered_but_satisfies_nobody() -> None:
    async def hold(max_turns: int) -> list[Transition]:
        one = ConversationEnvironment([REFUND], max_turns)
        await one.reset(Task("test/0", REFUND))
        return [await one.step(Reply(text, cut=True)) for text in ("What is", "What is it?", "The refund is on its")]

    first, second, last = asyncio.run(hold(6))
    assert first.messages[0]["content"] == "Please go on."
    assert first.end is None
    assert second.messages[0]["content"] == "It is about refund: Order delayed."
    assert (last.end, last.reward, last.parts) == (End.TRUNCATED, 0.0, {"satisfied": 0.0})
    assert [step.end for step in asyncio.run(hold(2))[:2]] == [None, End.TRUNCATED], "the turn limit counts too"


def test_rules_have_a_state() -> None:
    rules = [
        {"pattern": "number", "reply": "It is {order}.", "then": "told"},
        {"pattern": "sent|open", "reply": "Thank you.", "state": "told", "satisfies": True},
    ]
    scenario = {"topic": "order", "order": 4821, "rules": rules, "otherwise": "I do not understand."}
    environment = ConversationEnvironment([scenario])
    said, last = talk(environment, scenario, "It was sent.", "Which NUMBER?", "It was sent.")
    assert said[1:] == ["I do not understand.", "It is 4821.", "Thank you."]
    assert last.reward == 1.0


class Player(BaseHTTPRequestHandler):
    """A chat server that repeats the last thing it was asked, and is satisfied by a refund."""

    asked: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        last = body["messages"][-1]["content"]
        text = "Good. [DONE]" if "refund" in last else f"You say: {last}"
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    http = HTTPServer(("127.0.0.1", 0), Player)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}/v1"
    http.shutdown()
    http.server_close()


def test_a_model_can_play_the_user_over_http(server: str) -> None:
    environment = ConversationEnvironment([REFUND], user=lambda s: PlayedUser(s, endpoint(server, "player")))
    said, last = talk(environment, REFUND, "Hello", "Here is your refund.")
    assert said[1:] == ["You say: Hello", "Good."]
    assert (last.end, last.reward) == (End.FINISHED, 1.0)
    roles = [message["role"] for message in Player.asked[-1]["messages"]]
    assert roles == ["system", "assistant", "user", "assistant", "user"]  # its own words are the assistant's


def test_a_checker_ends_a_task_or_says_what_is_missing() -> None:
    def check(task: Any, messages: Any) -> Any:
        return Score(1.0, {"correct": 1.0}) if messages[-1]["content"] == task["answer"] else "Look again."

    tasks = [{"goal": "What is 2 + 2?", "answer": "4"}, {"goal": "What is 3 + 3?", "answer": "6"}]
    environment = TaskEnvironment(tasks, check, max_turns=2)
    assert talk(environment, tasks[0], "4")[1] == Transition((), 1.0, End.FINISHED, {"correct": 1.0})
    said, last = talk(environment, tasks[0], "5", "6")
    assert said[1:] == ["Look again."] * 2
    assert last.end is End.TURN_LIMIT

    async def asynchronous(task: Any, messages: Any) -> bool:
        return bool(messages[-1]["content"] == "4")

    assert talk(TaskEnvironment(tasks, asynchronous), tasks[0], "4")[1].reward == 1.0
    with pytest.raises(ValueError, match="the checker returned None"):
        talk(TaskEnvironment(tasks, lambda task, messages: None), tasks[0], "4")


@pytest.mark.parametrize("count", [1, 2, 3, 10, 50])
def test_listed_scenarios_are_split_by_what_they_say(count: int) -> None:
    scenarios = [{"topic": f"topic {n}"} for n in range(count)]
    listed, turned = Listed(scenarios), Listed(scenarios[::-1])
    judged = [s["topic"] for s in listed.held_out(0, 1000)]
    assert sorted(judged) == sorted(s["topic"] for s in turned.held_out(0, 1000))
    trained = {listed.training(4, n)["topic"] for n in range(3 * count)}
    assert listed.training(4, 7) == Listed(scenarios).training(4, 7)
    if count > 1:
        assert not trained & set(judged)
        assert trained | set(judged) == {s["topic"] for s in scenarios}
    else:
        assert listed.shared


@pytest.mark.parametrize(
    ("scenarios", "words"),
    [
        ([], "list of scenarios is empty"),
        ([{}], "is empty"),
        (["refund"], "not an object"),
        ([{"topic": "a", "user_responses": "yes"}], "not a list of strings"),
        ([{"topic": 3}], "not text"),
    ],
)
def test_scenarios_that_cannot_be_held_are_refused(scenarios: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ConversationEnvironment(scenarios)


def settings(environment: str, **options: Any) -> Any:
    return TrainingConfig(environment=environment, options=options, product="agent").task


def test_scenarios_are_found_by_name(tmp_path: Path) -> None:
    file = tmp_path / "desk.jsonl"
    file.write_text("\n".join(json.dumps(s) for s in (REFUND, SHIPPING)) + "\n")
    found = find_scenarios(settings(f"conversation:{file}", max_turns=3))
    assert isinstance(found, ConversationEnvironment)
    assert (found.name, found.max_turns) == ("desk", 3)
    own = tmp_path / "own.py"
    own.write_text(
        "from groupwise.agents.environments.task import TaskEnvironment\n"
        "made = TaskEnvironment([{'goal': 'a'}, {'goal': 'b'}], lambda t, m: 1.0)\n"
        "TASKS = [1, 2]\n"
        "async def rollout(client, task):\n    return 1.0\n"
    )
    assert find_scenarios(settings(f"python:{own}:made")).name == "task"
    assert find_scenarios(settings(f"python:{own}:rollout")).training(0, 0) in (1, 2)
    assert find_scenarios(settings("orders", kinds=["status"])).training(0, 0).kind == "status"
    assert names_scenarios(settings("orders"))
    assert not names_scenarios(settings("addition"))
    file.write_text("{")
    for wrong in (f"conversation:{file}", "conversation:/no/such.jsonl", "order"):
        with pytest.raises(ConfigError):
            find_scenarios(settings(wrong))


def test_problems_with_one_answer_are_conversations_of_one_turn() -> None:
    scenarios = OneTurnScenarios(TASKS["addition"])
    problem = scenarios.training(0, 1)
    said, last = talk(scenarios, problem, problem.answer)
    assert said == [problem.text]
    assert (last.end, last.reward) == (End.FINISHED, 1.0)
    assert scenarios.demonstration(problem)[0]["content"] == problem.answer


@pytest.mark.skipif(find_spec("textarena") is not None, reason="TextArena is installed")
def test_a_missing_extra_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtra, match="TextArena"):
        find_scenarios(settings("textarena:GuessTheNumber-v0"))


@pytest.mark.skipif(find_spec("textarena") is None, reason="TextArena is not installed")
def test_a_game_of_textarena_is_played_with_its_own_chance() -> None:
    scenarios = find_scenarios(settings("textarena:GuessTheNumber-v0"))
    guesses = [f"[{n}]" for n in (10, 5, 15, 3, 12, 17, 7, 1, 19, 2)]

    def play(seed: int) -> tuple[list[str], Transition]:
        said: list[str] = []

        async def hold() -> Transition:
            game = scenarios.make()
            said.append((await game.reset(Task("game/0", seed))).messages[0]["content"])
            for guess in guesses:
                transition = await game.step(Reply(guess))
                said.extend(message["content"] for message in transition.messages)
                if transition.end is not None:
                    break
            return transition

        return said, asyncio.run(hold())

    assert play(4) == play(4)
    assert len({tuple(play(seed)[0]) for seed in range(6)}) > 1
    assert not {scenarios.training(0, n) % 2 for n in range(20)} & {seed % 2 for seed in scenarios.held_out(0, 20)}
    with pytest.raises(ConfigError, match="Did you mean"):
        find_scenarios(settings("textarena:GuessTheNumbers-v0"))
