"""Thinking models: whatever pays for an answer pays for the answer alone, and nothing for a thought without one.

The parameters are the registries themselves, so that a new check, task or reward is covered as soon as it is named.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.agents import language_product  # adds the reward "program"
from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.custom_rollout import CustomRollouts
from groupwise.agents.conversation.prompts import prompt_ids
from groupwise.agents.conversation.rollouts import Conversations
from groupwise.agents.data.dataset import CHECKS, FunctionCheck, find_problems
from groupwise.agents.data.problems import TASKS, Problem
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.environments.task import OneTurnScenarios
from groupwise.agents.openai.completion import Completion
from groupwise.agents.openai.requests import RequestError, read_request
from groupwise.agents.settings import AgentConfig
from groupwise.config import TaskSettings, TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.language.tiny import character_tokenizer, tiny_model
from groupwise.rewards.function import attempt_of, turns_of
from groupwise.rewards.learned.preferences import RewardTranscript
from groupwise.rewards.registry import ADDED, KNOWN, make_reward
from groupwise.rewards.scoring import score_groups
from groupwise.sandbox import available
from groupwise.training.group_files import read_groups, write_groups
from groupwise.types import End, Failed, Group, Score, Task, Trajectory

PROGRAM = "```python\ndef double(x):\n    return 2 * x\n```"
GOOD = (
    "I understand, and I am sorry about that. First, restart the lamp; then press the button for ten seconds. "
    "Does that make sense? For example, it worked for others. Please let me know if it is resolved. Thank you! "
    "The lamp comes with a warranty. It saves time, so you can rest."
)
# What a reward needs in order to tell a good answer from a bad one; all others need nothing.
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {"expected": "14"}, "numeric": {"expected": "14"}, "symbolic": {"expected": "14"},
    "format": {"json_keys": ["sum"]}, "program": {"tests": "assert double(4) == 8"},
    "accuracy": {"expected_responses": [GOOD]}, "similarity": {"expected_responses": [GOOD]},
    "correctness": {"expected_responses": [GOOD]},
}  # fmt: skip
ANSWERS = {
    "exact": ("14", "15"), "numeric": ("14", "15"), "symbolic": ("14", "15"), "format": ('{"sum": 14}', "14"),
    "program": (PROGRAM, "```python\ndef double(x):\n    return x\n```"),
    "safety": ("Shut up, idiot! I will find you.", "It is 14."),
}  # fmt: skip


def four(right: str, wrong: str) -> list[str]:
    """A finished thought and the right answer, an unfinished thought, no thought and the right answer, a wrong one."""
    return [f"<think>\nIs it {wrong}? No, {right}\n</think>\n\n{right}", f"<think>\nIt is {right}", right, wrong]


def attempt(text: str) -> Trajectory:
    return attempt_of([{"role": "user", "content": "?"}, {"role": "assistant", "content": text}])


def totals(reward: Any, said: Sequence[str | Trajectory]) -> list[float]:
    attempts = tuple(attempt(one) if isinstance(one, str) else one for one in said)
    [scored] = score_groups(reward, [Group("g", Task("t"), attempts)])
    assert not any(isinstance(score, Failed) for score in scored.scores), scored.scores
    return list(np.round(scored.totals(), 12))


@pytest.mark.parametrize("name", [name for name in (*KNOWN, *ADDED) if name not in ("ruler", "neural")])
def test_every_reward_scores_the_answer_alone(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if name == "program" and (fault := available()["bubblewrap"]):
        pytest.skip(fault)
    if name == "symbolic":
        pytest.importorskip("sympy")
    reward = make_reward(name, OPTIONS.get(name))
    thought, unfinished, right, wrong = totals(reward, four(*ANSWERS.get(name, (GOOD, "lamp"))))
    (nothing,) = totals(reward, [""])
    assert (thought, unfinished) == (right, nothing)
    assert right != nothing, "otherwise this test shows nothing"
    if "expected" in OPTIONS.get(name, {}) or name in ("program", "format"):
        assert (thought, unfinished, right, wrong) == (1, 0, 1, 0)


def graded(grade: Callable[..., Any], texts: Sequence[str]) -> list[float]:
    scores = [grade(text) for text in texts]
    return [float((asyncio.run(s) if inspect.isawaitable(s) else s).parts["correct"]) for s in scores]


@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.needs_answer])
def test_every_check_scores_the_answer_alone(name: str) -> None:
    problem = Problem("7+7", "14")
    assert graded(lambda text: CHECKS[name](problem, text, True, ""), four("14", "15")) == [1, 0, 1, 0]


def test_a_check_of_ones_own_sees_the_answer_alone() -> None:
    seen: list[str] = []

    def mine(text: str) -> Score:
        seen.append(text)
        return Score(float(text == "14"), {"correct": float(text == "14")})

    check = FunctionCheck("mine", mine, ())
    assert graded(lambda text: check(Problem("7+7", "14"), text, True, ""), four("14", "15")) == [1, 0, 1, 0]
    assert seen == ["14", "", "14", "15"]


@pytest.mark.parametrize("name", TASKS)
def test_every_built_in_task_scores_the_answer_alone(name: str) -> None:
    task = TASKS[name]
    problem = task.training(0, 0)
    texts = four(task.demonstration(problem), "?")
    assert graded(lambda text: task.grade(problem, text, True), texts) == [1, 0, 1, 0]


def test_reasoning_gym_scores_the_answer_alone() -> None:
    pytest.importorskip("reasoning_gym")
    problems = find_problems(TaskSettings(environment="reasoning_gym:chain_sum"))
    problem = problems.training(0, 0)
    assert graded(lambda text: problems.grade(problem, text, True), four(problem.answer, "x")) == [1, 0, 1, 0]


def test_a_learned_reward_reads_the_answer_alone() -> None:
    read = [RewardTranscript.of(turns_of(attempt(text))) for text in four("14", "15")]
    assert [transcript.turns[-1] for transcript in read] == [(True, "14"), (True, ""), (True, "14"), (True, "15")]


@pytest.mark.parametrize(
    ("options", "text", "score"),
    [
        ({"tags": ["think", "answer"]}, "<think>a</think><answer>14</answer>", 1.0),
        ({"tags": ["think", "answer"]}, "<answer>14</answer>", 0.5),
        ({"tags": ["think"]}, "<think>14", 0.0),
        ({"pattern": "^<think>.*</think>.*14$"}, "<think>a</think>14", 1.0),
        ({"pattern": "^14$"}, "<think>a</think>14", 1.0),
        ({"pattern": "^14$"}, "<think>\n14", 0.0),
    ],
)
def test_a_format_may_ask_for_the_thought_itself(options: dict[str, Any], text: str, score: float) -> None:
    assert totals(make_reward("format", options), [text]) == [score]


QUESTION = ({"role": "user", "content": "?"},)
# Like Qwen3's of 2025: without `enable_thinking`, the prompt opens the thought.
TEMPLATE = (
    "{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}"
    "{%- if effort is defined and effort not in ['low', 'high'] %}{{ raise_exception('no such effort') }}{% endif %}"
    "{{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '<think>\\n' }}"
    "{%- endif %}"
)
CLOSED = "<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = character_tokenizer()
    made.chat_template = TEMPLATE
    return made


def prompt(tokenizer: Any, options: Any = None, row: Any = None) -> str:
    problem = Problem("?", "14", {} if row is None else {"chat_template_kwargs": row}, place="row 3")
    return str(tokenizer.decode(prompt_ids(tokenizer, problem, 99, options)))


def test_options_of_the_template_come_from_settings_and_from_rows(tokenizer: Any) -> None:
    off, on = {"enable_thinking": False}, {"enable_thinking": True}
    assert prompt(tokenizer).endswith("<|assistant|><think>\n")
    assert prompt(tokenizer, off).endswith(CLOSED)
    assert prompt(tokenizer, row=off).endswith(CLOSED)
    assert prompt(tokenizer, off, on).endswith("<|assistant|><think>\n"), "a row's come before the settings'"
    # A table in Parquet has null where another row has a value.
    assert prompt(tokenizer, off, {"enable_thinking": None}).endswith(CLOSED)
    frame = Frame(tokenizer, options=off)
    assert tokenizer.decode(frame.opening(QUESTION)).endswith(CLOSED)
    assert not tokenizer.decode(frame.with_options(on).opening(QUESTION)).endswith(CLOSED)


def test_options_reach_a_run_and_its_evaluation(tokenizer: Any, tmp_path: Any) -> None:
    rows = [{"prompt": f"{n}", "answer": "14", "chat_template_kwargs": {"enable_thinking": n > 1}} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "model").mkdir()
    model, _ = tiny_model(seed=0, layers=1, width=16)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    cfg = TrainingConfig.from_dict({
        "product": "language", "environment": str(tmp_path / "rows.jsonl"), "model_name": str(tmp_path / "model"),
        "max_new_tokens": 2, "num_generations": 2, "tasks_per_step": 2, "chat_template_kwargs": {"effort": "high"},
    })  # fmt: skip
    parts = language_product.build(cfg)
    try:
        tasks = [Task("t/0", problem, 0) for problem in find_problems(cfg.task)]
        groups = parts.source.rollout.collect(tasks)
        for task, group in zip(tasks, groups, strict=True):
            asked = "".join(group.members[0].meta["tokens"])
            assert (CLOSED in asked) is (int(task.payload.prompt) <= 1)
        assert parts.evaluate is not None
        parts.evaluate(parts.policy)
    finally:
        parts.source.close()
    with pytest.raises(ConfigError, match=r"rejects the roles user with \{'effort': 'most', .*no such effort"):
        language_product.build(cfg.replace(chat_template_kwargs={"effort": "most"}))


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("no", "chat_template_kwargs is 'no', not a table"),
        ({"tools": []}, "cannot set 'tools': every conversation sets it itself"),
    ],
)
def test_options_that_cannot_be_used_are_refused_in_one_sentence(given: Any, fault: str, tmp_path: Any) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{n}", "answer": "14", "chat_template_kwargs": given} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=f"rows.jsonl line 1: .*{fault}"):
        find_problems(TaskSettings(environment=str(path)))
    body = {"model": "tiny", "messages": list(QUESTION), "chat_template_kwargs": given}
    with pytest.raises(RequestError, match=fault):
        read_request(json.dumps(body).encode(), SamplingParams())
    with pytest.raises(ConfigError, match="chat_template_kwargs"):
        TrainingConfig.from_dict({"product": "language", "chat_template_kwargs": given})


def test_a_request_brings_options_of_its_own() -> None:
    body = {"messages": list(QUESTION), "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
    request = read_request(json.dumps(body).encode(), SamplingParams())
    assert request.options == {"enable_thinking": False, "reasoning_effort": "low"}


# What a thinking model says to four questions; with thinking switched off it does not think.
THOUGHT, UNFINISHED = "15? No, 14", "It is 14"
TAUGHT = {
    "a": (True, f"{THOUGHT}\n</think>\n\n14"),
    "b": (True, UNFINISHED),
    "c": (False, "14"),
    "d": (False, "15"),
}
PAID = [1.0, 0.0, 1.0, 0.0]
THOUGHTS = [THOUGHT, UNFINISHED, "", ""]
LIKELIEST = SamplingParams(max_new_tokens=40, temperature=0.0)


def options_of(question: str) -> dict[str, bool]:
    return {"enable_thinking": TAUGHT[question][0]}


@pytest.fixture(scope="module")
def thinker(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that says what it was taught, token for token, and the folder it is in."""
    model, _ = tiny_model(layers=2, width=64)
    rows, own = [], []
    for question, (_, said) in TAUGHT.items():
        asked = prompt_ids(tokenizer, Problem(question, "14"), 99, options_of(question))
        answer = tokenizer.encode(f"{said}<|end|>", add_special_tokens=False)
        rows.append(torch.tensor([*asked, *answer]))
        own.append(torch.tensor([False] * len(asked) + [True] * len(answer)))
    pad = torch.nn.utils.rnn.pad_sequence
    tokens, mask = pad(rows, batch_first=True), pad(own, batch_first=True)[:, 1:]
    optimiser, loss = torch.optim.AdamW(model.parameters(), lr=3e-3), torch.tensor(9.0)
    for _ in range(200):
        if loss.item() < 0.02:
            break
        logits = model(input_ids=tokens).logits[:, :-1][mask]
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:][mask])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02
    folder = tmp_path_factory.mktemp("thinker")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval(), folder


