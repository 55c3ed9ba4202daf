"""What is asked of a workflow: the activities there are, the rules they obey, who does them, and what counts.

Read from YAML or JSON with `read_requirements`; `schema()` is the published JSON Schema. Times are in seconds, money is
in any one currency. A mistake is refused with its place in the file.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from groupwise.errors import ConfigError
from groupwise.readers import load_json, load_yaml, read_bytes


class RequirementPart(BaseModel):
    """Frozen, and strict about names: nothing unknown is dropped in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Duration(RequirementPart):
    """How long something takes: a distribution by its mean and its spread, or a fixed time."""

    kind: Literal["fixed", "exponential", "normal", "lognormal", "uniform", "gamma"] = "exponential"
    mean: Annotated[float, Field(ge=0)]
    std: Annotated[
        float | None, Field(ge=0, description="standard deviation; exponential and fixed have their own")
    ] = None

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if self.kind in ("normal", "lognormal", "uniform", "gamma") and self.std is None:
            raise ValueError(f"a {self.kind} duration needs std")
        if self.kind == "uniform" and self.std is not None and self.std * math.sqrt(3) > self.mean:
            raise ValueError(f"a uniform duration of mean {self.mean} and std {self.std} would reach below 0")
        return self

    @property
    def scv(self) -> float:
        """The squared coefficient of variation, std² / mean²."""
        if self.mean == 0 or self.kind == "fixed":
            return 0.0
        return 1.0 if self.kind == "exponential" else (self.std or 0.0) ** 2 / self.mean**2


class RequiredActivity(RequirementPart):
    """Something to be done."""

    duration: Duration
    pools: Annotated[tuple[str, ...], Field(description="who may do it; none means nobody is needed")] = ()
    cost: Annotated[float, Field(ge=0, description="what one execution costs, apart from wages")] = 0.0
    cpu: Annotated[float, Field(ge=0, description="cores it keeps busy")] = 0.0
    memory: Annotated[float, Field(ge=0, description="bytes it holds")] = 0.0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    failure: Annotated[float, Field(ge=0, lt=1, description="probability that a try fails")] = 0.0
    knock_out: Annotated[float, Field(ge=0, lt=1, description="probability that it ends the case")] = 0.0
    optional: Annotated[bool, Field(description="whether a design may leave it out")] = False
    documentation: str = ""


class Pool(RequirementPart):
    """People or machines of one kind."""

    least: Annotated[int, Field(ge=0)] = 1
    most: Annotated[int, Field(ge=1)] = 1
    kind: Literal["person", "machine"] = "person"
    wage: Annotated[float, Field(ge=0, description="money per second and server")] = 0.0
    speed: Annotated[float, Field(gt=0, description="how fast beside the durations given")] = 1.0
    calendar: Annotated[
        tuple[tuple[float, float], ...], Field(description="hours of the week at work, from Monday 0:00; none: always")
    ] = ()

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least is {self.least} and most is {self.most}: nobody can staff this pool")
        for start, end in self.calendar:
            if not 0 <= start < end <= 168:
                raise ValueError(f"[{start}, {end}] are no hours of a week, which has 0 to 168")
        return self


class RequiredRules(RequirementPart):
    """What every design must obey."""

    precedes: Annotated[tuple[tuple[str, str], ...], Field(description="the first before the second")] = ()
    excludes: Annotated[tuple[tuple[str, str], ...], Field(description="never both in one case")] = ()
    must_include: tuple[str, ...] = ()
    separate: Annotated[tuple[tuple[str, str], ...], Field(description="never done by the same pool")] = ()
    deadline: Annotated[float | None, Field(gt=0, description="seconds a case may take on average")] = None


class RequiredBranch(RequirementPart):
    """A choice the world makes: which activities are needed, and how often."""

    name: str
    options: Annotated[dict[str, float], Field(description="activity → probability; they add up to at most 1")]

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = sum(self.options.values())
        if any(p <= 0 for p in self.options.values()) or total > 1 + 1e-9:
            raise ValueError(
                f"the probabilities of branch {self.name!r} must be above 0 and add up to at most 1, not {total}"
            )
        return self


class Demand(RequirementPart):
    """How cases come: at a rate, or one run."""

    arrivals_per_second: Annotated[float | None, Field(gt=0)] = None
    runs: Annotated[int, Field(ge=1, description="runs at once, where there are no arrivals")] = 1


class Weights(RequirementPart):
    """How much each part of the score counts."""

    performance: Annotated[float, Field(ge=0)] = 0.40
    structure: Annotated[float, Field(ge=0)] = 0.25
    maintainability: Annotated[float, Field(ge=0)] = 0.20
    resources: Annotated[float, Field(ge=0)] = 0.15


class Requirements(RequirementPart):
    """Everything a design is made for."""

    name: str
    activities: Annotated[dict[str, RequiredActivity], Field(min_length=1)]
    pools: dict[str, Pool] = {}
    rules: RequiredRules = RequiredRules()
    branches: tuple[RequiredBranch, ...] = ()
    demand: Demand = Demand()
    data: Annotated[
        dict[str, Annotated[float, Field(ge=0)]],
        Field(description="bytes of what activities read and write, by its name; what is not here has none"),
    ] = {}
    objective: Weights | Literal["pareto"] = Weights()
    start: Annotated[str | None, Field(description="a workflow to begin with: .yawl, .bpmn or WfCommons .json")] = None
    documentation: str = ""

    @model_validator(mode="after")
    def _names(self) -> Self:
        known, pools = self.activities, self.pools
        for name, activity in known.items():
            for pool in activity.pools:
                if pool not in pools:
                    raise ValueError(f"activity {name!r} may be done by {pool!r}, which is no pool")
        pairs = (*self.rules.precedes, *self.rules.excludes, *self.rules.separate)
        named = [*(name for pair in pairs for name in pair), *self.rules.must_include]
        named += [name for branch in self.branches for name in branch.options]
        for name in named:
            if name not in known:
                raise ValueError(f"a rule or branch names {name!r}, which is no activity")
        return self


def schema() -> dict[str, Any]:
    """The JSON Schema of requirements."""
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
    """The requirements in a mapping; what is wrong is named with its place."""
    try:
        return Requirements.model_validate(value)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        place = ".".join(str(part) for part in first["loc"] if part != "function-after")
        more = f" (and {len(others)} more)" if others else ""
        said = str(first["msg"]).removeprefix("Value error, ")
        raise ConfigError(f"{place + ': ' if place else ''}{said}{more}", field=place) from error


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
