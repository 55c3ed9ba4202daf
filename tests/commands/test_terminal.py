"""The terminal as a newcomer meets it: quick answers, one syntax, and files beside the settings that name them."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise import cli
from groupwise.cli import COMMANDS, GROUPS
from groupwise.config import load_config
from groupwise.workflows.block_form import lift
from groupwise.workflows.files import read_workflow

HEAVY = ("torch", "transformers", "numba", "matplotlib", "gymnasium", "sqlalchemy", "numpy", "groupwise.workflows")
WORDS = [[name] for name in COMMANDS] + [[group, name] for group, (_, inner) in GROUPS.items() for name in inner]


def imported_by(*lines: list[str], at: Path) -> list[str]:
    """What of HEAVY these command lines import, in one new process."""
    code = (
        "import sys; from groupwise.cli import run\n"
        f"for words in {list(lines)!r}: run(words)\n"
        f"print('', *[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=at, capture_output=True, text=True, check=True)
    return found.stderr.splitlines()[-1].split()


def test_no_help_imports_anything_heavy(tmp_path: Path) -> None:
    assert imported_by(*([*words, "--help"] for words in WORDS), at=tmp_path) == []


def test_looking_at_runs_settings_and_keys_imports_no_torch(tmp_path: Path) -> None:
    looked = imported_by(["runs"], ["show"], ["config", "show"], ["keys", "list"], at=tmp_path)
    assert not {"torch", "transformers", "numba", "matplotlib", "groupwise.workflows"} & set(looked)


def test_checking_settings_imports_no_torch(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    names = ("cartpole", "orders", "column_addition", "column_addition_sft", "code", "workflows")
    lines = [["config", "check", str(examples / f"{name}.toml")] for name in names]
    assert not {"torch", "transformers", "numba", "matplotlib"} & set(imported_by(*lines, at=tmp_path))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_has_no_noise(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert not any(noise in shown for noise in ("--empty-", "--no-", "[default: ()]", "[default: False]", "[ARGS]"))


def test_a_folder_of_settings_works_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "reward.py").write_text("def brief(turns):\n    return -len(turns[-1]['content'])\n")
    (folder / "sums.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n{"prompt": "1+2", "answer": "3"}\n')
    (folder / "run.toml").write_text(
        '[task]\nproduct = "language"\nenvironment = "sums.jsonl"\n'
        'options = { eval_file = "sums.jsonl", prompt = "prompt" }\n'
        '[reward]\nname = "reward.py:brief"\n[run]\noutput_dir = "runs"\n'
    )
    monkeypatch.chdir(tmp_path)
    cfg = load_config("mine/run.toml", ["task.options.check=other.py:f"])
    assert (cfg.task.environment, cfg.reward.name) == ("mine/sums.jsonl", "mine/reward.py:brief")
    assert dict(cfg.task.options) == {"eval_file": "mine/sums.jsonl", "prompt": "prompt", "check": "other.py:f"}
    assert cfg.run.output_dir == "runs"  # a run belongs where one works
    monkeypatch.chdir(folder)
    assert load_config("run.toml").reward.name == "reward.py:brief"


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

gymnasium.register("Corridor-v0", Corridor, max_episode_steps=8)
"""


def test_an_environment_of_ones_own_is_named_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corridor.py").write_text(ENVIRONMENT)
    Path("run.toml").write_text('environment = "corridor.py:Corridor-v0"\nnum_episodes = 1\n')
    assert cli.run(["train", "run.toml", "--quiet"]) == 0
    assert Path("runs/corridor-1").is_dir()
    assert cli.run(["eval", "--episodes", "1", "--gif", "x.gif"]) == 2
    assert "has no render mode rgb_array" in capsys.readouterr().err
    assert cli.run(["config", "check", "run.toml", "--set", "task.environment=corridors:Corridor-v0"]) == 2
    assert "FILE.py:ID" in capsys.readouterr().out


