"""How far `groupwise plan` is from measurements that its rates were not made from.

    python benchmarks/plan_check.py --json                       # those of groupwise/language/capacity/measured.toml
    python benchmarks/plan_check.py --rows rows.json --json      # those that plan_measure.py wrote

Nothing is measured here. `plan_error` is the largest relative error of the seconds of a step (generation and update)
over the rows marked "check"; `decode_error`, `update_error` and `memory_error` are those of its parts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.language.capacity.estimate import predicted
from groupwise.language.capacity.rates import Measurement, measured, measurement

PARTS = ("decode", "update", "memory")
ABOUT = ("use", "shape", "tasks", "group", "prompt", "answer", "micro_batch", "checkpointing", "lora_rank")


def given(path: Path) -> list[Measurement]:
    """The rows that plan_measure.py printed."""
    rows = json.loads(path.read_text())["raw"]["rows"]
    return [
        measurement({name: row[name] for name in (*ABOUT, *PARTS)} | {"device": "h200", "source": path.name})
        for row in rows
    ]


def compared(m: Measurement) -> dict[str, Any]:
    found, work = predicted(m), m.work
    shape = f"{work.shape.layers} × {work.shape.width}"
    row: dict[str, Any] = {"use": m.use, "shape": shape, "rows": work.rows, "answer": work.answer}
    row |= {"lora_rank": work.lora_rank, "checkpointing": work.checkpointing}
    given = {name: value for name in PARTS if (value := getattr(m, name)) is not None}
    for name, value in given.items():
        row[name] = [value, round(found[name], 3)]
        row[f"{name}_error"] = round(found[name] / value - 1, 4)
    if "decode" in given and "update" in given:
        row["plan_error"] = round((found["decode"] + found["update"]) / (given["decode"] + given["update"]) - 1, 4)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="a file that plan_measure.py wrote")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    rows = [compared(m) for m in (given(options.rows) if options.rows else measured().measurements)]
    if not options.json:
        for row in rows:
            print(row)
    checks = [row for row in rows if row["use"] == "check"]
    names = ("plan_error", *(f"{name}_error" for name in PARTS))
    claims = {name: max(abs(row[name]) for row in checks if name in row) for name in names} if checks else {}
    print_result("plan_check", claims, raw=rows, not_run={} if checks else {"plan_error": "no row is marked check"})


if __name__ == "__main__":
    main()
