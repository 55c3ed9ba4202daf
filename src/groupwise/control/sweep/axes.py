"""The settings of a sweep and their ranges: a list of values, or everything between two numbers.

rollout.num_generations=4,8,16          these values
optim.learning_rate=1e-4:1e-2:log       every number between the two, evenly by its logarithm
policy.hidden_sizes=[64,64],[256,256]   lists are values too
optim.num_epochs=2:12:5                 in a grid, five values of the range
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config.fields import Setting, quoted, read_section
from groupwise.config.overrides import parse_value
from groupwise.config.setting_names import every_setting
from groupwise.config.training_config import toml_value
from groupwise.errors import ConfigError
from groupwise.readers import load_toml, read_bytes

# Values of a range in a grid, unless the range says how many.
POINTS = 4
# Digits of a number drawn from a range: more would only make tables unreadable.
DIGITS = 4
# Levels at which a range is looked at, in figures and for its importance.
LEVELS = 24
FORMS = "LOW:HIGH, LOW:HIGH:log, or values separated by commas"
RANGE = re.compile(r"(?P<low>[^:]+):(?P<high>[^:]+?)(?::(?P<scale>log|linear))?(?::(?P<points>\d+))?")
# What a sweep decides itself, and what would make scores incomparable.
RESERVED: Mapping[str, str] = {
    "run.seed": "every setting is trained with the seeds of --seeds and --first",
    "run.run_name": "a sweep names its runs itself",
    "run.output_dir": "a sweep keeps its runs in the folder of --out",
    "run.report_to": "the runs of a sweep have no trackers",
    "task.product": "give one settings file for each product",
    "task.environment": "scores of different environments cannot be compared; sweep them one by one",
}


@dataclass(frozen=True)
class Axis:
    """One swept setting. `values` are those of a list in its order; a range has none, but two ends and a scale."""

    name: str
    text: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    points: int = POINTS

    @property
    def is_range(self) -> bool:
        return not self.values

    @property
    def size(self) -> float:
        """How many values there are; infinite for a range of real numbers."""
        if self.values:
            return len(self.values)
        return self.high - self.low + 1 if self.whole else math.inf

    def at(self, share: float) -> Any:
        """The value that lies this share of the way along the axis; 0 is its beginning, 1 its end."""
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = low + share * (high - low)
        value = math.exp(value) if self.log else value
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def grid(self) -> list[Any]:
        """The values of the axis in a grid, in ascending order for a range."""
        if self.values:
            return list(self.values)
        return list(dict.fromkeys(self.at(place) for place in np.linspace(0, 1, self.points)))

    def draw(self, rng: np.random.Generator) -> Any:
        if self.values:
            return self.values[int(rng.integers(len(self.values)))]
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return self.at(float(rng.random()))

    def place(self, value: Any) -> float:
        """Where a value lies: from 0 to 1 for a range, its number for a list."""
        if self.values:
            return float(self.values.index(value))
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def levels(self) -> NDArray[np.float64]:
        """Places that stand for the whole axis: every value of a list, the middles of equal parts of a range."""
        return np.arange(len(self.values), dtype=np.float64) if self.values else (np.arange(LEVELS) + 0.5) / LEVELS

    def level_values(self) -> list[Any]:
        """The values at `levels`, with a range's numbers as they are, not rounded to what a run could have."""
        if self.values:
            return list(self.values)
        smooth = Axis(self.name, self.text, (), self.low, self.high, self.log)
        return [smooth.at(place) for place in self.levels()]

    def describe(self) -> dict[str, Any]:
        """The axis as plain values, for the result file."""
        if self.values:
            return {"name": self.name, "kind": "values", "values": [plain_value(value) for value in self.values]}
        scale = "log" if self.log else "linear"
        return {
            "name": self.name, "kind": "range", "low": self.low, "high": self.high, "scale": scale,
            "whole_numbers": self.whole,
        }  # fmt: skip


def plain_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """A value for a table or a figure."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return "null" if value is None else toml_value(value)


def override(name: str, value: Any) -> str:
    """`name=value`, as `--set` has it."""
    return f"{name}={toml_value(value)}"


def read_axes(words: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of `--over`: `NAME=RANGE`, or a TOML file with a table `[sweep]`."""
    given: list[tuple[str, str]] = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals and word.lower().endswith(".toml"):
            given += _in_file(Path(word))
        elif not equals or not name.strip():
            raise ConfigError(
                f"--over {quoted(word)} must be SETTING=RANGE",
                hint=f"RANGE is {FORMS}: optim.learning_rate=1e-4:1e-2:log",
            )
        else:
            given.append((name.strip(), text.strip()))
    if not given:
        raise ConfigError("nothing is swept", hint="Give a range: --over optim.learning_rate=1e-4:1e-2:log")
    axes = tuple(make_axis(name, text) for name, text in given)
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} has several ranges", hint="Keep one.", field=name)
    return axes


