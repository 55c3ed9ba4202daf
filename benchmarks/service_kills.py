"""What a job survives: the service, its process or both killed with SIGKILL at random moments, and files that were cut.

    python benchmarks/service_kills.py --repeats 20

    service    the service is killed; its process goes on alone, and the next service finds it
    job        the process is killed; the service starts another
    both       both at once
    mid-write  both, at a moment when a file is half written
    cut        both, and then the tail of every file of the run is cut off
    postgres   two services on one PostgreSQL; one is killed with its jobs, and the other takes them over

A job has survived if it ends with the weights, steps and evaluations of a run that was never disturbed, every event
once.
The short form, `--repeats 1`, takes about two minutes on two cores; the long one three quarters of an hour.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.session import execute

SETTINGS = {
    "hidden_sizes": [8], "num_generations": 4, "tasks_per_step": 2, "num_episodes": 120, "eval_steps": 40,
    "eval_episodes": 2, "save_steps": 10, "threads": 1, "max_episode_steps": 20, "estimator": "group_rtg",
    "advantage_scale": "batch_std", "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1,
}  # fmt: skip
PATIENCE = 240.0
TOKEN = "the operator of a benchmark"


class Service:
    """A service in a process of its own."""

    def __init__(self, runs: Path, *words: str, niceness: int = 0) -> None:
        with socket.socket() as link:
            link.bind(("127.0.0.1", 0))
            self.port = link.getsockname()[1]
        command = [sys.executable, "-m", "groupwise.cli", "serve", "--port", str(self.port), "--runs-dir", str(runs)]
        command += ["--lease", "1", "--niceness", str(niceness), *words]
        self.process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env={**os.environ, "GROUPWISE_TOKEN": TOKEN}
        )
        until(lambda: self.ask("/health") is not None or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise SystemExit(f"the service ended with code {self.process.returncode}: {' '.join(command)}")

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        with suppress(OSError):
            return json.loads(urllib.request.urlopen(request, timeout=10).read())
        return None

    def submit(self, seed: int) -> dict[str, Any]:
        job: dict[str, Any] = self.ask("/api/train", {"config": {**SETTINGS, "seed": seed}})
        return job

    def state(self, job: str) -> str:
        return str((self.ask(f"/api/jobs/{job}") or {}).get("state"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def until(true: Callable[[], bool], pause: float = 0.02) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(pause)


def holder(run: Path) -> int:
    """The process that writes to the run."""
    return int(json.loads((run / "lock").read_text())["pid"])


def steps(run: Path) -> int:
    return max((event.step for event in read_events(run / "events.jsonl")), default=0)


def digest(run: Path) -> str:
    """All that an undisturbed run and a disturbed one must agree on; events are numbered without gaps."""
    events = read_events(run / "events.jsonl")
    assert len(events) == len((run / "events.jsonl").read_bytes().splitlines()), "an event is torn or doubled"
    told = [(e.type, e.step, e.data["metrics"]) for e in events if e.type in ("step", "eval")]
    assert [step for kind, step, _ in told if kind == "step"] == list(range(1, SETTINGS["num_episodes"] + 1))  # type: ignore[operator]
    newest = max((run / "checkpoints").iterdir(), key=lambda path: path.name)
    found = hashlib.sha256((newest / "model.safetensors").read_bytes())
    found.update(repr((newest.name, told)).encode())
    return found.hexdigest()


def undisturbed(folder: Path, seed: int) -> str:
    cfg = TrainingConfig.from_dict({**SETTINGS, "seed": seed, "output_dir": str(folder), "run_name": f"calm-{seed}"})
    path = create_run(cfg)
    list(execute(path, build))
    return digest(path)


def end_process(run: Path) -> None:
    with suppress(OSError, ValueError, KeyError):
        os.kill(holder(run), signal.SIGKILL)


def half_written(run: Path) -> bool:
    return any(run.glob("checkpoints/.*.tmp")) or any(run.glob(".*.tmp")) or any(run.glob("groups/.*.tmp"))


def cut(run: Path, dice: random.Random) -> None:
    for path in run.rglob("*"):
        if path.is_file() and path.stat().st_size:
            os.truncate(path, max(0, path.stat().st_size - dice.randint(1, 200)))


def disturb(case: str, service: Service, runs: Path, run: Path, dice: random.Random) -> Service:
    """Do to a running job what the case is about; the service that is there afterwards."""
    until(lambda: steps(run) >= dice.randint(1, 60))
    if case == "job":
        end_process(run)
        return service
    if case == "mid-write":
        with suppress(TimeoutError):
            until(lambda: half_written(run), pause=0.0)
    service.kill()
    if case != "service":
        end_process(run)
    if case == "cut":
        time.sleep(0.2)
        cut(run, dice)
    return Service(runs)


def one(case: str, number: int, expected: dict[int, str]) -> dict[str, Any]:
    dice, seed = random.Random(f"{case}/{number}"), number % len(expected)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        service = Service(runs)
        try:
            job = service.submit(seed)
            run = runs / job["run"]
            service = disturb(case, service, runs, run, dice)
            until(lambda: service.state(job["id"]) in ("finished", "failed"))
            found = service.ask(f"/api/jobs/{job['id']}")
            same = found["state"] == "finished" and digest(run) == expected[seed]
            return {
                "case": case,
                "survived": same,
                "state": found["state"],
                "attempts": found["attempt"],
                "error": found["error"],
            }
        finally:
            service.kill()


def two_services(number: int, url: str, expected: dict[int, str]) -> dict[str, Any]:
    """Four jobs on two services; one service is killed, and one of its processes with it."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        services = [Service(runs, "--database", url, "--workers", "2") for _ in range(2)]
        try:
            jobs = [services[n % 2].submit(n % len(expected)) for n in range(4)]
            paths = [runs / job["run"] for job in jobs]
            until(lambda: all(steps(path) >= 5 for path in paths))
            services[0].kill()
            end_process(paths[number % 4])
            last = services[1]
            until(lambda: all(last.state(job["id"]) in ("finished", "failed") for job in jobs))
            same = [digest(path) == expected[n % len(expected)] for n, path in enumerate(paths)]
            attempts = [last.ask(f"/api/jobs/{job['id']}")["attempt"] for job in jobs]
            once = sorted(attempts) in ([1, 1, 1, 2], [1, 1, 1, 1])
            return {
                "case": "postgres",
                "survived": all(same) and once,
                "state": "",
                "attempts": attempts,
                "error": None,
            }
        finally:
            for service in services:
                service.kill()


