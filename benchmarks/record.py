"""The one shape of a benchmark's result: a JSON object, printed last."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.reporting.bench import bench_result


def print_result(name: str, claims: Mapping[str, Any], **rest: Any) -> None:
    """Print `bench_result` with the command of this process."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    print(json.dumps(bench_result(name, command, claims, **rest)))
