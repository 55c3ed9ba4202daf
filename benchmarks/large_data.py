"""What does a second start on a large data file cost?

    python benchmarks/large_data.py --json

A file of a million rows is made; then a process finds its problems, checks the prompts for the tiny model and draws
one; then another does the same. Claims, of each process and with its imports: `first_seconds` and `second_seconds` of
processor time, `first_mb` and `second_mb` of memory at most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from record import print_result

START = """
import json, resource, sys, time
from pathlib import Path
from groupwise.agents.data.dataset import find_data
from groupwise.agents.language_product import check_listed
from groupwise.language.tiny import tiny_model

problems = find_data(Path(sys.argv[1]), {"check": "number"})
_, tokenizer = tiny_model()
check_listed(problems, tokenizer, 2048)
drawn = problems.training(3, 7).text
print(json.dumps([drawn, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sums.jsonl"
        with path.open("w") as file:
            for n in range(options.rows):
                prompt = f"What is {n} plus {n % 97}? Explain in a word."
                file.write(json.dumps({"prompt": prompt, "answer": str(n + n % 97)}) + "\n")
        own = {**os.environ, "XDG_CACHE_HOME": folder, "OMP_NUM_THREADS": "1"}
        starts = [
            json.loads(subprocess.check_output([sys.executable, "-c", START, str(path)], env=own)) for _ in range(2)
        ]
    assert starts[0][0] == starts[1][0]
    claims = {
        f"{which}_{unit}": start[place]
        for which, start in zip(("first", "second"), starts, strict=True)
        for unit, place in (("seconds", 1), ("mb", 2))
    }
    if not options.json:
        for name, value in claims.items():
            print(f"{name}: {value:.1f}")
    print_result("large_data", {**claims, "rows": options.rows})


if __name__ == "__main__":
    main()
