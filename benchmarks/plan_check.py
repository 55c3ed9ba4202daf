"""How far `groupwise plan` is from measurements that its rates were not made from.

    python benchmarks/plan_check.py --json

Reads the measurements of `groupwise/language/capacity/measured.toml`; nothing is measured here. `plan_error` is the
largest relative error over those marked "check". They were made on the same kind of GPU as those fitted, one of them by
another trainer, and were known when the formulas were chosen; three new shapes on one GPU have not been tried.
"""

from __future__ import annotations

import argparse

from record import print_result

from groupwise.language.capacity.estimate import predicted
from groupwise.language.capacity.measurements import measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    rows = [
        {
            "use": m.use, "what": m.what, "shape": f"{m.work.shape.layers} × {m.work.shape.width}", "rows": m.work.rows,
            "answer": m.work.answer, "measured": m.value, "predicted": round(predicted(m), 4),
            "error": round(predicted(m) / m.value - 1, 4), "source": m.source,
        }
        for m in measured().measurements
    ]  # fmt: skip
    if not options.json:
        for row in rows:
            numbers = f"{row['measured']:7} {row['predicted']:8} {row['error']:+.1%}"
            print(f"{row['use']:5} {row['what']:6} {numbers}  {row['source']}")
    worst = max(abs(row["error"]) for row in rows if row["use"] == "check")
    print_result(
        "plan_check", {"plan_error": worst}, raw=rows,
        not_run={"three new shapes on one H200": "no GPU was at hand; measure and add them to measured.toml as checks"},
    )  # fmt: skip


if __name__ == "__main__":
    main()
