"""What a run may use: the limits a caller gives, as the kernel gets them, and what a run's end says."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox import SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.sandbox.limits_and_outcomes import readable

NAMES = ("seconds", "memory_mb", "output_kb", "processes", "calls")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, -0.5, float("inf"), float("nan")])
def test_every_limit_is_finite_and_above_zero(name: str, value: float) -> None:
    wrong: Any = {name: value}
    with pytest.raises(ConfigError, match=rf"limits\.{name} is {value!r}") as caught:
        SandboxLimits(**wrong)
    assert caught.value.field == f"limits.{name}"
    least: Any = {name: 1}
    assert getattr(SandboxLimits(**least), name) == 1


def test_the_usual_limits_are_small() -> None:
    usual = SandboxLimits()
    assert [getattr(usual, name) for name in NAMES] == [1.0, 64, 64, 1, 1000]


@pytest.mark.parametrize(
    ("limits", "packages", "kernel"),
    [
        (SandboxLimits(), 0, {"AS": 160 << 20, "DATA": 80 << 20, "CPU": 3, "FSIZE": 0, "NOFILE": 32}),
        (
            SandboxLimits(seconds=2.9, memory_mb=1, processes=2),
            0,
            {"AS": 97 << 20, "DATA": 17 << 20, "CPU": 4, "FSIZE": 0, "NOFILE": 32, "NPROC": 4},
        ),
        (
            SandboxLimits(seconds=0.1, memory_mb=10, processes=5),
            1 << 30,
            {"AS": 1130 << 20, "DATA": 1050 << 20, "CPU": 2, "FSIZE": 0, "NOFILE": 32, "NPROC": 7},
        ),
    ],
)
def test_the_kernel_gets_bytes_and_whole_seconds(limits: SandboxLimits, packages: int, kernel: dict[str, int]) -> None:
    """Python itself needs 96 MB of addresses and 16 MB of data; the processor's time ends two seconds later."""
    assert limits.of_kernel(packages) == kernel
    assert limits.of_kernel() == limits.of_kernel(0)


def test_words_from_hostile_code_are_short_and_printable() -> None:
    assert readable("a\x1b[2J\nb\té\x00") == "a [2J b é "
    assert [len(readable("x" * count)) for count in (0, 499, 500, 501, 10_000)] == [0, 499, 500, 500, 500]


def test_only_a_run_that_passed_passed() -> None:
    assert [outcome for outcome in SandboxOutcome if SandboxResult(outcome).passed] == [SandboxOutcome.PASSED]
    assert SandboxResult(SandboxOutcome.RAISED) == SandboxResult(SandboxOutcome.RAISED, None, "", "", 0.0, 0)