@pytest.fixture(scope="module")
def engine(thinker: Any, tokenizer: Any) -> Iterator[Engine]:
    with Engine(thinker[0], tokenizer, slots=8) as engine:
        yield engine.start()


def test_a_run_pays_for_answers_and_keeps_thoughts_apart(thinker: Any, tmp_path: Any) -> None:
    rows = [{"prompt": q, "answer": "14", "chat_template_kwargs": options_of(q)} for q in TAUGHT]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"environment": str(tmp_path / "rows.jsonl"), "options": {"held_out_share": 0.5}}
    cfg = TrainingConfig.from_dict({
        "task": {"product": "language", **task}, "model_name": str(thinker[1]), "max_new_tokens": 40, "top_k": 1,
        "num_generations": 2, "tasks_per_step": 2, "eval_episodes": 4,
    })  # fmt: skip
    parts = language_product.build(cfg)
    try:
        assert parts.evaluate is not None
        assert parts.samples is not None
        found = {record.prompt: record for record in parts.source.next().records}
        parts.evaluate(parts.policy)
        shown = {sample.prompt: sample for sample in parts.samples()}
    finally:
        parts.source.close()
    assert found.keys() | shown.keys() == TAUGHT.keys()
    paid, thought = dict(zip(TAUGHT, PAID, strict=True)), dict(zip(TAUGHT, THOUGHTS, strict=True))
    for question, one in (*found.items(), *shown.items()):
        said = {"a": "14", "b": "", "c": "14", "d": "15"}[question]
        assert (one.total, one.text, one.reasoning) == (paid[question], said, thought[question])
    path = tmp_path / "1.parquet"
    write_groups(path, 1, list(found.values()))
    assert {row["prompt"]: row["reasoning"] for row in read_groups(path)} == {q: thought[q] for q in found}


