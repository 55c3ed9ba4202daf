"""What a run survives: every single write, rename and sync of it killed, out of space or failing; every file damaged.

    python benchmarks/faults.py --json
    python benchmarks/faults.py --json --products control service --points 40      # a share of a minute or two

For a short run of each product, and for a job of the service, a preloaded library (faults.c) counts every call that
changes a file of the run, also those that SQLite, torch and safetensors make below Python. At each such point

    kill      the process gets SIGKILL, after half of the bytes where it is a write
    nospace   half of the bytes are written, and from then on the disk is full (ENOSPC)
    failure   the call fails once (EIO)

and then the run is resumed on a healthy disk. Every file that lies there when the last event has been written is also
damaged, one at a time: `missing`, `empty`, `cut` in half, and a bit flipped in the first, the middle and the last byte
(`flip`). Damage that finds nothing to damage is counted apart, as `not_tried`.

A case is survived if the run ends bit for bit like one that was never disturbed (weights, whole checkpoints, steps,
evaluations, hints, groups, memory), or if it is refused in one plain sentence and nothing is lost. A damaged record
(a file of groups, the log, a found program) may itself be missing in the end. Every process is forked from one that
has imported everything and run each product once. About half an hour of processor time.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ACTIONS = {"kill": 1, "nospace": 2, "failure": 3}
DAMAGES = ("missing", "empty", "cut", "flip first", "flip middle", "flip last")
NAMES = ("control", "language", "agent", "designer", "programs", "service")
PATIENCE = 1800  # seconds; only what hangs takes this long, on the busiest machine
NOT_TRIED = "nothing to damage"
JOB = re.compile(r"(?<=jobs/)[^./]+")  # a job's files are named by an id that is drawn anew
# Records, and checkpoints that a newer one makes superfluous: damaged, they may stay so, and cost nothing else.
RECORDS = ("runs/run/groups/", "runs/run/events.jsonl", "runs/run/checkpoints/", "programs/")
# Written anew by every attempt.
DERIVED = ("status.json", "env.json", "lock", "events.jsonl", "config.toml", "control.jsonl")


@dataclass(frozen=True)
class Case:
    """One disturbance: an action at a point, or a damage of a file after a kill at that point."""

    product: str
    action: str
    at: int
    where: str
    damage: str = ""

    @property
    def kind(self) -> str:
        return "damage" if self.damage else self.action

    def __str__(self) -> str:
        return f"{self.product}: {self.damage or self.action} at {self.where} (point {self.at})"


@dataclass(frozen=True)
class Calm:
    """What an undisturbed run does and ends with."""

    points: tuple[tuple[str, str], ...]
    facts: dict[str, Any]
    late: int  # the point of its last event: all of its files are there, and it is not over
    files: tuple[str, ...]  # at that point
    unseen: tuple[str, ...]


def preload() -> str | None:
    """Start this program again with the library preloaded; returns why that is not possible, or None when it is."""
    from fault_scenarios import build_library

    if os.environ.pop("LD_PRELOAD", "").endswith("faults.so"):
        return None
    library = Path(tempfile.mkdtemp()) / "faults.so"
    problem = build_library(Path(__file__).with_name("faults.c"), library)
    if problem is None:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": str(library)})
    return problem


def forked(work: Callable[[], int], folder: Path, arm: Sequence[Any] = ()) -> tuple[int, str]:
    """Work in a forked child in `folder`: its status (negative: a signal), and what it printed."""
    from fault_scenarios import leave

    said = folder.with_suffix(".out")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        with open(said, "wb") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
        signal.alarm(PATIENCE)
        if arm:
            at, action, log = arm
            ctypes.CDLL(None).faults_arm(os.fsencode(folder), ctypes.c_long(at), action, log)
        leave(work)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, said.read_text(errors="replace")


def undisturbed(product: str, base: Path) -> Calm:
    """Run the scenario twice: once to count its points, once to see that it always ends the same."""
    from fault_scenarios import SCENARIOS, facts

    scenario, seen = SCENARIOS[product], []
    for number in range(2):
        folder = base / f"{product}-calm-{number}"
        folder.mkdir()
        log = os.open(folder.with_suffix(".points"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        status, said = forked(lambda: scenario.begin(scenario.settings), folder, (0, 0, log))
        os.close(log)
        if status:
            raise SystemExit(f"{product}: the undisturbed run failed: {said[-2000:]}")
        seen.append(facts(folder))
    if seen[0] != seen[1]:
        raise SystemExit(f"{product}: two undisturbed runs differ in {differences(*seen)}")
    points = [line.split("\t") for line in folder.with_suffix(".points").read_text().splitlines()]
    written = {path[1:] for _, _, _, path in points}
    unseen = tuple(f for f in files_in(folder) if not {f, *map(str, Path(f).parents)} & written)
    # A service's last event is its last word on the job.
    call, file = ("fdatasync", "service.sqlite-wal") if product == "service" else ("pwrite64", "events.jsonl")
    late = max(n for n, point in enumerate(points, 1) if point[1] == call and point[3].endswith(file))
    folder = base / f"{product}-late"
    folder.mkdir()
    forked(lambda: scenario.begin(scenario.settings), folder, (late, ACTIONS["kill"], -1))
    files = tuple(JOB.sub("*", name) for name in files_in(folder))
    return Calm(tuple((call, path) for _, call, _, path in points), seen[0], late, files, unseen)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def cases_of(product: str, calm: Calm) -> Iterator[Case]:
    for action in ACTIONS:
        for number, (call, path) in enumerate(calm.points, 1):
            yield Case(product, action, number, f"{call} {path}")
    for name in calm.files:
        for damage in DAMAGES:
            yield Case(product, "kill", calm.late, name, damage)


def survived(case: Case, calm: Calm, base: Path) -> str | None:
    """None if the case is survived, else what went wrong."""
    from fault_scenarios import SCENARIOS, facts

    scenario, folder = SCENARIOS[case.product], base / f"case-{os.getpid()}"
    folder.mkdir()
    try:
        arm = (case.at, ACTIONS[case.action], -1)
        status, said = forked(lambda: scenario.begin(scenario.settings), folder, arm)
        if problem := plainness(status, said):
            return f"at the fault: {problem}"
        if case.damage and not any([do_damage(path, case.damage) for path in folder.glob(case.where)]):
            return NOT_TRIED
        before = contents(folder, case)
        status, said = forked(lambda: scenario.recover(scenario.settings), folder)
        if problem := plainness(status, said):
            return f"afterwards: {problem}"
        if status not in (0, 1, 2):
            return f"afterwards: status {status}: {said[-300:]}"
        if status and "has finished its" not in said:
            lost = before - contents(folder, case)
            if not case.damage:
                return f"refused: {said[:300]}"
            return f"refused, and lost {len(lost)} files: {said[:300]}" if lost else None
        found = facts(folder)
        differ = [name for name in differences(found, calm.facts) if not excused(name, case, found, calm)]
        return f"differs in {', '.join(differ[:5])}" if differ else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for left in (".out", ".json"):
            folder.with_suffix(left).unlink(missing_ok=True)


def plainness(status: int, said: str) -> str | None:
    """What is not plain about the end of a command."""
    if status == -signal.SIGALRM:
        return f"still busy after {PATIENCE} s"
    if "Traceback" in said or "Internal error" in said:
        return said[-400:]
    if status > 0 and sum(line.startswith("error: ") for line in said.splitlines()) < 1:
        return f"status {status} without a sentence: {said[-300:]}"
    return None


def excused(name: str, case: Case, found: dict[str, Any], calm: Calm) -> bool:
    """Whether a difference is only that of the damaged record itself, or one sound checkpoint more than the limit."""
    if name.startswith("runs/run/checkpoints/") and name not in calm.facts and len(found[name]) == 64:
        return True
    record = name.partition(":")[0]
    return bool(case.damage) and case.where.startswith(record) and record.startswith(RECORDS)


def contents(folder: Path, case: Case) -> set[str]:
    """Hashes of the files whose loss would cost something, wherever they lie now."""
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in DERIVED and not path.name.endswith((".tmp", "-shm", "-wal", ".lock"))
        and not path.relative_to(folder).match(case.where) and path.parent.name != "jobs" and path.suffix != ".sqlite"
    }  # fmt: skip


def do_damage(path: Path, damage: str) -> bool:
    """Damage one file; false if it is not there, or if there is nothing to damage."""
    if not path.is_file() or (damage != "missing" and not path.stat().st_size):
        return False
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage in ("empty", "cut"):
        os.truncate(path, len(content) // 2 if damage == "cut" else 0)
    else:
        content[{"flip first": 0, "flip middle": len(content) // 2, "flip last": -1}[damage]] ^= 1
        path.write_bytes(content)
    return True


def judge(
    cases: Sequence[Case], calms: dict[str, Calm], base: Path, jobs: int, minutes: float
) -> dict[Case, str | None]:
    """Every case in a process of its own, `jobs` at a time, for as long as `minutes` allow."""
    from fault_scenarios import leave

    found: dict[Case, str | None] = {}
    running: dict[int, tuple[Case, Path]] = {}
    waiting, began = list(reversed(cases)), time.monotonic()
    while waiting or running:
        if time.monotonic() - began > 60 * minutes:
            waiting = []
        while waiting and len(running) < jobs:
            case, answer = waiting.pop(), base / f"answer-{len(found) + len(running)}-{len(waiting)}"
            child = os.fork()
            if child == 0:
                leave(partial(write_answer, case, calms[case.product], base, answer))
            running[child] = (case, answer)
        child, status = os.wait()
        case, answer = running.pop(child)
        try:
            found[case] = json.loads(answer.read_text())
            answer.unlink()
        except (OSError, ValueError):
            found[case] = f"the benchmark itself failed, status {status}"
        if found[case] not in (None, NOT_TRIED):
            print(f"{case}: {found[case]}", file=sys.stderr, flush=True)
        progress(len(found), len(cases), began)
    return found


def write_answer(case: Case, calm: Calm, base: Path, answer: Path) -> int:
    answer.write_text(json.dumps(survived(case, calm, base)))
    return 0


def progress(done: int, total: int, began: float) -> None:
    every = 1 if sys.stderr.isatty() else 100
    if done % every and done < total:
        return
    left = (time.monotonic() - began) / done * (total - done)
    end = "\r" if sys.stderr.isatty() and done < total else "\n"
    print(f"{done} of {total} cases, about {left / 60:.0f} minutes left", end=end, file=sys.stderr, flush=True)


def warm_up(base: Path, products: Sequence[str]) -> None:
    """Import everything, and run each product once in this process, so that a forked one loses no time."""
    from fault_scenarios import SCENARIOS, START, WARM_START, train

    here = Path.cwd()
    for name, settings in [("start", WARM_START), *((name, SCENARIOS[name].settings) for name in products)]:
        if name == "service" or (name == "start" and "language" not in products):
            continue
        (base / name).mkdir()
        os.chdir(base / name)
        print(f"warming up: {name}", file=sys.stderr, flush=True)
        if train(settings):
            raise SystemExit(f"{name}: the first run failed")
        if name == "start":
            os.environ[START] = str(base / "start" / "runs" / "run")
    os.chdir(here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--faults", nargs="+", choices=(*ACTIONS, "damage"), default=(*ACTIONS, "damage"))
    parser.add_argument("--points", type=int, help="try only that many cases, drawn at random")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no case after that many minutes")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    asked = parser.parse_args()
    problem = preload()
    from record import print_result

    if problem is not None:
        print_result("faults", {"points": 0, "survived": 0}, not_run={"all": problem})
        return
    # In memory where possible: what is judged is the order of the calls, not the disk.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="faults-", dir=shared)).resolve()
    try:
        warm_up(base, asked.products)
        calms = {product: undisturbed(product, base) for product in asked.products}
        cases = [
            case for product, calm in calms.items() for case in cases_of(product, calm) if case.kind in asked.faults
        ]
        # In a random order: the time left is then known early, and a part of them is a fair sample.
        random.Random(asked.seed).shuffle(cases)
        found = judge(cases[: asked.points], calms, base, asked.jobs, asked.minutes)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    tried = {case: problem for case, problem in found.items() if problem != NOT_TRIED}
    failures = [f"{case}: {problem}" for case, problem in tried.items() if problem]
    kinds = Counter(f"{case.product} {case.kind}" for case in tried)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print_result(
        "faults",
        {
            "points": len(tried),
            "points_in_all": len(cases),
            "not_tried": len(found) - len(tried),
            "survived": len(tried) - len(failures),
            "calls": {product: len(calm.points) for product, calm in calms.items()},
            "unseen_files": {product: calm.unseen for product, calm in calms.items() if calm.unseen},
            "cpu_minutes": round(sum(use.ru_utime + use.ru_stime for use in used) / 60, 1),
        },
        seeds=[asked.seed],
        raw={"cases": dict(kinds), "failures": failures},
    )


if __name__ == "__main__":
    main()
