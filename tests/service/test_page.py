"""The page in a real browser, on a real service: everything that its reader does is done here."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from groupwise.config import TrainingConfig
from groupwise.programs.declaration import code_options
from groupwise.service.keys import Keys
from groupwise.service.routes.page import FOLDER
from groupwise.training.events import EventLog
from groupwise.training.folder import create_run
from groupwise.training.group_files import write_groups
from groupwise.types import Event, GroupRecord
from groupwise.workflows.blocks import Activity, Design, Sequence
from groupwise.workflows.files.json_file import write as write_design
from tests.service.conftest import PATIENCE, Visit, until, with_cart

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "dashboard"
WIDTHS = (1280, 400)
SUMS = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 1, "eval_steps": 1, "eval_episodes": 2, "threads": 1,
}  # fmt: skip
TEA = """
name: tea
activities:
  boil water: {duration: {kind: fixed, mean: 120}, pools: [cook]}
  warm the pot: {duration: {kind: fixed, mean: 60}, pools: [cook]}
  pour: {duration: {kind: fixed, mean: 10}, pools: [cook]}
pools:
  cook: {least: 1, most: 3}
rules:
  precedes: [[boil water, pour], [warm the pot, pour]]
demand: {runs: 1}
"""


def source_hash() -> str:
    """As dashboard/scripts/stamp.mjs works it out."""
    parts = ["index.html", "package-lock.json", "package.json", "public", "src"]
    parts += ["svelte.config.js", "tsconfig.json", "vite.config.ts"]
    files = [file for part in parts for file in (SOURCE / part, *sorted((SOURCE / part).rglob("*"))) if file.is_file()]
    found = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.relative_to(SOURCE).as_posix()):
        found.update(file.relative_to(SOURCE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def test_the_bundle_is_built_from_this_source() -> None:
    told = (FOLDER / "source.sha256").read_text().strip()
    assert told == source_hash(), "the page's source changed: cd dashboard && npm ci && npm run build"


def test_the_bundle_asks_nothing_of_other_machines() -> None:
    index = (FOLDER / "index.html").read_text()
    assert not re.search(r"(src|href)=\"(https?:)?//", index)
    assert "<script>" not in index  # the policy for the page refuses scripts within it
    lock = (SOURCE / "package-lock.json").read_text()
    assert '"resolved"' not in lock


# The longest of a second's frames, in milliseconds, while the page is scrolled.
LONGEST_FRAME = """() => new Promise((tell) => {
    const began = performance.now(); let last = began, longest = 0;
    const frame = (now) => { longest = Math.max(longest, now - last); last = now; scrollBy(0, 8);
        now - began < 1000 ? requestAnimationFrame(frame) : tell(longest); };
    requestAnimationFrame(frame); })"""


FIRST_LOAD = 250_000  # bytes on the wire, headers included


def test_a_runs_page_loads_little_and_heavy_parts_when_they_are_opened(
    visit: Callable[..., Visit], sums: dict[str, Any]
) -> None:
    tab = visit()
    link = tab.page.context.new_cdp_session(tab.page)
    link.send("Network.enable")
    sizes: list[int] = []
    asked: list[str] = []
    link.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    tab.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page = tab.open("/runs/sums")
    page.get_by_role("img", name="Reward by step").locator("canvas").wait_for()
    page.wait_for_load_state("networkidle")
    assert sum(sizes) > 100_000, "the charts have been counted"
    assert sum(sizes) <= FIRST_LOAD, sorted(zip(sizes, asked, strict=False))[-5:]
    heavy = ("Attempt", "Picture", "svg", "Formation", "one-scale")
    assert not [path for path in asked if Path(path).name.startswith(heavy)]
    attempt = sums["groups"][0]["attempts"][0]["trajectory_id"]
    page = tab.open(f"/runs/sums/attempts/1/{attempt}")
    page.get_by_text("The policy wrote").wait_for()
    assert [path for path in asked if Path(path).name.startswith("Attempt")]


def until_step(page: Any, step: int) -> None:
    done = page.get_by_role("progressbar").first
    end = time.monotonic() + PATIENCE / 1000
    while int(done.get_attribute("aria-valuenow") or 0) < step:
        assert time.monotonic() < end, f"step {step} was not shown"
        page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for the page, whose jobs do run."""
    with with_cart(tmp_path_factory.mktemp("page") / "runs") as running:
        yield running


