"""A real service on a real port, in a thread of the test's process or in one of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from groupwise.service.app import server_config
from groupwise.service.settings import ServiceSettings

CART = {
    "hidden_sizes": [8], "num_generations": 4, "tasks_per_step": 2, "num_episodes": 6, "eval_steps": 3,
    "eval_episodes": 2, "save_steps": 2, "threads": 1, "max_episode_steps": 20, "estimator": "group_rtg",
    "advantage_scale": "batch_std", "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1,
}  # fmt: skip


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
PATIENCE = 600_000.0  # milliseconds; a busy machine is slow, not wrong


class Service:
    """A service that runs, and a client of it."""

    def __init__(self, settings: ServiceSettings, server: uvicorn.Server) -> None:
        self.settings, self.server = settings, server
        self.port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # The operator: tests of other callers send their own key, or use `anyone`.
        token = {"Authorization": f"Bearer {settings.token}"}
        self.http = httpx2.Client(base_url=self.url, timeout=600, headers=token)
        self.anyone = httpx2.Client(base_url=self.url, timeout=600)

    @property
    def parts(self) -> Any:
        return self.server.config.app.state.parts  # type: ignore[union-attr]

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.http.get(path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx2.Response:
        return self.http.post(path, json=json, **more)

    def wait_for(self, job: str, *states: str, seconds: float = 900.0) -> dict[str, Any]:
        """The job, once it is in one of the states."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found: dict[str, Any] = self.get(f"/api/jobs/{job}").json()
            if found["state"] in states:
                return found
            time.sleep(0.05)
        raise AssertionError(f"job {job} is {found['state']}, not {states}, after {seconds} s")


def until(holds: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait for what is meant; the limit is only there for what never comes."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so after {seconds:g} s"
        time.sleep(0.02)


@contextmanager
def serving(settings: ServiceSettings) -> Iterator[Service]:
    server = uvicorn.Server(server_config(settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    service = Service(settings, server)
    try:
        yield service
    finally:
        service.http.close()
        service.anyone.close()
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services; they end with the test."""
    opened: list[Any] = []

    def start(**changes: Any) -> Service:
        given = {"port": 0, "runs_dir": tmp_path / "runs", "poll": 0.05, "lease": 2.0, "niceness": 0, **changes}
        running = serving(ServiceSettings(**given))
        opened.append(running)
        service: Service = running.__enter__()
        return service

    yield start
    for running in reversed(opened):
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for tests that only look, in which one small run of CartPole has ended: `cart`. Later jobs wait."""
    with with_cart(tmp_path_factory.mktemp("service") / "runs") as running:
        running.parts.supervisor._end.set()
        yield running


@contextmanager
def with_cart(runs: Path) -> Iterator[Service]:
    """A service in which one small run of CartPole has ended."""
    given = {"workflow_timeout": 600.0, "writes_per_second": 1e6, "reads_per_second": 1e6}
    with serving(ServiceSettings(port=0, runs_dir=runs, poll=0.05, lease=2.0, niceness=0, **given)) as running:
        job = running.post("/api/train", {"name": "cart", "config": CART}).json()
        running.wait_for(job["id"], "finished")
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server of our own; where there is none to start, tests that need it are skipped."""
    programs = [shutil.which(name) for name in ("initdb", "postgres")]
    if None in programs:
        pytest.skip("no PostgreSQL (initdb, postgres) on this machine")
    initdb, server = map(str, programs)
    folder = tmp_path_factory.mktemp("postgres")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        for parent in (folder, *folder.parents[:3]):
            if parent.owner() == "root" and str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
        shutil.chown(folder, "postgres")
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    port = free_port()
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    if subprocess.run([initdb, "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N"], **quiet).returncode:
        pytest.skip("initdb failed on this machine")
    options = ["-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-F", "-k", folder]
    process = subprocess.Popen([server, *map(str, options)], **quiet)
    try:
        wait_for_port(port, process)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.3)
            return
    pytest.skip("PostgreSQL did not start on this machine")


class Visit:
    """A tab, and what went wrong in it. With a token, its reader opened the address that the service printed."""

    def __init__(self, page: Any, url: str, token: str = "") -> None:
        self.page, self.url, self.token = page, url, token
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda told: told.type in ("error", "warning") and self.complaints.append(told.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> Any:
        mark = "&" if "?" in path else "?"
        self.page.goto(self.url + path + (f"{mark}token={self.token}" if self.token else ""))
        return self.page

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the page: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt install chromium")
    with driver.sync_playwright() as playing:
        found = playing.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, service: Any) -> Iterator[Callable[..., Visit]]:
    """Opens tabs; that none of them complained is part of every test."""
    visits: list[Visit] = []

    def start(width: int = 1280, scheme: str = "light", url: str = "") -> Visit:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        visits.append(Visit(page, url) if url else Visit(page, service.url, service.settings.token))
        return visits[-1]

    yield start
    for one in visits:
        one.page.close()
        assert one.complaints == []
