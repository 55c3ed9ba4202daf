"""`POST /api/scale` changes the workers of a running job between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.service.job_settings import wanted_settings
from groupwise.service.schemas import TrainRequest

CONFIG = {
    "product": "control", "environment": "CartPole-v1", "num_generations": 4, "tasks_per_step": 2, "eval_steps": 0,
    "max_episode_steps": 50, "num_episodes": 100_000, "backend": "processes", "num_workers": 1, "group_log_steps": 0,
}  # fmt: skip


def wait(found: Callable[[], Any]) -> Any:
    while not (value := found()):
        time.sleep(0.05)
    return value


@pytest.mark.timeout(600)
def test_a_running_job_gets_the_workers_that_are_ordered_for_it(serve: Callable[..., Any]) -> None:
    service = serve(writes_per_second=1e6, reads_per_second=1e6)
    job = service.post("/api/train", {"config": CONFIG}).json()
    run = f"/api/runs/{job['run']}"

    def workers() -> float | None:
        return service.get(f"/api/jobs/{job['id']}").json()["metrics"].get("rollout/workers")  # type: ignore[no-any-return]

    def events(kind: str) -> list[dict[str, Any]]:
        found = service.get(f"{run}/events?points=2").json()["events"]
        return [event["data"] for event in found if event["type"] == kind]

    wait(lambda: workers() == 1)
    (order,) = service.post("/api/scale", {"scale_factor": 2.0, "job": job["id"]}).json()["orders"]
    wait(lambda: workers() == 2)
    (done,) = events("control")
    assert (done["id"], done["before"], done["workers"]) == (order["order"], 1, 2)
    assert wait(lambda: [hint for hint in events("hint") if hint["code"] == "workers_scaled"])[0]["message"] == (
        "1 → 2 workers, as ordered"
    )
    service.post("/api/scale", {"workers": 99_999, "job": job["id"]})
    refused = wait(lambda: events("control")[1:])[0]
    assert "99999 workers are more than there is room for: this machine has" in refused["refused"]
    service.post("/api/scale", {"least": 1, "most": 3, "job": job["id"]})
    wait(lambda: len(events("control")) == 3)
    service.post(f"/api/jobs/{job['id']}/cancel")
    assert service.wait_for(job["id"], "cancelled", "failed")["error"] is None


def test_the_computational_strategy_has_workers() -> None:
    cfg = wanted_settings(TrainRequest.model_validate({"prompts": ["Hello"], "strategy": "computational"}), None)
    assert (cfg.rollout.backend, cfg.rollout.num_workers) == ("processes", 2)