@pytest.fixture(scope="module")
def sums(service: Any, browser: Any) -> dict[str, Any]:
    """A run of a language model: one step, two groups of four."""
    job = service.post("/api/train", {"name": "sums", "config": SUMS}).json()
    service.wait_for(job["id"], "finished")
    found: dict[str, Any] = service.get("/api/runs/sums/groups/1").json()
    return found


PAGES = {"/": "Runs", "/new": "New run", "/runs/cart": "cart", "/workflows": "Workflows", "/settings": "Settings"}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_and_fits(visit: Callable[..., Visit], width: int) -> None:
    tab = visit(width, "dark" if width == 400 else "light")
    for path, title in PAGES.items():
        page = tab.open(path)
        page.get_by_role("heading", name=title, exact=True).wait_for()
        assert not tab.is_too_wide(), path


def test_a_run_is_started_watched_stopped_and_resumed(visit: Callable[..., Visit], service: Any) -> None:
    tab = visit()
    page = tab.open("/new")
    page.get_by_role("radio", name=re.compile("Balance a pole")).check()
    page.get_by_label("Steps").fill("100000")  # it must not end before it is stopped
    page.get_by_label("Name").fill("watched")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("heading", name="watched").wait_for()
    curve = page.get_by_role("img", name="Reward by step")
    curve.wait_for()
    until_step(page, 2)
    before = curve.screenshot()
    until_step(page, 5)
    looks = iter(range(50))
    while curve.screenshot() == before and next(looks, None) is not None:
        page.wait_for_timeout(200)
    assert curve.screenshot() != before  # the curve has moved
    assert len(service.post("/api/scale", {"workers": 4}).json()["orders"]) == 1
    page.get_by_role("link", name=re.compile("Hints")).click()
    page.get_by_text("no workers to scale").wait_for()  # the page offers no such order, but says what became of it
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert service.get("/api/runs/watched").json()["state"] == "stopped"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").wait_for()


def test_every_preset_is_taken_as_it_stands(visit: Callable[..., Visit], serve: Callable[..., Any]) -> None:
    resting = serve()
    resting.parts.supervisor._end.set()  # jobs wait
    tab = visit(url=resting.url)
    page = tab.open("/new")
    page.locator(".presets input").first.wait_for(state="attached")
    titles = page.locator(".presets input").evaluate_all("(all) => all.map((one) => one.value)")
    for title in titles[:-1]:  # the last one is one's own settings
        page = tab.open("/new")
        page.locator(f".presets input[value={title}]").check()
        page.get_by_label("Name").fill(title)
        page.get_by_role("button", name="Start").click()
        page.get_by_role("heading", name=title, exact=True).wait_for()
    jobs = {job["run"]: job for job in resting.get("/api/jobs").json()["jobs"]}
    assert jobs.keys() == set(titles[:-1])
    assert code_options(TrainingConfig.from_dict(jobs["code"]["request"]["config"])).search_every == 20


def test_from_a_run_down_to_its_tokens(visit: Callable[..., Visit], sums: dict[str, Any]) -> None:
    tab = visit()
    page = tab.open("/")
    page.get_by_role("link", name="sums", exact=True).click()
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_text("2 groups of 4").wait_for()
    # Attempts that all scored the same have nothing to colour.
    group = max(sums["groups"], key=lambda one: max(attempt["advantage"] for attempt in one["attempts"]))
    page.get_by_role("button", name=f"Group {group['id']}").click()
    attempts = page.get_by_role("listitem").filter(has=page.get_by_title("Advantage"))
    attempts.first.wait_for()
    assert attempts.count() == 4
    attempts.first.get_by_role("link").click()
    page.get_by_text("The policy wrote").wait_for()
    tokens = page.locator("[data-at]")
    best = max(group["attempts"], key=lambda one: one["advantage"])
    legend = "more likely after the step" if best["advantage"] else "All attempts scored the same"
    assert page.get_by_text(legend).is_visible()
    assert tokens.count() == best["length"]
    tokens.first.focus()
    page.get_by_text(re.compile("advantage .*chance")).wait_for()
    tokens.last.click()
    link, own = page.url, page.locator(".readout code").inner_text()
    assert "token=" not in link
    colleague = visit().open(f"{urlsplit(link).path}?{urlsplit(link).query}")
    colleague.locator(".readout code").get_by_text(own, exact=True).wait_for()
    tokens.first.focus()
    shown = tokens.first.evaluate("(token) => getComputedStyle(token).backgroundColor")
    assert (shown == "rgba(0, 0, 0, 0)") == (best["advantage"] == 0)


