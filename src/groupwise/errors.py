"""Every error Groupwise raises on purpose.

    GroupwiseError                 code, message, hint, field: one shape for the CLI, HTTP and WebSocket
    ├── ConfigError (ValueError)   a setting is unknown, of the wrong type or out of bounds
    ├── ContractError (ValueError) an environment, reward, policy or product broke its contract
    ├── NoSignalError              there is nothing to learn from: every attempt failed
    ├── ResourceError              the machine has too little memory
    ├── RankError                  the processes that train a run together cannot reach each other
    ├── RunError                   a run folder cannot be used
    │   ├── RunNotFound            no run of that name
    │   ├── RunLocked              another process is writing to it
    │   └── CheckpointError        no checkpoint can be loaded
    ├── StorageError (OSError)     the disk refused: full, read-only, gone
    └── MissingExtra (ImportError) an optional package is not installed

A failed attempt inside a running group is not an exception but a value: `types.Failed`.
"""

LONGEST = 1200  # characters of a message


class GroupwiseError(Exception):
    """An expected failure: what happened, the value and the limit, and what to do about it."""

    code = "error"

    def __init__(self, message: str, *, hint: str = "", field: str = "") -> None:
        super().__init__(message)
        # Messages quote what they were given, and a hostile file can make that as long as it likes.
        self.message, self.hint, self.field = map(_shortened, (message, hint, field))

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def as_dict(self) -> dict[str, dict[str, str]]:
        """The one error shape: `{"error": {"code", "message", "hint", "field"}}`."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint, "field": self.field}}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 400]} … {text[-397:]}"


class ConfigError(GroupwiseError, ValueError):
    code = "config"


class ContractError(GroupwiseError, ValueError):
    code = "contract"


class NoSignalError(GroupwiseError):
    code = "no_signal"


class ResourceError(GroupwiseError):
    code = "resources"


class RankError(GroupwiseError):
    code = "ranks"


class RunError(GroupwiseError):
    code = "run"


class RunNotFound(RunError):
    code = "run_not_found"


class RunLocked(RunError):
    code = "run_locked"


class CheckpointError(RunError):
    code = "checkpoint"


class StorageError(GroupwiseError, OSError):
    code = "storage"


class MissingExtra(GroupwiseError, ImportError):
    code = "missing_extra"
