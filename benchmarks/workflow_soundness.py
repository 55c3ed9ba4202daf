"""Soundness against pm4py and against a second opinion, on nets with one seeded defect and on sound ones.

    python benchmarks/workflow_soundness.py --json
    python benchmarks/workflow_soundness.py --python /path/to/a/venv/bin/python

pm4py is under the AGPL: it is never imported here. It runs in an environment of its own (made anew unless --python
names one) and gets nets as JSON over a pipe. Both sides judge the same nets in turn, one thread each, and only the
check is timed, in seconds of the processor: pm4py's `check_soundness` (WOFLAN) once, ours as the median of five. A net
that pm4py has not decided after --limit seconds counts as undecided, and for the speed as if it had been decided then.

Nets: block designs of 6, 10, 20 and 30 activities, and the graphs of tests/workflows/defects.py with their originals,
as far as they have neither or-joins nor cancellation, which pm4py does not know. Claims: the share of defects found and
of sound graphs passed over all of those graphs, or-joins and cancellation included; how many of these verdicts the
brute force of tests/workflows/oracle.py confirms; agreement with pm4py on the nets it decides, and what brute force
says where the two differ; and how many times faster ours is, on designs of 30 activities and on all nets (medians with
quartiles).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
BLOCKS = ("sequence", "parallel", "choice", "order", "loop")


def serve(limit: float) -> None:
    """Inside the environment of pm4py: a net per line in, a verdict per line out."""
    import signal

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import pm4py
    from pm4py.objects.petri_net.obj import Marking, PetriNet
    from pm4py.objects.petri_net.utils.petri_utils import add_arc_from_to

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, late)
    print(json.dumps({"version": pm4py.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        net = PetriNet()
        places = [PetriNet.Place(f"p{number}") for number in range(given["places"])]
        net.places.update(places)
        for number, (takes, puts) in enumerate(given["transitions"]):
            step = PetriNet.Transition(f"t{number}", f"t{number}")
            net.transitions.add(step)
            for place in takes:
                add_arc_from_to(places[place], step, net)
            for place in puts:
                add_arc_from_to(step, places[place], net)
        start, end = Marking({places[given["source"]]: 1}), Marking({places[given["sink"]]: 1})
        answer: dict[str, Any] = {"sound": None}
        clock = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, limit)
            sound, details = pm4py.check_soundness(net, start, end)
            answer["sound"] = bool(sound)
            answer["words"] = next((str(v[-1]) for k, v in details.items() if "MESSAGES" in str(k) and v), "")
        except TimeoutError:
            pass
        except Exception as error:  # what a peer raises is a result of this comparison
            answer["error"] = f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        answer["seconds"] = time.process_time() - clock
        print(json.dumps(answer), file=answers, flush=True)


class Peer:
    """pm4py in a process of its own."""

    def __init__(self, python: str, limit: float) -> None:
        command = [python, "-W", "ignore", __file__, "--serve", "--limit", str(limit)]
        environment = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.version = self._answer()["version"]

    def judge(self, net: Any) -> dict[str, Any]:
        from groupwise.workflows.partial_orders import bits

        steps = [[bits(step.takes), bits(step.puts)] for step in net.transitions]
        given = {"places": len(net.places), "transitions": steps, "source": net.source, "sink": net.sink}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Sample:
    """A net, where it comes from, and the graph that the second opinion plays."""

    name: str
    net: Any
    graph: Any


def samples(designs: int, count: int) -> Iterator[Sample]:
    from groupwise.workflows.blocks import Design
    from groupwise.workflows.document import to_graph
    from groupwise.workflows.soundness.net import graph_net
    from tests.workflows.designs import random_block
    from tests.workflows.soundness.block_nets import compile_net
    from tests.workflows.soundness.defects import cases

    for size, times in ((6, 4), (10, 1), (20, 1), (30, 1)):
        for seed in range(designs * times):
            block = random_block(random.Random(f"{size}/{seed}"), size, BLOCKS)
            yield Sample(f"blocks of {size}", compile_net(block), to_graph(Design("blocks", block)))
    for case in cases(count):
        for name, graph in ((case.name, case.graph), ("original", case.original)):
            found = graph_net(graph)
            if not found.or_joins and not any(step.clears for step in found.net.transitions):
                yield Sample(name, found.net, graph)


def compare(peer: Peer, limit: float, designs: int, count: int) -> list[dict[str, Any]]:
    from groupwise.workflows.soundness.check import check_soundness

    rows = []
    for sample in samples(designs, count):
        seconds = []
        for _ in range(5):
            clock = time.process_time()
            ours = check_soundness(sample.net)
            seconds.append(time.process_time() - clock)
        theirs = peer.judge(sample.net)
        row = {"name": sample.name, "ours": ours.verdict, "pm4py": theirs["sound"], "error": theirs.get("error", "")}
        row |= {"seconds": statistics.median(seconds), "pm4py_seconds": min(theirs["seconds"], limit)}
        if theirs["sound"] is not None and theirs["sound"] != ours.sound:
            row |= {"rule": ours.rule, "words": theirs["words"], "defects": opinion(sample.graph)}
        rows.append(row)
    return rows


def opinion(graph: Any, limit: int = 5_000) -> list[str] | None:
    """The defects that brute force finds; None where there are too many markings."""
    from tests.workflows.soundness.oracle import TooManyMarkings, defects

    try:
        return sorted(defects(graph, limit))
    except TooManyMarkings:
        return None


def defects_found(count: int, markings: int) -> dict[str, Any]:
    """Verdicts on every seeded defect and every original, and what the second opinion says of them."""
    from groupwise.workflows.soundness.check import check_graph
    from tests.workflows.soundness.defects import cases

    found = cases(count)
    missed = [case.name for case in found if check_graph(case.graph).verdict != "unsound"]
    failed = [case.name for case in found if not check_graph(case.original).sound]
    opinions = [(opinion(case.graph, markings), opinion(case.original, markings)) for case in found]
    broken = [one for one, _ in opinions if one is not None]
    whole = [one for _, one in opinions if one is not None]
    return {
        "graphs": count, "missed": missed, "failed": failed,
        "defects_confirmed": sum(map(bool, broken)), "defects_denied": sum(not one for one in broken),
        "sound_confirmed": sum(not one for one in whole), "sound_denied": sum(map(bool, whole)),
    }  # fmt: skip


def quartiles(values: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4)
    return [low, high]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the Python of an environment that has pm4py")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds that pm4py has for a net")
    parser.add_argument("--designs", type=int, default=30, help="block designs of each size (small: 4 times)")
    parser.add_argument("--graphs", type=int, default=420, help="graphs with a seeded defect")
    parser.add_argument("--markings", type=int, default=1_000, help="markings the second opinion may look at")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    if options.serve:
        serve(options.limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.python is None:
            venv.create(folder, with_pip=True)
            options.python = str(Path(folder) / "bin" / "python")
            subprocess.run([options.python, "-m", "pip", "install", "-q", "pm4py"], check=True, stdout=sys.stderr)
        peer = Peer(options.python, options.limit)
        rows = compare(peer, options.limit, options.designs, options.graphs)
        peer.close()
    report(peer.version, rows, defects_found(options.graphs, options.markings))


def report(version: str, rows: list[dict[str, Any]], seeded: dict[str, Any]) -> None:
    from record import print_result

    decided = [row for row in rows if row["pm4py"] is not None]
    differing = [row for row in decided if row["pm4py"] != (row["ours"] == "sound")]
    ratios = [row["pm4py_seconds"] / row["seconds"] for row in rows]
    thirty = [row["pm4py_seconds"] / row["seconds"] for row in rows if row["name"] == "blocks of 30"]
    told = [row for row in differing if row["defects"] is not None]
    claims = {
        "defects_found": 1 - len(seeded["missed"]) / seeded["graphs"],
        "sound_passed": 1 - len(seeded["failed"]) / seeded["graphs"],
        "second_opinion_denies": seeded["defects_denied"] + seeded["sound_denied"],
        "second_opinion_confirms": seeded["defects_confirmed"] + seeded["sound_confirmed"],
        "pm4py_agreement": 1 - len(differing) / len(decided),
        "pm4py_decided": len(decided) / len(rows),
        "differences": len(differing),
        "differences_told_by_brute_force": len(told),
        "differences_where_brute_force_sides_with_pm4py": sum(bool(row["defects"]) != row["pm4py"] for row in told),
        "soundness_vs_pm4py": statistics.median(thirty),
        "soundness_vs_pm4py_all_nets": statistics.median(ratios),
        "our_microseconds": statistics.median(row["seconds"] for row in rows) * 1e6,
        "pm4py_milliseconds": statistics.median(row["pm4py_seconds"] for row in rows) * 1e3,
        "nets": len(rows),
    }
    intervals = {"soundness_vs_pm4py": quartiles(thirty), "soundness_vs_pm4py_all_nets": quartiles(ratios)}
    raw = {"differing": differing, "seeded": seeded, "errors": [r for r in rows if r["error"]][:20]}
    print_result("workflow_soundness", claims, intervals=intervals, raw=raw, peers={"pm4py": version})


if __name__ == "__main__":
    main()
