"""`groupwise sft`, `chat` and `export`, and runs that start from runs: on the real tiny model."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from groupwise.agents.commands import talk
from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.settings import AgentConfig
from groupwise.cli import run
from groupwise.config import TrainingConfig
from groupwise.language.loading import load_model
from groupwise.training.folder import create_run, read_config

SETTINGS = """
[task]
product = "language"
environment = "addition"
[policy]
model_name = "tiny"
[training]
num_episodes = 2
[rollout]
num_generations = 4
tasks_per_step = 2
[sampling]
max_new_tokens = 8
[run]
threads = 1
eval_episodes = 2
"""
LONG = ("--max-new-tokens", "2000")  # two seconds at least
Say = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "language.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """Carries out a command with `--json` and some input: exit status, JSON lines, and what it told people."""

    def carry_out(*words: str, given: str = "") -> tuple[int, list[Any], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        status = run([*words, "--json"])
        told = capsys.readouterr()
        return status, [json.loads(line) for line in told.out.splitlines()], told.err

    return carry_out


def test_a_warm_start_then_a_run_from_it_then_an_export(settings: Path, say: Say) -> None:
    assert run(["sft", str(settings), "--set", "run.run_name=first", "--quiet"]) == 0
    status, events, _ = say("train", str(settings), "--set", "policy.model_name=first", "--set", "run.run_name=second")
    assert (status, events[-1]["type"]) == (0, "end")
    assert read_config(Path("runs/first")).task.product == "warm-start"
    assert read_config(Path("runs/second")).policy.model_name == str(Path("runs/first/checkpoints/000002").resolve())
    shutil.rmtree("runs/first")
    status, events, _ = say("resume", "second", "--set", "training.num_episodes=3")
    assert (status, events[-1]["step"]) == (0, 3)
    assert say("eval", "second", "--episodes", "2")[0] == 0
    assert len(say("chat", "second", given="1+1\n")[1]) == 1
    status, (written,), _ = say("export", "second", "out")
    assert (status, written["step"], written["kind"]) == (0, 3, "merged")
    assert AutoModelForCausalLM.from_pretrained("out").num_parameters() > 500_000
    (answer,) = say("chat", "out", "--greedy", "--max-new-tokens", "8", given="1+1\n")[1]
    assert say("chat", "second", "--greedy", given="1+1\n")[1][0]["text"] == answer["text"]


def test_a_warm_start_says_what_comes_next_and_can_be_resumed(
    settings: Path, say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--set", "run.run_name=a", "--set", "run.eval_steps=0"]
    assert run(["sft", str(settings), *words]) == 0
    told = capsys.readouterr().err
    assert f"next: groupwise train {settings} --set policy.model_name=runs/a" in told
    _, events, _ = say("resume", "a", "--set", "training.num_episodes=3")
    assert [event["step"] for event in events if event["type"] == "step"] == [3]
    assert "loss/supervised" in next(event for event in events if event["type"] == "step")["data"]["metrics"]


def test_settings_of_a_warm_start_alone_are_not_named_as_the_next(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text(settings.read_text().replace('product = "language"', 'product = "warm-start"'))
    assert run(["sft", str(settings), "--set", "run.run_name=a", "--set", "run.eval_steps=0"]) == 0
    assert "next: groupwise train SETTINGS.toml --set policy.model_name=runs/a" in capsys.readouterr().err


def test_a_warm_start_is_plain_likelihood_whatever_the_loss_of_the_later_run(settings: Path, say: Say) -> None:
    """A reference, a critic or several passes would make it something else, or fail."""
    words = [
        "loss.beta=0.1", "policy.use_reference_model=true", "advantage.estimator=gae", "optim.num_epochs=4",
        "loss.loss_type=cispo", "loss.entropy_coef=0.1", "run.eval_steps=0",
    ]  # fmt: skip
    plain = say("sft", str(settings), "--set", "run.eval_steps=0")[1]
    other = say("sft", str(settings), *(word for setting in words for word in ("--set", setting)))[1]
    losses = [[e["data"]["metrics"]["loss/supervised"] for e in run if e["type"] == "step"] for run in (plain, other)]
    assert losses[0] == losses[1]


def test_every_line_is_answered_with_one_object(settings: Path, say: Say) -> None:
    status, answers, _ = say(
        "chat", "tiny", "--max-new-tokens", "6", given="hello\n\n  \nand?\n/reset\nhello\n/exit\nno\n"
    )
    assert (status, len(answers)) == (0, 3)
    assert {"text", "tokens", "end", "seconds", "tokens_per_second", "conversation_id"} <= answers[0].keys()
    assert answers[0]["text"] == answers[2]["text"] != answers[1]["text"]
    assert answers[0]["tokens"] <= 6
    (other,) = say("chat", "tiny", "--max-new-tokens", "6", "--seed", "1", given="hello\n")[1]
    assert other["text"] != answers[0]["text"]
    assert say("chat", "tiny", given="")[:2] == (0, [])


def test_without_json_the_answers_are_lines(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nhi\n"))
    assert run(["chat", "tiny@17", "--greedy", "--max-new-tokens", "20", "--stop", "hs"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "hh"


MISTAKES = [
    (["chat", "tiny", "--greedy", "--temperature", "0.5"], 2, "--greedy and --temperature 0.5 contradict each other"),
    (["chat", "tiny", "--temperature", "-1"], 2, "agent.temperature = -1.0 must be >= 0"),
    (["chat", "tiny", "--max-new-tokens", "0"], 2, "agent.max_new_tokens = 0 must be >= 1"),
    (["chat", "tiny", "--strategy", "sale"], 2, "there is no strategy 'sale'; there are customer_service"),
    (["chat", "tiny", "--conversation", "a"], 2, "--conversation a requires a store"),
    (["chat", "tiny", "--store", "{settings}"], 2, "is not a valid SQLite file"),
    (["chat", "./nowhere"], 2, "model folder './nowhere' does not exist"),
    (["chat", "latest"], 1, "no run 'latest'"),
    (["chat", "cartpole-2"], 1, "Did you mean 'cartpole-1'?"),
    (["chat", "cartpole-1"], 1, "did not train a language model: its task.product is 'control'"),
    (["export", "cartpole-1", "out"], 1, "`groupwise eval runs/cartpole-1` evaluates its policy"),
    (["export", "nobody", "out"], 1, "no run 'nobody'"),
    (["sft", "nowhere.toml"], 2, "nowhere.toml: no such file"),
    (["train", "{settings}", "--set", "policy.model_name=runs/cartpole-1"], 1, "did not train a language model"),
]


@pytest.mark.parametrize(("words", "status", "wanted"), MISTAKES)
def test_a_mistake_is_answered_in_words(
    settings: Path, small_config: Callable[..., TrainingConfig], capsys: pytest.CaptureFixture[str],
    words: list[str], status: int, wanted: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if "cartpole" in " ".join(words):
        create_run(small_config(output_dir="runs"))
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert run([word.format(settings=settings) for word in words]) == status
    told = capsys.readouterr()
    assert wanted in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_model_that_is_out_of_reach_is_refused_before_there_is_a_run(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert run([command, str(settings), "--set", "policy.model_name=Qwen/Qwen3-0.6B"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0] == "error: model 'Qwen/Qwen3-0.6B' is not on this machine, and the Hugging Face hub cannot be reached"
    )
    assert not Path("runs").exists()


def test_a_message_too_long_for_the_model_is_one_error(settings: Path, say: Say) -> None:
    status, (told,), _ = say("chat", "tiny", given="x" * 3000 + "\n")
    assert status == 1
    assert told["error"]["code"] == "context_full"
    assert "but the model's context is 2048 tokens" in told["error"]["message"]


class Person(io.StringIO):
    """Reads what is shown, and presses Ctrl-C when it has read enough."""

    def __init__(self, enough: str) -> None:
        super().__init__()
        self.enough = enough

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.enough and self.enough in self.getvalue():
            self.enough = ""
            signal.raise_signal(signal.SIGINT)
        return written


def test_a_conversation_with_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends an answer that would fill the context and leaves the conversation; at the prompt it leaves it."""
    person, lines = Person(enough="hhhsssss"), iter(["/help", "/what", "", "hi", "/reset", "hi", KeyboardInterrupt])

    def type_line(prompt: str) -> str:
        line = next(lines)
        if line is KeyboardInterrupt:
            raise KeyboardInterrupt
        return str(line)

    monkeypatch.setattr("sys.stdout", person)
    monkeypatch.setattr("builtins.input", type_line)
    config = AgentConfig(temperature=0, max_new_tokens=1000)
    with ChatSession(load_model("tiny@17"), config) as conversation:
        talk(conversation, "tiny@17")
        assert len(conversation.answers) == 1, "the first was reset"
        assert conversation.answers[0].tokens == 1000
    shown = person.getvalue()
    for words in (
        "/reset  start over",
        "Unknown command /what; /help lists",
        "(stopped)",
        "Started a new conversation.",
    ):
        assert words in shown
    assert "(cut off after 1000 tokens; --max-new-tokens allows more)" in shown


