"""The report: whole, self-contained and safe, whatever is left of a run."""

import base64
import csv
import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import RunNotFound, StorageError
from groupwise.reporting.history import History
from groupwise.reporting.report import (
    _advice,
    _again,
    _errors,
    _facts,
    _flat,
    _samples,
    _settings,
    _texts,
    short_text,
    shown,
    write_report,
)
from groupwise.training.group_files import write_groups
from groupwise.training.hints import WARMUP
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


def test_the_mismatch_of_a_sampler_is_drawn(tmp_path: Path, make_run: MakeRun) -> None:
    def sampled(step: int, data: dict[str, Any]) -> None:
        data["metrics"] |= {"sampler/ratio_gap": 0.03, "sampler/corrected_gap": 0.001, "sampler/kl": 0.002}

    found = report(make_run(tmp_path / "run", change=sampled))
    assert found.figures() == FIGURES | {"sampler"}
    assert found.table("sampler")[0] == ["step", "sampler/ratio_gap", "sampler/corrected_gap", "sampler/kl"]


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


# Parts of the page, by hand.


def told(part: str) -> str:
    """The words of a part of the page, with single spaces."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", part))).strip()


def history_of(**evals: Any) -> History:
    """A run with these evaluation rewards by step, `e0=1.0`."""
    return History(
        run="pole", evals={int(name[1:]): {"metrics": {"eval/reward_mean": value}} for name, value in evals.items()}
    )


@pytest.mark.parametrize(
    ("evals", "best"),
    [
        ({"e0": 1.0, "e10": 5.0, "e20": 3.0}, "5 at step 10"),
        ({"e0": 5.0, "e10": 1.0}, "5 at step 0"),
        ({"e0": 2.0, "e10": 2.0}, "2 at step 10"),
        ({"e0": -3.0, "e10": -9.0}, "-3 at step 0"),
        ({}, None),
    ],
)
def test_the_best_evaluation_is_the_highest_and_of_equals_the_last(evals: dict[str, float], best: str | None) -> None:
    said = told(_facts(history_of(**evals)))
    assert (f"Best evaluation {best}" in said) if best else ("Best evaluation" not in said)


def test_facts_tell_how_far_the_run_got_and_what_it_took() -> None:
    history = history_of()
    history.steps = {7: {"totals": {"samples": 12_345.0, "attempts": 678.0}}}
    history.times = {1: (100.0, 160.0), 2: (500.0, 505.0)}
    assert told(_facts(history)).startswith("Ended Not ended: running or interrupted Steps 7 Time 1 min 5 s")
    history.total_steps, history.end = 9, {"reason": "target_reached"}
    said = told(_facts(history))
    assert said.startswith("Ended Reached the target Steps 7 of 9 Time 1 min 5 s Samples 12,345 Attempts 678")


@pytest.mark.parametrize(("step", "total", "longer"), [(10, 10, "=20"), (9, 10, None), (12, 10, "=24"), (5, 0, "=10")])
def test_only_a_run_at_its_end_needs_a_larger_budget_to_go_on(step: int, total: int, longer: str | None) -> None:
    history = History(run="pole", steps={step: {}}, total_steps=total, env={"command": "groupwise train a b.toml"})
    said = told(_again(history, Path("runs/my run")))
    assert "Started with groupwise train a b.toml Resume" in said
    asked = "groupwise resume 'runs/my run'" + (f" --set training.num_episodes{longer}" if longer else "")
    assert f"{asked} Repeat the run groupwise train 'runs/my run/config.toml' --set run.run_name=null" in said
    assert "Started with" not in told(_again(History(), Path("runs/x")))


def answered(step: int, *samples: dict[str, Any]) -> dict[int, Any]:
    return {step: {"samples": list(samples)}}


def test_answers_to_the_same_questions_stand_side_by_side() -> None:
    first = answered(0, {"prompt": "1+1", "text": "3", "expected": "2", "correct": False})
    middle = answered(5, {"prompt": "1+1", "text": "never shown", "expected": "2", "correct": False})
    last = answered(
        10,
        {"prompt": "1+1", "text": "2", "expected": "2", "correct": True, "reasoning": "hm"},
        {"prompt": "new", "text": "free", "correct": None},
    )
    part = _samples(History(evals={**first, **middle, **last}))
    assert told(part).startswith("What it answered, before and after")
    rows = [told(row) for row in part.split("<tr>")[1:]]
    assert rows == ["Question Right answer Step 0 Step 10", "1+1 2 ✗ 3 ✓ 2 Thought hm", "new free"]
    assert (part.count("class=right"), part.count("class=wrong")) == (1, 1)
    once = _samples(History(evals=first))
    assert told(once).startswith("What it answered Greedy")
    assert told(once).count("Step") == 1
    assert _samples(History()) == ""


def test_settings_that_differ_are_told_apart_from_all_settings() -> None:
    config = TrainingConfig(learning_rate=0.123, num_episodes=77).to_dict()
    differ, everything, _ = _settings(History(config=config, env={"python": "3.11"})).split("<details")[1:]
    assert "optim.learning_rate" in differ
    assert "0.123" in differ
    assert "training.num_episodes" in differ
    assert "run.seed" not in differ
    assert "run.seed" in everything
    assert "python" in told(_settings(History(config=config, env={"python": "3.11"})))


def test_nested_settings_become_dotted_names() -> None:
    values = {"a": {"b": 1, "c": {"d": None}}, "e": [1, "x"], "f": (), "g": True}
    assert _flat(values) == [("a.b", "1"), ("a.c.d", "null"), ("e", "1, x"), ("f", ""), ("g", "True")]


@pytest.mark.parametrize(("length", "cut"), [(0, False), (400, False), (401, True)])
def test_long_answers_are_cut_for_the_page(length: int, cut: bool) -> None:
    assert short_text("x" * length) == "x" * min(length, 400) + ("…" if cut else "")
    assert short_text(None) == ""
    assert [shown(value) for value in (None, float("nan"), 0.0, 1234.5)] == ["–", "–", "0", "1,234"]


def test_a_group_of_texts_is_shown_with_its_question_and_scores() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "1+1", "text": "2", "total": 1.0, "advantage": 0.5, "reasoning": "easy"},
        {"prompt": "1+1", "text": "3", "total": None, "advantage": -0.5},
    ]
    said = told(_texts(rows))
    assert said == "Question: 1+1 Score Advantage Answer 1 0.5 2 Thought easy – -0.5 3"
    assert _texts([{"total": 1.0}, {"text": ""}]) == ""


@pytest.mark.parametrize(("steps", "calm"), [(WARMUP, "Too few steps to judge."), (WARMUP + 1, "Nothing suspicious.")])
def test_without_hints_a_run_of_enough_steps_is_called_calm(steps: int, calm: str) -> None:
    history = History(steps={steps: {"metrics": {"reward/mean": 1.0}}})
    assert calm in told(_advice(history))
    history.hints = [(3, {"message": "Too <fast>.", "traceback": "line one\nline two"})]
    said = told(_advice(history))
    assert "step 3 Too <fast>. line one line two" in said
    assert calm not in said


def test_every_error_of_a_run_is_told_with_its_hint() -> None:
    history = History(errors=[{"message": "disk full", "hint": "Free some space."}, {}])
    assert told(_errors(history)) == "What went wrong disk full Free some space. unknown error"
    assert _errors(History()) == ""
