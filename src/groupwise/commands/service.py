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
from groupwise.service.settings import ServiceSettings

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
    common: Common = Common(),
) -> None:
    """Serve training, chat, workflow design and the live page over HTTP until Ctrl-C."""
    import_module("groupwise.service.app").serve(
        ServiceSettings(
            host=host, port=port, runs_dir=runs_dir, database=database, workers=workers, niceness=niceness,
            lease=lease, origins=origin,
            model=model, tools=tools,
        )
    )  # fmt: skip


Database = Annotated[str | None, Parameter(help="The service's database, if you started it with --database.")]


def add(
    name: Annotated[str, Parameter(help="Who the key is for.")],
    *,
    scope: Annotated[Literal["read", "train", "admin"], Parameter(help="What the key allows.")] = "train",
    runs_dir: RunsDir = Path(RUNS),
    database: Database = None,
    common: Common = Common(),
) -> None:
    """Create a key and show it once. As soon as there is a key, every request needs one."""
    with opened(runs_dir, database) as keys:
        text, key = keys.add(name, scope)
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
    table = Table("id", "name", "scope", "made", "revoked", box=None)
    for key in found:
        table.add_row(key.id, key.name, key.scope, *(_day(moment) for moment in (key.created, key.revoked)))
    Console().print(table if found else "no keys exist: anyone on this machine has full access")


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
