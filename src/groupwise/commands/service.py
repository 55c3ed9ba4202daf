"""`groupwise serve` and `groupwise keys add | list | revoke`: run the service, and manage its API keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.commands.options import RUNS, Common, RunsDir, answer
from groupwise.errors import MissingExtra
from groupwise.service.settings import ServiceSettings


def serve(
    *,
    host: Annotated[
        str, Parameter(help="Where to listen; beyond this machine only once there is a key.")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port.")] = 8001,
    runs_dir: RunsDir = Path(RUNS),
    database: Annotated[
        str | None, Parameter(help="sqlite:///FILE or postgresql://…; a file beside the runs if not given.")
    ] = None,
    workers: Annotated[int, Parameter(validator=Number(gte=1), help="Jobs that run at once.")] = 1,
    niceness: Annotated[int, Parameter(validator=Number(gte=0, lte=19), help="How far jobs give way to others.")] = 5,
    lease: Annotated[float, Parameter(help="Seconds of silence after which another service takes a job over.")] = 10.0,
    origin: Annotated[
        tuple[str, ...], Parameter(negative=(), help="A page elsewhere that may call it: https://my.site.")
    ] = (),
    model: Annotated[str, Parameter(help="The model to chat with where a request names none.")] = "tiny",
    tools: Annotated[
        str | None, Parameter(help="Tools that models may call in a chat: FILE.py, or module:name.")
    ] = None,
    common: Common = Common(),
) -> None:
    """Serve training, chat, designs and the live page over HTTP, until Ctrl-C."""
    needs_service().serve(
        ServiceSettings(
            host=host, port=port, runs_dir=runs_dir, database=database, workers=workers, niceness=niceness,
            lease=lease, origins=origin,
            model=model, tools=tools,
        )
    )  # fmt: skip


def needs_service() -> ModuleType:
    """The service, if what it is made of is installed."""
    try:
        return import_module("groupwise.service.app")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the service needs {error.name}", hint="pip install 'groupwise[service]'") from error


if TYPE_CHECKING:
    from groupwise.service.keys import Keys

Database = Annotated[str | None, Parameter(help="The service's database, if it was given one.")]


def add(
    name: Annotated[str, Parameter(help="Whose key it is, for people.")],
    *,
    scope: Annotated[Literal["read", "train", "admin"], Parameter(help="What it allows.")] = "train",
    runs_dir: RunsDir = Path(RUNS),
    database: Database = None,
    common: Common = Common(),
) -> None:
    """Make a key and show it, once. From then on every request needs one."""
    with opened(runs_dir, database) as keys:
        text, key = keys.add(name, scope)
    if common.json:
        answer({"key": text, **asdict(key)})
    else:
        print(f"{text}\nThis is {key.name}'s key {key.id} ({key.scope}). It is not shown again.")


def listed(*, runs_dir: RunsDir = Path(RUNS), database: Database = None, common: Common = Common()) -> None:
    """List the keys; their texts are not kept."""
    with opened(runs_dir, database) as keys:
        found = keys.all()
    if common.json:
        answer([asdict(key) for key in found])
        return
    table = Table("id", "name", "scope", "made", "revoked", box=None)
    for key in found:
        table.add_row(key.id, key.name, key.scope, *(_day(moment) for moment in (key.created, key.revoked)))
    Console().print(table if found else "no keys: whoever is on this machine may do anything")


def revoke(
    key: Annotated[str, Parameter(help="Its id, as `groupwise keys list` shows it.")],
    *,
    runs_dir: RunsDir = Path(RUNS),
    database: Database = None,
    common: Common = Common(),
) -> None:
    """Make a key worthless; a running service notices within a second."""
    with opened(runs_dir, database) as keys:
        gone = keys.revoke(key)
    if common.json:
        answer(asdict(gone))
    else:
        print(f"{gone.name}'s key {gone.id} is revoked")


@contextmanager
def opened(runs_dir: Path, database: str | None) -> Iterator[Keys]:
    service = needs_service()
    tables = service.Tables(ServiceSettings(runs_dir=runs_dir, database=database).url)
    try:
        yield service.Keys(tables)
    finally:
        tables.close()


def _day(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
