"""Evaluation: pass@k against brute force, and answers of the real tiny model as a reader sees them."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.conversation.prompts import prompt_ids
from groupwise.agents.data.problems import TASKS, Problem, is_correct
from groupwise.agents.evaluation import (
    AnswerEvaluation,
    Graded,
    _samples,
    as_groups,
    correct_in,
    grade,
    greedy_evaluation,
    pass_at_k,
    powers_of_two,
    summary,
)
from groupwise.cli import main
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.loading import load_model
from groupwise.language.tiny import character_tokenizer
from groupwise.reporting.report import write_report
from groupwise.rewards.scoring import RewardScorer, per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.training.token_attempts import answer_text, sampling_seed
from groupwise.types import End, Failed, Failure, Group, Sample, Score, ScoredGroup, Task, Trajectory


@pytest.mark.parametrize("samples", [1, 2, 5, 6])
def test_pass_at_k_is_the_share_of_choices_that_hold_a_correct_one(samples: int) -> None:
    for correct, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        drawn = list(itertools.combinations([True] * correct + [False] * (samples - correct), k))
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))


def test_k_goes_over_the_powers_of_two_up_to_the_samples() -> None:
    assert [list(powers_of_two(n)) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 8]]


@pytest.fixture(scope="module")
def language() -> Any:
    return load_model("tiny", seed=0)


@pytest.fixture
def engine(language: Any) -> Iterator[Engine]:
    engine = Engine(language.model, language.tokenizer)
    yield engine
    engine.close()


@pytest.fixture
def scorer() -> Iterator[RewardScorer]:
    with RewardScorer(timeout=0.2) as scorer:
        yield scorer


def evaluation(
    problems: Any, held_out: Any, engine: Engine, tokenizer: Any, scorer: RewardScorer, *, length: int = 4, **more: int
) -> AnswerEvaluation:
    """An evaluation by the problems' own grade."""
    reward, drawn = per_attempt(product.grader(problems)), SamplingParams(max_new_tokens=length)
    given: Any = {"drawn": drawn, "reward": reward, "check": reward, **more}
    return AnswerEvaluation(problems, held_out, engine, tokenizer, scorer, **given)


class Lengths:
    """Problems whose answer is right if it has an even number of characters; a long one cannot be graded."""

    name = "lengths"

    def training(self, seed: int, number: int) -> Problem:
        return Problem(f"say {number}", "")

    def held_out(self, seed: int, count: int) -> list[Problem]:
        return [Problem(f"say {n}", "", place=f"page {n}") for n in range(count)]

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        if problem.columns:
            raise ContractError(f"{problem.place} cannot be graded")
        return Score(float(len(text) % 2 == 0))

    def demonstration(self, problem: Problem) -> str:
        raise ConfigError("none")


def test_pass_at_k_counts_the_correct_ones_of_the_samples(engine: Engine, scorer: RewardScorer, language: Any) -> None:
    problems = Lengths()
    exam = evaluation(problems, problems.held_out(0, 6), engine, language.tokenizer, scorer, length=8, samples=5)
    metrics = exam(None)  # type: ignore[arg-type]  # the engine holds the weights
    rates = [metrics[f"eval/pass@{k}"] for k in (1, 2, 4)]
    assert 0 < rates[0] < rates[1] <= rates[2] <= 1
    assert (rates[0] * 30) == pytest.approx(round(rates[0] * 30))
    assert metrics == exam(None)  # type: ignore[arg-type]
    assert "eval/pass@8" not in metrics


def test_an_answer_that_cannot_be_graded_is_counted_and_left_out(
    engine: Engine, scorer: RewardScorer, language: Any
) -> None:
    problems = Lengths()
    held_out = [*problems.held_out(0, 3), Problem("say it", "", {"broken": True}, place="page 9")]
    exam = evaluation(problems, held_out, engine, language.tokenizer, scorer, samples=2)
    metrics = exam(None)  # type: ignore[arg-type]
    assert metrics["eval/failed_share"] == 0.25
    sound = evaluation(problems, held_out[:3], engine, language.tokenizer, scorer, samples=2)
    assert metrics["eval/pass@2"] == sound(None)["eval/pass@2"] > 0  # type: ignore[arg-type]
    assert [sample.prompt for sample in exam.shown] == ["say 0", "say 1", "say 2"]
    with pytest.raises(ContractError, match="page 9 cannot be graded"):
        evaluation(problems, held_out[3:], engine, language.tokenizer, scorer)(None)  # type: ignore[arg-type]


