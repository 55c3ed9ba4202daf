"""`groupwise serve` and `groupwise keys add | list | revoke`: run the service, and manage its API keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.reporting.command_options import RUNS, Common, RunsDir, answer
from groupwise.service.settings import GIB, Quotas, ServiceSettings

if TYPE_CHECKING:
    from groupwise.service.keys import Keys


def serve(
    *,
    host: Annotated[str, Parameter(help="Address to listen on; a non-local one requires an API key.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port.")] = 8001,
    runs_dir: RunsDir = Path(RUNS),
    database: Annotated[
        str | None, Parameter(help="sqlite:///FILE or postgresql://…; by default a file beside the runs.")
    ] = None,
    workers: Annotated[int, Parameter(validator=Number(gte=1), help="Maximum number of jobs running at once.")] = 1,
    niceness: Annotated[int, Parameter(validator=Number(gte=0, lte=19), help="Niceness of the job processes.")] = 5,
    lease: Annotated[
        float, Parameter(help="Seconds without a heartbeat before another service takes over a job.")
    ] = 10.0,
    origin: Annotated[
        tuple[str, ...],
        Parameter(help="Another site whose pages may call the service, such as https://my.site."),
    ] = (),
    model: Annotated[str, Parameter(help="Default model for chats.")] = "tiny",
    tools: Annotated[
        str | None, Parameter(help="Tools for chats: FILE.py with @tool functions, or module:name.")
    ] = None,
    data_dir: Annotated[Path | None, Parameter(help="Folder with files that train keys may name in settings.")] = None,
    allow_model: Annotated[
        tuple[str, ...], Parameter(help="A model or judge that train keys may name, besides tiny and their own runs.")
    ] = (),
    memory: Annotated[
        float | None,
        Parameter(validator=Number(gt=0), help="GiB of memory per job of a train key; by default its share of 80%."),
    ] = None,
    cpu_hours: Annotated[
        float, Parameter(validator=Number(gt=0), help="Hours of processor time per job of a train key.")
    ] = Quotas.cpu_hours_per_job,
    queued: Annotated[
        int, Parameter(validator=Number(gte=1), help="Jobs that may wait per train key.")
    ] = Quotas.queued_per_key,
    disk: Annotated[
        float, Parameter(validator=Number(gt=0), help="GiB that the runs of a train key may take.")
    ] = Quotas.disk_per_key / GIB,
    common: Common = Common(),
) -> None:
    """Serve training, chat, workflow design and the live page over HTTP until Ctrl-C."""
    quotas = Quotas(None if memory is None else int(memory * GIB), cpu_hours, queued, int(disk * GIB))
    import_module("groupwise.service.app").serve(
        ServiceSettings(
            host=host, port=port, runs_dir=runs_dir, database=database, workers=workers, niceness=niceness,
            lease=lease, origins=origin,
            model=model, tools=tools, data_dir=data_dir, allow_models=allow_model, quotas=quotas,
        )
    )  # fmt: skip


Database = Annotated[str | None, Parameter(help="The service's database, if you started it with --database.")]


def add(
    name: Annotated[str, Parameter(help="Who the key is for.")],
    *,
    scope: Annotated[Literal["read", "train", "admin"], Parameter(help="What the key allows.")] = "train",
    of: Annotated[
        str | None, Parameter(help="Id of the key whose jobs and runs it sees; by default only its own.")
    ] = None,
    runs_dir: RunsDir = Path(RUNS),
    database: Database = None,
    common: Common = Common(),
) -> None:
    """Create a key and show it once. As soon as there is a key, every request needs one."""
    with opened(runs_dir, database) as keys:
        text, key = keys.add(name, scope, of)
    if common.json:
        answer({"key": text, **asdict(key)})
    else:
        print(f"{text}\nThis is the key {key.id} ({key.scope}) for {key.name}. It is not shown again.")


def listed(*, runs_dir: RunsDir = Path(RUNS), database: Database = None, common: Common = Common()) -> None:
    """List the keys. The keys themselves are not stored, only hashes."""
    with opened(runs_dir, database) as keys:
        found = keys.all()
    if common.json:
        answer([asdict(key) for key in found])
        return
    table = Table("id", "name", "scope", "sees", "made", "revoked", box=None)
    for key in found:
        sees = "everything" if key.scope == "admin" else "its own" if key.owner == key.id else f"those of {key.owner}"
        table.add_row(key.id, key.name, key.scope, sees, *(_day(moment) for moment in (key.created, key.revoked)))
    Console().print(
        table
        if found
        else "no keys exist: anyone on this machine may train, and whoever has the service's token may do anything"
    )


def revoke(
    key: Annotated[str, Parameter(help="The key's id, as `groupwise keys list` shows it.")],
    *,
    runs_dir: RunsDir = Path(RUNS),
    database: Database = None,
    common: Common = Common(),
) -> None:
    """Revoke a key. A running service notices within a second."""
    with opened(runs_dir, database) as keys:
        gone = keys.revoke(key)
    if common.json:
        answer(asdict(gone))
    else:
        print(f"the key {gone.id} of {gone.name} is revoked")


@contextmanager
def opened(runs_dir: Path, database: str | None) -> Iterator[Keys]:
    # Neither module imports the web framework, which would take a second.
    tables = import_module("groupwise.service.tables").Tables(ServiceSettings(runs_dir=runs_dir, database=database).url)
    try:
        yield import_module("groupwise.service.keys").Keys(tables)
    finally:
        tables.close()


def _day(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
