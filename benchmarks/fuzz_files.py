"""Every reader of foreign files against damaged and hostile ones: it reads them or refuses them in one sentence.

    python benchmarks/fuzz_files.py --json --minutes 30
    python benchmarks/fuzz_files.py --cases 500 --seed 1        # always the same cases

Samples are made with the package's own writers, then damaged (`file_mutations.py`): in their structure, in their bytes,
or replaced by something hostile, such as a pipe or a bomb. Each case runs in a child, forked from a process that has
imported everything, with 10 seconds of processor time and 1 GiB of address space beyond what it begins with. A case
fails if the reader raises anything but a `GroupwiseError`, exceeds a limit, or hangs. `--keep` stores failing inputs.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from file_mutations import SPECIAL, SPECIAL_OF, mutated
from record import print_result
from sample_files import READERS, FileReader

from groupwise.errors import GroupwiseError

SECONDS = 10
MEMORY = 1 << 30
# Seconds on the clock: a child that waits for ever uses no processor time.
PATIENCE = 300
LONGEST_MESSAGE = 3000


@dataclass
class Tally:
    """What the cases of one reader came to."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        found = {"cases": self.cases, "read": self.read, "refused": self.refused}
        return {**found, "failures": len(self.failures), "slowest_cpu_seconds": round(self.slowest, 2)}


def read_in_child(reader: FileReader, path: Path) -> tuple[str, str, float]:
    """Read in a forked child: the outcome ("read", "refused" or why it failed), what was said, processor seconds."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _read(reader, path, theirs)
    os.close(theirs)
    said, status, used = _outcome(child, ours)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        outcome = {signal.SIGXCPU: "over 10 s of processor", signal.SIGALRM: "hangs"}.get(number, f"signal {number}")
        return outcome, outcome, used
    outcome, message = pickle.loads(said) if said else ("ended", "without a word")  # noqa: S301
    return outcome, message, used


def _read(reader: FileReader, path: Path, pipe: int) -> None:
    """The child's life."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The default ends the process even inside C code.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(path.parent)
    try:
        reader.read(path)
        told = ("read", "")
    except GroupwiseError as error:
        told = _judged(error)
    except MemoryError:
        told = ("over 1 GiB", traceback.format_exc()[-2000:])
    except BaseException as error:
        told = (f"raises {type(error).__name__}", traceback.format_exc()[-3000:])
    os.write(pipe, pickle.dumps(told)[:60_000])
    os._exit(0)


def _judged(error: GroupwiseError) -> tuple[str, str]:
    message = str(error)
    if "Internal error" in message or "Traceback" in message:
        return "internal error", message[:LONGEST_MESSAGE]
    if len(message) > LONGEST_MESSAGE:
        return "message too long", message[:LONGEST_MESSAGE]
    return "refused", message


def _outcome(child: int, pipe: int) -> tuple[bytes, int, float]:
    with os.fdopen(pipe, "rb") as file:
        said = file.read()
    _, status, usage = os.wait4(child, 0)
    return said, status, usage.ru_utime + usage.ru_stime


def damaged(rng: random.Random, sample: Path, place: Path, kind: str = "") -> tuple[Path, str]:
    """A damaged copy of a sample, which is a file or a folder, and what was done to it.

    `kind` names a hostile file to put in the place of one of its files; without it, one in twelve cases gets one.
    """
    target = place / sample.name
    if sample.is_dir():
        shutil.copytree(sample, target)
        # The files of a folder that its reader would miss, each as likely as the others.
        chosen = rng.choice(sorted(path for path in target.rglob("*") if path.is_file()))
    else:
        shutil.copyfile(sample, target)
        chosen = target
    if kind or rng.random() < 0.08:
        known = {**SPECIAL, **SPECIAL_OF.get(chosen.suffix, {})}
        kind = kind or rng.choice(sorted(known))
        chosen.unlink()
        known[kind](chosen)
        return target, f"{chosen.relative_to(place)}: {kind}"
    content = mutated(rng, chosen)
    chosen.write_bytes(content)
    return target, f"{chosen.relative_to(place)}: mutated"


