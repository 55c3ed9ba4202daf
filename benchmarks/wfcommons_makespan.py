"""How near the simulated makespan of recorded runs (WfCommons) comes to the recorded one, without and with overhead.

    python benchmarks/wfcommons_makespan.py --data ../shared/data/wfcommons/instances --json

The error is |simulated − recorded| / recorded: of the tasks alone; with the overhead per task that was calibrated on
the same record, which is near 0 by construction and only shows that the calibration works; and with the median overhead
of the other instances (of the same workflow system where there are at least two), which is a prediction.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.workflows.evaluation.recorded_runs import overhead_per_task, with_overhead
from groupwise.workflows.evaluation.schedule import schedule_design
from groupwise.workflows.files.wfcommons import recorded_makespan
from groupwise.workflows.inspection import open_workflow


def instance_of(path: Path) -> dict[str, Any]:
    recorded = recorded_makespan(path)
    assert recorded is not None, path
    opened = open_workflow(path)
    design, requirements = opened.design(), opened.insist_on_requirements("this benchmark")
    overhead = overhead_per_task(design, requirements, recorded)

    def error(seconds: float) -> float:
        made = schedule_design(design, with_overhead(requirements, seconds))[0].makespan
        return abs(made - recorded) / recorded

    system = json.loads(path.read_bytes()).get("runtimeSystem", {}).get("name", "unknown")
    simulated = schedule_design(design, requirements)[0].makespan
    return {"name": path.stem, "system": system, "recorded": recorded, "simulated": simulated, "overhead": overhead,
            "error": error}  # fmt: skip


def with_errors(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for one in found:
        others = [other for other in found if other is not one]
        alike = [other for other in others if other["system"] == one["system"]]
        guess = statistics.median(other["overhead"] for other in (alike if len(alike) >= 2 else others))
        error = one["error"]
        errors = {"tasks_alone": error(0.0), "calibrated": error(one["overhead"]), "predicted": error(guess)}
        rows.append({**{key: value for key, value in one.items() if key != "error"}, **errors})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/wfcommons/instances"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    paths = sorted(given.data.glob("*.json"))
    if not paths:
        raise SystemExit(f"no instances in {given.data}; name a folder of WfCommons files with --data")
    rows = with_errors([instance_of(path) for path in paths])
    for row in rows:
        print(
            f"{row['name']:46} recorded {row['recorded']:7.0f} s  simulated {row['simulated']:7.1f} s  overhead "
            f"{row['overhead']:6.1f} s  error {row['tasks_alone']:.2f} → {row['calibrated']:.3f}, "
            f"predicted {row['predicted']:.2f}"
        )
    claims = {
        f"median_error_{kind}": statistics.median(row[kind] for row in rows)
        for kind in ("tasks_alone", "calibrated", "predicted")
    }
    if given.json:
        print_result("wfcommons_makespan", claims, raw=rows)
    else:
        print(claims)


if __name__ == "__main__":
    main()