class Clicks:
    """A reader who counts clicks, from a run's curve on."""

    def __init__(self, tab: Visit, run: str, chart: str = "Reward by step") -> None:
        self.page, self.count = tab.open(f"/runs/{run}"), 0
        self.curve = self.page.get_by_role("img", name=chart)
        self.curve.locator("canvas").wait_for()

    def click(self, what: Any) -> None:
        self.count += 1
        what.click()

    def to_the_best_attempt(self, group: str = "") -> Any:
        box = self.curve.bounding_box()
        self.count += 1
        self.page.mouse.click(box["x"] + box["width"] - 14, box["y"] + box["height"] / 2)  # the newest step
        self.page.wait_for_url("**/groups/*")  # curves have buttons that open something, too
        self.click(self.page.locator("section button[aria-expanded]", has_text=f"Group {group}").first)
        self.click(self.page.get_by_role("listitem").filter(has=self.page.get_by_title("Advantage")).first)
        return self.page


def test_three_clicks_lead_from_a_curve_to_a_token_and_to_an_episode(
    visit: Callable[..., Visit], sums: dict[str, Any]
) -> None:
    reader = Clicks(visit(), "sums")
    page = reader.to_the_best_attempt()
    page.locator("[data-at]").first.wait_for()
    assert reader.count <= 3
    assert f"/{sums['step']}/" in page.url
    reader = Clicks(visit(), "cart")
    page = reader.to_the_best_attempt()
    page.get_by_role("heading", name="The episode").wait_for()
    assert reader.count <= 3
    moment = page.get_by_label("Moment of the episode")
    page.get_by_role("button", name="Play").click()
    until(lambda: int(moment.input_value()) > 2)  # the page's own policy forbids Playwright's waiting for an expression
    assert int(moment.get_attribute("max")) > 2


DESIGNS = {
    "product": "designer", "environment": "worlds", "num_generations": 4, "tasks_per_step": 1, "num_episodes": 1,
    "eval_steps": 0, "threads": 1,
}  # fmt: skip
PROGRAMS = {
    "product": "code", "environment": "programs", "model_name": "tiny", "num_generations": 4, "tasks_per_step": 2,
    "num_episodes": 2, "eval_steps": 0, "max_new_tokens": 24, "threads": 1,
    "options": {
        "families": "word_problems", "warm_steps": 1, "search_every": 1, "search_budget": 16, "search_problems": 1,
    },
}  # fmt: skip


@pytest.mark.long
def test_three_clicks_lead_from_a_curve_to_a_design_a_programs_cases_and_a_search_tree(
    visit: Callable[..., Visit], service: Any
) -> None:
    for name, config in (("designs", DESIGNS), ("programs", PROGRAMS)):
        job = service.post("/api/train", {"name": name, "config": config}).json()
        service.wait_for(job["id"], "finished")
    reader = Clicks(visit(), "designs")
    page = reader.to_the_best_attempt()
    page.get_by_role("img", name=re.compile("The workflow")).wait_for()
    assert reader.count <= 3
    reader = Clicks(visit(), "programs")
    page = reader.to_the_best_attempt()
    page.get_by_role("heading", name="The program").wait_for()
    assert reader.count <= 3
    searched = [one["id"] for one in service.get("/api/runs/programs/groups/2").json()["groups"] if one["id"][0] == "s"]
    reader = Clicks(visit(), "programs")
    page = reader.to_the_best_attempt(searched[0])
    page.get_by_role("heading", name="The search tree").wait_for()
    assert reader.count <= 3
    page.get_by_text(re.compile(r"\d+ visits?, mean .*, best ")).first.wait_for()
    page.get_by_role("button", name="Expand all").click()
    page.get_by_role("button", name="Only the path taken").wait_for()


