"""What the service bears on loopback while a niced, one-thread job trains: requests for status, and live events.

    python benchmarks/service_load.py                 # 3 x 10 s of wrk, 200 clients for 10 minutes
    python benchmarks/service_load.py --short         # 3 x 3 s, 200 clients for 20 s

Requests come from wrk with 32 connections; claims are medians of three. Events are written at 10 a second to a run's
log, each with 20 numbers and the time; every client says how old they were when they came. Memory is the service's
resident size, before, after the first tenth, and in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from record import print_result
from service_kills import SETTINGS, TOKEN, Service, steps, until
from websockets.asyncio.client import connect

from groupwise.training.events import EventLog
from groupwise.types import Event

CLIENTS, PER_SECOND, CONNECTIONS = 200, 10, 32
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def wrk(url: str, seconds: int) -> tuple[float, float]:
    """Requests a second, and the 99th percentile of their time in milliseconds."""
    command = ["wrk", "-t", "2", "-c", str(CONNECTIONS), "-d", f"{seconds}s", "--latency", url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in told, told
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", told).groups()  # type: ignore[union-attr]
    return float(re.search(r"Requests/sec:\s+([\d.]+)", told).group(1)), float(number) * UNITS[unit]  # type: ignore[union-attr]


def resident(pid: int) -> int:
    """The resident size of a process in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) // 1024 if found else 0


def write_events(folder: Path, end: threading.Event) -> None:
    log = EventLog(folder / "events.jsonl")
    numbers = {f"metric/{n}": n / 7 for n in range(20)}
    while not end.wait(1 / PER_SECOND):
        log.append(Event("live", log.count, 1, time.time(), log.count, "step", {"metrics": numbers}))


async def follow(port: int, seconds: float, ages: list[float]) -> None:
    async with connect(f"ws://127.0.0.1:{port}/ws", open_timeout=60) as socket:
        await socket.send(json.dumps({"type": "auth", "key": TOKEN}))
        await socket.send(json.dumps({"type": "subscribe", "topic": "run", "run": "live", "from": 10**9}))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = json.loads(await asyncio.wait_for(socket.recv(), 30))
            if message["type"] == "event":
                ages.append(time.time() - message["event"]["time"])


def crowd(port: int, clients: int, seconds: float, results: Any) -> None:
    async def all_of_them() -> list[float]:
        ages: list[float] = []
        await asyncio.gather(*(follow(port, seconds, ages) for _ in range(clients)))
        return ages

    ages = sorted(asyncio.run(all_of_them()))
    results.put({"events": len(ages), "p50": ages[len(ages) // 2], "p99": ages[len(ages) * 99 // 100], "max": ages[-1]})


def live(service: Service, runs: Path, seconds: float) -> dict[str, Any]:
    (runs / "live").mkdir()
    EventLog(runs / "live" / "events.jsonl").close()
    end = threading.Event()
    results: Any = multiprocessing.Queue()
    writer = threading.Thread(target=write_events, args=(runs / "live", end))
    writer.start()
    before = resident(service.process.pid)
    listeners = multiprocessing.Process(target=crowd, args=(service.port, CLIENTS, seconds, results))
    listeners.start()
    time.sleep(seconds / 10)
    early = resident(service.process.pid)
    found: dict[str, Any] = results.get()
    found |= {"memory_mib": [before, early, resident(service.process.pid)], "clients": CLIENTS, "seconds": seconds}
    listeners.join()
    end.set()
    writer.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--live", type=float, help="seconds of live events; 600 unless told")
    asked = parser.parse_args()
    not_run = {} if shutil.which("wrk") else {"status": "no wrk here"}
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        service = Service(runs, niceness=10)
        try:
            config = {**SETTINGS, "num_episodes": 1_000_000, "save_steps": 1000, "eval_steps": 0, "group_log_steps": 0}
            job = service.ask("/api/train", {"config": config})
            until(lambda: steps(runs / job["run"]) >= 5)
            url = f"http://127.0.0.1:{service.port}/api/jobs/{job['id']}"
            loads = [] if not_run else [wrk(url, 3 if asked.short else 10) for _ in range(3)]
            events = live(service, runs, asked.live or (20.0 if asked.short else 600.0))
            service.ask(f"/api/jobs/{job['id']}/cancel", {})
            until(lambda: service.state(job["id"]) == "cancelled")
        finally:
            service.kill()
    claims: dict[str, Any] = {
        "event_age_p99_ms": round(1000 * events["p99"], 1),
        "memory_growth_mib": events["memory_mib"][2] - events["memory_mib"][1],
    }
    if loads:
        claims["status_per_second"] = round(statistics.median(rate for rate, _ in loads))
        claims["status_p99_ms"] = round(statistics.median(late for _, late in loads), 1)
    print_result("service_load", claims, raw={"status": loads, "events": events}, not_run=not_run)


if __name__ == "__main__":
    main()
