"""Nothing gets out: every attempt that succeeds without a sandbox is contained in both, and the machine is unharmed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.sandbox import Bubblewrap, Monty, SandboxLimits, SandboxOutcome, SandboxResult, available
from tests.sandbox.escape_attempts import ATTEMPTS, TIME, Attempt

NAMES = [attempt.name for attempt in ATTEMPTS]
FREE = [attempt for attempt in ATTEMPTS if attempt.free]
USUAL = SandboxLimits(seconds=5, memory_mb=64, output_kb=64)
SHORT = replace(USUAL, seconds=0.25)
"""For attempts that take their time, which is half a second."""
DRIVER = """
import json, os, resource, sys, signal

def run(hidden, job):
    space = {"__name__": "attempt"}
    exec(job["code"], space)
    return space["attempt"](**job["inputs"])

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for job in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        nowhere = os.open("/dev/null", os.O_WRONLY)
        os.dup2(nowhere, 1)
        os._exit(0 if run(["the hidden word"], job) is True else 1)
    print(os.waitpid(child, 0)[1] == 0, flush=True)
"""


class Machine:
    """What an attempt may reach: a canary file in a folder, a port that notices, and a process that sleeps."""

    def __init__(self, folder: Path, sleeper: subprocess.Popen[bytes] | None = None) -> None:
        folder.chmod(0o777)
        self.folder = folder
        self.canary = folder / "canary.py"
        self.canary.write_text("word = 'secret'\n")
        self.canary.chmod(0o666)
        self.descriptor = os.open(self.canary, os.O_RDONLY)
        os.set_inheritable(self.descriptor, True)
        self.sleeper = sleeper or subprocess.Popen(["sleep", "3600"], close_fds=False)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.visitors = 0
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def inputs(self) -> dict[str, object]:
        port = self.server.getsockname()[1]
        return {"canary": str(self.canary), "folder": str(self.folder), "port": port, "pid": self.sleeper.pid}

    @property
    def unharmed(self) -> bool:
        whole = self.canary.read_text() == "word = 'secret'\n" and self.canary.stat().st_mode & 0o777 == 0o666
        return whole and os.listdir(self.folder) == ["canary.py"] and not self.visitors and self.sleeps

    @property
    def sleeps(self) -> bool:
        return self.sleeper.poll() is None and Path(f"/proc/{self.sleeper.pid}/stat").read_text().split()[2] == "S"

    def close(self) -> None:
        self.sleeper.send_signal(signal.SIGKILL)
        self.sleeper.wait()
        self.server.close()
        os.close(self.descriptor)

    def _listen(self) -> None:
        while True:
            try:
                visitor = self.server.accept()[0]
            except OSError:
                return
            self.visitors += 1
            visitor.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            visitor.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    os.environ["GROUPWISE_CANARY"] = "secret"
    made = Machine(tmp_path_factory.mktemp("machine"))
    yield made
    made.close()
    del os.environ["GROUPWISE_CANARY"]


@pytest.fixture(scope="module")
def in_monty(machine: Machine) -> dict[str, SandboxResult]:
    pytest.importorskip("pydantic_monty")
    with Monty() as sandbox:
        return {
            attempt.name: sandbox.run(attempt.code, machine.inputs, limits=limits(attempt), call="attempt")
            for attempt in ATTEMPTS
        }


@pytest.fixture(scope="module")
def in_bubblewrap(machine: Machine) -> dict[str, SandboxResult]:
    if fault := available()["bubblewrap"]:
        pytest.skip(fault)
    ran: dict[str, SandboxResult] = {}
    with Bubblewrap() as sandbox:
        for chosen in (USUAL, SHORT):
            some = [attempt for attempt in ATTEMPTS if limits(attempt) is chosen]
            codes = [attempt.code for attempt in some]
            done = sandbox.run_group(codes, machine.inputs, chosen, call="attempt")
            ran.update(zip((attempt.name for attempt in some), done, strict=True))
    return ran


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Which of the harmless attempts get out without a sandbox, each on a machine of its own."""
    idle = subprocess.Popen(["sleep", "3600"], close_fds=False)
    machines = [Machine(tmp_path_factory.mktemp("free"), None if "pid" in a.body else idle) for a in FREE]
    jobs = [{"code": a.code, "inputs": machine.inputs} for a, machine in zip(FREE, machines, strict=True)]
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(drive, (jobs[::2], jobs[1::2]))
    for machine in machines:
        machine.close()
    return dict(zip([a.name for a in FREE[::2] + FREE[1::2]], first + second, strict=True))


def drive(jobs: list[dict[str, object]]) -> list[bool]:
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", DRIVER],
        input=json.dumps(jobs),
        env={**os.environ, "GROUPWISE_CANARY": "secret"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        close_fds=False,
        timeout=600,
    )
    return [line == "True" for line in ran.stdout.split()]


def limits(attempt: Attempt) -> SandboxLimits:
    return SHORT if attempt in TIME else USUAL


def test_there_are_enough_attempts_and_no_two_alike() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 40


@pytest.mark.parametrize("name", [attempt.name for attempt in FREE])
def test_it_gets_out_where_there_is_no_sandbox(outside: dict[str, bool], name: str) -> None:
    assert outside[name]


@pytest.mark.parametrize("name", NAMES)
def test_it_stays_in_monty(in_monty: dict[str, SandboxResult], machine: Machine, name: str) -> None:
    assert in_monty[name].value is not True, in_monty[name]
    assert machine.unharmed


@pytest.mark.parametrize("name", NAMES)
def test_it_stays_in_bubblewrap(in_bubblewrap: dict[str, SandboxResult], machine: Machine, name: str) -> None:
    assert in_bubblewrap[name].value is not True, in_bubblewrap[name]
    assert machine.unharmed


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("read a file", SandboxOutcome.FORBIDDEN),
        ("write a file", SandboxOutcome.FORBIDDEN),
        ("connect", SandboxOutcome.FORBIDDEN),
        ("fork", SandboxOutcome.FORBIDDEN),
        ("run a program", SandboxOutcome.FORBIDDEN),
        ("end another process", SandboxOutcome.FORBIDDEN),
        ("system calls of another machine", SandboxOutcome.FORBIDDEN),
        ("much memory", SandboxOutcome.MEMORY),
        ("a map of memory", SandboxOutcome.FORBIDDEN),
        ("print much", SandboxOutcome.MEMORY),
        ("complain much", SandboxOutcome.MEMORY),
        ("loop", SandboxOutcome.TIMED_OUT),
        ("ignore signals", SandboxOutcome.TIMED_OUT),
        ("sleep", SandboxOutcome.TIMED_OUT),
        ("break the process", SandboxOutcome.RAISED),
    ],
)
def test_what_it_tried_has_a_name(in_bubblewrap: dict[str, SandboxResult], name: str, outcome: SandboxOutcome) -> None:
    assert in_bubblewrap[name].outcome is outcome, in_bubblewrap[name]