class Exam:
    """An environment of one's own: a question, and a point for the answer 14."""

    async def reset(self, task: Task) -> Observation:
        asked = {"role": "user", "content": task.payload}
        return Observation((asked,), chat_template_kwargs=options_of(task.payload))

    async def step(self, reply: Reply) -> Transition:
        return Transition((), float(reply.content == "14"), End.FINISHED)


async def own_agent(client: Any, task: str) -> float:
    asked = [{"role": "user", "content": task}]
    answer = await client.chat.completions.create(
        model="policy", messages=asked, extra_body={"chat_template_kwargs": options_of(task)}
    )
    message = answer.choices[0].message
    assert message.reasoning_content == (dict(zip(TAUGHT, THOUGHTS, strict=True))[task] or None)
    return float(message.content == "14")


class Paper:
    """The same questions as problems with one answer."""

    name = "paper"

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        return Score(float(finished and text == "14"))


@pytest.mark.parametrize("kind", ["environment", "rollout", "problems"])
def test_environments_and_rollouts_of_ones_own_see_the_answer_alone(kind: str, engine: Engine, tokenizer: Any) -> None:
    runner, make = {
        "environment": (Conversations, Exam),
        "rollout": (CustomRollouts, own_agent),
        "problems": (Conversations, OneTurnScenarios(Paper()).make),  # type: ignore[arg-type]
    }[kind]
    talk = runner(engine, Frame(tokenizer), make, LIKELIEST, group_size=1, seed=0)  # type: ignore[arg-type]
    columns = [{"chat_template_kwargs": options_of(question)} for question in TAUGHT]
    payloads = [Problem(q, "14", c) for q, c in zip(TAUGHT, columns, strict=True)] if kind == "problems" else TAUGHT
    try:
        groups = talk.collect([Task(f"exam/{n}", payload, n) for n, payload in enumerate(payloads)])
    finally:
        talk.close()
    members = [group.members[0] for group in groups]
    assert [float(member.rewards.sum()) for member in members] == PAID, [member.error for member in members]
    assert [member.meta["reasoning"] for member in members] == THOUGHTS
    assert totals(make_reward("exact", {"expected": "14"}), members) == PAID
    assert [turns_of(member)[-1]["content"] for member in members] == ["14", "", "14", "15"]


