"""The report: whole, self-contained and safe, whatever is left of a run."""

import base64
import csv
import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import RunNotFound, StorageError
from groupwise.reporting.report import write_report
from groupwise.training.group_files import write_groups
from groupwise.types import GroupRecord

MakeRun = Callable[..., Path]
Records = Callable[..., list[GroupRecord]]

FIGURES = {"learning", "spread", "advantage", "entropy", "movement", "gradient", "length", "time", "group"}
EVIL = "\"><img src=x onerror=alert(2)><script>alert(1)</script>' & $\\frac{x}$ \x1b\x00"


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
def page(tmp_path_factory: pytest.TempPathFactory, make_run: MakeRun) -> Page:
    hint = {"code": "reward_flat", "message": "The reward is flat.", "remedy": "Raise optim.learning_rate."}
    return report(make_run(tmp_path_factory.mktemp("runs") / "pole", extra=(("hint", hint),)))


def test_the_page_tells_what_was_trained_and_what_came_of_it(page: Page) -> None:
    for words in (
        "CartPole-v1",
        "Mean return of the evaluation episodes rose from 20 before training to 500 after step 60, over 20",
        "60 of 60",
        "60,000", "Finished", "The reward is flat.", "Raise optim.learning_rate.", "groupwise train a.toml",
        "training.target_reward", "475.0", "target 475",
    ):  # fmt: skip
        assert words in page.prose, words
    assert re.search(r"groupwise resume \S+/pole", page.prose)


def test_the_title_is_the_runs_own_name_and_not_the_model_it_started_from(tmp_path: Path, make_run: MakeRun) -> None:
    config = TrainingConfig(environment="sums.jsonl", product="language", model_name="runs/warm-1/checkpoints/000190")
    folder = make_run(tmp_path / "sums-2", config=config.to_dict())
    text = write_report(folder).read_text("utf8")
    assert "<h1>sums-2</h1>" in text
    assert "warm-1 on sums.jsonl" in text


def test_a_supervised_run_has_a_chart_of_its_loss_and_none_of_clipping(tmp_path: Path, make_run: MakeRun) -> None:
    def supervised(step: int, data: dict[str, Any]) -> None:
        data["metrics"] = {"reward/mean": 0.3, "loss/supervised": 2.0 / step, "policy/kl": 0.0, "policy/clip_low": 0.0}

    found = report(make_run(tmp_path / "warm", change=supervised)).figures()
    assert "supervised" in found
    assert "movement" not in found


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


@pytest.fixture
def run_that_says(make_run: MakeRun, records: Records) -> Callable[[str, Path], Page]:
    """The report of a run with a word wherever a run can put words of its own."""

    def write(word: str, folder: Path) -> Page:
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

    return write


def test_whatever_a_run_says_is_text_and_never_markup(
    tmp_path: Path, run_that_says: Callable[[str, Path], Page]
) -> None:
    hostile, harmless = run_that_says(EVIL, tmp_path / "<b>&run"), run_that_says("word", tmp_path / "run")
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    assert [set(attrs) for _, attrs in hostile.tags] == [set(attrs) for _, attrs in harmless.tags]
    assert hostile.figures() == FIGURES | {"parts"}
    assert hostile.prose.count("<script>alert(1)</script>") >= 8


@pytest.mark.parametrize(("steps", "evals", "left"), [(0, True, 1), (1, True, 9), (1, False, 9), (2, True, 9)])
def test_a_run_that_was_killed_early_has_a_report(
    tmp_path: Path, steps: int, evals: bool, left: int, make_run: MakeRun
) -> None:
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


def test_a_torn_last_line_costs_that_line_only(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "run", end=None)
    with open(folder / "events.jsonl", "ab") as log:
        log.write(b'{"v": 1, "run": "run", "seq": 9')
    assert "60 of 60" in report(folder).prose


def test_missing_and_odd_numbers_are_left_out(tmp_path: Path, make_run: MakeRun) -> None:
    def odd(step: int, data: dict[str, Any]) -> None:
        data["metrics"]["policy/kl"] = math.nan
        data["metrics"]["policy/entropy"] = None
        data["metrics"]["reward/mean"] = None if step == 60 else data["metrics"]["reward/mean"]
        data["timing"] = {}

    found = report(make_run(tmp_path / "run", change=odd))
    assert found.figures() == FIGURES - {"entropy", "time"}
    assert found.table("movement")[0] == ["step", "policy/clip_low", "policy/clip_high"]
    assert found.table("learning")[-1][1] == ""


def test_a_group_in_which_all_failed_can_be_drawn(tmp_path: Path, make_run: MakeRun, records: Records) -> None:
    folder = make_run(tmp_path / "run")
    write_groups(folder / "groups" / "000061.parquet", 61, records([None] * 100))
    found = report(folder)
    assert "24 of its 100 attempts are shown" in found.prose
    assert len(found.table("group")) == 101


def test_the_report_of_a_long_run_stays_small(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "run", steps=5000)
    found = report(folder)
    assert len(found.text) < 8_000_000
    assert len(found.table("entropy")) == 5001


def test_a_report_that_cannot_be_written_says_why(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "run", steps=1)
    (folder / "report.html").mkdir()
    with pytest.raises(StorageError, match=r"report\.html"):
        write_report(folder)
    assert not list(folder.glob(".*.tmp"))
    with pytest.raises(RunNotFound, match="nowhere"):
        write_report(tmp_path / "nowhere")


def test_reports_need_neither_torch_nor_matplotlib_until_they_draw() -> None:
    code = "import groupwise.reporting.report, sys; print({'torch', 'matplotlib'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_half_characters_end_a_damaged_log_and_do_no_other_harm(tmp_path: Path, make_run: MakeRun) -> None:
    def part(step: int, data: dict[str, Any]) -> None:
        data["metrics"] |= {"reward/part/a": 1.0, "reward/part/b": 2.0}

    folder = make_run(tmp_path / "run", change=part, extra=(("hint", {"message": "HALF", "remedy": "HALF"}),))
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"HALF", b"\\ud800"))
    assert report(folder).figures() == FIGURES | {"parts"}