def test_a_full_context_is_told_and_the_conversation_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["x" * 1990, "x" * 90, "x" * 3000, "hi", "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    with ChatSession(load_model("tiny@17"), AgentConfig(max_new_tokens=5)) as conversation:
        talk(conversation, "tiny@17")
        assert len(conversation.answers) == 3
    told = capsys.readouterr()
    assert told.out.count("(the conversation no longer fits, so earlier turns were shortened for the model)") == 1
    assert "but the model's context is 2048 tokens including the answer. Send a shorter message." in told.out
    assert not told.err


def test_a_kept_conversation_goes_on_where_it_stood(settings: Path, say: Say) -> None:
    words = ("chat", "tiny", "--max-new-tokens", "4", "--store", "talks.db", "--conversation", "mine")
    first, second = say(*words, "--strategy", "sales", given="Hello\nWe need a help desk.\n")[1]
    assert (first["state"]["stage"], second["state"]["stage"]) == ("opening", "needs")
    (third,) = say(*words, given="Which plan do you recommend?\n")[1]
    assert (third["conversation_id"], third["turn"], third["strategy"]) == ("mine", 3, "sales")
    assert third["state"]["stage"] == "proposal"


def test_chat_goes_on_after_lines_that_are_no_text() -> None:
    """Bytes that are not UTF-8, and a special token written out: in a real process with a real pipe."""
    command = [sys.executable, "-m", "groupwise.cli", "chat", "tiny", "--max-new-tokens", "4", "--json"]
    done = subprocess.run(command, input=b"\xff\xfe\n1<|end|>\nhi\n", capture_output=True, timeout=600, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert ["text" in line for line in lines] == [True, False, True]
    assert lines[1]["error"]["code"] == "not_plain_text"
    assert b"'<|end|>', which is a special token" in done.stderr


def test_chat_in_a_real_terminal() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "groupwise.cli", "chat", "tiny@17", "--greedy", *LONG])
    shown = ""
    try:
        for typed, wanted in (("", "> "), ("hi\n", "hhhsssss"), ("\x03", "(stopped)"), ("", "> "), ("\x04", "\n")):
            os.write(terminal, typed.encode())
            until = time.monotonic() + 600
            while wanted not in shown:
                assert time.monotonic() < until, shown
                if select.select([terminal], [], [], 0.1)[0]:
                    shown += os.read(terminal, 4096).decode()
            shown = shown.partition(wanted)[2]
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(terminal)
