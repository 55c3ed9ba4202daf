"""Jobs and runs have owners, and keys have quotas."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from groupwise.service.jobs import Jobs
from groupwise.service.keys import LOCAL, Keys
from groupwise.service.settings import GIB, Quotas
from groupwise.service.tables import Tables
from tests.service.conftest import CART, until

QUICK = {**CART, "num_episodes": 1, "eval_steps": 0, "save_steps": 1}
ENDLESS = {**CART, "num_episodes": 1_000_000, "eval_steps": 0, "save_steps": 5}


class Caller:
    """Requests with one key."""

    def __init__(self, service: Any, text: str) -> None:
        self.service, self.headers = service, {"Authorization": f"Bearer {text}"}

    def __call__(self, method: str, path: str, **more: Any) -> Any:
        return self.service.http.request(method, path, headers=self.headers, **more)

    def train(self, name: str, config: Any = QUICK, **more: Any) -> Any:
        return self("POST", "/api/train", json={"name": name, "config": config}, **more)

    def ids(self, path: str, kind: str, name: str) -> set[str]:
        return {one[name] for one in self("GET", path).json()[kind]}


def callers(service: Any, *scopes: str) -> list[Caller]:
    texts = [service.parts.keys.add(f"{scope}-{number}", scope)[0] for number, scope in enumerate(scopes)]
    service.parts.keys.refresh()
    return [Caller(service, text) for text in texts]


def test_a_key_sees_stops_and_deletes_its_own_and_an_administrator_all(serve: Callable[..., Any]) -> None:
    service = serve()
    ann, bob, admin = callers(service, "train", "train", "admin")
    job = ann.train("anns").json()["id"]
    service.http.headers = admin.headers
    service.wait_for(job, "finished")
    assert ann.ids("/api/jobs", "jobs", "run") == ann.ids("/api/runs", "runs", "id") == {"anns"}
    assert bob.ids("/api/jobs", "jobs", "run") == bob.ids("/api/runs", "runs", "id") == set()
    assert admin.ids("/api/runs", "runs", "id") == {"anns"}
    for method, path in (
        ("GET", f"/api/jobs/{job}"), ("POST", f"/api/jobs/{job}/cancel"), ("POST", f"/api/jobs/{job}/resume"),
        ("DELETE", f"/api/jobs/{job}"), ("GET", "/api/runs/anns"), ("GET", "/api/runs/anns/events"),
        ("GET", "/api/runs/anns/series"), ("GET", "/api/runs/anns/groups"), ("GET", "/api/runs/anns/groups/1"),
        ("GET", "/api/runs/anns/trajectories/x"), ("DELETE", "/api/runs/anns"),
    ):  # fmt: skip
        assert bob(method, path).status_code == 404, f"{method} {path}"
    told = [bob("GET", f"/api/jobs/{name}").json()["error"]["message"] for name in (job, "none")]
    assert told[0].replace(job, "none") == told[1]  # as if it did not exist
    assert ann("GET", f"/api/jobs/{job}").json()["state"] == "finished"
    assert bob.train("anns").status_code == 409  # a name can be taken without being seen
    assert ann("DELETE", "/api/runs/anns").status_code == 204
    assert not (service.settings.runs_dir / "anns").exists()
    assert ann("GET", f"/api/jobs/{job}").status_code == 404
    assert list((service.settings.folder / "jobs").glob(f"{job}*")) == []
    again = bob.train("anns").json()["id"]
    service.wait_for(again, "finished")
    assert admin("DELETE", f"/api/jobs/{again}").status_code == 204
    assert admin.ids("/api/runs", "runs", "id") == set()


def test_a_cached_state_is_shown_only_to_those_who_may_see_it(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.state.STATUS_FRESH", 600.0)
    service = serve(poll=60.0)
    service.parts.supervisor._end.set()
    ann, bob, admin = callers(service, "train", "train", "admin")
    job = ann.train("anns").json()["id"]
    assert [who("GET", f"/api/jobs/{job}").status_code for who in (ann, bob, admin, bob, ann)] == [
        200, 404, 200, 404, 200,
    ]  # fmt: skip


def test_an_idempotency_key_belongs_to_whoever_chose_it(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0)
    service.parts.supervisor._end.set()
    ann, bob = callers(service, "train", "train")

    def ask(who: Caller) -> Any:
        headers = {**who.headers, "Idempotency-Key": "1"}
        return service.http.post("/api/train", json={"config": QUICK}, headers=headers)

    answers = [ask(who) for who in (ann, bob, ann, bob)]
    assert [answer.status_code for answer in answers] == [202, 202, 200, 200]
    first, other, again, repeated = (answer.json()["id"] for answer in answers)
    assert (first, other) == (again, repeated)
    assert first != other


def test_a_link_among_the_runs_is_nobodys_run(serve: Callable[..., Any], tmp_path: Path) -> None:
    service = serve(poll=60.0)
    service.parts.supervisor._end.set()
    (ann,) = callers(service, "train")
    job = service.parts.jobs.get(ann.train("anns").json()["id"])
    reach = service.parts.ownership.reach(job.asked_by, "train")
    folder = service.settings.runs_dir / "anns"
    assert reach.run("anns") is None  # not started yet
    service.parts.jobs.started(job, 0)
    folder.mkdir(parents=True)
    assert reach.run("anns") == folder
    assert service.parts.ownership.reach("another", "train").run("anns") is None
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert reach.run("anns") is None


def test_what_runs_is_stopped_before_it_is_deleted(serve: Callable[..., Any]) -> None:
    service = serve()
    (ann,) = callers(service, "train")
    service.http.headers = ann.headers
    job = ann.train("busy", ENDLESS).json()["id"]
    until(lambda: ann("GET", f"/api/jobs/{job}").json()["step"] > 0)
    for path in (f"/api/jobs/{job}", "/api/runs/busy"):
        answer = ann("DELETE", path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job_state")
    assert ann("POST", f"/api/jobs/{job}/cancel").status_code == 200
    service.wait_for(job, "cancelled")
    assert ann("DELETE", f"/api/jobs/{job}").status_code == 204


def test_a_socket_tells_each_caller_of_its_own(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0)
    service.parts.supervisor._end.set()
    texts = [service.parts.keys.add(name, "train")[0] for name in ("ann", "bob")]
    service.parts.keys.refresh()
    Caller(service, texts[0]).train("anns")
    seen = []
    for text in texts:
        with connect(f"ws://127.0.0.1:{service.port}/ws") as socket:
            for message in ({"type": "auth", "key": text}, {"type": "subscribe", "topic": "runs"},
                            {"type": "subscribe", "topic": "run", "run": "anns"}):  # fmt: skip
                socket.send(json.dumps(message))
            told: dict[str, Any] = {}
            while len(told) < 2:
                message = json.loads(socket.recv(timeout=60))
                if message["type"] == "runs":
                    told["changed"] = message["changed"]
                elif "run" in message or "error" in message:
                    told["run"] = message.get("run") or message["error"]["code"]
            assert told["changed"] == []
            seen.append((told["run"], sorted(Caller(service, text).ids("/api/runs", "runs", "id"))))
    assert seen == [("anns", ["anns"]), ("run_not_found", [])]


def test_a_read_key_can_be_made_for_what_another_key_owns(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0)
    keys: Keys = service.parts.keys
    text, ann = keys.add("ann", "train")
    watcher, stranger = (Caller(service, keys.add("w", "read", owner)[0]) for owner in (ann.id, None))
    keys.refresh()
    Caller(service, text).train("anns")
    assert watcher.ids("/api/jobs", "jobs", "run") == {"anns"}
    assert stranger.ids("/api/jobs", "jobs", "run") == set()
    assert watcher("POST", "/api/train", json={"prompts": ["x"]}).status_code == 403


def test_runs_from_the_command_line_are_the_operators(service: Any) -> None:
    assert "cart" in {run["id"] for run in service.get("/api/runs").json()["runs"]}
    assert "cart" not in {run["id"] for run in service.anyone.get("/api/runs").json()["runs"]}
    assert service.anyone.get("/api/runs/cart").status_code == 404


def test_without_keys_the_token_makes_the_operator_and_its_absence_a_train_key(service: Any) -> None:
    assert service.get("/api/me").json() == {"name": "operator", "scope": "admin", "keys_required": False}
    assert service.anyone.get("/api/me").json()["scope"] == "train"
    wrong = {"Authorization": "Bearer token-of-yesterday"}
    assert service.anyone.get("/api/me", headers=wrong).json()["scope"] == "train"
    refused = service.anyone.post("/api/scale", json={"workers": 2})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert "address that the service printed" in refused.json()["error"]["hint"]
    code = {"config": {"environment": "evilmod:Foo-v0"}}
    assert service.anyone.post("/api/train", json=code).status_code == 403


def test_the_token_is_worth_nothing_once_there_is_a_key(serve: Callable[..., Any]) -> None:
    service = serve()
    callers(service, "train")
    assert service.get("/api/me").status_code == 401


def test_the_service_prints_its_token_when_it_starts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "groupwise.cli", "serve", "--port", "0", "--runs-dir", str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.terminate()
        process.stderr.read()
    assert "/?token=" in told
    assert len(told.partition("token=")[2].split()[0]) >= 40


def test_two_keys_may_use_one_idempotency_key(tmp_path: Path) -> None:
    tables = Tables(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs, keys = Jobs(tables, "/runs"), Keys(tables)
    bob = keys.add("bob", "train")
    keys.refresh()
    first, _ = jobs.add("a", "control", {"x": 1}, LOCAL, "same")
    second, new = jobs.add("b", "control", {"x": 1}, keys.who(bob[0]), "same")
    assert new
    assert first.id != second.id
    tables.close()


def test_a_database_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    Tables(f"sqlite:///{file}").close()
    with sqlite3.connect(file) as link:
        link.execute("ALTER TABLE jobs DROP COLUMN scope")
        link.execute("ALTER TABLE keys DROP COLUMN owner")
        link.execute("INSERT INTO keys VALUES ('k1', 'old', 'h', 'train', 0, NULL)")
    tables = Tables(f"sqlite:///{file}")
    assert [(key.id, key.owner) for key in Keys(tables).all()] == [("k1", "k1")]
    assert Jobs(tables, "/runs").add("a", "control", {}, LOCAL)[0].scope == "train"
    tables.close()


def test_a_key_may_only_have_so_many_jobs_waiting(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0, quotas=Quotas(queued_per_key=2))
    service.parts.supervisor._end.set()
    ann, bob, admin = callers(service, "train", "train", "admin")
    assert [ann.train(f"a{n}").status_code for n in range(3)] == [202, 202, 429]
    told = ann.train("a4").json()["error"]
    assert (told["code"], "2 of your jobs are waiting, and the limit is 2" in told["message"]) == ("quota", True)
    assert bob.train("b").status_code == 202
    assert [admin.train(f"c{n}").status_code for n in range(3)] == [202] * 3


def test_a_key_may_only_fill_so_much_of_the_disk(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.service.supervisor.MEASURE", 0.0)
    service = serve(quotas=Quotas(disk_per_key=100_000))
    ann, bob = callers(service, "train", "train")
    service.http.headers = ann.headers
    job = ann.train("large", ENDLESS).json()["id"]
    ended = service.wait_for(job, "failed")
    assert (ended["error"]["code"], "on disk, and the limit is" in ended["error"]["message"]) == ("quota", True)
    assert ended["step"] > 0  # it was saved before it was stopped
    assert ann.train("more").json()["error"]["code"] == "quota"
    assert ann("POST", f"/api/jobs/{job}/resume").status_code == 429
    assert bob.train("other").status_code == 202
    assert ann("DELETE", "/api/runs/large").status_code == 204
    assert ann.train("more").status_code == 202


def test_the_kernel_holds_a_job_to_its_memory(serve: Callable[..., Any]) -> None:
    service = serve(quotas=Quotas(memory_per_job=3 * GIB // 2))
    (ann,) = callers(service, "train")
    service.http.headers = ann.headers
    large = {**QUICK, "hidden_sizes": [15_000, 15_000]}  # 0.9 GB of weights, and as much for their gradient
    ended = service.wait_for(ann.train("large", large).json()["id"], "failed")
    assert "memory" in ended["error"]["message"]
    refused = ann.train("huge", {**QUICK, "hidden_sizes": [200_000, 200_000]})
    assert (refused.status_code, "needs at least" in refused.json()["error"]["message"]) == (422, True)
    assert service.wait_for(ann.train("small").json()["id"], "finished", "failed")["state"] == "finished"


def test_the_kernel_holds_a_job_to_its_processor_time(serve: Callable[..., Any]) -> None:
    service = serve(quotas=Quotas(cpu_hours_per_job=20 / 3600))
    (ann,) = callers(service, "train")
    service.http.headers = ann.headers
    job = ann.train("long", ENDLESS).json()["id"]
    ended = service.wait_for(job, "failed")
    assert (ended["error"]["code"], "hours of processor time" in ended["error"]["message"]) == ("quota", True)


def test_whoever_follows_a_run_that_is_deleted_is_told_nothing_of_the_next_one_with_its_name(
    serve: Callable[..., Any],
) -> None:
    service = serve()
    texts = [service.parts.keys.add(name, "train")[0] for name in ("ann", "bob")]
    service.parts.keys.refresh()
    ann, bob = (Caller(service, text) for text in texts)

    def over(caller: Caller, job: str) -> None:
        until(lambda: caller("GET", f"/api/jobs/{job}").json()["state"] == "finished")

    first = ann.train("experiment").json()["id"]
    over(ann, first)
    with connect(f"ws://127.0.0.1:{service.port}/ws") as socket:
        for message in ({"type": "auth", "key": texts[0]}, {"type": "subscribe", "topic": "run", "run": "experiment"}):
            socket.send(json.dumps(message))
        told: list[dict[str, Any]] = []
        while not told or told[-1].get("event", {}).get("type") != "end":
            told.append(json.loads(socket.recv(timeout=600)))
        assert ann("DELETE", f"/api/jobs/{first}").status_code == 204
        second = bob.train("experiment", {**QUICK, "seed": 4711}).json()["id"]
        over(bob, second)
        ending = json.loads(socket.recv(timeout=600))
        assert (ending["type"], ending["error"]["code"]) == ("error", "run_not_found")
        socket.send(json.dumps({"type": "ping"}))
        assert json.loads(socket.recv(timeout=600))["type"] == "pong"
        # The name is Bob's now, and so are its events.
        socket.send(json.dumps({"type": "subscribe", "topic": "run", "run": "experiment"}))
        assert json.loads(socket.recv(timeout=600))["error"]["code"] == "run_not_found"
    with connect(f"ws://127.0.0.1:{service.port}/ws") as socket:
        for message in ({"type": "auth", "key": texts[1]}, {"type": "subscribe", "topic": "run", "run": "experiment"}):
            socket.send(json.dumps(message))
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1].get("event", {}).get("type") != "end":
            seen.append(json.loads(socket.recv(timeout=600)))
        assert "4711" in json.dumps(seen)