class OwnGrade(Lengths):
    """Problems with a grade of the test's own."""

    def __init__(self, grade: Callable[[str, str], Any]) -> None:
        self.own = grade

    def grade(self, problem: Problem, text: str, finished: bool) -> Any:
        return self.own(problem.place, text)


def test_a_problem_of_which_a_sample_cannot_be_graded_is_left_out_of_pass_at_k(
    engine: Engine, scorer: RewardScorer, language: Any
) -> None:
    """The greedy answer to page 1 and one of its samples are right, and the other sample cannot be graded."""
    calls = 0

    def grade(place: str, text: str) -> Score:
        nonlocal calls
        calls += place == "page 1"
        if place == "page 1" and calls == 3:
            raise ValueError("no grade for this")
        return Score(1.0)

    problems = OwnGrade(grade)
    exam = evaluation(problems, problems.held_out(0, 3), engine, language.tokenizer, scorer, samples=2)
    metrics = exam(None)  # type: ignore[arg-type]
    assert calls == 3
    assert (metrics["eval/accuracy"], metrics["eval/pass@1"], metrics["eval/pass@2"]) == (1.0, 1.0, 1.0)


def test_a_grade_that_hangs_is_given_up_and_counted(engine: Engine, scorer: RewardScorer, language: Any) -> None:
    over = threading.Event()
    problems = OwnGrade(lambda place, text: Score(float(place == "page 1" and over.wait(60))))
    exam = evaluation(problems, problems.held_out(0, 4), engine, language.tokenizer, scorer)
    metrics = exam(None)  # type: ignore[arg-type]
    assert metrics["eval/failed_share"] == 0.25
    alone = evaluation(problems, problems.held_out(0, 2)[1:], engine, language.tokenizer, scorer)
    with pytest.raises(ContractError, match="the grade of 'lengths' took longer than 0.2 s over 1 attempt"):
        alone(None)  # type: ignore[arg-type]
    over.set()


@pytest.mark.parametrize(
    ("score", "accuracy"),
    [
        (Score(1.0), 1.0),
        (Score(0.5), 0.0),
        (Score(7.0), None),
        (Score(-1.0), None),
        (Score(7.0, {"correct": 1.0}), 1.0),
    ],
)
def test_only_scores_that_tell_right_from_wrong_make_an_accuracy(
    engine: Engine, scorer: RewardScorer, language: Any, score: Score, accuracy: float | None
) -> None:
    problems = OwnGrade(lambda place, text: score)
    exam = evaluation(problems, problems.held_out(0, 3), engine, language.tokenizer, scorer, samples=2)
    metrics = exam(None)  # type: ignore[arg-type]
    assert (metrics.get("eval/accuracy"), metrics.get("eval/pass@1")) == (accuracy, accuracy)
    assert [shown.correct for shown in exam.shown] == [None if accuracy is None else accuracy == 1.0] * 3


def test_special_tokens_inside_an_answer_are_seen_by_its_grade() -> None:
    tokenizer = character_tokenizer()
    task = TASKS["addition"]
    problem = Problem("47+85", "132")
    for text, end, shown in [
        ("132<|end|>", "stop", "132"),
        ("1<|user|>3<unk><pad>2<|end|>", "stop", "1<|user|>3<unk><pad>2"),
        ("132<pad>", "length", "132<pad>"),
        ("132;", "stop", "132;"),
        ("", "cancelled", ""),
    ]:
        ids = np.array(tokenizer.encode(text), np.int64)
        logp = np.zeros(len(ids), np.float32)
        sampled = Sampled(ids, logp, np.zeros(len(ids), np.int64), 0, end)  # type: ignore[arg-type]
        assert answer_text(tokenizer, sampled) == shown
        right = task.grade(problem, answer_text(tokenizer, sampled), end == "stop").total == 1.0
        assert right == (shown == "132")


