"""Does a model learn to use the tools of an MCP server, and does a run go on when the server is killed?

    python benchmarks/mcp_learning.py --json

Per seed: a warm start on conversations that are right in form and mostly call the wrong tool, then GRPO on the 300
questions of a JSONL file with the tools of `mcp_desk.py`, a real server over standard input and output; greedy accuracy
on 100 held-out questions about other orders before and after. Then a short run whose server is killed with SIGKILL
again and again. Claims: `mcp_gain` with a 95% interval over the seeds (Student's t), and of the last run how often the
server was killed, the steps it made, its attempts, those that ended in an error, and the calls that failed as data.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from record import kept, print_result

DESK = Path(__file__).with_name("mcp_desk.py")
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t for a 95% interval, by the number of seeds
WARM_STEPS, STEPS, KILLED_STEPS = 120, 30, 5
COMMON = [
    "sampling.max_new_tokens=24", "rollout.max_conversation_turns=3", "optim.adam_beta2=0.99",
    "optim.lr_scheduler_type=constant", "run.threads=1", "run.group_log_steps=0", "run.eval_episodes=100",
]  # fmt: skip
GRPO = ["rollout.num_generations=8", "rollout.tasks_per_step=12", "optim.learning_rate=3e-4", "optim.warmup_ratio=0",
        "optim.per_device_train_batch_size=96", "optim.gradient_accumulation_steps=1",
        "advantage.advantage_scale=batch_std"]  # fmt: skip


def settings(product: str, environment: str, folder: Path, *changes: str) -> Any:
    from groupwise.config import load_config

    file = folder / f"{product}.toml"
    words = f'[task]\nproduct = "{product}"\nenvironment = "{environment}"\n'
    file.write_text(f"{words}[policy]\nmodel_name = 'tiny'\n[tools]\nsources = ['mcp:{sys.executable} {DESK}']\n")
    return load_config(file, [*COMMON, f"run.output_dir={folder}", *changes])


def write_questions(folder: Path) -> None:
    from mcp_desk import questions

    for name, held_out in (("train", False), ("held_out", True)):
        rows = questions(held_out=held_out)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_seed(seed: int, folder: Path) -> dict[str, Any]:
    from lm_learning import run

    from groupwise.agents import agent_product, warm_start

    write_questions(folder)
    warm = settings(
        "warm-start", f"{DESK}:demonstrated", folder, f"run.seed={seed}", f"run.run_name=warm-{seed}",
        f"training.num_episodes={WARM_STEPS}", "rollout.tasks_per_step=32", "optim.learning_rate=2e-3",
        "optim.per_device_train_batch_size=32", "optim.gradient_accumulation_steps=1", f"run.eval_steps={WARM_STEPS}",
        f"run.save_steps={WARM_STEPS}",
    )  # fmt: skip
    begun = run(warm, warm_start.build)
    learned = run(learning(seed, folder, STEPS), agent_product.build)
    before, after = learned["curve"][0][1], learned["curve"][-1][1]
    spent = {"cpu_seconds": begun["cpu_seconds"] + learned["cpu_seconds"], "curve": learned["curve"]}
    return {"seed": seed, "before": before, "after": after, **spent}


def learning(seed: int, folder: Path, steps: int, name: str = "grpo") -> Any:
    return settings(
        "agent", str(folder / "train.jsonl"), folder, f"run.seed={seed}", f"run.run_name={name}-{seed}",
        f"task.options.eval_file={folder / 'held_out.jsonl'}", "task.options.check=exact",
        f"policy.model_name={folder}/warm-{seed}", f"training.num_episodes={steps}", f"run.eval_steps={steps}",
        f"run.save_steps={steps}", *GRPO,
    )  # fmt: skip


def run_killed(seed: int, folder: Path) -> dict[str, Any]:
    """A run whose server is killed half a second after every start."""
    from groupwise.agents import agent_product
    from groupwise.training.folder import create_run
    from groupwise.training.session import execute

    over, killed = threading.Event(), []

    def kill() -> None:
        while not over.wait(0.1):
            for pid in desks():
                time.sleep(0.5)
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    cfg = learning(seed, folder, KILLED_STEPS, "killed")
    found: list[Any] = []
    events = execute(create_run(cfg), agent_product.build)
    for event in events:
        if event.type == "start":
            killer.start()
        if event.type == "step":
            found.append(event.data["metrics"])
    over.set()
    killer.join()
    attempts = 8 * 12 * len(found)
    failed = sum(step.get("groups/failed_share") or 0.0 for step in found) / len(found)
    unavailable = sum(step.get("reward/part/tool_errors/unavailable") or 0.0 for step in found) / len(found)
    return {"killed": len(killed), "steps": len(found), "attempts": attempts, "failed_share": failed,
            "unavailable_calls_per_attempt": unavailable, "metrics": found[-1]}  # fmt: skip


def desks() -> list[int]:
    """The servers that this process has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and str(DESK).encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (OSError, ValueError):
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--folder", help="keep what is done here, and go on from it another time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(options.folder or passing).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        found = [
            kept(options.folder, f"seed-{seed}", lambda seed=seed: run_seed(seed, folder)) for seed in options.seeds
        ]
        if not options.json:
            for one in found:
                print(f"seed {one['seed']}: {one['before']:.2f} → {one['after']:.2f} in {one['cpu_seconds']:.0f} s")
        write_questions(folder)
        killed = kept(options.folder, "killed", lambda: run_killed(options.seeds[0], folder))
    gains = [one["after"] - one["before"] for one in found]
    gain = statistics.mean(gains)
    claims = {"mcp_gain": gain, "mcp_tasks": 400, **{f"killed_{k}": v for k, v in killed.items() if k != "metrics"},
              "cpu_seconds_per_seed": statistics.mean(one["cpu_seconds"] for one in found)}  # fmt: skip
    intervals = {}
    if len(gains) in T_95:
        reach = T_95[len(gains)] * statistics.stdev(gains) / len(gains) ** 0.5
        intervals["mcp_gain"] = [gain - reach, gain + reach]
    print_result("mcp", claims, seeds=options.seeds, raw={"seeds": found, "killed": killed}, intervals=intervals)


if __name__ == "__main__":
    main()
