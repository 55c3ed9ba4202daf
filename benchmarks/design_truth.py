"""Does a design keep what it promises? Requirements of process owners, designed by us, judged by a referee.

    python benchmarks/design_truth.py --json [--keep FOLDER]

Every requirement of `design_truth_cases` (written by hand, and derived from ../shared/data) is designed with default
settings and written as BPMN and YAWL. `process_referee` simulates both files, and the design made by hand, with seeds
of its own. Claims:

- within_10_percent: the share of designs whose promised cycle time is within 10% of the referee's, in both files
- false_successes: designs with exit status 0 of which `groupwise score` rejects a written file
- legal: the share of requirements for which a design with exit status 0 was found that `faults` calls legal
- not_worse_than_hand: the share of those that the hand-made design does not dominate: better in time or cost (by 2%),
  not worse in the other, and not fewer cases completed
- parallel_found: the share of designs with parallel work, where the hand-made one is parallel and faster

Requirements that cannot be designed are listed under not_run with the reason; they count as not legal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import design_truth_cases as truth
from process_referee import Judged, read_net, simulate
from record import kept, print_result

from groupwise.cli import run
from groupwise.workflows import lift, read_workflow, write_workflow
from groupwise.workflows.blocks import Block, Parallel, PartialOrder, walk
from groupwise.workflows.document import document_of

FORMATS = ("bpmn", "yawl")
CLOSE = 0.1
CLEARLY = 0.02  # by which a design must be better to dominate, because of the referee's noise


def command(*words: object) -> tuple[int, dict[str, Any]]:
    """The exit status and the JSON of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = run([*map(str, words), "--json"])
    return status, json.loads(said.getvalue().splitlines()[-1])


def judge(case: truth.TruthCase, cases: int, seed: int) -> dict[str, Any]:
    """One requirement: what was promised, what the referee and `score` say of the files, and the hand-made design."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        asked = here / "requirements.json"
        asked.write_text(json.dumps(case.requirements))
        files = {name: here / f"design.{name}" for name in FORMATS}
        status, answer = command("design", asked, *(word for file in files.values() for word in ("-o", file)))
        if status not in (0, 1, 2):
            raise SystemExit(f"{case.name} was interrupted (status {status}); start again to go on")
        hand = asdict(_refereed(case, here, cases, seed))
        if status == 2:
            return {"status": status, "said": answer["error"]["message"], "hand": hand}
        files = dict(zip(FORMATS, map(Path, answer["written"]), strict=True))
        design = lift(read_workflow(files["bpmn"]))
        scored = {name: command("score", file, "-r", asked) for name, file in files.items()}
        rejected = [name for name, (bad, told) in scored.items() if bad or told["broken"]]
        found = truth.TruthCase(case.name, case.requirements, design, case.parallel)
        return {
            "status": status,
            "promised": answer["performance"]["cycle_time"],
            "referee": {
                name: asdict(simulate(read_net(file), case.requirements, cases, seed)) for name, file in files.items()
            },
            "rejected": rejected,
            "faults": truth.faults(found),
            "parallel": is_parallel(design.root),
            "hand": hand,
        }


def _refereed(case: truth.TruthCase, folder: Path, cases: int, seed: int) -> Judged:
    path = folder / "hand.bpmn"
    write_workflow(document_of(case.design), path)
    return simulate(read_net(path), case.requirements, cases, seed)


def is_parallel(root: Block) -> bool:
    return any(isinstance(block, Parallel | PartialOrder) for block in walk(root))


def dominates(hand: dict[str, float], ours: dict[str, float]) -> bool:
    """Whether the hand-made design is clearly better in time or cost, not worse in the other, and completes as many."""
    if hand["completed"] < ours["completed"] - CLEARLY:
        return False
    ratios = [hand[name] / ours[name] if ours[name] else 1.0 for name in ("cycle_time", "cost")]
    return max(ratios) <= 1 + CLEARLY / 2 and min(ratios) < 1 - CLEARLY


def claims_of(cases: list[truth.TruthCase], found: dict[str, dict[str, Any]]) -> dict[str, float | int]:
    designed = {name: one for name, one in found.items() if one["status"] in (0, 1)}
    good = {name: one for name, one in designed.items() if one["status"] == 0 and not one["faults"]}
    close = [all(_close(one, name) for name in FORMATS) for one in designed.values()]
    wanted = [name for name in (case.name for case in cases if case.parallel) if name in designed]
    return {
        "requirements": len(found),
        "designed": len(designed),
        "within_10_percent": _share(close),
        "false_successes": sum(one["status"] == 0 and bool(one["rejected"]) for one in designed.values()),
        "legal": len(good) / len(found),
        "not_worse_than_hand": _share([not dominates(one["hand"], one["referee"]["bpmn"]) for one in good.values()]),
        "parallel_found": _share([designed[name]["parallel"] for name in wanted]),
    }


def _close(one: dict[str, Any], name: str) -> bool:
    referee = one["referee"][name]["cycle_time"]
    return bool(abs(one["promised"] - referee) <= CLOSE * referee)


def _share(some: list[bool]) -> float:
    return sum(some) / len(some) if some else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cases", type=int, default=20_000, help="cases that the referee measures")
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--only", nargs="*", help="names of requirements")
    parser.add_argument("--keep", help="folder for what is done, to go on later")
    args = parser.parse_args()
    cases = [*truth.read_cases(), *truth.derived_cases()]
    cases = [case for case in cases if not args.only or case.name in args.only]
    found = {}
    for case in cases:
        found[case.name] = kept(args.keep, case.name, lambda case=case: judge(case, args.cases, args.seed))
        if not args.json:
            print(case.name, json.dumps(found[case.name]), flush=True)
    not_run = {name: one["said"] for name, one in found.items() if one["status"] == 2}
    print_result("design_truth", claims_of(cases, found), seeds=[args.seed], raw=found, not_run=not_run)


if __name__ == "__main__":
    main()
