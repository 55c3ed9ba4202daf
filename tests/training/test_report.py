"""The report: whole, self-contained and safe, whatever is left of a run; and the pictures in it."""

import base64
import csv
import io
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RunNotFound, StorageError
from groupwise.training.events import encode
from groupwise.training.figures import POINTS, History, plot_runs, spread_apart, thin
from groupwise.training.groups import write_groups
from groupwise.training.report import last_group, verdict, write_report
from groupwise.types import Event, GroupRecord

FIGURES = {"learning", "spread", "advantage", "entropy", "movement", "gradient", "length", "time", "group"}
EVIL = "\"><img src=x onerror=alert(2)><script>alert(1)</script>' & $\\frac{x}$ \x1b\x00"


def step_data(step: int) -> dict[str, Any]:
    level = 20 + 8 * step
    metrics = {
        "reward/mean": level, "reward/std": 0.3 * level, "reward/min": 9.0, "reward/max": 1.5 * level,
        "groups/zero_spread_share": 0.1, "groups/failed_share": 0.0, "advantage/std": 0.9,
        "advantage/abs_mean": 0.7, "attempt/length_mean": level, "attempt/length_max": 1.5 * level,
        "attempt/truncated_share": 0.2, "policy/entropy": 0.69 - 0.005 * step, "policy/kl": 0.004,
        "policy/clip_low": 0.02, "policy/clip_high": 0.05, "optim/grad_norm": 0.4,
        "optim/learning_rate": 3e-4,
    }  # fmt: skip
    timing = {"rollout": 0.2, "score": 0.01, "advantage": 0.01, "update": 0.3, "total": 0.52}
    return {"metrics": metrics, "timing": timing, "totals": {"samples": 1000 * step, "attempts": 64 * step}}


def records(scores: list[float | None], group: str = "g0", failure: str = "timeout") -> list[GroupRecord]:
    return [
        GroupRecord(group, "task", f"{group}-{i}", score, {}, (), 0.5, 100, "finished", "" if score else failure, 1)
        for i, score in enumerate(scores)
    ]


def make_run(
    folder: Path,
    steps: int = 60,
    evals: bool = True,
    end: str | None = "finished",
    change: Callable[[int, dict[str, Any]], None] | None = None,
    extra: tuple[tuple[str, dict[str, Any]], ...] = (),
    config: dict[str, Any] | None = None,
) -> Path:
    (folder / "groups").mkdir(parents=True)
    config = config or TrainingConfig(target_reward=475.0, num_episodes=60).to_dict()
    rows: list[tuple[int, str, dict[str, Any]]] = [
        (0, "start", {"config": config, "resumed_from": None, "env": {"command": "groupwise train a.toml"},
                      "total_steps": 60}),
    ]  # fmt: skip
    for step in range(steps + 1):
        if step:
            data = step_data(step)
            if change:
                change(step, data)
            rows.append((step, "step", data))
        if evals and step % 10 == 0:
            score = {"eval/reward_mean": 20.0 + 8 * step, "eval/reward_std": 5.0, "eval/attempts": 20.0}
            rows.append((step, "eval", {"metrics": score}))
    rows += [(steps, kind, data) for kind, data in extra]
    if end:
        rows.append((steps, "end", {"reason": end, "steps": steps, "seconds": 30.0}))
    events = [Event(folder.name, i, 1, 1000.0 + i, *row) for i, row in enumerate(rows)]
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    if steps:
        write_groups(folder / "groups" / f"{steps:06d}.parquet", steps, records([500.0, 300.0, 100.0, None]))
    return folder