def test_the_server_answers_with_the_thought_beside_the_answer(engine: Engine, tokenizer: Any) -> None:
    async def asked(question: str, **changes: Any) -> list[Any]:
        body = {"messages": [{"role": "user", "content": question}], "chat_template_kwargs": options_of(question)}
        request = read_request(json.dumps({**body, **changes}).encode(), LIKELIEST)
        return [event async for event in Completion(engine, Frame(tokenizer), request, "thinker").events()]

    for question, thought in zip(TAUGHT, THOUGHTS, strict=True):
        (whole,) = asyncio.run(asked(question))
        message = whole["choices"][0]["message"]
        assert (message.get("reasoning_content", ""), message["content"]) == (
            thought, {"a": "14", "b": "", "c": "14", "d": "15"}[question],
        )  # fmt: skip
        deltas = [chunk["choices"][0]["delta"] for chunk in asyncio.run(asked(question, stream=True))]
        for part in ("reasoning_content", "content"):
            assert "".join(delta.get(part, "") for delta in deltas) == message.get(part, "")


def test_a_chat_keeps_thoughts_apart_and_remembers_both(thinker: Any, tokenizer: Any) -> None:
    language = LanguageModel(thinker[0], tokenizer, "thinker")
    with ChatSession(language, AgentConfig(temperature=0.0, max_new_tokens=40)) as chat:
        assert "".join(chat.reply("a")) == "14"
        assert (chat.answers[-1].text, chat.answers[-1].reasoning) == ("14", THOUGHT)
        assert chat.messages[-1] == {"role": "assistant", "content": "14", "reasoning_content": THOUGHT}
        chat.reset()
        assert "".join(chat.reply("b")) == "" == chat.answers[-1].text
        assert chat.answers[-1].reasoning == UNFINISHED
