"""The page on thousands of runs: how long it takes to list them, find one and open it.

    python benchmarks/page_many_runs.py --json

Run folders are written as a run leaves them, with settings, status and a log; a service and Chromium open them. Times
are wall-clock times in the browser, from the click or key to the content, medians over `--repeats`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from groupwise.config import TrainingConfig
from groupwise.service.app import server_config
from groupwise.service.jobs import Jobs
from groupwise.service.keys import OPERATOR, Keys
from groupwise.service.run_list import RunListing, Wanted, counted
from groupwise.service.runs import Runs
from groupwise.service.settings import ServiceSettings
from groupwise.service.tables import Tables
from groupwise.training.events import encode
from groupwise.training.folder import write_config
from groupwise.training.machine import bench_result
from groupwise.types import Event


def write_run(base: Path, number: int, steps: int) -> None:
    name = f"run-{number:05d}"
    settings = {"output_dir": str(base), "run_name": name, "seed": number % 7, "product": "control"}
    cfg, path = TrainingConfig.from_dict(settings), base / name
    path.mkdir(parents=True)
    write_config(path, cfg)
    began = 1.7e9 + 60 * number
    events = [Event(name, 0, 1, began, 0, "start", {"config": cfg.to_dict(), "total_steps": steps})]
    for step in range(1, steps + 1):
        metrics = {"reward/mean": step * (1 + number % 5), "policy/kl": 0.01, "policy/entropy": 0.6 - step / 1000}
        events.append(Event(name, step, 1, began + step, step, "step", {"metrics": metrics}))
    events.append(Event(name, steps + 1, 1, began + steps + 1, steps, "end", {"reason": "finished"}))
    (path / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    status = {
        "state": "finished", "step": steps, "total": steps, "attempt": 1, "updated": began + steps,
        "metrics": events[-2].data["metrics"],
    }  # fmt: skip
    (path / "status.json").write_text(json.dumps(status))


def measure(url: str, token: str, count: int, repeats: int) -> dict[str, list[float]]:
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {"list_ms": [], "search_ms": [], "open_ms": [], "first_load_kb": []}
    with sync_playwright() as playing:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playing.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for number in range(repeats):
            # Another context each time: nothing is in the browser's cache.
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.set_default_timeout(120_000)
            sizes: list[int] = []
            page.goto(f"{url}/settings?token={token}")
            page.get_by_text("Live", exact=True).wait_for()
            began = time.perf_counter()
            page.get_by_role("link", name="Runs", exact=True).click()
            page.get_by_text(f"{count:,} in total").wait_for()
            found["list_ms"].append(1000 * (time.perf_counter() - began))
            wanted = f"run-{(number * 977) % count:05d}"
            began = time.perf_counter()
            page.get_by_label("Find a run").fill(wanted)
            page.get_by_text(f"1 of {count:,} in total").wait_for()
            found["search_ms"].append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            page.get_by_role("link", name=wanted, exact=True).click()
            page.get_by_role("img", name="Reward by step").locator("canvas").wait_for()
            found["open_ms"].append(1000 * (time.perf_counter() - began))
            page.close()
            page = browser.new_context().new_page()
            page.on("response", lambda answer, sizes=sizes: sizes.append(transferred(answer)))
            page.goto(f"{url}/runs/{wanted}?token={token}")
            page.get_by_role("img", name="Reward by step").locator("canvas").wait_for()
            page.wait_for_load_state("networkidle")
            found["first_load_kb"].append(sum(sizes) / 1000)
            page.close()
        browser.close()
    return found


def server_cost(base: Path, database: Path, repeats: int) -> dict[str, list[float]]:
    """Processor time of the first look at all runs, of a list, of a search, and of an update twice a second."""
    tables = Tables(f"sqlite:///{database}")
    found: dict[str, list[float]] = {"first_cpu_ms": [], "list_cpu_ms": [], "search_cpu_ms": [], "update_cpu_ms": []}

    def timed(name: str, work: Callable[[], Any]) -> None:
        began = time.process_time()
        work()
        found[name].append(1000 * (time.process_time() - began))

    runs = RunListing(Runs(base).index, Jobs(tables, str(base)), Keys(tables))
    timed("first_cpu_ms", lambda: runs.views(OPERATOR))
    for _ in range(repeats):
        timed("list_cpu_ms", lambda: counted(Wanted().sorted(runs.views(OPERATOR))))
        wanted = Wanted(text="run-00977")
        timed("search_cpu_ms", lambda wanted=wanted: [view for view in runs.views(OPERATOR) if wanted.fits(view)])
        timed("update_cpu_ms", lambda: runs.views(OPERATOR, whole=False))
    tables.close()
    return found


def transferred(answer: Any) -> int:
    """Bytes of an answer's body as it was sent."""
    length = answer.headers.get("content-length")
    if length is not None:
        return int(length)
    try:
        body = answer.body()
    except Exception:  # an answer without a body
        return 0
    return len(gzip.compress(body, 6)) if answer.headers.get("content-encoding") == "gzip" else len(body)


@contextmanager
def serving(settings: ServiceSettings) -> Iterator[str]:
    """The address of a service in a thread of this process."""
    server = uvicorn.Server(server_config(settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    command = f"python benchmarks/page_many_runs.py --runs {options.runs} --repeats {options.repeats} --json"
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "runs"
        for number in range(options.runs):
            write_run(base, number, options.steps)
        settings = ServiceSettings(runs_dir=base, port=0, niceness=0)
        cost = server_cost(base, Path(folder) / "service.sqlite", options.repeats)
        with serving(settings) as url:
            raw = cost | measure(url, settings.token, options.runs, options.repeats)
    claims = {name: statistics.median(values) for name, values in raw.items()}
    result = bench_result("page_many_runs", command, claims, raw=raw)
    print(json.dumps(result, indent=2) if options.json else claims)


if __name__ == "__main__":
    main()
