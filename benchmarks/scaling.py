"""Many workers: how much faster conversations with a slow tool are made, what Ray adds, and whether the engine learns.

    python benchmarks/scaling.py --json

Parts, each of which can be asked for alone with `--parts`:

    speedup   `train_iteration` with 1 and 16 workers, update included, and sampling alone with 1 and 8; a tool that is
              waited for over HTTP on this machine, 50 ms for each of four turns. Rounds of all arms, interleaved;
              ratios of medians. Other work on the machine lowers every ratio; its load is in `raw`.
    ray       the same conversations without waiting, one at a time: in this process, in a worker process, by an actor
    gain      five seeds of the engine on prompts of other wordings than it is judged on
    service   a job of `groupwise serve` that `POST /api/scale` gives twice the workers
    auto      an engine that chooses its number of workers, with much and then with little to do
    faults    a Ray of two simulated nodes: an actor is killed every 5 seconds for two minutes, then a node is removed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import spelling_desk
from record import kept, print_result

from groupwise.agents.agent import Agent
from groupwise.agents.agent_product import build
from groupwise.compat.computational import ComputationalGRPOEngine, create_computational_engine
from groupwise.config import TrainingConfig
from groupwise.reporting.statistics import student_quantile
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute

DELAY = 0.05  # seconds for an answer of the tool
SETTINGS: dict[str, Any] = {
    "product": "agent", "num_generations": 16, "max_new_tokens": 4, "learning_rate": 2e-3, "threads": 2,
    "per_device_train_batch_size": 128, "gradient_accumulation_steps": 1, "num_epochs": 1, "warmup_ratio": 0.0,
    "lr_scheduler_type": "constant", "num_episodes": 1000, "eval_steps": 0,
}  # fmt: skip
PROMPTS = spelling_desk.prompts(spelling_desk.LEARNED)
TOKEN = "the operator of a benchmark"  # may name any file as an environment
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SEEDS = (201, 202, 203, 204, 205)


def engine_of(environment: spelling_desk.SpellingDesk, workers: int, **own: Any) -> ComputationalGRPOEngine:
    given = {name: own.pop(name) for name in ("max_workers", "backend") if name in own}
    config = TrainingConfig.from_dict({**SETTINGS, **own})
    return create_computational_engine(
        agent=Agent("tiny"), environment=environment, num_workers=workers, use_learned_rewards=False, config=config,
        **given,
    )  # fmt: skip


async def speedup(rounds: int) -> dict[str, Any]:
    """Rounds of one iteration with 1, 8 and 16 workers each; the first only starts the workers."""
    raw: dict[str, Any] = {"iteration": {}, "sampling": {}, "load": []}
    with spelling_desk.served(DELAY) as url:
        engines = {count: engine_of(spelling_desk.SpellingDesk(url), count) for count in (1, 8, 16)}
        # One worker needs longer for one prompt than sixteen for ten.
        asked = {1: PROMPTS[:1], 8: PROMPTS, 16: PROMPTS}
        for number in range(rounds + 1):
            for count, engine in engines.items():
                await engine.train_iteration(asked[count])
                found = engine.get_metrics()
                if number:
                    raw["iteration"].setdefault(str(count), []).append(found["trajectories_per_second"])
                    raw["sampling"].setdefault(str(count), []).append(found["sampled_per_second"])
                    raw["load"].append(os.getloadavg()[0])
        for engine in engines.values():
            engine.close()
    one, many = (statistics.median(raw["iteration"][count]) for count in ("1", "16"))
    alone, eight = (statistics.median(raw["sampling"][count]) for count in ("1", "8"))
    return {"claims": {"speedup_16": many / one, "efficiency_8": eight / alone / 8}, "raw": raw}


def ray_overhead(count: int) -> dict[str, Any]:
    """Milliseconds for each conversation, one at a time, that a place elsewhere adds; four turns, so four calls."""
    raw: dict[str, list[float]] = {}
    for _ in range(3):
        for backend in ("local", "processes", "ray"):
            raw.setdefault(backend, []).append(_one_at_a_time(backend, count))
    least = {name: min(times) for name, times in raw.items()}
    return {
        "claims": {
            "ray_overhead_ms": least["ray"] - least["local"],
            "process_overhead_ms": least["processes"] - least["local"],
        },
        "raw": raw,
    }


def _one_at_a_time(backend: str, count: int) -> float:
    workers = {} if backend == "local" else {"num_workers": 1, "attempts_per_worker": 1}
    cfg = TrainingConfig.from_dict({**SETTINGS, "backend": backend, "conversations_in_flight": 1, **workers})
    source: Any = build(cfg, scenarios=spelling_desk.SpellingDesk()).source
    try:
        tasks = [source.tasks.take(1) for _ in range(count // cfg.rollout.num_generations + 1)]
        source.rollout.collect(tasks[0])  # starts what it needs
        began = time.perf_counter()
        for one in tasks[1:]:
            source.rollout.collect(one)
        return 1000 * (time.perf_counter() - began) / (cfg.rollout.num_generations * (len(tasks) - 1))
    finally:
        source.close()


async def gain(seed: int, iterations: int) -> dict[str, Any]:
    engine = engine_of(spelling_desk.SpellingDesk(turns=2), 2, seed=seed, num_generations=8)
    try:
        held_out = spelling_desk.prompts(spelling_desk.HELD_OUT)
        await engine.trainer.initialize()
        before = (await engine.trainer.evaluate(held_out))["eval/reward_mean"]
        course = [(await engine.train_iteration(PROMPTS))["average_reward"] for _ in range(iterations)]
        after = (await engine.trainer.evaluate(held_out))["eval/reward_mean"]
    finally:
        engine.close()
    return {"seed": seed, "before": before, "after": after, "course": course}


def interval(values: Sequence[float]) -> list[float]:
    """Student's interval of the mean, 95%."""
    spread = statistics.stdev(values) / math.sqrt(len(values)) * student_quantile(0.975, len(values) - 1)
    return [statistics.fmean(values) - spread, statistics.fmean(values) + spread]


