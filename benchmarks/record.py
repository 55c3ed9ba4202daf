"""The one shape of a benchmark's result: a JSON object, printed last."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.training.machine import describe_machine, source_commit


def print_result(
    name: str,
    claims: Mapping[str, Any],
    *,
    seeds: Sequence[int] = (),
    intervals: Mapping[str, Sequence[float]] | None = None,
    peers: Mapping[str, str] | None = None,
    raw: Any = None,
    not_run: Mapping[str, str] | None = None,
) -> None:
    machine = describe_machine()
    result = {
        "v": 1,
        "name": name,
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": source_commit(),
        "machine": {
            "cpus": machine["cpus"],
            "cpu": platform.processor() or platform.machine(),
            "python": machine["python"],
        },
        "peers": dict(peers or {}),
        "seeds": list(seeds),
        "claims": dict(claims),
        "intervals": dict(intervals or {}),
        "raw": raw,
        "not_run": dict(not_run or {}),
    }
    print(json.dumps(result))
