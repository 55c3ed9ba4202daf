"""The JSON shape of a measured result: what is claimed, how certain it is, and the command that made it."""

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.training.machine import describe_machine, source_commit


def bench_result(
    name: str,
    command: str,
    claims: Mapping[str, Any],
    *,
    seeds: Sequence[int] = (),
    intervals: Mapping[str, Sequence[float | None]] | None = None,
    peers: Mapping[str, str] | None = None,
    raw: Any = None,
    not_run: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The result of a benchmark or a paper as plain values, ready for JSON."""
    machine = describe_machine()
    return {
        "v": 1,
        "name": name,
        "command": command,
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
