"""Would the tests notice a bug? Plant the bugs of `mutants.toml`, one at a time, and run the tests of `make test`.

    python tools/mutants.py --json                   all of them, in a few minutes on an idle machine
    python tools/mutants.py --set 2                  the second set alone
    python tools/mutants.py --only 3,17 --jobs 2     some of them, two at a time

A bug is planted in a temporary copy of the tree, never here. The test that caught it before runs first, then the
likeliest test files: that of the module's own name, those that name the broken function or the module, the rest of the
package, everything else. A bug counts as caught only if the test that fails with it passes without it. Tests marked
`long` are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).parents[1]
# Imported once, before forking: most of the seconds of a short test file.
HEAVY = ("pytest", "hypothesis", "numpy", "torch", "transformers", "numba", "fastapi", "pyarrow.parquet", "safetensors")
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not long")


@dataclass(frozen=True)
class Mutant:
    """A planted bug: `before` becomes `after` in `file`, which breaks something that an input `shows`.

    `caught_by` is a test that once caught it, and is tried first. Each `set` was planted after the tests had been made
    to catch the one before.
    """

    number: int
    file: str
    breaks: str
    shows: str
    before: str
    after: str
    caught_by: str = ""
    set: int = 1

    @property
    def path(self) -> Path:
        return Path("src/groupwise", self.file)


@dataclass(frozen=True)
class Verdict:
    """The test that caught a mutant, or how far the search for one went."""

    mutant: Mutant
    caught_by: str = ""
    files_run: int = 0
    complete: bool = True

    def as_dict(self) -> dict[str, Any]:
        about = {"number": self.mutant.number, "file": self.mutant.file, "breaks": self.mutant.breaks}
        if self.caught_by:
            return {**about, "by": self.caught_by}
        return {**about, "test_files_run": self.files_run, "all_run": self.complete}


def read_mutants(root: Path = ROOT) -> list[Mutant]:
    rows = tomllib.loads((root / "tools" / "mutants.toml").read_text())["mutant"]
    return [Mutant(number, **row) for number, row in enumerate(rows, start=1)]


def misplaced(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Mutants whose original text does not occur exactly once, with what was found instead."""
    faults = []
    for mutant in mutants:
        path = root / mutant.path
        found = path.read_text().count(mutant.before) if path.is_file() else 0
        if found != 1 or mutant.before == mutant.after:
            faults.append(
                f"mutant {mutant.number}: its text occurs {found} times in {mutant.path}, but must occur once"
            )
    return faults


def likeliest_first(mutant: Mutant, root: Path) -> Iterator[list[str]]:
    """All test files, in batches from the likeliest to catch the mutant to the least likely."""
    module = Path(mutant.file).with_suffix("")
    own = Path("tests", module).parent
    dotted = f"groupwise.{module.as_posix().replace('/', '.')}"
    package = dotted.rpartition(".")[0]
    # The function or class around the bug: whoever tests it names it.
    above = (root / mutant.path).read_text().partition(mutant.before)[0]
    around = re.findall(r"^(?:def|class) (\w+)", above, re.MULTILINE)[-1:]

    def points(path: Path) -> int:
        local, text = path.relative_to(root), path.read_text()
        if local == own / f"test_{module.name}.py":
            return 100
        shared = sum(own.is_relative_to(folder) for folder in local.parents)
        named = any(re.search(rf"\b{name}\b", text) for name in around)
        mentioned = dotted in text or f"from {package} import {module.name}\n" in text
        return 8 * shared + 4 * named + 2 * mentioned + (package in text)

    # All but the tests of this tool: they look for the text that a mutant replaces.
    files = [path for path in root.glob("tests/**/test_*.py") if path.name != "test_mutants.py"]
    if mutant.caught_by:
        yield [mutant.caught_by]
    ranked = sorted((-points(path), path.relative_to(root).as_posix()) for path in files)
    for _, batch in groupby(ranked, key=lambda pair: pair[0]):
        yield [path for _, path in batch]


class FirstFailure:
    """A plugin of pytest that remembers the first test that failed."""

    name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.name = self.name or report.nodeid

    pytest_collectreport = pytest_runtest_logreport