def service(steps: int) -> dict[str, Any]:
    """A running job is given twice its workers over HTTP; trajectories per second before and within two steps after."""
    with tempfile.TemporaryDirectory() as name, spelling_desk.served(DELAY) as url:
        folder = Path(name)
        port = _free_port()
        command = [sys.executable, "-m", "groupwise", "serve", "--port", str(port), "--runs-dir", str(folder)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([*command, "--niceness", "0"], env={**os.environ, "GROUPWISE_TOKEN": TOKEN}, **quiet)
        try:
            base = f"http://127.0.0.1:{port}"
            _until(lambda: server.poll() is not None or _get(f"{base}/health"))
            source = Path(spelling_desk.__file__).resolve()
            config = {
                **SETTINGS, "environment": f"python:{source}:SpellingDesk", "options": {"url": url},
                "backend": "processes", "num_workers": 2, "attempts_per_worker": 1, "tasks_per_step": 4,
                "num_episodes": 2 * steps, "save_steps": 1000, "group_log_steps": 1,
            }  # fmt: skip
            job = _post(f"{base}/api/train", {"config": config})
            run = f"{base}/api/runs/{job['run']}"
            _until(lambda: _step(run) >= steps)
            _post(f"{base}/api/scale", {"scale_factor": 2.0, "job": job["id"]})
            _until(lambda: _get(f"{base}/api/jobs/{job['id']}")["state"] == "finished")
            path = next(folder.rglob(f"{job['run']}/events.jsonl"))
            events = [json.loads(line) for line in path.read_text().splitlines()]
            rows = [row for file in sorted((path.parent / "groups").glob("*.parquet")) for row in read_groups(file)]
        finally:
            server.terminate()
            server.wait()
    done = [event for event in events if event["type"] == "step"]
    (order,) = (event for event in events if event["type"] == "control")
    speeds = [64 / event["data"]["timing"]["total"] for event in done]
    at = order["step"]
    names = Counter(row["trajectory_id"] + "/" + row["task_id"] for row in rows)
    return {
        "claims": {
            "scale_by_2": max(speeds[at : at + 2]) / statistics.median(speeds[1:at]),
            "lost_or_doubled": len(rows) - 64 * len(done) + sum(count > 1 for count in names.values()),
        },
        "raw": {
            "speeds": speeds, "order": order["data"],
            "workers": [event["data"]["metrics"]["rollout/workers"] for event in done],
        },
    }  # fmt: skip


async def auto() -> dict[str, Any]:
    with spelling_desk.served(DELAY) as url:
        engine = engine_of(spelling_desk.SpellingDesk(url), 1, max_workers=8)
        sizes = []
        for prompts in [PROMPTS[:4]] * 8 + [PROMPTS[:1]] * 2:
            sizes.append((await engine.train_iteration(prompts))["workers"])
        # Little to do: two conversations at a time.
        talk: Any = engine.trainer._source.rollout
        talk.group_size = 2
        for _ in range(6):
            sizes.append((await engine.train_iteration(PROMPTS[:1]))["workers"])
        engine.close()
    return {"claims": {"auto_most": max(sizes), "auto_last": sizes[-1]}, "raw": sizes}


def faults(seconds: float, steps: int) -> dict[str, Any]:
    """Courses of rewards with workers that are killed, inside the band of courses that nothing disturbed?"""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    calm = [_course(seed, steps, "processes") for seed in SEEDS]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    node = cluster.add_node(num_cpus=2)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        killed, redone = [0], [0.0]

        def kill(source: Any, stop: threading.Event) -> None:
            ends = time.monotonic() + seconds
            while not stop.wait(5.0) and time.monotonic() < ends:
                actors = source.workers.backend._actors
                with suppress(Exception):
                    ray.kill(actors[killed[0] % len(actors)], no_restart=False)
                    killed[0] += 1

        def remove(source: Any, stop: threading.Event) -> None:
            if not stop.wait(8.0):
                cluster.remove_node(node, allow_graceful=False)

        disturbed = [
            _course(SEEDS[0], steps, "ray", kill, redone), _course(SEEDS[1], steps, "ray", remove, redone),
        ]  # fmt: skip
    finally:
        ray.shutdown()
        cluster.shutdown()
    low, high = ([pick(values) for values in zip(*calm, strict=True)] for pick in (min, max))
    ends = [statistics.fmean(course[-5:]) for course in calm]
    shown = [statistics.fmean(course[-5:]) for course in disturbed]
    inside = [
        statistics.fmean(a - 0.05 <= value <= b + 0.05 for a, b, value in zip(low, high, course, strict=True))
        for course in disturbed
    ]
    return {
        "claims": {
            "ray_faults_steps": [len(course) for course in disturbed] == [steps, steps], "ray_faults_inside": inside,
            "ray_faults_end_in_band": all(min(ends) - 0.05 <= end <= max(ends) + 0.05 for end in shown),
            "ray_kills": killed[0], "ray_redone": redone[0],
        },
        "raw": {"calm": calm, "disturbed": disturbed},
    }  # fmt: skip


def _course(
    seed: int, steps: int, backend: str, disturb: Callable[..., None] | None = None, redone: list[float] | None = None
) -> list[float]:
    """The mean reward of every step of a run, which somebody may disturb meanwhile."""
    with tempfile.TemporaryDirectory() as folder, spelling_desk.served(DELAY) as url:
        cfg = TrainingConfig.from_dict(
            {**SETTINGS, "environment": "spelling", "output_dir": folder, "seed": seed, "num_episodes": steps,
             "backend": backend, "num_workers": 4, "attempts_per_worker": 2, "ray_cpus": 0.5, "tasks_per_step": 4,
             "num_generations": 8, "save_steps": 1000, "when_worker_lost": "wait"}
        )  # fmt: skip
        stop, threads = threading.Event(), []

        def make(cfg: TrainingConfig) -> Any:
            parts = build(cfg, scenarios=spelling_desk.SpellingDesk(url, turns=2))
            if disturb is not None:
                threads.append(threading.Thread(target=disturb, args=(parts.source, stop)))
                threads[-1].start()
            return parts

        events = [event for event in execute(create_run(cfg), make) if event.type == "step"]
        stop.set()
        for thread in threads:
            thread.join()
    if redone is not None:
        redone[0] += sum(event.data["metrics"]["rollout/redone"] for event in events)
    return [event.data["metrics"]["reward/mean"] for event in events]


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _get(url: str) -> Any:
    with urlopen(Request(url, headers=HEADERS), timeout=30) as answer:
        return json.load(answer)


def _post(url: str, body: Any) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **HEADERS})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _step(run: str) -> int:
    with suppress(OSError, KeyError):
        return int(_get(run)["step"])
    return 0


