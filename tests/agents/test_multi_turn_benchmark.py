"""The task of benchmarks/multi_turn.py needs all of its turns, and the benchmark tells what its arms did."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path

from groupwise.agents.environments.checker import check_conversation_environment
from groupwise.agents.environments.contract import Reply, Transition
from groupwise.types import End, Task

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import multi_turn
from intake_desk import FIRST, Case, IntakeDesk

DESK = IntakeDesk()
CASE = Case("lost", ("b", "d", "a"), "481")


def play(case: Case, *words: str, cut: bool = False) -> list[Transition]:
    async def hold() -> list[Transition]:
        clerk = DESK.make()
        await clerk.reset(Task("test/0", case))
        return [await clerk.step(Reply(text, cut=cut)) for text in words]

    return asyncio.run(hold())


def test_only_questions_that_are_due_bring_the_digits_and_only_all_of_them_count() -> None:
    turns = play(CASE, "a?", "b?", "d?", "a?", "481")
    assert [turn.messages[0]["content"] for turn in turns[:-1]] == ["no", "4 d", "8 a", "1"]
    assert (turns[-1].reward, turns[-1].end) == (1.0, End.FINISHED)
    for words in (["b?", "d?", "48"], ["481?"] * 6, ["no"], ["b?", "d?", "a?", "841"]):
        last = play(CASE, *words)[-1]
        assert last.end is not None
        assert (last.reward, last.parts["correct"]) == (0.0, 0.0), words
    assert (play(CASE, "481", cut=True)[0].end, play(CASE, "481", cut=True)[0].reward) == (End.TRUNCATED, 0.0)


def test_the_first_turn_alone_cannot_beat_chance() -> None:
    """The opening says nothing of the answer: whatever is always answered to it is right about once in 200."""
    cases = DESK.held_out(0, 4000)
    for request in FIRST:
        answers = Counter(case.answer for case in cases if case.request == request)
        assert max(answers.values()) / answers.total() < 0.02


def test_held_out_answers_are_never_right_in_training() -> None:
    trained = {DESK.training(seed, number).answer for seed in range(3) for number in range(1000)}
    assert len(trained) > 500
    assert not trained & {case.answer for case in DESK.held_out(0, 1000)}


def test_demonstrations_have_the_right_form_but_mostly_fail() -> None:
    cases = [DESK.training(0, number) for number in range(600)]
    right = [DESK.demonstration(case)[-1]["content"] == case.answer for case in cases]
    assert 0.2 < sum(right) / len(right) < 0.4
    for case in cases[:100]:
        said = [m["content"] for m in DESK.demonstration(case) if m["role"] == "assistant"]
        heard = [m["content"] for m in DESK.demonstration(case) if m["role"] == "user"]
        assert heard == [turn.messages[0]["content"] for turn in play(case, *said)[:-1]], "what the desk would reply"


def test_the_environment_keeps_the_contract() -> None:
    tasks = [Task(f"intake/{number}", DESK.training(0, number), number) for number in range(4)]
    assert check_conversation_environment(DESK.make, tasks) == []


def test_an_arm_is_judged_before_and_after_and_its_turns_are_counted(tmp_path: Path) -> None:
    small = ["run.eval_episodes=3", "rollout.tasks_per_step=1"]
    options = argparse.Namespace(arms=["rejection"], warm_steps=1, steps=2, warm=small, set=small, folder=None)
    found = multi_turn.run_seed(0, options, tmp_path)
    assert set(found) == {"warm_start", "grpo", "rejection"}
    assert found["grpo"]["first"] == found["rejection"]["first"], "both start from the same weights"
    assert len(found["grpo"]["turns"]) == 2
    assert found["grpo"]["turns"][0] >= 1
    assert {"accuracy", "drawn", "turns_mean"} <= set(found["grpo"]["last"])