def fuzz(seed: int, cases: int, minutes: float, only: str, keep: Path | None, scratch: Path) -> dict[str, Tally]:
    """Run `cases` cases, or cases for some minutes; every reader gets the same number of them.

    Cases by the clock begin with every hostile file for every reader.
    """
    chosen = [reader for reader in READERS if only in reader.name]
    samples = {reader.name: reader.samples(scratch) for reader in chosen}
    _insist_on_sound(chosen, samples)
    # What exists now is shared with all children and never collected there.
    gc.collect()
    gc.freeze()
    tallies = {reader.name: Tally() for reader in chosen}
    end = time.monotonic() + 60 * minutes
    number = 0
    hostile = [] if cases else sorted(SPECIAL, reverse=True)
    while number < cases if cases else time.monotonic() < end or hostile:
        reader = chosen[number % len(chosen)]
        kind = hostile[-1] if hostile else ""
        one(seed, number, reader, samples[reader.name], tallies[reader.name], keep, scratch, kind)
        number += 1
        if hostile and number % len(chosen) == 0:
            hostile.pop()
    return tallies


def _insist_on_sound(readers: list[FileReader], samples: dict[str, list[Path]]) -> None:
    """A sample that its reader refuses would hide what damage does."""
    for reader in readers:
        for sample in samples[reader.name]:
            outcome, message, _ = read_in_child(reader, sample)
            if outcome != "read":
                print(f"the sample {sample} of {reader.name} is not sound: {outcome}: {message}", file=sys.stderr)
                raise SystemExit(2)


def one(
    seed: int, number: int, reader: FileReader, samples: list[Path], tally: Tally, keep: Path | None, scratch: Path,
    kind: str = "",
) -> None:  # fmt: skip
    rng = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        path, done = damaged(rng, rng.choice(samples), Path(folder), kind)
        outcome, message, used = read_in_child(reader, path)
        tally.cases += 1
        tally.slowest = max(tally.slowest, used)
        if used > SECONDS:  # with its own children, which the limit of one process does not count
            outcome = message = "over 10 s of processor"
        if outcome in ("read", "refused"):
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            return
        tally.failures.append(f"case {number}: {done}: {outcome}\n{message}")
        if keep is not None:
            _keep(path, keep / f"{reader.name}-{number}", tally.failures[-1])


def _keep(path: Path, place: Path, told: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "outcome.txt").write_text(told, "utf8", "replace")
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, place / path.name, symlinks=True, dirs_exist_ok=True, copy_function=_copy)
    else:
        _copy(path, place / path.name)


def _copy(source: Any, target: Any) -> None:
    if os.path.isfile(source):
        shutil.copyfile(source, target)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--cases", type=int, default=0, help="stop after so many cases, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers whose name contains this")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that failed")
    parser.add_argument("--json", action="store_true", help="print the result only, as one JSON object")
    given = parser.parse_args(words)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        tallies = fuzz(given.seed, given.cases, given.minutes, given.only, given.keep, Path(scratch))
    failures = [told for tally in tallies.values() for told in tally.failures]
    if not given.json:
        for name, tally in tallies.items():
            print(f"{name:22} {json.dumps(tally.as_dict())}")
        print(*failures, sep="\n\n")
    kinds = Counter(told.splitlines()[0].rpartition(": ")[2] for told in failures)
    print_result(
        "fuzz_files",
        {"cases": sum(tally.cases for tally in tallies.values()), "failures": len(failures)},
        seeds=[given.seed],
        raw={
            "readers": {name: tally.as_dict() for name, tally in tallies.items()},
            "kinds": kinds,
            "failures": [told[:1000] for told in failures],
        },
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