def _until(condition: Callable[[], Any], seconds: float = 900.0) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with suppress(OSError):
            if condition():
                return
        time.sleep(0.1)
    raise TimeoutError("waited in vain")


def gains(folder: str | None, seeds: Sequence[int], iterations: int) -> dict[str, Any]:
    rows = [
        kept(folder, f"gain-{seed}-{iterations}", lambda seed=seed: asyncio.run(gain(seed, iterations)))
        for seed in seeds
    ]  # fmt: skip
    rises = [row["after"] - row["before"] for row in rows]
    return {"claims": {"engine_gain": statistics.fmean(rises)}, "interval": interval(rises), "raw": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("speedup", "ray", "gain", "service", "auto", "faults")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fault-seconds", type=float, default=120.0)
    parser.add_argument("--fault-steps", type=int, default=60)
    parser.add_argument("--keep", help="a folder in which every part is kept once it is done")
    parser.add_argument("--json", action="store_true", help="print only the result (it is always printed last)")
    asked = parser.parse_args()
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "speedup": lambda: asyncio.run(speedup(asked.rounds)),
        "ray": lambda: ray_overhead(96),
        "gain": lambda: gains(asked.keep, SEEDS, asked.iterations),
        "service": lambda: service(asked.steps),
        "auto": lambda: asyncio.run(auto()),
        "faults": lambda: faults(asked.fault_seconds, asked.fault_steps),
    }
    found = {}
    for part in asked.parts:
        found[part] = kept(asked.keep, part, work[part])
        if not asked.json:
            print(part, json.dumps(found[part]["claims"]), flush=True)
    print_result(
        "scaling",
        {name: value for one in found.values() for name, value in one["claims"].items()},
        seeds=list(SEEDS),
        intervals={"engine_gain": found["gain"]["interval"]} if "gain" in found else {},
        raw={name: one["raw"] for name, one in found.items()},
        not_run={part: "not asked for" for part in parts if part not in asked.parts},
    )


if __name__ == "__main__":
    main()
