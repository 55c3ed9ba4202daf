"""How long the laboratory takes to answer a control, in Chromium: from the change to the frame that shows it.

    python benchmarks/laboratory.py --json                 a recorded run, about a minute
    python benchmarks/laboratory.py --run runs/my-run --json      a run of yours, its grouping asked of the service

Every option of every select and radio button, five values of every slider, every toggle and every switch that breaks
GRPO, in all views and papers; then the keys that drag a boundary or turn the surface. Left out: changing the run, which
reads files, and buttons that play or run something, which take as long as they show.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from playwright.sync_api import sync_playwright
from record import print_result

from groupwise.service.app import server_config
from groupwise.service.settings import ServiceSettings

VIEWS = (
    "formation", "advantages", "tasks", "dynamics", "by-hand", "sensitivity", "papers/grpo", "papers/pcgrad",
    "papers/softmod", "papers/gpmixture",
)  # fmt: skip
PICKED = (
    "main .stack :is(select, input[type=range], input[type=radio], input[type=checkbox], [role=switch]):not(.picker *)"
)
# Sets one control, waits until nothing is being asked of the service and two frames are painted; in milliseconds.
CHANGE = """async ([picked, place, value]) => {
    const one = document.querySelectorAll(picked)[place];
    if (!one || one.disabled) return null;  // another control took it away
    const began = performance.now();
    if (one.type !== 'range' && one.tagName !== 'SELECT') one.click();
    else {
        one.value = value;
        one.dispatchEvent(new Event(one.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}));
    }
    const frame = () => new Promise((tell) => requestAnimationFrame(tell));
    await frame();
    while (window.fetching > 0) await frame();
    await frame();
    return performance.now() - began;
}"""
COUNTED = """(() => { window.fetching = 0; const ask = window.fetch;
    window.fetch = (...words) => { window.fetching++; return ask(...words).finally(() => window.fetching--); }; })()"""
CONTROLS = """(picked) => [...document.querySelectorAll(picked)].map((one, place) => ({
    place, type: one.type, disabled: one.disabled, low: Number(one.min), high: Number(one.max),
    options: one.options ? [...one.options].map((option) => option.value) : [] }))"""


Taken = dict[str, list[float]]


def measure(url: str, token: str, query: str) -> tuple[Taken, Taken]:
    """The milliseconds of every change by view, and those for which the page's main thread had the processor."""
    found: Taken = {}
    busy: Taken = {}
    with sync_playwright() as playing:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(COUNTED)
        meter = page.context.new_cdp_session(page)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})

        def processor() -> float:
            told = {one["name"]: one["value"] for one in meter.send("Performance.getMetrics")["metrics"]}
            return 1000.0 * float(told["TaskDuration"])

        page.goto(f"{url}/?token={token}")
        for view in VIEWS:
            page.goto(f"{url}/learn/{view}{query}")
            page.locator("figure").first.wait_for(timeout=600_000)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1000)
            found[view], busy[view] = [], []
            for place, value in _changes(page):
                before = processor()
                taken = page.evaluate(CHANGE, [PICKED, place, value])
                if taken is not None:
                    found[view].append(taken)
                    busy[view].append(processor() - before)
            if view == "formation":
                page.locator(".controls select").first.select_option("auto")
                found["boundaries"] = _pressed(page, ".handle")
            if view == "sensitivity":
                found["surface"] = _pressed(page, "[role=application]")
        browser.close()
    return found, busy


def _changes(page: Any) -> list[tuple[int, str]]:
    changes: list[tuple[int, str]] = []
    for control in page.evaluate(CONTROLS, PICKED):
        place = control["place"]
        if control["disabled"]:
            continue
        if control["type"] == "range":
            changes += [(place, str(value)) for value in np.linspace(control["low"], control["high"], 5).round(2)]
        else:
            changes += [(place, option) for option in control["options"] or [""]]
    return changes


def _pressed(page: Any, place: str) -> list[float]:
    """An arrow key, twenty times."""
    handle = page.locator(place).first
    handle.wait_for()
    script = """async (one) => { const began = performance.now();
        one.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
        await new Promise((tell) => requestAnimationFrame(() => requestAnimationFrame(tell)));
        return performance.now() - began; }"""
    return [handle.evaluate(script) for _ in range(20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the folder of a run; a recorded one by default")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = given.run.resolve().parent if given.run else Path(folder)
        settings = ServiceSettings(port=0, runs_dir=runs, reads_per_second=1e6)
        server = uvicorn.Server(server_config(settings))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        query = f"?run={given.run.name}" if given.run else ""
        found, busy = measure(f"http://127.0.0.1:{port}", settings.token, query)
        server.should_exit = True
        thread.join()
    everything = [value for values in found.values() for value in values]
    claims = {
        "lab_ms": float(np.percentile(everything, 95)), "changes": len(everything),
        "lab_processor_ms": float(np.percentile([value for values in busy.values() for value in values], 95)),
        **{f"{view}_ms_p95": float(np.percentile(values, 95)) for view, values in found.items()},
        **{f"{view}_ms_median": float(np.median(values)) for view, values in found.items()},
        "load_average": os.getloadavg()[0],
    }  # fmt: skip
    print_result("laboratory", claims, raw={"ms": found, "processor_ms": busy})


if __name__ == "__main__":
    main()
