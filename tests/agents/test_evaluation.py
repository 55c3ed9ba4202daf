"""Evaluation: pass@k against brute force, and answers of the real tiny model as a reader sees them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.conversation.prompts import prompt_ids
from groupwise.agents.data.problems import TASKS, Problem
from groupwise.agents.evaluation import AnswerEvaluation, pass_at_k, powers_of_two
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
from groupwise.training.token_attempts import answer_text
from groupwise.types import Score


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
    return AnswerEvaluation(problems, held_out, engine, tokenizer, scorer, drawn=drawn, reward=reward, **more)


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


class Graded(Lengths):
    """Problems with a grade of the test's own."""

    def __init__(self, grade: Callable[[str, str], Any]) -> None:
        self.own = grade

    def grade(self, problem: Problem, text: str, finished: bool) -> Any:
        return self.own(problem.place, text)


def test_a_grade_that_hangs_is_given_up_and_counted(engine: Engine, scorer: RewardScorer, language: Any) -> None:
    over = threading.Event()
    problems = Graded(lambda place, text: Score(float(place == "page 1" and over.wait(60))))
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
    problems = Graded(lambda place, text: score)
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
    with pytest.raises(ConfigError, match="page 1 is a list of messages, but the model has no chat template"):
        prompt_ids(tokenizer, Problem(({"role": "user", "content": "1+1"},), "2", place="page 1"), 99)
