"""The service's own metrics, for people (`/api/metrics`) and for Prometheus (`/metrics`)."""

import os
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class ServiceMetrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self._requests = counter("groupwise_requests_total", "Requests answered.", ["method", "route", "status"])
        histogram = partial(Histogram, buckets=BUCKETS, registry=self.registry)
        self._seconds = histogram("groupwise_request_seconds", "Seconds to answer a request.")
        self.clients = gauge("groupwise_websocket_clients", "WebSocket clients connected.")
        self.sent = counter("groupwise_websocket_messages_total", "Messages sent to WebSocket clients.")
        self.dropped = counter("groupwise_websocket_dropped_total", "Events dropped for slow clients.")
        self.tokens = counter("groupwise_chat_tokens_total", "Tokens sampled for chat.")
        self.jobs = gauge("groupwise_jobs", "Jobs by state.", ["state"])
        self.total = self.failed = 0
        self._recent: deque[float] = deque(maxlen=1000)
        self._children: dict[tuple[str, str, int], Any] = {}

    def request(self, scope: Any, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        key = (scope["method"], route, status)
        # Prometheus looks labels up under a lock, on every request; a plain dict of the counters avoids that.
        counter = self._children.get(key)
        if counter is None:
            counter = self._children[key] = self._requests.labels(*map(str, key))
        counter.inc()
        self._seconds.observe(seconds)
        self._recent.append(seconds)
        self.total += 1
        self.failed += status >= 500

    def requests(self) -> dict[str, float]:
        """How many requests there were, and how long the last thousand took."""
        recent = sorted(self._recent)
        found: dict[str, float] = {"total": self.total, "server_errors": self.failed}
        for percent in (50, 99):
            found[f"p{percent}_ms"] = round(1000 * recent[len(recent) * percent // 100], 3) if recent else 0.0
        return found

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def machine() -> dict[str, float]:
    """The machine's load, and this process's memory."""
    load, pages = os.getloadavg(), Path("/proc/self/statm")  # its second number is the resident memory
    memory = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
    return {"cpus": os.cpu_count() or 1, "load_1m": load[0], "service_memory_bytes": memory, "time": time.time()}