def test_runs_are_found_labelled_put_away_and_compared(visit: Callable[..., Visit], sums: dict[str, Any]) -> None:
    tab = visit()
    page = tab.open("/")
    page.get_by_label("Find a run").fill("car")
    page.get_by_role("link", name="sums", exact=True).wait_for(state="hidden")
    page.get_by_label("Choose cart").check()
    page.get_by_label("Tag").last.fill("first")
    page.get_by_role("button", name="Add tag").click()
    page.get_by_text("1 run tagged.").wait_for()
    page.get_by_label("Find a run").fill("first")
    page.get_by_role("link", name="cart", exact=True).wait_for()
    page.get_by_label("Choose cart").check()
    page.get_by_role("button", name="Archive").click()
    page.get_by_text("No run fits.").wait_for()
    page.get_by_label("Archived runs").select_option("yes")
    page.get_by_label("Choose cart").check()
    page.get_by_role("button", name="Restore").click()
    page.get_by_text("No run fits.").wait_for()
    page = tab.open("/compare?run=cart&run=sums")
    page.get_by_role("heading", name="Settings that differ").wait_for()
    page.get_by_role("img", name="eval/reward_mean of 2 runs").locator("canvas").wait_for()
    page.get_by_role("row", name=re.compile("task.product control language")).wait_for()
    with page.expect_download() as found:
        page.get_by_label("Save eval/reward_mean").click()
        page.get_by_role("button", name="CSV").click()
    assert found.value.suggested_filename == "eval_reward_mean.csv"


def test_many_runs_are_chosen_by_range_and_all_at_once_and_deleted(visit: Callable[..., Visit], service: Any) -> None:
    for number in range(5):
        cart, copy = service.settings.runs_dir / "cart", service.settings.runs_dir / f"tidy-{number}"
        shutil.copytree(cart, copy, ignore=shutil.ignore_patterns("checkpoints", "groups", "lock"))
    page = visit().open("/?q=tidy&sort=name")
    page.get_by_text("5 of").wait_for()
    page.get_by_label("Choose tidy-1").check()
    page.get_by_label("Choose tidy-3").click(modifiers=["Shift"])
    page.get_by_text("3 chosen").wait_for()
    assert page.get_by_label("Choose tidy-2").is_checked()
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Choose all runs shown").check()
    page.get_by_text("5 chosen").wait_for()
    page.get_by_label("Choose tidy-4").uncheck()
    assert not page.get_by_label("Choose all runs shown").is_checked()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete 4 and their files").click()
    page.get_by_text("4 runs deleted.").wait_for()
    page.get_by_text("1 of").wait_for()
    assert sorted(path.name for path in service.settings.runs_dir.glob("tidy-*")) == ["tidy-4"]


