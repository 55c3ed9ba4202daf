"""Tests that reward nonsense, or that no program can pass, are found before a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.agents import program_checks
from groupwise.agents.program_checks import STUBS, ProgramTestChecker, mutants
from groupwise.agents.program_reward import ProgramTestReward
from groupwise.agents.program_tasks import ProgramTask, program_task
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.rewards.registry import make_reward
from groupwise.sandbox import Bubblewrap, SandboxLimits, available
from groupwise.types import Task

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)

LIMITS = SandboxLimits(seconds=10, memory_mb=256)
REFERENCE = "def f(x):\n    return 2 * x + 1"
SOUND = "assert f(1) == 3\nassert f(5) == 11"
DATA = next((p for parent in Path(__file__).parents if (p := parent / "shared/data/mbpp/mbpp.jsonl").is_file()), None)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Bubblewrap]:
    with Bubblewrap(workers=2) as opened:
        yield opened


@pytest.fixture
def checker(sandbox: Bubblewrap, tmp_path: Path) -> ProgramTestChecker:
    return ProgramTestChecker(sandbox, LIMITS, tmp_path / "tests.sqlite")


VACUOUS = {
    "# nothing": "they never call the program",
    "def test_a():\n    if 0:\n        f(1)": "its reference solution does not pass: the tests passed without calling",
    "f(1)": "a program that returns None passes its tests",
    "assert f(1) == f(1)": "a program that returns None passes its tests",
    "assert (f(1) == 3, 'it is not 3')": "a program that returns None passes its tests",
    "try:\n    assert f(1) == 3\nexcept AssertionError:\n    pass": "a program that returns None passes",
    "assert f(1) is not None": "a program that returns 0 passes its tests",
    "assert isinstance(f(1), int)": "a program that returns 0 passes its tests",
    "assert f(1) > 2": "a program that returns 1000000 passes its tests",
    "assert f(0) == 1": "a program that returns 1 passes its tests",
    "def test_a():\n    try:\n        assert f(2) == 5\n    except Exception:\n        pass": "returns None passes",
    "import unittest\nclass T(unittest.TestCase):\n    def check(self):\n        self.fail(f(1))\nf(1)": "None passes",
    "assert f(1) == 4": "its reference solution does not pass: a test failed",
    "assert f(1) == 3\nimport os\nos._exit(0)": "the tests cannot be run: they end their own process",
    "import sys\nsys.exit(1)\nassert f(1) == 3": "its reference solution does not pass: the tests exited with status 1",
    "if abs(f(2) - 5) > 1e-6:\n    raise AssertionError": "a program that returns NaN passes its tests",
    "assert f(3) < 10**18 or f(3) > 10**18": "a program that returns 0 passes its tests",
    "assert f(10**20) > 10**20": "a program that returns infinity passes its tests",
    "assert not f(2) >= -(10**20) or f(2) == 5": "a program that returns NaN passes its tests",
    "assert callable(f(1)) or f(1) == 3": "returns an object that agrees with everything passes its tests",
    "assert f(1) == 3 or f(1).is_right(3)": "returns an object that agrees with everything passes its tests",
    "assert f(1) == 3 or len(f(1)) > 20": "a program that returns a long text passes its tests",
    "try:\n    assert f(1) == 3\nexcept KeyError:\n    pass": "a program that raises KeyError passes its tests",
    "try:\n    f(1) + 0\nexcept TypeError:\n    pass\nelse:\n    assert f(1) == 3": "returns None passes",
    "assert f(1 == 3": "the tests cannot be run: SyntaxError",
    "assert f(lambda: 1)": "the tests cannot be run: they pass a function to the code",
}


def test_unsound_tests_are_found_with_the_reason(checker: ProgramTestChecker) -> None:
    tasks = [ProgramTask(tests, "f", reference=REFERENCE) for tests in VACUOUS]
    for (tests, reason), fault in zip(VACUOUS.items(), checker.faults(tasks), strict=True):
        assert reason in fault, (tests, fault)


def test_sound_tests_are_accepted_with_and_without_a_reference(checker: ProgramTestChecker) -> None:
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(5), 11)"
    tasks = [ProgramTask(SOUND), ProgramTask(SOUND, "f", reference=REFERENCE), ProgramTask(case, reference=REFERENCE)]
    assert checker.faults(tasks) == ["", "", ""]


def test_tests_that_miss_every_change_of_the_reference_are_unsound(checker: ProgramTestChecker) -> None:
    cut = (
        "def f(text):\n    words = text.split()\n    if len(words) > 5:\n        words = words[: 5 + 0]\n"
        "    return '-'.join(words)"
    )
    weak = "assert f('a b') == 'a-b'\nassert f('c d e') == 'c-d-e'"
    strong = f"{weak}\nassert f('a b c d e f g') == 'a-b-c-d-e'"
    found = checker.faults([ProgramTask(tests, "f", reference=cut) for tests in (weak, strong)])
    assert found == ["none of 5 wrong versions of its reference solution fails", ""]


def test_a_stub_that_makes_the_tests_hang_is_tried_alone(sandbox: Bubblewrap, tmp_path: Path) -> None:
    brief = ProgramTestChecker(sandbox, replace(LIMITS, seconds=1), tmp_path / "tests.sqlite")
    hangs = "while f(1) == 0:\n    pass\n"
    sound, unsound = (ProgramTask(hangs + tests, "f") for tests in (SOUND, "assert f(1) == 1"))
    assert brief.faults([sound, unsound]) == ["", "a program that returns 1 passes its tests"]


def test_slow_tests_are_not_sound_because_stubs_run_out_of_time(checker: ProgramTestChecker) -> None:
    slow = ProgramTask("import time\ntime.sleep(0.6)\nf(1)", "f")
    checker.patient = replace(LIMITS, seconds=0.1)  # as if 18 stubs took too long together
    assert checker.faults([slow]) == ["a program that returns None passes its tests"]
    checker.limits = checker.patient
    assert checker.faults([replace(slow, tested="")]) == ["its tests exceed the time limit"]


def test_every_stub_can_be_caught(checker: ProgramTestChecker) -> None:
    values = {words: value for words, value in STUBS.items() if "args" not in value and value[0] not in "1_"}
    holds = {"returns NaN": "x != x"}
    tests = [
        f"x = f(7)\nassert ({holds.get(words, f'x == {value}')}) and type(x) is type({value})"
        for words, value in values.items()
    ]
    faults = checker.faults([ProgramTask(text, "f") for text in tests])
    assert faults == [f"a program that {words} passes its tests" for words in values]


def test_stubs_raise_what_the_tests_expect_and_empty_what_they_compare_with(checker: ProgramTestChecker) -> None:
    right = "def f(x):\n    if x < 0:\n        raise ValueError\n    return x"
    only = "import pytest\ndef test_a():\n    with pytest.raises(ValueError):\n        f(-1)"
    case = (
        "from unittest import TestCase\nclass T(TestCase):\n def test_a(self):\n  self.assertRaises(ValueError, f, -1)"
    )
    sound = f"{only}\n    assert f(3) == 3\n    assert f(5) == 5\n    assert f(6) == 6"
    found = checker.faults([ProgramTask(tests, "f", reference=right) for tests in (only, case)])
    assert found == ["a program that raises ValueError passes its tests"] * 2
    kept = ProgramTask("a = [3, 1]\nf(a)\nassert a == sorted(a)", "f", reference="def f(a):\n    a.sort()")
    assert checker.faults([kept]) == ["a program that empties its first argument passes its tests"]
    assert "raises" not in checker.faults([ProgramTask(f"{sound}\n    assert f(0) == 0", "f")])[0]


def test_mutants_are_different_programs_and_the_same_every_time() -> None:
    made = list(mutants(REFERENCE))
    assert made == list(mutants(REFERENCE))
    assert len({*made, REFERENCE}) == len(made) + 1 == 5


def test_verdicts_are_remembered_between_starts(
    sandbox: Bubblewrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [ProgramTask(SOUND, "f", reference=REFERENCE), ProgramTask("f(1)", "f"), ProgramTask("f(1 ==", "f")]
    first = ProgramTestChecker(sandbox, LIMITS, tmp_path / "tests.sqlite")
    found = first.faults(tasks)
    first.close()
    monkeypatch.setattr(sandbox, "run_programs", None)  # calling it would raise
    assert ProgramTestChecker(sandbox, LIMITS, tmp_path / "tests.sqlite").faults(tasks) == found
    with pytest.raises(TypeError):
        ProgramTestChecker(sandbox, replace(LIMITS, seconds=9), tmp_path / "tests.sqlite").faults(tasks)


def test_a_long_check_says_how_long_it_will_take(
    checker: ProgramTestChecker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(program_checks, "PAUSE", 0.0)
    monkeypatch.setattr(program_checks, "CHUNK", 1)
    with caplog.at_level(logging.WARNING):
        checker.faults([ProgramTask(f"assert f({n}) == {2 * n + 1}0", "f") for n in range(2)])
    assert "checked the tests of 1 of 2 tasks, about" in caplog.text


def test_a_missing_package_stops_everything_with_its_name(checker: ProgramTestChecker) -> None:
    with pytest.raises(ConfigError, match="the tests import 'no_such_package'"):
        checker.faults([ProgramTask(SOUND), ProgramTask(f"import no_such_package\n{SOUND}")])


def rows(*tests: str) -> list[dict[str, Any]]:
    return [{"prompt": f"Task {n}: write f.", "tests": text, "solution": REFERENCE} for n, text in enumerate(tests)]


def settings(path: Path, **options: Any) -> TrainingConfig:
    return TrainingConfig.from_dict(
        {
            "product": "language", "environment": str(path), "options": {"check": "none"}, "model_name": "tiny",
            "max_new_tokens": 5, "num_generations": 2, "tasks_per_step": 1, "num_episodes": 1, "eval_episodes": 2,
            "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "threads": 1,
            "output_dir": str(path.parent), "reward": {"name": "program", "options": options},
        }
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "programs.jsonl"


def written(path: Path, some: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in some))
    return path


def test_a_run_leaves_out_unsound_tasks_and_names_them(data: Path) -> None:
    cfg = settings(written(data, rows(*[SOUND] * 18, "f(1)", "# nothing")))
    parts = product.build(cfg)
    (note,) = parts.notes
    assert product.check(cfg) == (note,)
    assert "2 of 20 tasks are left out" in note
    assert f"{data} line 19 (a program that returns None passes its tests)" in note
    assert f"{data} line 20 (the tests cannot be run: they never call the program" in note
    drawn = {parts.source.tasks.make(number).payload.place for number in range(60)}  # type: ignore[attr-defined]
    assert drawn
    assert not drawn & {f"{data} line 19", f"{data} line 20"}
    parts.source.close()


def test_unsound_tasks_are_refused_if_the_settings_say_so(data: Path) -> None:
    cfg = settings(written(data, rows(*[SOUND] * 18, "f(1)")), bad_tests="refuse")
    with pytest.raises(ConfigError, match=r"the tests of 1 of 19 tasks are unsound: .* line 19 \(a program that"):
        product.check(cfg)
    with pytest.raises(ConfigError, match="bad_tests is 'keep'"):
        product.check(settings(data, bad_tests="keep"))


def test_a_run_without_any_sound_task_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match="the reward can use none of the .* tasks of 'programs'"):
        product.check(settings(written(data, rows(*["f(1)"] * 20))))


def test_several_rewards_at_once_leave_out_the_same_tasks(data: Path) -> None:
    tasks = [Task(f"t/{n}", row) for n, row in enumerate(rows(SOUND, "f(1)"))]
    assert set(ProgramTestReward().unfit(tasks)) == {"t/1"}
    both = make_reward("multi_objective", {"components": ["program", "length"]})
    assert set(both.unfit(tasks)) == {"t/1"}  # type: ignore[attr-defined]
    assert data


@pytest.mark.skipif(DATA is None, reason="shared/data/mbpp is not here")
def test_a_share_of_real_tasks_is_sound(checker: ProgramTestChecker) -> None:
    assert DATA is not None
    some = [json.loads(line) for line in DATA.read_text().splitlines()][:60]
    tasks = [program_task(Task("t", row)) for row in some]
    assert all(task.reference and task.tested for task in tasks)
    assert checker.faults(tasks) == [""] * len(tasks)
