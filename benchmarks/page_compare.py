"""Ten runs of 100,000 events each on one page, and fifty clients that watch the list.

    python benchmarks/page_compare.py                                    # 10 runs of 100,000 steps, 50 clients
    python benchmarks/page_compare.py --runs 4 --steps 5000 --clients 10 # the short form

Frames per second are those of Chromium while a chart of all runs is zoomed, moved and zoomed out by mouse, and the
processor time of a frame is that of the processes which draw, which a busy machine does not make more of. The clients
follow the list of runs over the WebSocket while one run in it changes twice a second; what counts is the share of one
core that the service takes for them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import websockets
from page_smooth import ARGUMENTS, processor_seconds
from playwright.sync_api import Browser, Page, sync_playwright
from record import print_result
from service_kills import TOKEN, Service

from groupwise.config import TrainingConfig
from groupwise.training.events import encode
from groupwise.training.folder import write_config
from groupwise.types import Event

FRAMES = """() => { const frames = (window.frameTimes = []);
  const frame = (at) => { frames.push(at); requestAnimationFrame(frame); }; requestAnimationFrame(frame); }"""
DRAGS = 6


def write_run(base: Path, number: int, steps: int) -> None:
    name = f"run-{number}"
    settings = {
        "output_dir": str(base),
        "run_name": name,
        "seed": number % 5,
        "learning_rate": 1e-3 * (1 + number // 5),
    }
    cfg = TrainingConfig.from_dict(settings)
    path = base / name
    path.mkdir(parents=True)
    write_config(path, cfg)
    events = [Event(name, 0, 1, 1.7e9, 0, "start", {"config": cfg.to_dict(), "total_steps": steps})]
    for step in range(1, steps + 1):
        metrics = {
            "reward/mean": math.sin(step / 900 + number) + step / steps,
            "policy/kl": 0.01,
            "policy/entropy": 0.6,
        }
        events.append(Event(name, step, 1, 1.7e9 + step, step, "step", {"metrics": metrics}))
    (path / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    write_status(path, steps, "finished")


def write_status(path: Path, step: int, state: str) -> None:
    told = {"state": state, "step": step, "total": step, "attempt": 1, "updated": time.time()}
    status = {**told, "metrics": {"reward/mean": float(step)}}
    (path / "status.json").write_text(json.dumps(status))


def drawing_seconds(browser: Browser) -> float:
    """Processor seconds of the processes that lay out, draw and compose pages."""
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    return sum(one["cpuTime"] for one in told["processInfo"] if one["type"] in ("renderer", "GPU"))


def frames(page: Page, label: str) -> dict[str, float]:
    """Zoom in, move and zoom out a few times, and see how many frames a second there were while the mouse moved."""
    chart = page.get_by_role("img", name=label)
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    middle, rates, longest, count = box["y"] + box["height"] / 2, [], 0.0, 0
    assert page.context.browser is not None
    before = drawing_seconds(page.context.browser)

    def drag(begin: float, end: float) -> None:
        page.mouse.move(box["x"] + begin * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + end * box["width"], middle, steps=30)
        page.mouse.up()

    for _ in range(DRAGS):
        page.evaluate("() => void window.frameTimes.splice(0)")
        drag(0.2, 0.8)
        page.keyboard.down("Shift")
        drag(0.6, 0.4)
        page.keyboard.up("Shift")
        page.wait_for_timeout(300)
        page.mouse.dblclick(box["x"] + 0.5 * box["width"], middle)
        page.wait_for_timeout(300)
        times: list[float] = page.evaluate("window.frameTimes")
        gaps = [later - one for one, later in itertools.pairwise(times)]
        rates.append(1000 * len(gaps) / sum(gaps))
        longest = max(longest, *gaps)
        count += len(gaps)
    cpu = 1000 * (drawing_seconds(page.context.browser) - before) / count
    return {"median": statistics.median(rates), "worst": min(rates), "longest_frame_ms": longest, "cpu_ms": cpu}


async def watched(port: int, clients: int, seconds: float, base: Path, process: int) -> float:
    """The share of a core that the service takes for its clients."""
    address = f"ws://127.0.0.1:{port}/ws"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    told = [0] * clients

    async def client(number: int) -> None:
        async with websockets.connect(address, additional_headers=headers, max_size=None) as link:
            await link.send(json.dumps({"type": "subscribe", "topic": "runs"}))
            async for message in link:
                told[number] += len(message)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.sleep(3)
    before, began = processor_seconds(process), time.monotonic()
    step = 0
    while time.monotonic() - began < seconds:
        step += 1
        write_status(base / "run-0", step, "finished")
        await asyncio.sleep(0.5)
    taken = (processor_seconds(process) - before) / (time.monotonic() - began)
    assert min(told) > 0, "a client was told nothing"
    for task in tasks:
        task.cancel()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    raw: dict[str, Any] = {"runs": asked.runs, "steps": asked.steps, "clients": asked.clients}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playing:
        base = Path(folder) / "runs"
        for number in range(asked.runs):
            write_run(base, number, asked.steps)
        service = Service(base)
        browser = playing.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.add_init_script(f"({FRAMES})()")
            query = [("run", f"run-{number}") for number in range(asked.runs)]
            query += [("metric", "reward/mean"), ("by", "run"), ("token", TOKEN)]
            began = time.monotonic()
            page.goto(f"http://127.0.0.1:{service.port}/compare?{urlencode(query)}")
            label = f"reward/mean of {asked.runs} runs"
            page.get_by_role("img", name=label).locator("canvas").wait_for(timeout=600_000)
            raw["opened_s"] = round(time.monotonic() - began, 2)
            raw["frames"] = frames(page, label)
            page.close()
            clients = watched(service.port, asked.clients, asked.seconds, base, service.process.pid)
            with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this one
                share = thread.submit(asyncio.run, clients).result()
        finally:
            browser.close()
            service.kill()
    claims = {"frames_per_second": round(raw["frames"]["median"], 1), "clients_core_share": round(share, 4)}
    claims["frame_cpu_ms"] = round(raw["frames"]["cpu_ms"], 1)
    print_result("page_compare", claims, raw=raw)


if __name__ == "__main__":
    main()
