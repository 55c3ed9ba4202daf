"""What the laboratory's views say of runs that lack what they draw, or have too much of it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import TrainingConfig, load_config
from groupwise.reporting.live_run import start_run
from groupwise.service.settings import ServiceSettings
from groupwise.training.folder import create_run
from groupwise.training.group_files import write_groups
from tests.reporting.test_recorded_step import played, record
from tests.service.conftest import Visit, serving

ROOT = Path(__file__).parents[2]
ONE_TASK = (
    "task.max_episode_steps=20", "rollout.tasks_per_step=2", "rollout.num_generations=3", "training.num_episodes=3",
    "training.total_samples=null", "optim.num_epochs=1", "run.group_log_steps=1", "run.eval_steps=100",
    "run.save_steps=100", "run.run_name=one-task",
)  # fmt: skip
MANY = 100_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad") / "runs"
    changes = (*ONE_TASK, f"run.output_dir={folder}")
    _, failed = start_run(load_config(ROOT / "examples/cartpole.toml", changes), json=False, quiet=True)
    assert not failed
    shutil.copytree(folder / "one-task", folder / "without-groups")
    shutil.rmtree(folder / "without-groups" / "groups")
    shutil.copytree(folder / "one-task", folder / "not-finite")
    log = folder / "not-finite" / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event["type"] == "step" and event["step"] == 2:
            event["data"]["metrics"]["policy/kl"] = None  # as a NaN is logged
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    rng = np.random.default_rng(0)
    for name, rows in (
        ("failed", [record(n, **bad) for n, bad in enumerate([{"total": math.nan}] * 3)]),
        ("partly", [record(0, total=math.nan), record(1, **played(rng, 4, states=[[1.0, None]] * 4))]
            + [record(n, **played(rng, 5)) for n in range(2, 6)]),
        ("large", [record(n, n // 8, "ab"[n // 8 % 2], **played(rng, 3)) for n in range(MANY)]),
    ):  # fmt: skip
        path = create_run(TrainingConfig.from_dict({"output_dir": str(folder), "run_name": name, "product": "control"}))
        (path / "groups").mkdir(exist_ok=True)
        write_groups(path / "groups" / "000001.parquet", 1, rows)
    return folder


@pytest.fixture(scope="module")
def service(runs: Path) -> Iterator[Any]:
    with serving(ServiceSettings(port=0, runs_dir=runs, poll=0.05, reads_per_second=1e6)) as running:
        running.parts.supervisor._end.set()
        yield running


@pytest.mark.parametrize(
    ("view", "run", "says"),
    [
        ("formation", "without-groups", "This run saved no groups"),
        ("advantages", "without-groups", "This run saved no groups"),
        ("dynamics", "without-groups", "its steps cannot be opened"),
        ("tasks", "one-task", "This view compares tasks, and needs at least two"),
        ("formation", "failed", "No scored attempts in step 1"),
        ("advantages", "failed", "3 have no finite score or observation and are left out"),
        ("formation", "partly", "2 left out: 1 without a finite score, 1 with an observation that is not finite"),
        ("formation", "large", "400 of 100,000 attempts are shown: whole groups, evenly spaced"),
        ("advantages", "large", "400 of 100,000 attempts are shown: whole groups, evenly spaced"),
        ("tasks", "large", "No groups to tell apart"),
        ("dynamics", "large", "No rewards yet"),
    ],
)
def test_a_view_says_what_it_lacks(visit: Callable[..., Visit], view: str, run: str, says: str) -> None:
    tab = visit()
    page = tab.open(f"/learn/{view}?run={run}")
    page.get_by_text(says).first.wait_for()


def test_a_value_that_is_not_finite_is_left_out_and_never_drawn_as_0(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/dynamics?run=not-finite")
    curve = page.locator('figure[aria-label^="KL divergence"] .curve')
    assert len(curve.get_attribute("d").split("L")) == 2  # of three steps


def test_a_run_that_does_not_exist_is_said_so(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/learn/tasks?run=nowhere")
    assert "nowhere" in page.get_by_role("alert").inner_text()
    tab.complaints[:] = [one for one in tab.complaints if "404" not in one]  # the browser's own line


def test_the_surface_needs_no_webgl(browser: Any, service: Any) -> None:
    page = browser.new_page()
    page.add_init_script(
        "HTMLCanvasElement.prototype.getContext = new Proxy(HTMLCanvasElement.prototype.getContext, "
        "{apply: (ask, canvas, [kind, ...more]) => /webgl/.test(kind) ? null : ask.call(canvas, kind, ...more)})"
    )
    tab = Visit(page, service.url, service.settings.token)
    tab.open("/learn/sensitivity")
    face = page.locator("polygon.face").first
    before = face.get_attribute("points")
    page.get_by_role("application").press("ArrowRight")
    assert face.get_attribute("points") != before
    assert page.locator("button.cell").count() == 20
    assert tab.complaints == []
    page.close()
