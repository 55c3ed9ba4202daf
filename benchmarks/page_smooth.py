"""Whether the page stays smooth on a long run, in Chromium: one of 100,000 steps that is still being written.

    python benchmarks/page_smooth.py                               # 100,000 steps, then 10 and 100 a second, 20 s each
    python benchmarks/page_smooth.py --steps 10000 --seconds 5     # the short form

Of opening the run: seconds until the first paint and until all curves in sight are drawn, and the processor seconds
that the service takes for it. While it grows: the age of a step when the reward's curve is drawn with it, the share
of a processor that the page takes, frames, and tasks of more than 50 ms, which a reader would feel. The run is written
as training writes it, by `training.run.Run`.
"""

from __future__ import annotations

import argparse
import bisect
import math
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright
from record import print_result
from service_kills import TOKEN, Service

from groupwise.config import TrainingConfig
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.run import Run

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
NUMBERS = (
    "reward/mean", "reward/std", "policy/kl", "policy/entropy", "policy/clip_low", "policy/clip_high", "loss/total",
    "loss/policy", "optim/lr", "groups/zero_spread_share", "attempt/length_mean", "attempt/length_max",
    "optim/grad_norm", "advantage/abs_mean",
)  # fmt: skip
IN_SIGHT = 4  # charts on a screen of 1280 × 800

# Notes every frame, long task, drawing of the reward's chart and change of the step shown, in Unix milliseconds.
NOTES = """() => {
  const notes = (window.notes = { frames: [], long: [], drawn: [], shown: [] });
  const now = (at) => performance.timeOrigin + at;
  const task = (one) => notes.long.push([now(one.startTime), one.duration]);
  new PerformanceObserver((list) => list.getEntries().forEach(task)).observe({ type: "longtask", buffered: true });
  const frame = (at) => { notes.frames.push(now(at)); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...where) {
    if (this.canvas.closest('[aria-label="Reward by step"]')) notes.drawn.push(now(performance.now()));
    return clear.apply(this, where);
  };
  new MutationObserver((changes) => changes.forEach(({ target }) => {
    const step = Number(target.getAttribute("aria-valuenow"));
    if (step) notes.shown.push([step, now(performance.now())]);
  })).observe(document, { subtree: true, attributes: true, attributeFilter: ["aria-valuenow"] });
}"""


def write(runs: Path, steps: int, orders: Connection) -> None:
    """A run of `steps` steps, then more of them as ordered: so many a second, for so many seconds."""
    cfg = TrainingConfig.from_dict({"output_dir": str(runs), "run_name": "long", "num_episodes": 2 * steps})
    run, random_ = Run(create_run(cfg)), random.Random(0)

    def add(step: int) -> None:
        numbers = {name: math.sin(step / 9000) + random_.random() for name in NUMBERS}
        run.emit("step", step, {"metrics": numbers, "timing": {"rollout": 0.05}, "totals": {"attempts": 8 * step}})

    run.emit("start", 0, {"total_steps": 2 * steps, "config": cfg.to_dict()})
    for step in range(1, steps + 1):
        add(step)
    run.set_status("running", step, 2 * steps)
    orders.send("written")
    while order := orders.recv():
        rate, seconds = order
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            step += 1
            add(step)
            run.set_status("running", step, 2 * steps)
        orders.send("written")
    run.close()


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_seconds(browser: Browser) -> float:
    """Processor seconds of the processes that run pages, which a busy machine does not make more of."""
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    return sum(one["cpuTime"] for one in told["processInfo"] if one["type"] == "renderer")


def opened(page: Page, service: Service) -> dict[str, float]:
    """Open the run, and wait until its curves stand."""
    before, began = processor_seconds(service.process.pid), time.monotonic()
    page.goto(f"http://127.0.0.1:{service.port}/runs/long?{urlencode({'token': TOKEN})}")
    page.locator("canvas").nth(IN_SIGHT - 1).wait_for(timeout=120_000)
    curves = time.monotonic() - began
    paint: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.wait_for_timeout(2000)  # the subscription has to be looked up, too
    taken = processor_seconds(service.process.pid) - before
    return {"first_paint_s": round(paint / 1000, 2), "curves_s": round(curves, 2), "service_cpu_s": round(taken, 2)}


def followed(page: Page, orders: Connection, rate: float, seconds: float, log: Path) -> dict[str, Any]:
    """What a reader sees while the run grows."""
    page.evaluate("Object.values(window.notes).forEach((notes) => notes.splice(0))")
    browser = page.context.browser
    assert browser is not None
    before = page_seconds(browser)
    orders.send((rate, seconds))
    while not orders.poll():
        page.wait_for_timeout(100)
    orders.recv()
    page.wait_for_timeout(1500)
    taken = page_seconds(browser) - before
    notes = page.evaluate("window.notes")
    events = read_events(log)[-int(rate * seconds) :]
    gaps = sorted(b - a for a, b in zip(notes["frames"], notes["frames"][1:], strict=False))
    ages = sorted(_ages([(event.step, 1000 * event.time) for event in events], notes["shown"], notes["drawn"]))
    return {
        "per_second": rate, "steps": len(events), "drawn_steps": len(ages), "drawings": len(notes["drawn"]),
        "age_p50_ms": _at(ages, 0.5), "age_p99_ms": _at(ages, 0.99),
        "frame_p50_ms": _at(gaps, 0.5), "frame_p99_ms": _at(gaps, 0.99), "frame_max_ms": _at(gaps, 1),
        "page_cpu_share": round(taken / seconds, 2), "long_tasks": len(notes["long"]),
        "longest_task_ms": round(max((d for _, d in notes["long"]), default=0)),
    }  # fmt: skip


def _ages(
    written: Sequence[tuple[int, float]], shown: Sequence[Sequence[float]], drawn: Sequence[float]
) -> list[float]:
    """For each step, the milliseconds until the curve was drawn after the page had it."""
    ages = []
    for step, at in written:
        known = next((moment for number, moment in shown if number >= step), math.inf)
        place = bisect.bisect_left(drawn, known)
        if place < len(drawn):
            ages.append(drawn[place] - at)
    return ages


def _at(values: Sequence[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(share * len(values)))], 1) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 100.0], help="steps a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long at each rate")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playing:
        runs = Path(folder) / "runs"
        orders, theirs = multiprocessing.Pipe()
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(runs, asked.steps, theirs))
        writer.start()
        orders.recv()
        service = Service(runs)
        browser = playing.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.add_init_script(f"({NOTES})()")
            opening = opened(page, service)
            opening["long_tasks_ms"] = page.evaluate("window.notes.long.map(([_, lasted]) => Math.round(lasted))")
            growing = [
                followed(page, orders, rate, asked.seconds, runs / "long" / "events.jsonl") for rate in asked.rates
            ]
        finally:
            browser.close()
            service.kill()
            orders.send(None)
            writer.join()
    claims = {
        **{name: opening[name] for name in ("first_paint_s", "curves_s", "service_cpu_s")},
        "age_p99_ms": max(one["age_p99_ms"] or math.inf for one in growing),
        "frame_p99_ms": max(one["frame_p99_ms"] for one in growing),
        "page_cpu_share": max(one["page_cpu_share"] for one in growing),
        "long_tasks_per_second": round(statistics.fmean(one["long_tasks"] / asked.seconds for one in growing), 2),
    }
    print_result("page_smooth", claims, raw={"steps": asked.steps, "opening": opening, "growing": growing})


if __name__ == "__main__":
    main()