def _run_tests(copy: Path, tests: Sequence[str], answer: Any) -> None:
    """In a forked process: run the tests of the copy and send the first that fails; empty if none does."""
    import pytest

    os.setsid()
    os.chdir(copy)
    silence = os.open(copy / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.environ["PYTHONPATH"] = str(copy / "src")
    sys.path.insert(0, str(copy / "src"))
    first = FirstFailure()
    status = pytest.main([*OPTIONS, *tests], plugins=[first])
    # 5: nothing but long tests. Any other status without a failure means that pytest itself could not run.
    if first.name or status in (0, 5):
        answer.put(first.name)


def first_failure(copy: Path, tests: Sequence[str], seconds: float) -> str | None:
    """The first test that fails, or empty; None if that took too long."""
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=_run_tests, args=(copy, tests, answer))
    process.start()
    process.join(max(seconds, 0))
    late = process.is_alive()
    if process.pid is not None:
        # Whatever the tests left running belongs to their process group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
    process.join()
    if late:
        return None
    if answer.empty():
        raise RuntimeError(f"pytest could not run: {(copy / 'tests.log').read_text()[-2000:]}")
    return str(answer.get())


def judged(mutant: Mutant, copy: Path, seconds: float) -> Verdict:
    """Plant the mutant in the copy and look for a test that fails with it and passes without it."""
    end, path = time.monotonic() + seconds, copy / mutant.path
    sound = path.read_text()
    assert sound.count(mutant.before) == 1, f"the tree changed while it was copied: mutant {mutant.number}"
    ran = 0
    for batch in likeliest_first(mutant, copy):
        left = list(batch)
        while left:
            _write(path, sound.replace(mutant.before, mutant.after), mutant.number)
            failed = first_failure(copy, left, end - time.monotonic())
            _write(path, sound, 0)
            if failed is None:
                return Verdict(mutant, files_run=ran, complete=False)
            if not failed:
                break
            if first_failure(copy, [failed], end - time.monotonic()) == "":
                return Verdict(mutant, caught_by=failed)
            # It fails without the mutant too: continue after its file.
            file = failed.partition("::")[0]
            left = left[[name.partition("::")[0] for name in left].index(file) + 1 :]
        ran += sum("::" not in name for name in batch)
    return Verdict(mutant, files_run=ran)


def _write(path: Path, text: str, stamp: int) -> None:
    path.write_text(text)
    # Python compares compiled files by second and size: every version gets a second of its own.
    os.utime(path, (2_000_000_000 + stamp,) * 2)


def copied(root: Path, folder: Path) -> Path:
    """A copy of the tree without what Git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name, follow_symlinks=False)
    return folder


def all_judged(mutants: Sequence[Mutant], jobs: int, seconds: float) -> Iterator[Verdict]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, ThreadPoolExecutor(jobs) as threads:
        copies: Queue[Path] = Queue()
        for job in range(jobs):
            copies.put(copied(ROOT, Path(place, str(job))))

        def one(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                return judged(mutant, copy, seconds)
            finally:
                copies.put(copy)

        yield from threads.map(one, mutants)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--set", type=int, metavar="N", help="plant only the mutants of one set (default: all)")
    parser.add_argument("--only", default="", metavar="N,M", help="the numbers of the mutants to plant (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="how many to try at a time")
    parser.add_argument("--minutes", type=float, default=60.0, help="most time for one mutant")
    given = parser.parse_args()
    say = partial(print, file=sys.stderr, flush=True)
    mutants = read_mutants()
    if faults := misplaced(mutants):
        say(*faults, sep="\n")
        return 2
    wanted = {int(number) for number in given.only.split(",") if number}
    chosen = [m for m in mutants if given.set in (None, m.set) and (not wanted or m.number in wanted)]
    # Before torch starts its threads: tests that fork would hang in them.
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    start, verdicts = time.monotonic(), list[Verdict]()
    for done, verdict in enumerate(all_judged(chosen, given.jobs, 60 * given.minutes), start=1):
        verdicts.append(verdict)
        left = (time.monotonic() - start) / done * (len(chosen) - done) / 60
        what = f"caught by {verdict.caught_by}" if verdict.caught_by else f"SURVIVED {verdict.files_run} test files"
        say(f"{done}/{len(chosen)} mutant {verdict.mutant.number}: {what} (about {left:.0f} min left)")
    found = [verdict.as_dict() for verdict in verdicts]
    report = {
        "mutants": len(chosen),
        "mutants_caught": sum("by" in one for one in found),
        "survived": [one for one in found if "by" not in one],
        "caught": [one for one in found if "by" in one],
    }
    print(json.dumps(report) if given.json else f"{report['mutants_caught']} of {report['mutants']} mutants caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