SETTINGS = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 2,
    "num_episodes": 1, "eval_episodes": 4, "eval_steps": 1, "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1, "threads": 1, "eval_samples": 3,
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., TrainingConfig]:
    def make(**changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**SETTINGS, "output_dir": str(tmp_path / "runs"), **changes})

    return make


def test_a_run_shows_its_answers(settings: Callable[..., TrainingConfig]) -> None:
    path = create_run(settings(eval_episodes=12))
    evaluations = [event for event in execute(path, product.build) if event.type == "eval"]
    expected = TASKS["addition"].held_out(1_000_000, 8)
    for event in evaluations:
        told = event.data["samples"]
        assert [(s["prompt"], s["expected"]) for s in told] == [(p.text, p.answer) for p in expected]
        assert not any(s["correct"] for s in told)
    page = write_report(path).read_text()
    assert "What it answered, before and after" in page
    assert page.count("<td class=wrong>") == 16
    assert "<p>Question: " in page
    assert page.count("<tr><td>") == 8 + 2


def test_drawn_answers_make_the_score_where_that_is_asked_for(settings: Callable[..., TrainingConfig]) -> None:
    greedy, drawn = (
        next(event.data["metrics"] for event in execute(create_run(cfg), product.build) if event.type == "eval")
        for cfg in (settings(), settings(eval_by="drawn"))
    )
    assert (greedy["eval/attempts"], drawn["eval/attempts"]) == (4, 12)
    assert drawn["eval/reward_mean"] == drawn["eval/drawn_reward_mean"] == greedy["eval/drawn_reward_mean"]