class Page(HTMLParser):
    """What a browser would find in the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.prose = " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "use", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def figures(self) -> set[str]:
        return {str(a["download"]).removesuffix(".csv") for a in self.all("a") if "download" in a}

    def table(self, name: str) -> list[list[str]]:
        (link,) = [a["href"] for a in self.all("a") if a.get("download") == f"{name}.csv"]
        text = base64.b64decode(str(link).partition("base64,")[2]).decode()
        return list(csv.reader(io.StringIO(text)))


def report(folder: Path) -> Page:
    path = write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text("utf8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    hint = {"code": "reward_flat", "message": "The reward is flat.", "remedy": "Raise optim.learning_rate."}
    return report(make_run(tmp_path_factory.mktemp("runs") / "pole", extra=(("hint", hint),)))


def test_the_page_tells_what_was_trained_and_what_came_of_it(page: Page) -> None:
    for words in (
        "CartPole-v1", "Evaluation reward rose from 20 before training to 500 after step 60.", "60 of 60",
        "60,000", "Finished", "The reward is flat.", "Raise optim.learning_rate.", "groupwise train a.toml",
        "training.target_reward", "475.0", "target 475",
    ):  # fmt: skip
        assert words in page.prose, words
    assert re.search(r"groupwise resume \S+/pole", page.prose)


def test_every_figure_is_there_with_its_words_and_its_data(page: Page) -> None:
    assert page.figures() == FIGURES
    drawings = page.all("svg")
    assert len(drawings) == len(FIGURES) + 2, "two wide ones are drawn again for narrow screens"
    assert all(d["role"] == "img" and d["aria-label"] for d in drawings)
    alt = next(d["aria-label"] for d in drawings if str(d["aria-label"]).startswith("Entropy"))
    assert alt == "Entropy of the policy: nats from 0.685 at step 1 to 0.39 at step 60"
    assert [tag for tag, _ in page.tags if tag == "h1"] == ["h1"]


def test_the_data_of_a_figure_is_what_the_run_recorded(page: Page) -> None:
    head, *rows = page.table("learning")
    assert head == ["step", "reward/mean", "reward/std", "reward/min", "reward/max", "eval/reward_mean", "eval/reward_std"]  # fmt: skip  # noqa: E501
    assert len(rows) == 61
    assert rows[0] == ["0", "", "", "", "", "20.0", "5.0"]
    assert rows[60][:2] == ["60", "500.0"]
    assert page.table("group")[1][:2] == ["g0-0", "500.0"]


def test_the_page_asks_for_nothing_from_anywhere(page: Page) -> None:
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert str(attrs.get(name, "#")).startswith(("#", "data:text/csv;")), attrs
        assert not [name for name in attrs if name.startswith("on")]
    assert re.findall(r"url\((?!#)|@import", page.text) == []
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_ids_are_unique_and_colours_follow_the_theme(page: Page) -> None:
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)", page.text)) | {
        str(attrs["xlink:href"])[1:] for _, attrs in page.tags if "xlink:href" in attrs
    }
    assert used <= set(ids)
    drawings = page.text[page.text.index("<main>") :]
    assert re.findall(r"#[0-9a-f]{6}\b", drawings) == [], "a fixed colour would be wrong in the dark"
    assert "prefers-color-scheme: dark" in page.text


def run_that_says(word: str, folder: Path) -> Page:
    """The report of a run with `word` wherever a run can put words of its own."""

    def parts(step: int, data: dict[str, Any]) -> None:
        data["metrics"] |= {f"reward/part/{word}": 1.0, "reward/part/b": 2.0}

    extra = (
        ("hint", {"code": word, "message": word, "remedy": word}),
        ("error", {"error": {"code": "x", "message": word, "hint": word, "field": ""}}),
    )
    config = {word: {word: word}, "task": {"environment": word}, "policy": {"model_name": word}}
    make_run(folder, change=parts, extra=extra, config=config, end=word)
    write_groups(folder / "groups" / "000061.parquet", 61, records([None, 3.0], word, word))
    return report(folder)


def test_whatever_a_run_says_is_text_and_never_markup(tmp_path: Path) -> None:
    hostile, harmless = run_that_says(EVIL, tmp_path / "<b>&run"), run_that_says("word", tmp_path / "run")
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    assert [set(attrs) for _, attrs in hostile.tags] == [set(attrs) for _, attrs in harmless.tags]
    assert hostile.figures() == FIGURES | {"parts"}
    assert hostile.prose.count("<script>alert(1)</script>") >= 8


@pytest.mark.parametrize(("steps", "evals", "left"), [(0, True, 1), (1, True, 9), (1, False, 9), (2, True, 9)])
def test_a_run_that_was_killed_early_has_a_report(tmp_path: Path, steps: int, evals: bool, left: int) -> None:
    found = report(make_run(tmp_path / "run", steps=steps, evals=evals, end=None))
    assert len(found.figures()) == left
    assert "Not ended: running or interrupted" in found.prose


@pytest.mark.parametrize("content", [None, b"", b"\x00\xff", b'{"v": 1, "run": "x"', b"[]\n"])
def test_a_folder_without_sound_events_has_a_report(tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    if content is not None:
        (folder / "events.jsonl").write_bytes(content)
    found = report(folder)
    assert "No step was completed." in found.prose
    assert "bare" in found.prose


def test_a_torn_last_line_costs_that_line_only(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", end=None)
    with open(folder / "events.jsonl", "ab") as log:
        log.write(b'{"v": 1, "run": "run", "seq": 9')
    assert "60 of 60" in report(folder).prose


def test_missing_and_odd_numbers_are_left_out(tmp_path: Path) -> None:
    def odd(step: int, data: dict[str, Any]) -> None:
        data["metrics"]["policy/kl"] = math.nan
        data["metrics"]["policy/entropy"] = None if step % 2 else "high"
        data["metrics"]["reward/mean"] = None if step == 60 else data["metrics"]["reward/mean"]
        data["timing"] = None

    found = report(make_run(tmp_path / "run", change=odd))
    assert found.figures() == FIGURES - {"entropy", "time"}
    assert found.table("movement")[0] == ["step", "policy/clip_low", "policy/clip_high"]
    assert found.table("learning")[-1][1] == ""


def test_of_the_newest_readable_groups_the_widest_is_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run") / "groups"
    rows = [
        *records([5.0, 5.0], "same"),
        *records([1.0, None, 9.0], "wide"),
        *records([None, None], "failed"),
    ]
    write_groups(folder / "000061.parquet", 61, rows)
    (folder / "000062.parquet").write_bytes(b"PAR1 torn")
    shown = last_group(folder.parent)
    assert [(row["group_id"], row["total"]) for row in shown] == [
        ("wide", 9.0),
        ("wide", 1.0),
        ("wide", None),
    ]


def test_a_group_in_which_all_failed_can_be_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    write_groups(folder / "groups" / "000061.parquet", 61, records([None] * 100))
    found = report(folder)
    assert "24 of its 100 attempts are shown" in found.prose
    assert len(found.table("group")) == 101


@pytest.mark.parametrize(
    ("before", "after", "word"), [(20.0, 500.0, "rose"), (500.0, 20.0, "fell"), (20.0, 21.0, "hardly moved")]
)
def test_the_verdict_knows_noise_from_change(before: float, after: float, word: str) -> None:
    history = History()
    for step, score in ((0, before), (60, after)):
        history.evals[step] = {"metrics": {"eval/reward_mean": score, "eval/reward_std": 5.0, "eval/attempts": 20.0}}
    assert f"Evaluation reward {word}" in verdict(history)


def test_without_evaluations_the_verdict_says_so() -> None:
    history = History(steps={step: step_data(step) for step in range(1, 21)})
    assert verdict(history) == "Training reward rose from 44 to 164; it was never evaluated."


def test_a_long_run_is_reported_in_time_and_in_size(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=5000)
    began = time.process_time()
    found = report(folder)
    assert time.process_time() - began < 3
    assert len(found.text) < 8_000_000
    assert len(found.table("entropy")) == 5001


def test_a_report_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=1)
    (folder / "report.html").mkdir()
    with pytest.raises(StorageError, match=r"report\.html"):
        write_report(folder)
    assert not list(folder.glob(".*.tmp"))
    with pytest.raises(RunNotFound, match="nowhere"):
        write_report(tmp_path / "nowhere")


def test_reports_need_neither_torch_nor_matplotlib_until_they_draw() -> None:
    code = "import groupwise.training.report, sys; print({'torch', 'matplotlib'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_half_characters_in_a_damaged_log_do_no_harm(tmp_path: Path) -> None:
    def part(step: int, data: dict[str, Any]) -> None:
        data["metrics"] |= {"reward/part/HALF": 1.0, "reward/part/b": 2.0}

    folder = make_run(tmp_path / "run", change=part, extra=(("hint", {"message": "HALF", "remedy": "HALF"}),))
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"HALF", b"\\ud800"))
    assert report(folder).figures() == FIGURES | {"parts"}


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_runs_are_compared_in_one_picture(tmp_path: Path, suffix: str, magic: bytes) -> None:
    runs = [make_run(tmp_path / "first", steps=20), make_run(tmp_path / "$second$", steps=40)]
    out = plot_runs(runs, "reward/mean", tmp_path / "pictures" / f"runs.{suffix}")
    assert out.read_bytes().startswith(magic)
    if suffix == "svg":
        assert ">first 180<" in out.read_text()
        assert ">$second$ 340<" in out.read_text()


def test_a_metric_or_a_format_that_does_not_exist_is_explained(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="Did you mean 'reward/mean'") as error:
        plot_runs([run], "reward/meen", tmp_path / "a.png")
    assert "timing/rollout" in error.value.hint
    with pytest.raises(ConfigError, match=r"\.png, \.svg or \.pdf"):
        plot_runs([run], "reward/mean", tmp_path / "a.gif")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_labels_are_moved_apart_and_stay_on_the_figure(heights: list[float]) -> None:
    moved = spread_apart(sorted(heights), 0.1)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(moved))
    assert min(moved) >= -1e-9
    assert max(moved) <= 1 + 1e-9


def test_labels_with_room_stay_where_their_lines_end() -> None:
    assert spread_apart([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert spread_apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])


def test_thinning_keeps_short_series_and_the_mean_of_long_ones() -> None:
    assert thin(([1, 2], [3.0, 4.0])) == ([1, 2], [3.0, 4.0])
    steps, values = thin((list(range(6000)), [float(i % 10) for i in range(6000)]))
    assert len(steps) == len(values) == POINTS
    assert set(values) == {4.5}