AXE = SOURCE / "node_modules" / "axe-core" / "axe.min.js"
TOUR = (
    "/", "/new", "/runs/cart", "/runs/cart/groups", "/runs/cart/hints", "/runs/cart/settings", "/runs/sums",
    "/runs/nothing", "/compare?run=cart&run=sums", "/workflows", "/workflows/edit", "/workflows/check",
    "/workflows/convert", "/chat", "/settings",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_use_every_page(browser: Any, service: Any, sums: dict[str, Any], scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: cd dashboard && npm ci")
    attempt = sums["groups"][0]["attempts"][0]["trajectory_id"]
    for width in (390, 1024, 1440):
        # The page's own policy refuses scripts from elsewhere, and axe is one.
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        tab = Visit(context.new_page(), service.url, service.settings.token)
        for path in (*TOUR, f"/runs/sums/attempts/1/{attempt}", "/runs/sums/groups"):
            page = tab.open(path.partition("?")[0]) if "?" not in path else tab.page
            if "?" in path:
                page.goto(service.url + path)
            page.get_by_role("heading", level=1).first.wait_for(state="attached")
            page.wait_for_load_state("networkidle")
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert [(path, one["id"], one["nodes"][0]["html"]) for one in found] == []
            assert not tab.is_too_wide(), (path, width)
        context.close()


def test_a_workflow_is_designed_downloaded_and_checked(visit: Callable[..., Visit], tmp_path: Path) -> None:
    tab = visit()
    page = tab.open("/workflows")
    page.get_by_label("Begin with an example").select_option("own")
    page.get_by_role("textbox", name="Requirements").fill(TEA)
    page.get_by_label("Evaluations").fill("4")
    page.get_by_role("button", name="Design", exact=True).click()
    page.get_by_role("img", name="The workflow tea").wait_for(timeout=600_000)
    assert page.get_by_text("Why this score").is_visible()
    assert not tab.is_too_wide()
    with page.expect_download() as found:
        page.get_by_role("button", name="Download YAWL 4.0").click()
    found.value.save_as(tmp_path / "tea.yawl")
    assert found.value.suggested_filename == "tea.yawl"
    assert "boil" in (tmp_path / "tea.yawl").read_text()
    page.get_by_role("button", name="Check and simulate it").click()
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_text("It is in order").wait_for()


# The height in pixels, as it is shown, of the smallest letters in the first drawing of a workflow.
SMALLEST_LETTERS = """() => {
    const image = document.querySelector("img[alt^='The workflow']");
    const text = decodeURIComponent(image.src.split(",").slice(1).join(","));
    const drawing = new DOMParser().parseFromString(text, "image/svg+xml");
    const rules = drawing.querySelector("style").textContent;
    const sizes = [...rules.matchAll(/font-size:([0-9.]+)px/g)].map((one) => Number(one[1]));
    return Math.min(...sizes) * image.clientWidth / Number(drawing.documentElement.getAttribute("width"));
}"""


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_a_drawing_is_large_enough_to_read_at_any_width(visit: Callable[..., Visit], width: int) -> None:
    tab = visit(width)
    page = tab.open("/workflows/check")
    page.get_by_label("Begin with an example").locator("visible=true").select_option("hospital_triage")
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_role("img", name="The workflow").wait_for(timeout=600_000)
    assert page.evaluate(SMALLEST_LETTERS) > 9
    assert not tab.is_too_wide()
    if (everything := page.get_by_role("button", name="Show all")).is_enabled():  # a wide window shows it already
        everything.click()
    picture = page.get_by_role("group", name=re.compile("Picture of"))
    assert picture.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_a_workflow_is_changed_by_hand_and_the_score_follows(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/workflows/edit")
    page.get_by_label("Begin with an example").locator("visible=true").select_option("order_fulfilment")
    page.get_by_role("button", name="Open", exact=True).click()
    score = page.get_by_role("status").filter(has_text="before")
    score.wait_for(timeout=600_000)
    before = score.inner_text()
    count = page.get_by_label("Servers of shop system")
    count.fill(str(int(count.input_value()) + 1))
    count.press("Enter")
    page.get_by_role("button", name=re.compile("Undo .* of shop system")).wait_for()
    assert score.inner_text() != before
    page.get_by_label("Activity to move").select_option("confirm order")
    page.get_by_label("Activity next to it").select_option("charge customer")
    page.get_by_role("button", name="Move", exact=True).click()
    page.get_by_role("alert").get_by_text("comes before").first.wait_for()
    page.get_by_role("button", name="Undo all").click()
    page.get_by_role("alert").wait_for(state="detached")
    until(lambda: score.inner_text() == before)
    page.get_by_label("Show the process before the edits").check()
    page.get_by_role("img", name=re.compile("before")).wait_for()
    assert not tab.is_too_wide()


OLD_RUNS = Path(__file__).parents[1] / "fixtures" / "old_runs"


@pytest.mark.parametrize("kind", ["control", "language", "designer"])
def test_a_run_of_an_earlier_version_opens(visit: Callable[..., Visit], service: Any, kind: str) -> None:
    shutil.copytree(OLD_RUNS / kind, service.settings.runs_dir / f"old-{kind}")
    page = visit().open(f"/runs/old-{kind}")
    page.get_by_role("heading", name=f"old-{kind}").wait_for()
    page.get_by_role("img", name="Reward by step").locator("canvas").wait_for()
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_text(re.compile(r"\d+ groups? of \d")).wait_for()
    page.get_by_role("link", name="Settings", exact=True).last.click()
    page.get_by_label("Find a setting").wait_for()


def make_large_run(folder: Path) -> None:
    """10,000 metrics, a design of 2,000 activities, and a last line that is half written."""
    path = create_run(TrainingConfig.from_dict({"output_dir": str(folder), "run_name": "large"}))
    log = EventLog(path / "events.jsonl")
    metrics = {"reward/mean": 1.0, **{f"my/{number}": float(number) for number in range(10_000)}}
    for step in (1, 2):
        log.append(Event("large", log.count, 1, time.time(), step, "step", {"metrics": metrics}))
    log.close()
    with open(path / "events.jsonl", "ab") as file:
        file.write(b'{"v": 1, "run": "lar')
    design = Design("large", Sequence(tuple(Activity(f"task {number}") for number in range(2000))))
    drawn = json.dumps({"kind": "design", "workflow": write_design(design).decode()})
    record = GroupRecord(
        "g", "t", "g/m0", 1.0, {}, (), 0.5, 1, "finished", "", 1, "large", "draw it", exhibit=lambda: drawn
    )  # fmt: skip
    (path / "groups").mkdir(exist_ok=True)
    write_groups(path / "groups" / "000002.parquet", 2, [record])


def test_what_is_too_much_for_a_page_is_said_and_the_rest_is_shown(visit: Callable[..., Visit], service: Any) -> None:
    make_large_run(service.settings.runs_dir)
    page = visit().open("/runs/large")
    page.get_by_role("img", name="Reward by step").locator("canvas").wait_for()
    page.get_by_text("8,001 more metrics").wait_for()
    page.get_by_label("Another metric").fill("my/77")
    page.keyboard.press("Enter")
    page.get_by_role("img", name="my/77 by step").wait_for()
    page = visit().open("/runs/large/attempts/2/g/m0")
    page.get_by_role("img", name="The workflow t").wait_for()
    assert page.evaluate(LONGEST_FRAME) < 2000


def test_a_connection_lost_in_mid_drag_costs_nothing(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/runs/cart")
    curve = page.get_by_role("img", name="Reward by step")
    curve.locator("canvas").wait_for()
    box = curve.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    page.mouse.down()
    page.route("**/api/**", lambda route: route.abort())
    page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=4)
    page.mouse.up()
    page.get_by_role("alert").wait_for()
    page.get_by_text(re.compile(r"Steps \d+ to \d+")).wait_for()
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("alert").wait_for(state="detached")
    page.get_by_text(re.compile(r"Steps \d+ to \d+")).wait_for()
    assert all("ERR_FAILED" in told for told in tab.complaints)
    tab.complaints.clear()


def test_a_conversation_is_held_and_kept(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/chat")
    page.get_by_label("Strategy").select_option("customer_service")
    page.get_by_label("Message").fill("I need help with my order")
    page.keyboard.press("Enter")
    page.get_by_text(re.compile(r"\d+ tokens in")).wait_for()
    assert "/chat/" in page.url
    page.reload()
    page.locator("article.user", has_text="I need help with my order").wait_for()
    page.get_by_role("button", name=re.compile("Delete the conversation")).first.click()
    page.get_by_text("Talk to a model").wait_for()


def test_errors_are_told_kindly(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/new")
    page.get_by_role("radio", name=re.compile("Your own settings")).check()
    page.get_by_label("Settings", exact=False).last.fill('{"learning_rat": 1}')
    page.get_by_role("button", name="Start").click()
    told = page.get_by_role("alert")
    told.wait_for()
    assert "learning_rate" in told.inner_text()  # it says what was meant
    for name in ("nothing", "pole%ZZ"):
        page = tab.open(f"/runs/{name}")
        page.get_by_role("heading", name="No such run").wait_for()
        page.get_by_text(f"There is no run “{name}”").wait_for()
    expected = [text for text in tab.complaints if "422" in text or "404" in text]  # the browser's own, of the answers
    assert len(expected) >= 2
    tab.complaints = [text for text in tab.complaints if text not in expected]


def test_the_keyboard_is_enough(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    for keys, title in (("gw", "Workflows"), ("gs", "Settings"), ("n", "New run"), ("gr", "Runs")):
        for one in keys:
            page.keyboard.press(one)
        page.get_by_role("heading", name=title, exact=True).wait_for()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"  # it is remembered


def test_a_key_is_asked_for_where_one_is_needed(visit: Callable[..., Visit], serve: Callable[..., Any]) -> None:
    guarded = serve()
    keys: Keys = guarded.parts.keys
    text, _ = keys.add("reader", "read")
    keys.refresh()
    tab = visit(url=guarded.url)
    page = tab.open("/")
    page.get_by_role("textbox", name="Key").fill("gw_wrong")
    page.get_by_role("button", name="Open the page").click()
    page.get_by_text("does not know this key").wait_for()
    page.get_by_role("textbox", name="Key").fill(text)
    page.get_by_role("button", name="Open the page").click()
    page.get_by_text("No runs yet").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    assert page.get_by_role("link", name=re.compile("run$")).count() == 0  # reading only
    for path in ("/new", "/workflows", "/workflows/edit", "/chat", "/workflows/check"):
        page = tab.open(path)
        page.get_by_text("Your key is read-only").wait_for()
        assert page.locator("main form").count() == 0, f"{path} offers what the key may not do"
    page = tab.open("/runs/somebodys")  # a link from a colleague
    page.get_by_role("heading", name="No such run").wait_for()
    page.get_by_role("button", name="Use another key").click()
    page.get_by_role("textbox", name="Key").fill(text)
    page.get_by_role("button", name="Open the page").click()
    page.get_by_role("heading", name="No such run").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    page.wait_for_load_state("networkidle")
    guarded.server.should_exit = True
    page.get_by_text("The service is not responding").wait_for()
    page.goto("about:blank")
    ended = ("401", "404", "500", "WebSocket", "ERR_CONNECTION")  # what was under way when the service was stopped
    assert all(any(word in told for word in ended) for told in tab.complaints)
    tab.complaints.clear()


def drag(page: Any, chart: Any, begin: float, end: float) -> None:
    """Choose a stretch of a chart with the mouse, once it is drawn."""
    chart.locator("canvas").wait_for()
    box = chart.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
    page.mouse.up()


def test_a_long_run_stays_smooth_and_moves(visit: Callable[..., Visit], service: Any) -> None:
    """The short form of benchmarks/page_smooth.py: 100 steps a second, as far as this machine goes."""
    cfg = TrainingConfig.from_dict({"output_dir": str(service.settings.runs_dir), "run_name": "long"})
    log = EventLog(create_run(cfg) / "events.jsonl")

    def add(count: int) -> None:
        for _ in range(count):
            data = {"metrics": {"reward/mean": math.sin(log.count / 900), "policy/kl": 0.01}}
            log.append(Event("long", log.count, 1, time.time(), log.count + 1, "step", data))

    add(10_000)
    page = visit().open("/runs/long")
    page.get_by_role("img", name="KL by step").wait_for()
    drag(page, page.get_by_role("img", name="Reward by step"), 0.8, 0.95)
    page.get_by_text(re.compile(r"Steps \d+ to \d+")).wait_for()
    page.get_by_role("button", name="Show all").click()
    page.goto(page.url + "?from=9000")
    curve = page.get_by_role("img", name="Reward by step")
    curve.locator("canvas").wait_for()
    before = curve.screenshot()
    for _ in range(12):  # more than a curve may grow by before it is thinned again
        add(50)
        page.wait_for_timeout(50)
    until_step(page, log.count)
    page.wait_for_timeout(300)
    assert curve.screenshot() != before
    assert page.evaluate(LONGEST_FRAME) < 1000


def test_the_token_of_the_address_makes_the_operator_and_goes_out_of_sight(
    visit: Callable[..., Visit], service: Any
) -> None:
    tab = visit()
    page = tab.open("/settings")
    page.get_by_text("You are operator and may do everything").wait_for()
    assert "token" not in page.url
    page.reload()
    page.get_by_text("You are operator and may do everything").wait_for()  # it stays in this tab
    stranger = visit(url=service.url).open("/settings")
    stranger.get_by_text("You are local and may train").wait_for()


MARKUP = '<b data-planted>planted</b><img data-planted src="/planted.png" onerror="document.title=1">'
# Strings that the page navigates by, or that are one of a few words; everything else gets markup.
STRUCTURE = {
    "id", "run", "state", "type", "role", "url", "format", "suffix", "scope", "kind", "conversation_id", "job", "code",
    "trajectory_id", "group_id", "product", "end", "names", "strategy", "strategies", "tier", "model", "job_state",
    "better", "unit", "axis",
}  # fmt: skip
NAMED = ("metrics", "parts", "servers", "utilisation", "groups", "graphs")  # tables whose names are data


def planted(value: Any, key: str = "") -> Any:
    """The value with markup in every string in it, and in the names of tables."""
    if isinstance(value, str):
        if key == "svg":
            return value.replace("</svg>", '<image href="/planted.png"/><script>alert(1)</script></svg>')
        return value if key in STRUCTURE else f"{value} {MARKUP}"
    if key == "known":  # what metrics mean; their names are asked for again
        return [{**one, "meaning": planted(one["meaning"]), "worry": planted(one["worry"])} for one in value]
    if isinstance(value, list):
        return [planted(one, key) for one in value]
    if isinstance(value, dict):
        found = {name: planted(one, name) for name, one in value.items()}
        if key in NAMED and found:
            found |= {f"{name} {MARKUP}": one for name, one in list(found.items())[:1]}
        return found
    return value


def plant(route: Any) -> None:
    answer = route.fetch()
    if "json" in answer.headers.get("content-type", ""):
        route.fulfill(response=answer, json=planted(answer.json()))
    else:
        route.fulfill(response=answer)


def make_planted_run(folder: Path) -> None:
    """A run whose every string is markup, as a hostile model, environment or person could have made it."""
    path = create_run(TrainingConfig.from_dict({"output_dir": str(folder), "run_name": "planted"}))
    log = EventLog(path / "events.jsonl")
    told = {"code": "x", "message": f"message {MARKUP}", "remedy": f"remedy {MARKUP}", "hint": MARKUP, "field": MARKUP}
    for step in range(1, 4):
        metrics = {"reward/mean": float(step), f"metric {MARKUP}": float(step)}
        log.append(Event("planted", log.count, 1, time.time(), step, "step", {"metrics": metrics}))
    log.append(Event("planted", log.count, 1, time.time(), 3, "hint", told))
    log.append(Event("planted", log.count, 1, time.time(), 3, "error", {"error": told}))
    record = GroupRecord(
        group_id="g", task_id=f"task {MARKUP}", trajectory_id="g/m0", total=1.0, parts={f"part {MARKUP}": 1.0},
        flags=(f"flag {MARKUP}",), advantage=0.5, length=2, end="finished", failure=f"failure {MARKUP}", version=1,
        text=f"text {MARKUP}", prompt=f"prompt {MARKUP}", tokens=[f"given {MARKUP}", f"token {MARKUP}"],
        acted=[False, True], token_advantages=[0.0, 0.5], token_logps=[0.0, -0.1],
    )  # fmt: skip
    (path / "groups").mkdir(exist_ok=True)
    write_groups(path / "groups" / "000001.parquet", 1, [record])


def test_markup_in_any_string_stays_text(visit: Callable[..., Visit], service: Any) -> None:
    make_planted_run(service.settings.runs_dir)
    chat = service.post("/api/chat", {"message": f"message {MARKUP}", "max_new_tokens": 2}, timeout=300).json()
    tab = visit()
    page, asked = tab.page, []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/api/**", plant)

    def see(path: str, text: str, least: int = 1) -> None:
        """Open a page and wait until it shows the markup as text."""
        tab.open(path)
        page.get_by_text(text).first.wait_for()
        page.wait_for_function("(least) => document.body.innerText.split('data-planted').length > least", arg=least)
        assert page.locator("[data-planted]").count() == 0, path

    see("/runs/planted", "message")
    page.get_by_label("Another metric").fill(f"metric {MARKUP}")
    page.keyboard.press("Enter")
    chart = page.locator(".grid [role=img]").last
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    looks = iter(range(500))
    while "data-planted" not in chart.inner_text() and next(looks, None) is not None:  # the tooltip
        for aside in (0, 9):
            page.mouse.move(box["x"] + box["width"] / 2 + aside, box["y"] + box["height"] / 2)
            page.wait_for_timeout(50)
    assert "data-planted" in chart.inner_text()
    assert page.locator("[data-planted]").count() == 0
    see("/", "planted", 0)
    see("/runs/planted/hints", "remedy")
    see("/runs/planted/settings", "CartPole")
    see("/runs/planted/groups/1", "prompt")
    see("/runs/planted/attempts/1/g/m0", "failure", 3)
    see(f"/chat/{chat['conversation_id']}", "message")
    see("/settings", "operator")
    tab.open("/workflows")
    page.get_by_label("Begin with an example").select_option("own")
    page.get_by_role("textbox", name="Requirements").fill(TEA.replace("boil water", f"'boil {MARKUP}'"))
    page.get_by_label("Evaluations").fill("4")
    page.get_by_role("button", name="Design", exact=True).click()
    page.get_by_text("Why this score").wait_for()
    assert page.locator("[data-planted]").count() == 0
    assert [url for url in asked if urlsplit(url).path == "/planted.png"] == []
    assert page.title() != "1"
    tab.complaints = [told for told in tab.complaints if "404" not in told]  # the browser's own, of the missing run
