"""`groupwise init`: whatever people have, four questions at most lead to a file that runs."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise import cli
from groupwise.commands import init as command
from groupwise.config import load_config

ROOT = Path(__file__).parents[2]
ENVIRONMENT = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (1,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.x = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.x += 1 if action else -1
        return np.full(1, self.x, np.float32), float(self.x > 3), self.x > 3, False, {}
"""

Begin = Callable[..., Any]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Begin:
    """Runs `groupwise init --json` in an empty folder and returns its answer."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Any:
        capsys.readouterr()
        cli.run(["init", *words, "--json"])
        return json.loads(capsys.readouterr().out)

    return run


def rows(path: str, **columns: Any) -> None:
    lines = [json.dumps({name: f"{value} {n}" for name, value in columns.items()}) for n in range(40)]
    Path(path).write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("columns", "words", "check"),
    [
        ({"Question": "two and", "solution": "2"}, [], "reward.py:score"),
        ({"prompt": "say", "my answer": "so"}, ["--answer", "my answer"], "reward.py:score"),
        ({"prompt": "say"}, [], "reward.py:score"),
        ({"a": "say", "b": "so"}, ["--prompt", "a", "--answer", "b", "--reward", "contains"], "contains"),
    ],
)
def test_data_become_settings_whose_next_commands_run(
    begin: Begin, columns: dict[str, str], words: list[str], check: str
) -> None:
    Path("data").mkdir()
    rows("data/mine.jsonl", **columns)
    told = begin("--data", "data/mine.jsonl", *words, "-o", "runs of mine/mine.toml")
    assert load_config(told["settings"]).task.options["check"].endswith(check)
    assert Path("runs of mine/reward.py").exists() == (check != "contains")
    assert cli.run(["config", "check", told["settings"]]) == 0
    small = ["--set", "training.num_episodes=1", "--set", "run.eval_steps=0", "--set", "rollout.tasks_per_step=2"]
    if "Question" in columns:
        assert cli.run(["sft", told["settings"], *small, "--quiet"]) == 0
    elif "my answer" in columns:
        assert cli.run(["train", told["settings"], *small, "--quiet"]) == 0


def test_an_environment_in_a_file_is_found_by_the_file_alone(begin: Begin) -> None:
    Path("my_env.py").write_text(ENVIRONMENT)
    told = begin("--environment", "my_env.py")
    assert told["settings"] == "my_env.toml"
    cfg = load_config("my_env.toml")
    assert (cfg.task.environment, cfg.task.max_episode_steps) == ("my_env.py:Corridor", 1000)
    words = ["--set", "training.num_episodes=1", "--set", "task.max_episode_steps=8", "--set", "run.eval_episodes=1"]
    assert cli.run(["train", "my_env.toml", *words, "--quiet"]) == 0
    Path("none.py").write_text("x = 1\n")
    assert "has no environments" in begin("--environment", "none.py")["error"]["message"]
    assert load_config(begin("--environment", "CartPole-v1")["settings"]).optim.learning_rate == 3e-3, "as tuned"


@pytest.mark.parametrize("name", ["claims.csv", "loan.bpmn", "order_fulfilment.yawl"])
def test_a_process_becomes_requirements_that_can_be_met(begin: Begin, name: str) -> None:
    told = begin("--process", str(ROOT / "examples" / "workflows" / name))
    assert cli.run(["requirements", told["settings"]]) == 0
    assert told["next"][1].startswith(f"groupwise design {told['settings']} ")


def test_a_drawing_keeps_its_teams_order_and_branches(begin: Begin) -> None:
    begin("--process", str(ROOT / "examples" / "workflows" / "loan.bpmn"))
    from groupwise.workflows.requirements import read_requirements

    found = read_requirements("loan.yaml")
    assert found.activities["verify income"].pools == ("front office",)
    assert set(found.pools) > {"front office", "loan officer"}
    assert ("assess risk", "approve loan") in found.rules.precedes
    assert [dict(branch.options) for branch in found.branches] == [{"appraise property": 0.3}]
    assert Path(found.start or "").exists()


def test_a_problem_is_solved_by_the_command_that_is_named(begin: Begin) -> None:
    told = begin("--problem", "add: them up", "--examples", "[1, 7, 3] -> 11; [2] -> 2; [5, 5] -> 10")
    assert cli.run(told["next"][0].split()[1:]) == 0
    assert "def solve" in Path("program.py").read_text()
    assert "cannot be read" in begin("--problem", "x", "--examples", "1, 2", "-o", "y.yaml")["error"]["message"]


def test_no_file_is_replaced_without_being_told(begin: Begin) -> None:
    Path("reward.py").write_text("mine = 1\n")
    rows("mine.jsonl", prompt="a", answer="b")
    assert "reward.py exists" in begin("--data", "mine.jsonl")["error"]["message"]
    assert Path("reward.py").read_text() == "mine = 1\n"
    assert not Path("mine.toml").exists()
    Path("reward.py").write_text("def brief(text):\n    return -len(text)\n")
    assert load_config(begin("--data", "mine.jsonl", "--reward", "reward.py:brief")["settings"])
    assert "mine.toml exists" in begin("--data", "mine.jsonl", "--reward", "exact")["error"]["message"]
    assert begin("--data", "mine.jsonl", "--reward", "exact", "--force")["settings"] == "mine.toml"


def test_what_cannot_run_is_refused_before_anything_is_written(begin: Begin) -> None:
    rows("mine.jsonl", prompt="a", answer="b")
    for words, said in (
        ([], "--kind is missing"),
        (["--kind", "data"], "--data is missing"),
        (["--data", "none.jsonl"], "no such file"),
        (["--data", "mine.jsonl", "--answer", "right"], "'right' is not a column"),
        (["--data", "mine.jsonl", "--reward", "number", "--model", "no/such-model"], "no/such-model"),
        (["--data", "mine.jsonl", "--reward", "reward.py:none"], "reward.py"),
        (["--data", "mine.jsonl", "-o", "mine.yaml"], "must end in .toml"),
        (["--kind", "problem", "--data", "mine.jsonl"], "--data does not go with --kind problem"),
        (["--environment", "NoSuch-v1"], "NoSuch-v1"),
        (["--process", "mine.jsonl"], "mine.jsonl"),
    ):
        assert said in begin(*words)["error"]["message"], words
    assert [path.name for path in Path().iterdir()] == ["mine.jsonl"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_four_questions_are_enough(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows("mine.jsonl", prompt="a", answer="1")
    monkeypatch.setattr(command.sys, "stdin", Terminal("what?\n1\nmine.jsonl\n3\n\n"))
    assert cli.run(["init"]) == 0
    said = capsys.readouterr().out
    assert said.count("> ") == 5, "one question twice, because its answer was none of the choices"
    assert "groupwise init --kind data --data mine.jsonl --reward number --model tiny" in said
    assert load_config("mine.toml").task.options["check"] == "number"
    monkeypatch.setattr(command.sys, "stdin", Terminal("1\n"))
    assert cli.run(["init"]) == 1
    assert "Nothing was written" in capsys.readouterr().err
