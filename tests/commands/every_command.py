"""Run every command in one process in which some modules cannot be imported; print what came of each as JSON.

python every_command.py MODULE,MODULE FOLDER
"""

import contextlib
import importlib.abc
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOAN = str(ROOT / "examples" / "workflows" / "loan.yaml")
BPMN = str(ROOT / "examples" / "workflows" / "loan.bpmn")
CARTPOLE = [str(ROOT / "examples" / "cartpole.toml"), "--set", "training.num_episodes=1", "--set", "run.eval_steps=0"]
ADDITION = str(ROOT / "examples" / "column_addition.toml")
SMALL = ["--set", "rollout.tasks_per_step=1", "--set", "run.eval_episodes=1", "--set", "training.num_episodes=1"]

COMMANDS: dict[str, list[str]] = {
    "chat": ["chat", "language", "--greedy"],
    "check": ["check", BPMN],
    "compare": ["compare", "no-such.toml", "other.toml"],
    "config check": ["config", "check", CARTPOLE[0]],
    "config schema": ["config", "schema"],
    "config show": ["config", "show"],
    "convert": ["convert", BPMN, "loan.svg"],
    "convert to PNG": ["convert", BPMN, "loan.png"],
    "design": ["design", LOAN, "--evaluations", "2"],
    "diff": ["diff", BPMN, BPMN],
    "doctor": ["doctor"],
    "edit": ["edit", LOAN, "--staff", "approver=2"],
    "eval": ["eval", "control", "--episodes", "1"],
    "export": ["export", "language", "exported"],
    "feedback": ["feedback", LOAN, BPMN],
    "init": ["init", "--environment", "CartPole-v1"],
    "init for data": ["init", "--data", "words.jsonl"],
    "init for a process": ["init", "--process", BPMN],
    "groups": ["groups", "control"],
    "keys list": ["keys", "list"],
    "paper": ["paper", "no-such-paper"],
    "plan": ["plan", "qwen3-0.6b"],
    "plot": ["plot", "control", "--out", "plot.png"],
    "report": ["report", "control"],
    "requirements": ["requirements", LOAN],
    "resume": ["resume", "control"],
    "rollout": ["rollout", *CARTPOLE],
    "runs": ["runs"],
    "sampler status": ["sampler", "status"],
    "score": ["score", LOAN],
    "search": ["search", "--budget", "1", "--problems", "1"],
    "serve": ["serve", "--host", "0.0.0.0"],
    "sft": ["sft", str(ROOT / "examples" / "column_addition_sft.toml"), *SMALL],
    "show": ["show", "control"],
    "simulate": ["simulate", LOAN, "--cases", "20"],
    "solve": ["solve", "tables", "--budget", "1"],
    "stop": ["stop", "control"],
    "sweep": ["sweep", CARTPOLE[0], "--over", "optim.learning_rat=1,2"],
    "train control": ["train", *CARTPOLE],
    "train language": ["train", ADDITION, *SMALL],
}


class Blocked(importlib.abc.MetaPathFinder):
    """Pretends that some modules are not installed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(blocked: str, folder: str) -> None:
    sys.meta_path.insert(0, Blocked(set(filter(None, blocked.split(",")))))
    os.chdir(folder)
    Path("words.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n')
    from groupwise.cli import run

    found = {}
    for name, words in COMMANDS.items():
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            sys.stdin = io.StringIO("12+34\n")
            status = run(words)
        found[name] = {"status": status, "said": said.getvalue()[-2000:]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
