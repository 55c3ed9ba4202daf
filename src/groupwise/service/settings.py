"""Settings of the service: where it listens, where it stores things, and its limits."""

import ipaddress
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from groupwise.errors import ConfigError

OWN_FOLDER = ".service"
DATABASE_VARIABLE = "GROUPWISE_DATABASE"  # keeps a password out of the process list
TOKEN_VARIABLE = "GROUPWISE_TOKEN"
GIB = 2**30
MEMORY_SHARE = 0.8  # of the machine's memory, for all jobs together, unless `memory_per_job` says otherwise


@dataclass(frozen=True)
class Quotas:
    """What the jobs of one key may use. An administrator's jobs have no quotas.

    `memory_per_job` is in bytes, and by default a job's share of 80% of the machine's memory. `cpu_hours_per_job` is
    processor time over all threads and restarts. `disk_per_key` is the size in bytes of all runs of a key.
    """

    memory_per_job: int | None = None
    cpu_hours_per_job: float = 240.0
    queued_per_key: int = 100
    disk_per_key: int = 50 * GIB

    def __post_init__(self) -> None:
        for name in ("memory_per_job", "cpu_hours_per_job", "queued_per_key", "disk_per_key"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} = {value} must be above 0", field=name)

    def memory(self, workers: int) -> int:
        """Bytes of memory that one of `workers` jobs may use."""
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self.memory_per_job or int(MEMORY_SHARE * machine / workers)


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of one service.

    `database` is an SQLAlchemy URL; services that share a PostgreSQL database share its jobs, and must share `runs_dir`
    too. `workers` jobs run at once. After `lease` seconds of silence another service may take over a job. Jobs run at
    `niceness` above the service. `origins` are other sites whose pages may call this service (CORS); none by default.
    `model` answers chats that name no model; `tools` is a Python file of tools that models may call.

    Keys with scope `train` may name files in `data_dir` and the models in `allow_models`, besides what comes with the
    package. `token` gives `admin` rights to whoever has it, as long as there are no keys.
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
    data_dir: Path | None = None
    allow_models: tuple[str, ...] = ()
    quotas: Quotas = Quotas()
    token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32), repr=False)

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