@contextmanager
def postgres(folder: Path) -> Iterator[str | None]:
    """The address of a server of our own; None where there is none to start."""
    initdb, server = shutil.which("initdb"), shutil.which("postgres")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        with suppress(KeyError):
            pwd.getpwnam("postgres")
            user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    if initdb is None or server is None or (os.geteuid() == 0 and not user):
        yield None
        return
    folder.chmod(0o777)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    subprocess.run([initdb, "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N"], check=True, **quiet)
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port = link.getsockname()[1]
    words = ["-D", folder / "data", "-p", port, "-c", "listen_addresses=127.0.0.1", "-k", folder]
    process = subprocess.Popen([server, *map(str, words)], **quiet)
    try:
        time.sleep(2)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    cases = ["service", "job", "both", "mid-write", "cut", "postgres"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
    asked = parser.parse_args()
    found, not_run = [], {}
    with tempfile.TemporaryDirectory() as folder, postgres(Path(tempfile.mkdtemp(dir="/tmp"))) as url:
        expected = {seed: undisturbed(Path(folder), seed) for seed in range(2)}
        for case in asked.cases:
            if case == "postgres" and url is None:
                not_run[case] = "no PostgreSQL here"
                continue
            for number in range(asked.repeats):
                began = time.monotonic()
                one_of = two_services(number, str(url), expected) if case == "postgres" else one(case, number, expected)
                found.append({**one_of, "seconds": round(time.monotonic() - began, 1)})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    claims = {
        f"{case}_survived": f"{sum(f['survived'] for f in found if f['case'] == case)} of {asked.repeats}"
        for case in asked.cases if case not in not_run
    }  # fmt: skip
    print_result("service_kills", claims, seeds=range(2), raw=found, not_run=not_run)


if __name__ == "__main__":
    main()
