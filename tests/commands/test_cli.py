"""The command line: quick to start, kind when misused, JSON on request."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.cli import COMMANDS, run
from groupwise.config import TrainingConfig
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.environments import OWN
from groupwise.extras import PACKAGES
from groupwise.types import Array

Configure = Callable[..., TrainingConfig]
EXAMPLE = Path(__file__).parents[2] / "examples/cartpole.toml"


@pytest.fixture
def settings(small_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file beside which every command of a test runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(small_config(output_dir="runs").to_toml())
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """The exit status and the JSON answer of a command."""
    status = run([*words, "--json"])
    out = capsys.readouterr().out
    return status, json.loads(out.splitlines()[-1])


def trained(settings: Path, *words: str) -> Path:
    assert run(["train", str(settings), "--json", *words]) == 0
    return max(Path("runs").iterdir(), key=lambda p: p.stat().st_mtime)


def child(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)


HEAVY = "print([m for m in ('torch', 'numpy', 'pyarrow', 'matplotlib', 'rich.live') if m in sys.modules])"


def test_importing_groupwise_loads_nothing_heavy() -> None:
    assert child("-c", f"import sys, groupwise; {HEAVY}").stdout.strip() == "[]"


def test_help_loads_no_torch() -> None:
    script = """
import sys
from groupwise.cli import run
status = run(["--help"])
print(status, "torch" in sys.modules, "numpy" in sys.modules)
"""
    assert child("-c", script).stdout.splitlines()[-1] == "0 False False"


@pytest.mark.parametrize(
    ("script", "most"), [("import groupwise", 100), ("from groupwise.cli import run; run(['--help'])", 300)]
)
def test_starting_imports_few_modules(script: str, most: int) -> None:
    """Modules, not seconds: how long starting takes depends on the machine and on what else runs there."""
    assert int(child("-c", f"import sys; {script}; print(len(sys.modules))").stdout.split()[-1]) < most


def test_every_command_explains_itself_and_offers_json(capsys: pytest.CaptureFixture[str]) -> None:
    for words in [[name] for name in COMMANDS] + [["config", name] for name in ("show", "schema", "check")]:
        assert run([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--json" in text, words
        assert "--debug" in text, words


def test_train_show_resume_eval_and_report_in_one_go(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained(settings)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [lines[0]["type"], lines[-1]["type"]] == ["start", "end"]
    assert (path / "report.html").exists()
    status, listed = answer(capsys, "runs")
    assert (status, [(r["id"], r["state"], r["step"]) for r in listed]) == (0, [(path.name, "finished", 6)])
    status, shown = answer(capsys, "show", path.name)
    assert shown["metrics"]["eval/reward_mean"] > 0
    status, judged = answer(capsys, "eval", "latest", "--episodes", "7", "--seed", "3")
    assert (status, judged["metrics"]["eval/attempts"], judged["seed"]) == (0, 7.0, 3)
    status, plotted = answer(capsys, "plot", path.name, "--metric", "policy/entropy", "--out", "entropy.png")
    assert Path("entropy.png").stat().st_size > 1000
    assert list(plotted["series"][path.name]) == ["1", "2", "3", "4", "5", "6"]
    assert answer(capsys, "report", path.name)[1]["report"].endswith("report.html")
    assert run(["resume", path.name, "--set", "training.num_episodes=8", "--json"]) == 0
    steps = [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()]
    assert steps[-1] == 8


def test_the_same_words_for_people(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained(settings)
    capsys.readouterr()
    for words, wanted in (
        (["runs"], "finished"),
        (["show"], "mean reward of the attempts"),
        (["eval"], "reward mean"),
        (["plot"], "reward/mean"),
        (["doctor", str(settings)], "groups without spread"),
        (["config", "check", str(settings)], "all settings are valid"),
        (["config", "show", str(settings)], 'environment = "CartPole-v1"'),
    ):
        assert run(words) == 0, words
        assert wanted in capsys.readouterr().out, words
    assert run(["resume", path.name]) == 1
    assert "num_episodes" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["77", "41512"])
def test_the_example_learns_cartpole(settings: Path, capsys: pytest.CaptureFixture[str], seed: str) -> None:
    assert run(["train", str(EXAMPLE), "--set", f"run.seed={seed}", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scores = [event["data"]["metrics"]["eval/reward_mean"] for event in events if event["type"] == "eval"]
    assert scores[-1] >= 475 > 200 > scores[0]


MISTAKES = [
    (["train", "nowhere.toml"], 2, "nowhere.toml: no such file"),
    (["train"], 2, "config"),
    (["trian"], 2, 'Did you mean "train"'),
    (["train", "{settings}", "--set", "loss.clip_ration=0.1"], 2, "did you mean loss.clip_ratio"),
    (["train", "{settings}", "--set", "learning_rate=-1"], 2, "optim.learning_rate = -1 must be"),
    (["train", "{settings}", "--set", "task.environment=CartPol-v1"], 2, "Did you mean 'CartPole-v1'?"),
    (["train", "{settings}", "--set", "task.product=controll"], 2, "is not a product"),
    (["train", "{settings}", "--set", "task.options={{wheels=3}}"], 2, "does not fit CartPole-v1"),
    (["resume", "nobody"], 1, "no run 'nobody'"),
    (["show", "nobody"], 1, "no run 'nobody'"),
    (["eval", "nobody"], 1, "no run 'nobody'"),
    (["stop", "nobody"], 1, "no run 'nobody'"),
    (["config", "check", "nowhere.yaml"], 2, "no such file"),
]


@pytest.mark.parametrize(("words", "status", "wanted"), MISTAKES)
def test_a_mistake_is_answered_in_words_without_a_traceback(
    settings: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, wanted: str
) -> None:
    words = [word.format(settings=settings) for word in words]
    assert run(words) == status
    told = capsys.readouterr()
    assert wanted.lower() in (told.err + told.out).lower()
    assert "Traceback" not in told.err + told.out


def test_errors_as_json_have_the_one_shape(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answer(capsys, "train", str(settings), "--set", "learning_rate=-1")
    assert status == 2
    assert told["error"].keys() == {"code", "message", "hint", "field"}
    assert (told["error"]["code"], told["error"]["field"]) == ("config", "optim.learning_rate")


def test_debug_shows_the_traceback(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "nobody", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_doctor_warns_of_settings_that_cannot_teach(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answer(capsys, "doctor", str(settings), "--set", "rollout.num_generations=1")
    findings = {finding["name"]: finding for finding in told["findings"]}
    assert status == 1
    assert findings["groups without spread"]["state"] == "fault"
    assert "num_generations" in findings["groups without spread"]["remedy"]


def test_doctor_names_an_extra_with_its_brackets(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PACKAGES, "no_such_module", "dreams")
    run(["doctor"])
    assert "groupwise[dreams]" in "".join(capsys.readouterr().out.split())


def test_doctor_names_the_promise_an_environment_breaks(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unseeded(CartPole):
        def reset(self, seeds: Sequence[int]) -> Array:
            return self.set_state(np.random.default_rng().uniform(-0.05, 0.05, (len(seeds), 4)))

    assert "CartPole-v1 keeps its contract" in str(answer(capsys, "doctor", str(settings)))
    monkeypatch.setitem(OWN, "CartPole-v1", Unseeded)  # type: ignore[misc]
    status, told = answer(capsys, "doctor", str(settings))
    assert status == 1
    assert any("start differently" in finding["detail"] for finding in told["findings"])


def test_doctor_reports_an_environment_it_cannot_make(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answer(capsys, "doctor", str(settings), "--set", "task.environment=Pong")
    assert status == 1
    assert told["findings"][-1]["state"] == "fault"


def test_a_quiet_resume_still_warns_of_a_damaged_checkpoint(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(settings), "--quiet"]) == 0
    newest = max(Path("runs").glob("*/checkpoints/*"))
    (newest / "state.pt").write_bytes(b"")
    assert run(["resume", "latest", "--quiet", "--set", "training.num_episodes=8"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"note: checkpoint {newest.name} is damaged: state.pt has changed" in err


def test_a_finished_run_that_lost_its_log_is_taken_up_again(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(settings), "--quiet"]) == 0
    run_dir = next(Path("runs").iterdir())
    (run_dir / "events.jsonl").unlink()
    assert run(["resume", str(run_dir), "--quiet"]) == 0
    assert "the event log was lost: a new one begins at step 6" in capsys.readouterr().err


def test_output_into_a_closed_pipe_ends_quietly(settings: Path) -> None:
    trained(settings)
    command = f"{sys.executable} -m groupwise.cli config show | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("[")
    assert "BrokenPipe" not in done.stderr
    assert "Traceback" not in done.stderr
