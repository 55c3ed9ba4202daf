"""`groupwise serve`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from groupwise.commands.options import RUNS, Common, RunsDir
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
        return import_module("groupwise.service.serving")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the service needs {error.name}", hint="pip install 'groupwise[service]'") from error
