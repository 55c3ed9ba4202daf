"""`groupwise sampler start | status | stop`: vLLM servers on this machine for `rollout.sampler = "vllm"`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from groupwise.errors import ConfigError
from groupwise.language.samplers.server_process import (
    ENVIRONMENT,
    FOLDER,
    ServerOptions,
    ServerRecord,
    known_servers,
    start_server,
    stop_server,
)
from groupwise.reporting.command_options import Common, answer

Folder = Annotated[Path, Parameter(help="Folder of the servers' records and logs.")]


def start(
    model: Annotated[str, Parameter(help="The model that the run starts from: tiny, a folder or a hub name.")],
    *more: Annotated[str, Parameter(help="More arguments for `vllm serve`, after --.", allow_leading_hyphen=True)],
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=1, lte=65535), help="The port.")] = 8000,
    lora_rank: Annotated[
        int, Parameter(validator=Number(gte=0), help="Highest rank of an adapter; 0 takes full weights only.")
    ] = 0,
    max_length: Annotated[
        int | None, Parameter(validator=Number(gte=2), help="Longest sequence; the model's by default.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Parameter(help="Precision; by default float32 on a CPU and the model's own on a GPU."),
    ] = None,
    logprobs_mode: Annotated[
        Literal["processed_logprobs", "raw_logprobs"],
        Parameter(help="Log-probabilities after or before temperature, top_k, top_p and min_p."),
    ] = "processed_logprobs",
    environment: Annotated[Path, Parameter(help="Virtual environment with vLLM.")] = ENVIRONMENT,
    folder: Folder = FOLDER,
    common: Common = Common(),
) -> None:
    """Start a vLLM server in its own virtual environment, and return when it answers."""
    options = ServerOptions(host, port, lora_rank, max_length, dtype, logprobs_mode, more=more)
    shown = sys.stderr.isatty() and not common.json

    def waiting(seconds: float) -> None:
        if shown:
            print(f"\rloading {model}: {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    if host not in ("127.0.0.1", "localhost", "::1"):
        print(f"note: whoever reaches {host}:{port} can replace the server's weights", file=sys.stderr)
    record = start_server(model, options, environment=environment, folder=folder, waiting=waiting)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if common.json:
        answer(asdict(record))
    else:
        print(f"{record.url} serves {record.model} (process {record.pid}, log {record.log})")
        print(f"Train with it: --set rollout.sampler=vllm --set vllm.servers={record.url}")


def status(*, folder: Folder = FOLDER, common: Common = Common()) -> None:
    """List the servers that were started here, and whether they answer."""
    found = known_servers(folder)
    rows = [{**asdict(record), "answers": record.answers} for record in found]
    if common.json:
        answer(rows)
        return
    for row in rows:
        print(
            f"{row['url']}  {'answers' if row['answers'] else 'does not answer'}  {row['model']}  process {row['pid']}"
        )
    if not rows:
        print(f"no server runs (records in {folder})")


def stop(
    *urls: Annotated[str, Parameter(help="Addresses or ports of the servers; all of them if left out.")],
    folder: Folder = FOLDER,
    common: Common = Common(),
) -> None:
    """Stop servers that were started here."""
    known = known_servers(folder)
    chosen = [_named(name, known) for name in urls] if urls else known
    for record in chosen:
        stop_server(record, folder)
    if common.json:
        answer([record.url for record in chosen])
    else:
        print("\n".join(f"stopped {record.url}" for record in chosen) or "no server runs")


def _named(name: str, known: list[ServerRecord]) -> ServerRecord:
    for record in known:
        if name in (record.url, record.url.rpartition(":")[2]):
            return record
    there = ", ".join(record.url for record in known) or "none"
    raise ConfigError(f"no server {name!r} was started here", hint=f"Running: {there}.")
