"""Settings of the service: where it listens, where it stores things, and its limits."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import ConfigError

OWN_FOLDER = ".service"
DATABASE_VARIABLE = "GROUPWISE_DATABASE"  # keeps a password out of the process list


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of one service.

    `database` is an SQLAlchemy URL; services that share a PostgreSQL database share its jobs, and must share `runs_dir`
    too. `workers` jobs run at once. After `lease` seconds of silence another service may take over a job. Jobs run at
    `niceness` above the service. `origins` are other sites whose pages may call this service (CORS); none by default.
    `model` answers chats that name no model; `tools` is a Python file of tools that models may call.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    runs_dir: Path = Path("runs")
    database: str | None = None
    workers: int = 1
    # Must be well above `poll`, or a busy service loses its own jobs.
    lease: float = 10.0
    poll: float = 0.25
    niceness: int = 5
    origins: tuple[str, ...] = ()
    model: str = "tiny"
    tools: str | None = None
    models_loaded: int = 2
    largest_body: int = 4 << 20
    body_timeout: float = 30.0
    reads_per_second: float = 5000.0
    writes_per_second: float = 50.0
    largest_queue: int = 1000
    workflow_timeout: float = 120.0

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port = {self.port} is not between 0 and 65535", field="port")
        for name in ("workers", "lease", "poll", "largest_body", "largest_queue", "models_loaded"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} = {getattr(self, name)} must be above 0", field=name)

    @property
    def folder(self) -> Path:
        """Where the service stores its own files: database, conversations, designs and job settings."""
        return self.runs_dir / OWN_FOLDER

    @property
    def url(self) -> str:
        given = self.database or os.environ.get(DATABASE_VARIABLE)
        return given or f"sqlite:///{(self.folder / 'service.sqlite').resolve()}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
