"""What is wrong with a configuration: found all at once, then raised as one error."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: the setting it concerns, what is wrong, what to do, and the line where it was seen."""

    field: str
    message: str
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message}; {self.hint}" if self.hint else f"{place}{self.message}"


def raise_findings(findings: Sequence[Finding], where: str = "") -> None:
    """Raise one `ConfigError` that tells them all; nothing happens when there are none."""
    if not findings:
        return
    prefix = f"{where}: " if where else ""
    first = findings[0]
    if len(findings) == 1:
        prefix += f"line {first.line}: " if first.line else ""
        raise ConfigError(prefix + first.message, hint=first.hint, field=first.field)
    lines = "".join(f"\n  - {finding}" for finding in findings)
    raise ConfigError(f"{prefix}{len(findings)} problems in the configuration:{lines}", field=first.field)


def quoted(value: Any) -> str:
    """The value as a reader knows it, cut short when long, whatever it is."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # a huge integer refuses to be printed, a deep nest cannot be
        return f"<{type(value).__name__}>"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8