def _in_file(path: Path) -> list[tuple[str, str]]:
    """The ranges in a TOML file's table `[sweep]`: lists, or texts of the same form as on the command line."""
    try:
        content = load_toml(read_bytes(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
    table = content.get("sweep")
    if not isinstance(table, dict) or not table:
        hint = '[sweep], and below it lines such as "optim.learning_rate" = "1e-4:1e-2:log"'
        raise ConfigError(f"{path} has no table [sweep] with ranges", hint=hint)
    return [(name, _as_text(path, name, value)) for name, value in _flat(table)]


def _flat(table: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        path = f"{above}{name}"
        found += _flat(value, f"{path}.") if isinstance(value, dict) else [(path, value)]
    return found


def _as_text(path: Path, name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(toml_value(item) for item in value)
    raise ConfigError(
        f"{path}: {name} = {quoted(value)} is not a range", hint=f"A range is a list, or a text: {FORMS}."
    )


def make_axis(name: str, text: str) -> Axis:
    """The axis of one range; whatever is wrong with it is refused with the value."""
    declared, name = _declared(name)
    if name in RESERVED:
        raise ConfigError(f"{name} cannot be swept: {RESERVED[name]}", field=name)
    given = f"--over {name}={text}"
    if not text:
        raise ConfigError(f"{given} has no values", hint=f"A range is {FORMS}.", field=name)
    numeric = declared is None or (declared.kind in (int, float) and not declared.many)
    match = RANGE.fullmatch(text) if numeric and "," not in text else None
    if match:
        return _checked(_range(name, text, given, match, declared), declared, given)
    if declared is not None and numeric and ":" in text:
        raise ConfigError(f"{given} is not a range", hint=f"A range is {FORMS}.", field=name)
    values = tuple(_frozen(value) for value in _values(text, given, declared))
    if len(values) < 2:
        hint = f"A range is {FORMS}; a single value is given with --set."
        raise ConfigError(f"{given} has only one value", hint=hint, field=name)
    return _checked(Axis(name, text, values), declared, given)


def _declared(name: str) -> tuple[Setting | None, str]:
    """The declaration of a setting, and its full name. A name inside a free table has none."""
    known = every_setting()
    first, _, rest = name.partition(".")
    declared = known.find(first, rest) if rest else known.find("", name)
    if declared is not None:
        return declared, declared.path
    section, _, inner = name.partition(".")
    table = known.find(section, inner.partition(".")[0])
    if table is not None and "." in inner:
        return None, name
    from groupwise.config.setting_names import resolve  # its finding names the nearest setting

    findings = [found for found in resolve({name: None}).findings if found.field == name or name.endswith(found.field)]
    if findings:
        raise ConfigError(findings[0].message, hint=findings[0].hint, field=name)
    raise ConfigError(f"unknown setting {quoted(name)}", hint="docs/reference/config.md lists them all.", field=name)


def _range(name: str, text: str, given: str, match: re.Match[str], declared: Setting | None) -> Axis:
    low, high = (_number(match[end], given, name) for end in ("low", "high"))
    log, points = match["scale"] == "log", int(match["points"] or POINTS)
    whole = declared.kind is int if declared else isinstance(low, int) and isinstance(high, int)
    if not low < high:
        raise ConfigError(f"{given} has no values: {low} is not below {high}", field=name)
    if log and low <= 0:
        hint = "Begin above 0, or leave out :log."
        raise ConfigError(f"{given} begins at {low}, and a logarithmic range must begin above 0", hint=hint, field=name)
    if whole and not (float(low).is_integer() and float(high).is_integer()):
        raise ConfigError(f"{given} needs whole numbers at its ends, because {name} is a whole number", field=name)
    if not 2 <= points <= 1000:
        raise ConfigError(f"{given} asks for {points} values; a range has 2 to 1000 in a grid", field=name)
    return Axis(name, text, (), float(low), float(high), log, whole, points)


def _number(text: str, given: str, name: str) -> float:
    value = parse_value(text.strip())
    try:
        # 1e-4 is TOML, 1E4 and .5 are not, but everybody knows what they mean.
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"{given} has {quoted(text.strip())} where a number belongs", hint=f"A range is {FORMS}.", field=name
        )
    return number


def _values(text: str, given: str, declared: Setting | None) -> list[Any]:
    """The values of a list: TOML where it is TOML, otherwise plain texts between the commas."""
    is_text = declared is not None and declared.kind is str and not declared.many
    if not is_text:
        try:
            parsed = tomllib.loads(f"value = [{text}]")["value"]
            if isinstance(parsed, list):
                return [None if item == "null" else item for item in parsed]
        except (ValueError, RecursionError):
            pass
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{given} has an empty value", hint="Write the values with one comma between them.")
    return [parse_value(part) if not is_text or part[0] in "\"'" or part == "null" else part for part in parts]


def _in_order(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers ascending, because figures have an axis of them; anything else as it was given."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return tuple(sorted(values)) if numbers else values


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _checked(axis: Axis, declared: Setting | None, given: str) -> Axis:
    """The axis with values as the setting reads them. Values it does not take, or given twice, are refused."""
    values = axis.values
    if declared is not None:
        section, read = every_setting().sections[declared.section], []
        for value in values or (axis.at(0.0), axis.at(1.0)):
            sound, findings = read_section(section, {declared.name: plain_value(value)})
            if findings:
                raise ConfigError(f"{given}: {findings[0].message}", hint=findings[0].hint, field=axis.name)
            read.append(sound[declared.name])
        values = tuple(read) if values else ()
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ConfigError(f"{given} has {shown(value)} twice", hint="Keep one.", field=axis.name)
    return replace(axis, values=_in_order(values))
