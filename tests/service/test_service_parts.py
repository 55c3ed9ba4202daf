"""Small parts of the service: its settings, its errors, its counters and what it caches."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from sqlalchemy.exc import IntegrityError
from starlette.exceptions import HTTPException

import groupwise.errors as errors
from groupwise.errors import ConfigError, GroupwiseError, MissingExtra, RunError, StorageError
from groupwise.service.app import check, greeting, refuse_taken_port
from groupwise.service.designs import _file, examples
from groupwise.service.keys import Keys
from groupwise.service.metrics import ServiceMetrics, machine
from groupwise.service.refusals import MEANING, STATUS, _brief, install, refusal, refusals, shape, status_of
from groupwise.service.schemas import ChatRequest, DesignRequest, ScaleRequest, SimulateRequest, TrainRequest
from groupwise.service.settings import MEMORY_SHARE, Quotas, ServiceSettings
from groupwise.service.state import StatusCache
from groupwise.service.tables import KEYS, DatabaseDown, Tables
from tests.service.conftest import free_port


@pytest.mark.parametrize("name", ["memory_per_job", "cpu_hours_per_job", "queued_per_key", "disk_per_key"])
def test_a_quota_is_above_nothing(name: str) -> None:
    for wrong in (0, -1):
        with pytest.raises(ConfigError, match=f"{name} = {wrong} must be above 0") as refused:
            Quotas(**{name: wrong})
        assert refused.value.field == name
    assert getattr(Quotas(**{name: 1}), name) == 1


def test_jobs_share_the_memory_unless_they_are_given_some() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert Quotas().memory(1) == int(MEMORY_SHARE * total) < total
    assert Quotas().memory(4) == int(MEMORY_SHARE * total / 4)
    assert Quotas(memory_per_job=5).memory(4) == 5


def test_the_quotas_and_limits_that_hold_unless_others_are_given() -> None:
    quotas, settings = Quotas(), ServiceSettings()
    assert (quotas.cpu_hours_per_job, quotas.queued_per_key, quotas.disk_per_key) == (240.0, 100, 50 * 2**30)
    assert (settings.host, settings.is_local, settings.origins, settings.data_dir) == ("127.0.0.1", True, (), None)
    assert (settings.largest_body, settings.largest_queue, settings.workers) == (4 << 20, 1000, 1)
    assert (settings.reads_per_second, settings.writes_per_second) == (5000.0, 50.0)
    assert settings.lease >= 10 * settings.poll


@pytest.mark.parametrize("name", ["workers", "lease", "poll", "largest_body", "largest_queue", "models_loaded"])
def test_a_limit_of_the_service_is_above_nothing(name: str) -> None:
    for wrong in (0, -1):
        with pytest.raises(ConfigError, match=f"{name} = {wrong} must be above 0"):
            ServiceSettings(**{name: wrong})
    ServiceSettings(**{name: 1})


def test_a_port_is_one_there_is() -> None:
    assert [ServiceSettings(port=port).port for port in (0, 65535)] == [0, 65535]
    for wrong in (-1, 65536):
        with pytest.raises(ConfigError, match="is not between 0 and 65535"):
            ServiceSettings(port=wrong)


@pytest.mark.parametrize(("host", "local"), [
    ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
    ("192.168.0.1", False), ("box", False), ("localhost.example", False), ("", False),
])  # fmt: skip
def test_a_service_is_local_if_no_other_machine_can_reach_it(host: str, local: bool) -> None:
    assert ServiceSettings(host=host).is_local is local


def test_the_database_is_the_one_given_or_that_of_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROUPWISE_DATABASE", raising=False)
    assert ServiceSettings(runs_dir=tmp_path).url == f"sqlite:///{tmp_path}/.service/service.sqlite"
    monkeypatch.setenv("GROUPWISE_DATABASE", "sqlite:///other")
    assert ServiceSettings(runs_dir=tmp_path).url == "sqlite:///other"
    assert ServiceSettings(runs_dir=tmp_path, database="sqlite:///given").url == "sqlite:///given"


def test_a_token_is_secret_and_new_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPWISE_TOKEN", raising=False)
    one, other = ServiceSettings(), ServiceSettings()
    assert one.token != other.token
    assert len(one.token) >= 40
    assert one.token not in repr(one)
    monkeypatch.setenv("GROUPWISE_TOKEN", "given")
    assert ServiceSettings().token == "given"


def test_a_service_for_others_needs_a_key_that_is_still_worth_something(tmp_path: Path) -> None:
    settings = ServiceSettings(host="0.0.0.0", runs_dir=tmp_path)
    settings.folder.mkdir()
    tables = Tables(settings.url)
    keys = Keys(tables)
    _, key = keys.add("one", "admin")
    check(settings)
    keys.revoke(key.id)
    with pytest.raises(ConfigError, match="no key exists to protect the service"):
        check(settings)
    keys.add("two", "read")
    check(settings)
    tables.close()


def test_the_greeting_has_the_token_only_while_it_is_worth_something(tmp_path: Path) -> None:
    settings = ServiceSettings(runs_dir=tmp_path, token="secret", port=1234)
    settings.folder.mkdir()
    assert "http://127.0.0.1:1234/?token=secret " in greeting(settings)
    assert "secret" not in greeting(ServiceSettings(runs_dir=tmp_path, token="secret", host="0.0.0.0"))
    tables = Tables(settings.url)
    Keys(tables).add("one", "read")
    tables.close()
    assert "secret" not in greeting(settings)


def test_a_port_in_use_is_refused_and_a_free_one_is_not() -> None:
    refuse_taken_port(ServiceSettings(port=free_port()))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is already in use"):
            refuse_taken_port(ServiceSettings(port=port))


def kinds_of_errors() -> list[type[GroupwiseError]]:
    """Every error there is, ours and those of the service."""
    found = [GroupwiseError]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one not in found]
    return [kind for kind in found if kind.__module__.startswith("groupwise")]


def test_every_error_has_the_status_that_its_code_or_its_kind_says() -> None:
    for kind in kinds_of_errors():
        error = kind.__new__(kind)
        expected = STATUS.get(kind.code)
        if expected is None:
            expected = 503 if issubclass(kind, MissingExtra) else 507 if issubclass(kind, StorageError) else 422
        assert status_of(error) == expected, kind
        assert expected in MEANING
    pairs = {ConfigError: 422, RunError: 422, StorageError: 507, MissingExtra: 503, DatabaseDown: 503}
    assert {kind: status_of(kind("x")) for kind in pairs} == pairs
    assert status_of(errors.RunNotFound("x")) == 404


@pytest.mark.parametrize(("code", "status"), [
    ("unauthorised", 401), ("forbidden", 403), ("cross_site", 403), ("job_not_found", 404), ("run_not_found", 404),
    ("model_not_found", 404), ("design_not_found", 404), ("group_not_found", 404), ("trajectory_not_found", 404),
    ("conversation_not_found", 404), ("too_slow", 408), ("job_state", 409), ("run_exists", 409),
    ("idempotency_conflict", 409), ("conversation_busy", 409), ("conversation_over", 409), ("conversation_exists", 409),
    ("run_locked", 409), ("too_large", 413), ("too_many", 429), ("quota", 429), ("internal", 500), ("queue_full", 503),
    ("database", 503), ("generation_lost", 503), ("busy", 503), ("took_too_long", 504), ("storage", 507),
    ("invalid_request_error", 400), ("anything_else", 422),
])  # fmt: skip
def test_the_status_of_each_code(code: str, status: int) -> None:
    error = GroupwiseError("x")
    error.code = code
    assert status_of(error) == status


def test_an_error_is_written_whatever_it_quotes() -> None:
    answer = refusal(418, shape("a", "\ud800 é", "h", "f"), {"x-more": "1"})
    assert (answer.status_code, answer.headers["x-more"]) == (418, "1")
    assert answer.media_type == "application/json"
    assert json.loads(bytes(answer.body)) == {"error": {"code": "a", "message": "? é", "hint": "h", "field": "f"}}


def test_routes_declare_what_always_may_happen_and_their_own() -> None:
    always = [400, 401, 403, 408, 413, 422, 429, 500, 503, 507]
    assert list(refusals()) == always
    assert list(refusals(409, 404, 400)) == sorted([*always, 404, 409])


@pytest.mark.parametrize(("value", "text"), [
    ("a", '"a"'), ([1, None], "[1, null]"), (math.nan, "NaN"), ({1, 2}, "{1, 2}"), ("x" * 78, f'"{"x" * 78}"'),
    ("x" * 79, f'"{"x" * 76}…'),
])  # fmt: skip
def test_a_value_is_quoted_and_shortened(value: Any, text: str) -> None:
    assert _brief(value) == text
    assert len(text) <= 80


def test_the_times_of_requests_are_those_of_the_last_thousand() -> None:
    counting = ServiceMetrics()
    assert counting.requests() == {"total": 0, "server_errors": 0, "p50_ms": 0.0, "p99_ms": 0.0}
    for n in range(1500):
        counting.request({"method": "GET"}, 500 if n % 3 == 0 else 499, n / 1000)
    assert counting.requests() == {"total": 1500, "server_errors": 500, "p50_ms": 1000.0, "p99_ms": 1490.0}
    text = counting.exposition().decode()
    assert 'groupwise_requests_total{method="GET",route="other",status="500"} 500.0' in text
    assert 'groupwise_requests_total{method="GET",route="other",status="499"} 1000.0' in text
    assert "groupwise_request_seconds_count 1500.0" in text


def test_the_machine_says_how_much_memory_the_service_takes() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    (resident,) = (int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))
    assert machine()["service_memory_bytes"] == pytest.approx(resident, rel=0.2)
    assert machine()["cpus"] == os.cpu_count()


def test_an_answer_is_kept_for_a_tenth_of_a_second_and_for_so_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.service.state.MOST", 3)
    asked: list[str] = []

    async def ask() -> list[str]:
        cache, now = StatusCache(), 0.0
        monkeypatch.setattr("groupwise.service.state.time.monotonic", lambda: now)

        async def of(name: str) -> None:
            await cache.of(name, lambda: asked.append(name) or b"")  # type: ignore[func-returns-value]

        for name in "aabab":
            await of(name)
        now += 0.1
        await of("a")  # exactly a tenth of a second old
        now += 0.001
        await of("a")
        for name in "cd":
            await of(name)  # the fourth name: the oldest of them is forgotten
        for name in "dcab":
            await of(name)
        return asked

    assert asyncio.run(ask()) == ["a", "b", "a", "c", "d", "a", "b"]


@pytest.mark.parametrize(("name", "plain"), [
    ("Order to cash", "Order-to-cash"), ("../../etc/passwd", "etc-passwd"), ("", "workflow"), ("é", "workflow"),
    ('a"; x=1', "a---x-1"), ("x" * 99, "x" * 60),
])  # fmt: skip
def test_a_file_to_download_has_a_plain_name(name: str, plain: str) -> None:
    found = _file({"name": name, "suffix": ".bpmn", "content": "YQ==", "notes": ["n"]})
    assert (found.name, found.content, found.media, found.notes) == (f"{plain}.bpmn", b"a", "application/xml", ("n",))
    other = _file({"name": name, "suffix": ".odd", "content": "", "notes": []})
    assert other.media == "application/octet-stream"


def test_each_example_comes_with_the_workflow_it_starts_from() -> None:
    found = examples()
    assert len(found) > 1
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)
    assert all(one["requirements"] for one in found)
    assert any(one["workflow"] for one in found)
    assert all(one["workflow"] != one["requirements"] for one in found)


@pytest.mark.parametrize("given", [
    {}, {"workers": 0}, {"scale_factor": 0}, {"scale_factor": math.inf}, {"scale_factor": 2, "workers": 2},
    {"workers": 2, "least": 1}, {"least": 3, "most": 2}, {"workers": 2, "job": ""}, {"workers": 2, "more": 1},
])  # fmt: skip
def test_a_change_of_scale_is_asked_for_in_one_way(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ScaleRequest(**given)


def test_every_one_way_of_scaling_is_accepted() -> None:
    for given in ({"workers": 1}, {"scale_factor": 0.5}, {"least": 2}, {"most": 2}, {"least": 2, "most": 2}):
        assert ScaleRequest(**given).model_dump(exclude_none=True) == given


WORDS = {"message": "m"}


@pytest.mark.parametrize(("kind", "usual", "name", "accepted", "refused"), [
    (TrainRequest, {}, "prompts", [["a"], ["a"] * 10_000, ["x" * 20_000]], [[], ["a"] * 10_001, [""], ["x" * 20_001]]),
    (TrainRequest, {"prompts": ["a"]}, "held_out", [None, ["a"]], [[], [""], "a"]),
    (TrainRequest, {"prompts": ["a"]}, "num_iterations", [1, 1_000_000], [0, 1_000_001, 1.5]),
    (TrainRequest, {"prompts": ["a"]}, "seed", [0, 2**32 - 1], [-1, 2**32]),
    (TrainRequest, {"prompts": ["a"]}, "model", ["x", "x" * 500], ["", "x" * 501]),
    (TrainRequest, {"prompts": ["a"]}, "reward", ["x", "x" * 200], ["", "x" * 201]),
    (TrainRequest, {"prompts": ["a"]}, "strategy", ["computational"], ["other", None]),
    (TrainRequest, {"prompts": ["a"]}, "use_ruler_rewards", [True, False], [1, "true", None]),
    (TrainRequest, {"prompts": ["a"]}, "use_neural_rewards", [True, False], [1, "true", None]),
    (TrainRequest, {"prompts": ["a"]}, "name", [None, "a", "_" * 100, "a.b+c=d@e-f"],
     ["", "-a", ".a", "a" * 101, "a/b", "a\n"]),
    (ChatRequest, {}, "message", ["x", "x" * 100_000], ["", "x" * 100_001, 3]),
    (ChatRequest, WORDS, "temperature", [None, 0, 10], [-0.1, 10.1]),
    (ChatRequest, WORDS, "max_new_tokens", [None, 1, 100_000], [0, 100_001]),
    (ChatRequest, WORDS, "seed", [None, 0, 2**53 - 1], [-1, 2**53]),
    (ChatRequest, WORDS, "stream", [True, False], [1, "true", None]),
    (ChatRequest, WORDS, "system", [None, "", "x" * 20_000], ["x" * 20_001]),
    (ChatRequest, WORDS, "strategy", [None, "x", "x" * 60], ["", "x" * 61]),
    (ChatRequest, WORDS, "conversation_id", [None, "x", "x" * 200], ["", "x" * 201]),
    (DesignRequest, {"requirements": "x"}, "evaluations", [1, 4096], [0, 4097]),
    (DesignRequest, {"requirements": "x"}, "seed", [0, 2**32 - 1], [-1, 2**32]),
    (DesignRequest, {}, "requirements", ["x", {}, "x" * 2_000_000], ["", "x" * 2_000_001, 3, None]),
    (SimulateRequest, {"workflow": "x"}, "cases", [None, 20, 1_000_000], [19, 1_000_001]),
    (SimulateRequest, {"workflow": "x"}, "tier", ["auto", "analytic", "simulation", "schedule"], ["fast", None]),
    (ScaleRequest, {}, "scale_factor", [0.001, 1000], [0, 1000.1]),
    (ScaleRequest, {}, "workers", [1, 100_000], [0, 100_001]),
], ids=lambda given: given if isinstance(given, str) else "")  # fmt: skip
def test_a_request_is_read_up_to_its_limits(
    kind: Any, usual: dict[str, Any], name: str, accepted: list[Any], refused: list[Any]
) -> None:
    for value in accepted:
        assert getattr(kind(**usual, **{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValueError, match=name):
            kind(**usual, **{name: value})
    with pytest.raises(ValueError, match="nonsense"):
        kind(**usual, **{name: accepted[-1]}, nonsense=1)


def test_what_the_database_was_told_survives_a_power_cut_and_half_a_transaction_does_not(tmp_path: Path) -> None:
    tables = Tables(f"sqlite:///{tmp_path / 'a.sqlite'}")
    with tables.reading() as link:
        pragmas = [link.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]
    keys = Keys(tables)
    with pytest.raises(RuntimeError, match="stop"), tables.writing() as link:
        link.execute(KEYS.insert().values(id="a", name="a", hash="h", scope="read", created=1.0))
        raise RuntimeError("stop")
    assert keys.all() == []
    with tables.writing() as link:
        link.execute(KEYS.insert().values(id="a", name="a", hash="h", scope="read", created=1.0))
    with pytest.raises(IntegrityError), tables.writing() as link:
        link.execute(KEYS.insert().values(id="b", name="b", hash="h", scope="read", created=1.0))
    assert [key.id for key in keys.all()] == ["a"]
    tables.close()
    again = Tables(f"sqlite:///{tmp_path / 'a.sqlite'}")
    assert [key.id for key in Keys(again).all()] == ["a"]
    again.close()


class Asked(BaseModel):
    count: int = Field(ge=1)
    inner: list[int]


def answers(*asks: tuple[str, str, Any]) -> list[tuple[int, dict[str, str]]]:
    """Statuses and errors of an application that fails in every way there is."""
    app = FastAPI()
    install(app)

    @app.post("/asked")
    async def asked(request: Asked, page: int = 0) -> None:
        raise {1: RunError("ours", hint="h", field="f"), 2: KeyError("secret"), 3: HTTPException(418, "tea")}[
            request.count
        ]

    async def ask() -> list[tuple[int, dict[str, str]]]:
        plain = {"content-type": "application/json"}
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x", headers=plain) as client:
            found = [await client.request(method, path, content=content) for method, path, content in asks]
        return [(answer.status_code, answer.json()["error"]) for answer in found]

    return asyncio.run(ask())


@pytest.mark.parametrize(("method", "path", "content", "status", "code", "message", "hint", "field"), [
    ("POST", "/asked", b"{", 400, "bad_json", "the body is not valid JSON: Expecting property name", "", ""),
    ("POST", "/asked", b'{"inner": []}', 422, "invalid", "Field required", "See /docs", "count"),
    ("POST", "/asked", b'{"count": 0, "inner": []}', 422, "invalid", "count = 0: Input should be", "See", "count"),
    ("POST", "/asked", b'{"count": 0, "inner": [1, "x"]}', 422, "invalid", "count = 0", "1 more value is wrong too.",
     "count"),
    ("POST", "/asked", b'{"count": 1, "inner": [1, "x"]}', 422, "invalid", 'inner.1 = "x": ', "See /docs", "inner.1"),
    ("POST", "/asked?page=x", b'{"count": 1, "inner": []}', 422, "invalid", 'page = "x": ', "See /docs", "page"),
    ("POST", "/asked", b'{"count": 1, "inner": []}', 422, "run", "ours", "h", "f"),
    ("POST", "/asked", b'{"count": 2, "inner": []}', 500, "internal", "internal error: KeyError", "The traceback", ""),
    ("POST", "/asked", b'{"count": 3, "inner": []}', 418, "refused", "tea", "See /docs for a list of routes.", ""),
    ("GET", "/none", b"", 404, "not_found", "GET /none does not exist", "See /docs for a list of routes.", ""),
    ("GET", "/asked", b"", 405, "not_allowed", "Method Not Allowed", "See /docs for a list of routes.", ""),
])  # fmt: skip
def test_every_failure_of_a_route_is_told_in_the_one_format(
    method: str, path: str, content: bytes, status: int, code: str, message: str, hint: str, field: str
) -> None:
    ((found, error),) = answers((method, path, content))
    assert (found, error["code"], error["field"]) == (status, code, field)
    assert error["message"].startswith(message)
    assert error["hint"].startswith(hint)
    assert "secret" not in json.dumps(error)


def test_an_internal_error_leaves_its_traceback_in_the_log_and_others_leave_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers(("POST", "/asked", b'{"count": 2, "inner": []}'), ("POST", "/asked", b'{"count": 1, "inner": []}'))
    (record,) = (record for record in caplog.records if record.name == "groupwise.service.refusals")
    assert record.getMessage() == "POST /asked failed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