def test_a_column_of_a_log_is_called_end(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{n},{work},2025-01-0{n} 0{hour}:00:00" for n in range(1, 9) for hour, work in ((8, "Ask"), (9, "Answer"))]
    log.write_text("\n".join(["Order,Step,Finished", *rows]))
    words = ["requirements", str(log), "-o", str(tmp_path / "out.yaml")]
    assert cli.run([*words, "--column", "case=Order", "--column", "activity=Step", "--column", "end=Finished"]) == 0


def test_the_event_log_that_ships_gives_requirements(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "examples" / "workflows" / "claims.csv"
    assert cli.run(["requirements", str(log), "-o", str(tmp_path / "claims.yaml")]) == 0
    assert "Assess damage" in (tmp_path / "claims.yaml").read_text()


def test_a_score_keeps_to_the_width_of_a_terminal() -> None:
    from rich.console import Console

    from groupwise.commands.workflow_analysis import tree
    from groupwise.workflows.scoring import ScorePart

    part = ScorePart("whole", 1.0, 1.0, "w", parts=(ScorePart("cost", 0.5, 0.5, "many words " * 20),))
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(tree(part))
    lines = console.export_text().splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 80 and "many word " not in line for line in lines)


def test_completion_can_be_installed(tmp_path: Path) -> None:
    words = ["--install-completion", "--shell", "bash", "--output", str(tmp_path / "g.bash")]
    done = subprocess.run([sys.executable, "-m", "groupwise", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "groupwise" in (tmp_path / "g.bash").read_text()


def test_a_log_gives_the_process_as_it_is_to_start_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    lines = ["case,activity,start,end,resource,role"]
    for n in range(1, 13):
        for work, begin, end, who in (
            ("Ask", "08:00", "08:30", f"A{n % 2}"), ("Search", "08:30", "09:00", f"A{n % 3}"),
            ("Count", "08:30", "09:10", f"B{n % 2}"), ("Answer", "09:10", "09:40", "C"),
        ):  # fmt: skip
            times = [f"2025-01-{n:02} {time}:00" for time in (begin, end)]
            lines.append(",".join([str(n), work, *times, who, who[0]]))
    log.write_text("\n".join(lines))
    out = tmp_path / "mine.yaml"
    assert cli.run(["requirements", str(log), "-o", str(out)]) == 0
    assert "mine-today.bpmn is the process as it is" in capsys.readouterr().out
    assert "start: mine-today.bpmn" in out.read_text()
    assert cli.run(["convert", str(tmp_path / "mine-today.bpmn"), str(tmp_path / "today.mmd")]) == 0
    found = lift(read_workflow(tmp_path / "mine-today.bpmn"))
    assert dict(found.servers) == {"A": 3, "B": 2, "C": 1}
    first, both, last = found.root.parts
    assert (first.name, last.name, {part.name for part in both.parts}) == ("Ask", "Answer", {"Search", "Count"})
    assert cli.run(["design", str(out), "--evaluations", "2"]) == 0
    assert "plain sequence" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environment", "product"),
    [("rows.jsonl", "language"), ("column_addition", "language"), ("orders", "agent"), ("programs", "code")],
)
def test_an_environment_of_another_product_says_which(
    environment: str, product: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(f'environment = "{environment}"\n')
    assert cli.run(["config", "check", "run.toml"]) == 2
    assert f'Set task.product = "{product}"' in capsys.readouterr().out


def test_a_rollout_in_which_everything_fails_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reward.py").write_text("def short(completions, **columns):\n    return [1.0]\n")
    Path("run.toml").write_text('product = "language"\nenvironment = "sorting"\nmax_new_tokens = 4\n')
    words = ["rollout", "run.toml", "--tasks", "1", "--set", "policy.model_name=tiny"]
    assert cli.run(words) == 0
    assert cli.run([*words, "--set", "reward.name=reward.py:short"]) == 1


def test_everything_can_be_printed_in_ascii(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        command = [sys.executable, "-m", "groupwise", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    loan = str(Path(__file__).parents[2] / "examples" / "workflows" / "loan.yaml")
    assert "+ loan" in said("check", loan)
    assert "->" in said("requirements", loan)
    assert "assess risk" in json.loads(said("requirements", loan, "--json"))["requirements"]["activities"]
