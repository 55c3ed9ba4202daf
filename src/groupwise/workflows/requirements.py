"""Requirements: the activities of a process, the rules they must keep, who can do them, and what matters most.

`read_requirements` reads YAML or JSON; `schema()` is the published JSON Schema. Times are in seconds, money is in any
single currency. A mistake is reported with its place in the file.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from groupwise.errors import ConfigError
from groupwise.readers import load_json, load_yaml, read_bytes


class RequirementPart(BaseModel):
    """Frozen, and strict about names: an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Duration(RequirementPart):
    """How long something takes: a distribution given by its mean and standard deviation, or a fixed time."""

    kind: Literal["fixed", "exponential", "normal", "lognormal", "uniform", "gamma"] = "exponential"
    mean: Annotated[float, Field(ge=0)]
    std: Annotated[float | None, Field(ge=0, description="standard deviation; not for exponential and fixed")] = None

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if self.kind in ("normal", "lognormal", "uniform", "gamma") and self.std is None:
            raise ValueError(f"a {self.kind} duration needs std")
        # A uniform distribution reaches from mean − √3·std to mean + √3·std.
        if self.kind == "uniform" and self.std is not None and self.std * math.sqrt(3) > self.mean:
            raise ValueError(f"a uniform duration with mean {self.mean} and std {self.std} includes negative times")
        return self

    @property
    def scv(self) -> float:
        """The squared coefficient of variation, std² / mean²."""
        if self.mean == 0 or self.kind == "fixed":
            return 0.0
        # An exponential distribution has std = mean.
        return 1.0 if self.kind == "exponential" else (self.std or 0.0) ** 2 / self.mean**2


class RequiredActivity(RequirementPart):
    """An activity that a case may need."""

    duration: Duration
    pools: Annotated[tuple[str, ...], Field(description="pools that may do it; empty if nobody is needed")] = ()
    cost: Annotated[float, Field(ge=0, description="cost of one execution, without wages")] = 0.0
    cpu: Annotated[float, Field(ge=0, description="cores it uses")] = 0.0
    memory: Annotated[float, Field(ge=0, description="bytes of memory it uses")] = 0.0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    failure: Annotated[float, Field(ge=0, lt=1, description="probability that an attempt fails")] = 0.0
    knock_out: Annotated[float, Field(ge=0, lt=1, description="probability that it ends the case")] = 0.0
    optional: Annotated[bool, Field(description="whether a design may leave it out")] = False
    documentation: str = ""


class Pool(RequirementPart):
    """People or machines of one kind."""

    least: Annotated[int, Field(ge=0)] = 1
    most: Annotated[int, Field(ge=1)] = 1
    kind: Literal["person", "machine"] = "person"
    wage: Annotated[float, Field(ge=0, description="money per second and server")] = 0.0
    speed: Annotated[float, Field(gt=0, description="work done per second, where 1 gives the stated durations")] = 1.0
    calendar: Annotated[
        tuple[tuple[float, float], ...],
        Field(description="working hours as hours of the week from Monday 0:00; empty: always"),
    ] = ()

    @property
    def open_share(self) -> float:
        """The share of the week in which it works."""
        return sum(end - start for start, end in self.calendar) / 168 if self.calendar else 1.0

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least is {self.least}, which is more than most ({self.most})")
        for start, end in self.calendar:
            if not 0 <= start < end <= 168:
                raise ValueError(f"[{start}, {end}] must be hours of a week, from 0 to 168")
        return self


class RequiredRules(RequirementPart):
    """Rules that every design must keep."""

    precedes: Annotated[tuple[tuple[str, str], ...], Field(description="pairs: the first comes before the second")] = ()
    excludes: Annotated[
        tuple[tuple[str, str], ...], Field(description="pairs that must not both happen in one case")
    ] = ()
    must_include: tuple[str, ...] = ()
    separate: Annotated[tuple[tuple[str, str], ...], Field(description="pairs done by different pools")] = ()
    deadline: Annotated[float | None, Field(gt=0, description="longest mean cycle time, in seconds")] = None


class RequiredBranch(RequirementPart):
    """A choice that the outside world makes: which activities a case needs, and how often."""

    name: str
    options: Annotated[dict[str, float], Field(description="activity → probability; together at most 1")]

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = sum(self.options.values())
        # The rest of the probability is for cases that need none of the options.
        if any(p <= 0 for p in self.options.values()) or total > 1 + 1e-9:
            raise ValueError(f"the probabilities of {self.name!r} must be above 0 and add up to at most 1, not {total}")
        return self


class Demand(RequirementPart):
    """How cases arrive: at a rate, or as a single batch."""

    arrivals_per_second: Annotated[float | None, Field(gt=0)] = None
    runs: Annotated[int, Field(ge=1, description="cases that start at once if there is no arrival rate")] = 1


class Weights(RequirementPart):
    """The weight of each part of the score."""

    performance: Annotated[float, Field(ge=0)] = 0.40
    structure: Annotated[float, Field(ge=0)] = 0.25
    maintainability: Annotated[float, Field(ge=0)] = 0.20
    resources: Annotated[float, Field(ge=0)] = 0.15


class Requirements(RequirementPart):
    """Everything that a design has to meet."""

    name: str
    activities: Annotated[dict[str, RequiredActivity], Field(min_length=1)]
    pools: dict[str, Pool] = {}
    rules: RequiredRules = RequiredRules()
    branches: tuple[RequiredBranch, ...] = ()
    demand: Demand = Demand()
    data: Annotated[
        dict[str, Annotated[float, Field(ge=0)]],
        Field(description="bytes of the data that activities read and write, by name; 0 if not listed"),
    ] = {}
    objective: Weights | Literal["pareto"] = Weights()
    start: Annotated[str | None, Field(description="a workflow to start from: .yawl, .bpmn or WfCommons .json")] = None
    documentation: str = ""

    @model_validator(mode="after")
    def _names(self) -> Self:
        known, pools = self.activities, self.pools
        for name, activity in known.items():
            for pool in activity.pools:
                if pool not in pools:
                    raise ValueError(f"activity {name!r} names the pool {pool!r}, which is not in pools")
        pairs = (*self.rules.precedes, *self.rules.excludes, *self.rules.separate)
        named = [*(name for pair in pairs for name in pair), *self.rules.must_include]
        named += [name for branch in self.branches for name in branch.options]
        for name in named:
            if name not in known:
                raise ValueError(f"a rule or branch names {name!r}, which is not in activities")
        return self


def schema() -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Requirements.model_json_schema()}


def read_requirements(path: str | Path) -> Requirements:
    """The requirements in a YAML or JSON file."""
    path = Path(path)
    try:
        content = read_bytes(path)
        value = load_json(content) if path.suffix == ".json" else load_yaml(content, aliases=True)
        return parse_requirements(value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint, field=error.field) from error


def parse_requirements(value: Any) -> Requirements:
    """The requirements in a mapping; an error names the place of the first mistake."""
    try:
        return Requirements.model_validate(value)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        # Pydantic adds the name of a validator to the place; readers of a file do not know it.
        place = ".".join(str(part) for part in first["loc"] if part != "function-after")
        more = f" (and {len(others)} more)" if others else ""
        said = str(first["msg"]).removeprefix("Value error, ")
        raise ConfigError(f"{place + ': ' if place else ''}{said}{more}", field=place) from error