def test_a_report_marks_no_answer_where_scores_do_not_tell_right_from_wrong(
    settings: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    (tmp_path / "sums.jsonl").write_text("\n".join(json.dumps({"prompt": f"{n}+1"}) for n in range(50)))
    (tmp_path / "mine.py").write_text("def negative(text):\n    return -1 - len(text)\n")
    cfg = settings(environment=str(tmp_path / "sums.jsonl"), options={"check": f"{tmp_path}/mine.py:negative"})
    path = create_run(cfg)
    (*_, last) = [event.data for event in execute(path, product.build) if event.type == "eval"]
    assert "eval/accuracy" not in last["metrics"]
    assert last["metrics"]["eval/reward_mean"] < 0
    page = write_report(path).read_text()
    assert "What it answered" in page
    assert "<td class=wrong>" not in page
    assert "<td class=right>" not in page


def test_a_check_that_hangs_or_leaves_does_not_end_a_run(
    settings: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    rows = [{"prompt": f"{n}+1", "n": n} for n in range(20)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = "import time, sys\ndef check(text, n):\n    n % 4 == 1 and time.sleep(20)\n    n % 4 == 2 and sys.exit()\n"
    (tmp_path / "mine.py").write_text(source + "    return len(text)\n")
    cfg = settings(
        environment=str(tmp_path / "sums.jsonl"), options={"check": f"{tmp_path}/mine.py:check"}, reward_timeout=0.1,
        tasks_per_step=8, eval_steps=0,
    )  # fmt: skip
    events = list(execute(create_run(cfg), product.build))
    assert events[-1].type == "end"
    (step,) = [event.data for event in events if event.type == "step"]
    assert 0 < step["metrics"]["groups/failed_share"] < 1


def test_a_run_on_a_data_file_is_judged_with_pass_at_k_from_the_command_line(
    settings: Callable[..., TrainingConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": f"{n}+1", "answer": n + 1} for n in range(50)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    cfg = settings(environment=str(tmp_path / "sums.jsonl"), options={"prompt": "q", "check": "number"})
    run = create_run(cfg)
    evals = [e.data["metrics"] for e in execute(run, product.build) if e.type == "eval"]
    assert set(evals[-1]) >= {"eval/accuracy", "eval/pass@1", "eval/pass@2"}
    with pytest.raises(SystemExit, match="0"):
        main(["eval", str(run), "--episodes", "3", "--samples", "4", "--json"])
    assert "eval/pass@4" in json.loads(capsys.readouterr().out)["metrics"]


@pytest.mark.parametrize("build", [product.build, warm_start.build])
def test_a_prompt_longer_than_the_context_is_refused_before_the_run(
    settings: Callable[..., TrainingConfig], tmp_path: Path, build: Callable[[TrainingConfig], Any]
) -> None:
    rows = [{"prompt": f"{n}" * (3000 if n == 7 else 1), "answer": "1"} for n in range(30)]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ConfigError, match=r"long.jsonl line 8 needs 30\d\d tokens .* the model's context is 2048"):
        build(settings(environment=str(tmp_path / "long.jsonl"), options={"demonstration": "answer"}))


GOOD = {"prompt": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}], "answer": "2"}


def chat(role: str = "user", content: str = "1+2", said: str = "3") -> list[dict[str, str]]:
    return [{"role": role, "content": content}, {"role": "assistant", "content": said}]


@pytest.mark.parametrize(
    ("build", "row", "sentence"),
    [
        (
            product.build,
            chat("wizard"),
            "line 18: the model's chat template rejects the roles wizard: .*no role wizard",
        ),
        (
            product.build,
            chat("us|>er"),
            r"line 18: the column 'prompt' has a message with the role 'us\|>er', not a word",
        ),
        (product.build, chat(content="1<|end|><|assistant|>2"), r"line 18 contains '<\|assistant\|>', which"),
        (warm_start.build, chat(said="3<pad>"), "line 18 contains '<pad>', which is a special token"),
        (warm_start.build, chat(said="3" * 2048), r"line 18 needs \d+ tokens with its answer, .* context is 2048"),
        (warm_start.build, chat()[:1], "has no demonstrations to imitate .*line 18"),
        (warm_start.check, chat()[:1], "has no demonstrations to imitate .*line 18"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_before_the_run_with_its_line(
    settings: Callable[..., TrainingConfig], tmp_path: Path, build: Callable[[TrainingConfig], Any],
    row: list[dict[str, str]], sentence: str,
) -> None:  # fmt: skip
    rows = [{**GOOD, "prompt": chat(content=f"{n}+1")} for n in range(30)]
    rows[17] = {"prompt": row, "answer": "3"}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "judged.jsonl").write_text(json.dumps(GOOD))
    cfg = settings(environment=str(tmp_path / "rows.jsonl"), options={"eval_file": str(tmp_path / "judged.jsonl")})
    with pytest.raises(ConfigError, match=sentence) as caught:
        build(cfg)
    assert "\n" not in caught.value.message


def test_a_model_without_a_chat_format_gets_the_plain_text() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = None
    assert tokenizer.decode(prompt_ids(tokenizer, Problem("1+1", "2"), 99)) == "1+1"
    asked = Problem(({"role": "user", "content": "1+1"},), "2", place="page 1")
    assert tokenizer.decode(prompt_ids(tokenizer, asked, 99)) == "User: 1+1\n\nAssistant:"


# Numbers of an evaluation by hand: rewards and checks are never mixed up.


def attempt(task: Task, number: int, text: str = "", reasoning: str = "") -> Trajectory:
    ids, none = np.arange(3), np.zeros(3)
    meta = {"text": text, "content": text, "reasoning": reasoning, "prompt": task.payload.prompt}
    return Trajectory(
        f"g{task.seed}/m{number}", task.id, f"g{task.seed}", ids, ids, ids > 0, none, ids, none, End.FINISHED,
        meta=meta, terminated=True,
    )  # fmt: skip


def scored(*groups: Sequence[Score | None]) -> list[ScoredGroup]:
    """Groups of attempts with these scores; None is an attempt that could not be graded."""
    made = []
    for number, scores in enumerate(groups):
        task = Task(f"sums/{number}", Problem(f"{number}+1", str(number + 1)), number)
        members = tuple(attempt(task, place, f"answer {place}", f"thought {place}") for place in range(len(scores)))
        failed = Failed(Failure("reward", "raised", f"attempt of task {number} broke", "Mend it."))
        made.append(ScoredGroup(Group(f"g{number}", task, members), tuple(s or failed for s in scores)))
    return made


def totals(*rows: Sequence[float | None]) -> list[ScoredGroup]:
    return scored(*([None if total is None else Score(total) for total in row] for row in rows))


def test_the_summary_of_rewards_alone_by_hand() -> None:
    found = summary(Graded(totals([1.0, 3.0], [8.0, None]), None), [2, 4, 6, 8])
    assert found == pytest.approx({
        "eval/reward_mean": 4.0, "eval/reward_std": math.sqrt(26 / 3), "eval/length_mean": 5.0, "eval/attempts": 4.0,
        "eval/failed_share": 0.25,
    })  # fmt: skip
    assert "eval/failed_share" not in summary(Graded(totals([1.0]), None), [1])


def test_the_summary_of_rewards_and_checks_by_hand() -> None:
    """Of four attempts one has no reward, and two have no check: of those checked one is right."""
    rewards = totals([7.0, 9.0, None, 8.0])
    checks = totals([1.0, None, 0.5, None])
    found = summary(Graded(rewards, checks), [1, 1, 1, 1])
    assert found == pytest.approx({
        "eval/reward_mean": 8.0, "eval/reward_std": math.sqrt(2 / 3), "eval/length_mean": 1.0, "eval/attempts": 4.0,
        "eval/failed_share": 0.25, "eval/accuracy": 0.5, "eval/check_mean": 0.75, "eval/check_std": 0.25,
        "eval/check_failed_share": 0.5,
    })  # fmt: skip


def test_a_check_that_judges_nothing_leaves_its_numbers_out() -> None:
    found = summary(Graded(totals([1.0, 1.0]), totals([None, None])), [1, 1])
    assert found["eval/check_failed_share"] == 1.0
    assert not {"eval/accuracy", "eval/check_mean", "eval/failed_share"} & set(found)
    with pytest.raises(ContractError, match="attempt of task 0 broke") as caught:
        summary(Graded(totals([None]), totals([1.0])), [1])
    assert caught.value.hint == "Mend it."


@pytest.mark.parametrize(
    ("rewards", "checks", "accuracy"),
    [
        ([Score(1.0), Score(1.0)], None, None),
        ([Score(9.0, {"correct": 1.0}), Score(9.0, {"correct": 0.0})], None, 0.5),
        ([Score(9.0, {"exact.correct": 1.0}), Score(9.0, {"exact.correct": 0.5})], None, 0.5),
        ([Score(9.0, {"correct": 1.0}), Score(9.0)], None, None),
        ([Score(9.0, {"correct": 0.0})] * 2, [Score(1.0), Score(0.0)], 0.5),
        ([Score(0.0)] * 2, [Score(1.0), Score(1.0)], 1.0),
        ([Score(1.0)] * 2, [Score(1.0), Score(3.0)], None),
    ],
)
def test_an_answer_is_right_by_its_check_or_by_a_part_that_says_so(
    rewards: list[Score | None], checks: list[Score | None] | None, accuracy: float | None
) -> None:
    graded = Graded(scored(rewards), None if checks is None else scored(checks))
    assert summary(graded, [1, 1]).get("eval/accuracy") == accuracy


def test_the_form_of_answers_is_told_where_every_score_says_it() -> None:
    formed = [Score(1.0, {"format": 1.0}), Score(0.0, {"format": 0.5})]
    assert summary(Graded(scored(formed), None), [1, 1])["eval/format"] == 0.75
    assert summary(Graded(totals([1.0, 1.0]), scored(formed)), [1, 1])["eval/format"] == 0.75
    assert "eval/format" not in summary(Graded(scored(formed), totals([1.0, 1.0])), [1, 1])
    assert "eval/format" not in summary(Graded(scored([formed[0], Score(1.0)]), None), [1, 1])


@pytest.mark.parametrize(
    ("score", "check", "correct"),
    [
        (Score(1.0), None, None),
        (Score(0.0, {"correct": 1.0}), None, True),
        (Score(1.0, {"correct": 0.9}), None, False),
        (Score(0.0), Score(1.0), True),
        (Score(1.0, {"correct": 1.0}), Score(0.0), False),
        (Score(1.0, {"correct": 1.0}), Failed(Failure("reward", "x", "y")), None),
    ],
)
def test_a_sample_is_marked_by_its_check_and_never_by_its_reward(
    score: Score, check: Score | Failed | None, correct: bool | None
) -> None:
    assert correct_in(score, check) is correct


@pytest.mark.parametrize(
    ("score", "right"),
    [
        (Score(1.0), True), (Score(0.0), False), (Score(0.99), False), (Score(1.01), None), (Score(-0.01), None),
        (Score(0.0, {"correct": 1.0}), True), (Score(1.0, {"correct": 0.0}), False),
        (Score(1.0, {"a.correct": 1.0, "b.correct": 0.5}), False), (Score(1.0, {"a.correct": 1.0, "b": 0.0}), True),
        (Score(1.0, {"one": 1.0}), True), (Score(1.0, {"one": 0.5, "two": 0.5}), None),
        (Score(1.0, {"environment": 1.0, "two": 0.5}), True), (Score(1.0, {"incorrect": 0.0}), True),
    ],
)  # fmt: skip
def test_a_score_says_whether_its_answer_is_right(score: Score, right: bool | None) -> None:
    assert is_correct(score) is right


def test_answers_are_scored_by_reward_and_check_and_only_once_where_these_are_one() -> None:
    seen: list[str] = []

    def marker(name: str, total: float) -> Any:
        def mark(task: Task, attempt: Trajectory) -> Score:
            seen.append(name)
            return Score(total)

        return per_attempt(mark)

    groups = [group.group for group in totals([1.0, 1.0])]
    reward, check = marker("reward", 5.0), marker("check", 1.0)
    with RewardScorer(timeout=30) as scorer:
        both = grade(scorer, groups, reward, check)
        assert sorted(seen) == ["check", "check", "reward", "reward"]
        assert ([s.total for s in both.rewards], [s.total for s in both.checks]) == ([5.0, 5.0], [1.0, 1.0])
        seen.clear()
        alone = grade(scorer, groups, reward, None)
        assert (alone.checked, alone.checks, alone.rights()) == (None, [], [[None, None]])
        same = grade(scorer, groups, check, check)
        assert same.checked is same.rewarded
        assert same.rights() == [[True, True]]
        assert sorted(seen) == ["check", "check", "reward", "reward"]


def test_the_first_groups_come_with_what_their_checks_say() -> None:
    rewards, checks = totals([1.0], [2.0], [3.0]), totals([4.0], [5.0], [6.0])
    assert list(Graded(rewards, checks).first(2)) == list(zip(rewards, checks, strict=True))[:2]
    assert list(Graded(rewards, None).first(9)) == [(group, None) for group in rewards]


class Recorded:
    """An engine that answers with the number of the request, as often as it was asked, and keeps what it was asked."""

    max_length = 500

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.asked: list[tuple[list[tuple[list[int], int]], SamplingParams]] = []

    def generate(self, requests: Sequence[tuple[list[int], int]], params: SamplingParams) -> list[Sampled]:
        self.asked.append((list(requests), params))
        answers = []
        for number in range(len(requests)):
            ids = np.array(self.tokenizer.encode("7" * (number % 5 + 1)), np.int64)
            answers.append(Sampled(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int64), 0, "length"))
        return answers


def exam(engine: Any, count: int, grade: Callable[[str, str], Any], scorer: RewardScorer, **more: Any) -> Any:
    problems = OwnGrade(grade)
    reward = per_attempt(product.grader(problems))
    drawn = SamplingParams(max_new_tokens=9, temperature=0.7, top_k=3)
    given: Any = {"drawn": drawn, "reward": reward, "check": reward, **more}
    return AnswerEvaluation(problems, problems.held_out(0, count), engine, engine.tokenizer, scorer, **given)


def test_greedy_answers_are_asked_for_once_and_drawn_ones_with_a_seed_each(scorer: RewardScorer) -> None:
    engine = Recorded(character_tokenizer())
    metrics = exam(engine, 3, lambda place, text: Score(float(len(text))), scorer, samples=2, seed=4)(None)
    (greedy, how), (drawn, as_trained) = engine.asked
    assert (how.temperature, how.max_new_tokens) == (0.0, 9)
    assert (as_trained.temperature, as_trained.max_new_tokens, as_trained.top_k) == (0.7, 9, 3)
    assert [seed for _, seed in greedy] == [0, 0, 0]
    assert [prompt for prompt, _ in drawn] == [prompt for prompt, _ in greedy for _ in range(2)]
    assert [seed for _, seed in drawn] == [sampling_seed(4, number, place) for number in range(3) for place in range(2)]
    assert len({seed for _, seed in drawn}) == 6
    # Answers of 1, 2, 3 characters; drawn ones of 1, 2, 3, 4, 5 and 1.
    assert (metrics["eval/reward_mean"], metrics["eval/length_mean"], metrics["eval/attempts"]) == (2.0, 2.0, 3.0)
    assert metrics["eval/drawn_reward_mean"] == pytest.approx(16 / 6)
    again = exam(engine, 3, lambda place, text: Score(1.0), scorer, samples=2, seed=5)
    again(None)
    assert not {seed for _, seed in drawn} & {seed for _, seed in engine.asked[-1][0]}


def test_pass_at_k_of_a_problem_counts_its_own_samples(scorer: RewardScorer) -> None:
    """Five samples of 1 to 5 characters a problem: page 0 has two right ones, page 1 none."""
    engine = Recorded(character_tokenizer())

    def grade(place: str, text: str) -> Score:
        return Score(float(place == "page 0" and len(text) > 3))

    metrics = exam(engine, 2, grade, scorer, samples=5)(None)
    assert metrics["eval/pass@1"] == pytest.approx(2 / 5 / 2)
    assert metrics["eval/pass@2"] == pytest.approx((1 - 3 / 10) / 2)
    assert metrics["eval/pass@4"] == pytest.approx(1 / 2)
    assert metrics["eval/drawn_reward_mean"] == pytest.approx(2 / 10)
    assert metrics["eval/accuracy"] == 0.0, "the greedy answers have one and two characters"


@pytest.mark.parametrize(("by", "samples", "calls"), [("greedy", 1, 1), ("greedy", 2, 2), ("drawn", 3, 1)])
def test_answers_are_drawn_only_where_they_are_needed(by: str, samples: int, calls: int, scorer: RewardScorer) -> None:
    engine = Recorded(character_tokenizer())
    evaluation = exam(engine, 10, lambda place, text: Score(1.0), scorer, samples=samples, by=by)
    metrics = evaluation(None)
    assert len(engine.asked) == calls
    assert ("eval/pass@1" in metrics) is (samples > 1)
    assert metrics["eval/attempts"] == (30 if by == "drawn" else 10)
    assert metrics["eval/length_mean"] == pytest.approx(3.0), "answers of 1 to 5 characters"
    assert [shown.prompt for shown in evaluation.shown] == [f"say {n}" for n in range(8)]
    evaluation(None)
    assert len(evaluation.shown) == 8, "the answers of the last evaluation only"


def test_shown_answers_are_cut_and_show_what_was_said_thought_and_expected() -> None:
    task = Task("sums/0", Problem("p" * 3000, "e" * 3000), 0)
    members = (attempt(task, 0, "t" * 3000, "r" * 3000), attempt(task, 1), attempt(task, 2, "last", "why"))
    failed = Failed(Failure("reward", "x", "y"))
    rewarded = ScoredGroup(Group("g0", task, members), (Score(0.5), failed, Score(7.0)))
    checked = ScoredGroup(rewarded.group, (Score(1.0), Score(1.0), Score(0.0)))
    first, second = _samples(rewarded, checked)
    prompt, text, answer = (letter * 2000 for letter in "pte")
    assert first == Sample(prompt, text, answer, 0.5, True, "r" * 2000)
    assert second == Sample("p" * 2000, "last", "e" * 2000, 7.0, False, "why")
    assert [sample.correct for sample in _samples(rewarded, None)] == [None, None]


@pytest.mark.parametrize("each", [0, 1, 3])
def test_answers_become_groups_in_the_order_of_the_tasks(each: int) -> None:
    tokenizer = character_tokenizer()
    tasks = [Task(f"sums/{n}", Problem(f"say {n}", ""), 5 + n) for n in range(2)]
    prompts = [tokenizer.encode("1"), tokenizer.encode("22")]
    answers = Recorded(tokenizer).generate([([], 0)] * (2 * each), SamplingParams())
    groups = as_groups(tokenizer, tasks, prompts, answers)
    assert [(group.id, group.task) for group in groups] == [("g5", tasks[0]), ("g6", tasks[1])]
    said = [[member.meta["text"] for member in group.members] for group in groups]
    assert said == [["7", "77", "777"][:each], ["7777", "77777", "7"][:each] if each == 3 else ["77"][:each]]
    assert [[int((~m.mask).sum()) for m in group.members] for group in groups] == [[1] * each, [2] * each]
    assert as_groups(tokenizer, [], [], []) == []


@pytest.mark.parametrize("by", ["greedy", "drawn"])
def test_an_evaluation_has_every_setting_that_a_run_gives_it(
    by: str, settings: Callable[..., TrainingConfig], scorer: RewardScorer
) -> None:
    """No two of the settings are the same number, so that none can stand in for another."""
    cfg = settings(
        eval_seed=71, eval_episodes=5, eval_samples=3, eval_by=by, max_new_tokens=6, temperature=0.4, top_p=0.8,
        top_k=9, chat_template_kwargs={"loud": True},
    )  # fmt: skip
    asked: list[tuple[int, int]] = []

    class Noting(Lengths):
        def held_out(self, seed: int, count: int) -> list[Problem]:
            asked.append((seed, count))
            return super().held_out(seed, count)

    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if loud %}!{% endif %}"
    engine: Any = Recorded(tokenizer)
    reward = per_attempt(lambda task, attempt: Score(7.0))
    check = per_attempt(lambda task, attempt: Score(float(len(attempt.meta["text"]) == 2)))
    made = greedy_evaluation(cfg, Noting(), engine, tokenizer, scorer, reward, check)
    metrics = made(None)  # type: ignore[arg-type]
    assert asked == [(71, 5)]
    requests, drawn = engine.asked[-1]
    assert len(engine.asked) == (1 if by == "drawn" else 2)
    assert (drawn.max_new_tokens, drawn.temperature, drawn.top_p, drawn.top_k) == (6, 0.4, 0.8, 9)
    assert [seed for _, seed in requests] == [sampling_seed(71, n, m) for n in range(5) for m in range(3)]
    assert [tokenizer.decode(prompt) for prompt, _ in requests[::3]] == [f"say {n}!" for n in range(5)]
    # Drawn answers of 1, 2, 3 | 4, 5, 1 | 2, 3, 4 | 5, 1, 2 | 3, 4, 5 characters: one of two characters in three.
    assert metrics["eval/drawn_reward_mean"] == 7.0
    assert (metrics["eval/pass@1"], metrics["eval/pass@2"]) == pytest.approx((3 / 15, 3 / 5 * 2 / 3))
    assert metrics["eval/accuracy"] == pytest.approx(1 / 5)
    assert (metrics["eval/reward_mean"], metrics["eval/check_mean"]) == (7.0, pytest.approx(1 / 5))


def test_of_drawn_answers_the_first_of_each_problem_that_could_be_graded_is_shown(scorer: RewardScorer) -> None:
    """Answers of 1, 2 | 3, 4 | 5, 1 characters; those of one character cannot be graded."""

    def grade(place: str, text: str) -> Score:
        if len(text) == 1:
            raise ValueError("too short")
        return Score(float(len(text)))

    made = exam(Recorded(character_tokenizer()), 3, grade, scorer, samples=2, by="drawn")
    metrics = made(None)
    assert [shown.text for shown in made.shown] == ["77", "777", "77777"]
    assert (metrics["eval/attempts"], metrics["eval/failed_share"]) == (6.0, pytest.approx(1 / 3))
    assert metrics["eval/reward_mean"] == metrics["eval/drawn_reward_mean"] == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert metrics["eval/length_mean"] == pytest.approx((1 + 2 + 3 + 4 + 5 + 1) / 6), "of all answers"
