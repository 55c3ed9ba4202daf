"""Requirements: the activities of a process, the rules they must keep, who can do them, and what matters most.

`read_requirements` reads YAML or JSON; `schema()` is the published JSON Schema. Times are in seconds, money is in any
single currency. A mistake is reported with its place in the file.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from groupwise.errors import ConfigError
from groupwise.readers import load_json, load_yaml, read_bytes
from groupwise.workflows.requirement_errors import error_of, near


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

    kind: Annotated[
        Literal["human", "service", "send", "receive", "decision"] | None,
        Field(description="what it is: work of people or machines, a message, waiting for an event, or a decision"),
    ] = None
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
    skills: Annotated[tuple[str, ...], Field(description="skills that whoever does it must have")] = ()
    documentation: str = ""

    @model_validator(mode="after")
    def _event(self) -> Self:
        if self.kind == "receive" and self.pools:
            raise ValueError(f"waiting for an event needs nobody, but pools are {', '.join(map(repr, self.pools))}")
        if self.skills and not self.pools:
            raise ValueError(f"it needs the skill {self.skills[0]!r}, but no pool may do it")
        return self


Hours: TypeAlias = tuple[tuple[float, float], ...]


def _check_hours(calendar: Hours) -> None:
    for start, end in calendar:
        shift = f"[{start:g}, {end:g}]"
        if start == end:
            raise ValueError(f"nobody works in {shift}: a shift must end after it starts")
        if not (0 <= start <= 168 and 0 <= end <= 168):
            raise ValueError(f"{shift} must be hours of a week, from 0 to 168")
        if end < start:
            late = end + 24 * math.ceil((start - end) / 24)
            # The hours of a week go on counting, so that a night from 22 to 6 is [22, 30].
            meant = f"[{start:g}, {late:g}]" if late <= 168 else f"[{start:g}, 168] and [0, {end:g}]" if end else ""
            hint = f" (hours count from Monday 0:00 to 168, so a night shift is {meant})" if meant else ""
            raise ValueError(f"the shift {shift} ends before it starts{hint}")


def merged_hours(calendar: Hours) -> Hours:
    """The hours in order, with shifts that overlap or touch joined."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(calendar):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


class Pool(RequirementPart):
    """People or machines of one kind."""

    least: Annotated[int, Field(ge=0)] = 1
    most: Annotated[int, Field(ge=1)] = 1
    kind: Literal["person", "machine"] = "person"
    wage: Annotated[float, Field(ge=0, description="money per second and server")] = 0.0
    speed: Annotated[float, Field(gt=0, description="work done per second, where 1 gives the stated durations")] = 1.0
    calendar: Annotated[
        Hours, Field(description="working hours as hours of the week from Monday 0:00; empty: always")
    ] = ()

    @property
    def open_share(self) -> float:
        """The share of the week in which it works."""
        return sum(end - start for start, end in merged_hours(self.calendar)) / 168 if self.calendar else 1.0

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least is {self.least}, which is more than most ({self.most})")
        _check_hours(self.calendar)
        return self


class Person(RequirementPart):
    """A member of one or more pools. A pool with members has at most as many servers, the first ones in the file."""

    pools: Annotated[tuple[str, ...], Field(min_length=1)]
    skills: tuple[str, ...] = ()
    calendar: Annotated[
        Hours, Field(description="own working hours, which count while the pool works; empty: those of the pool")
    ] = ()

    @model_validator(mode="after")
    def _hours(self) -> Self:
        _check_hours(self.calendar)
        return self


Pairs: TypeAlias = tuple[tuple[str, str], ...]


class RequiredRules(RequirementPart):
    """Rules that every design must keep."""

    precedes: Annotated[Pairs, Field(description="pairs: the first comes before the second")] = ()
    excludes: Annotated[Pairs, Field(description="pairs that must not both happen in one case")] = ()
    must_include: tuple[str, ...] = ()
    separate: Annotated[Pairs, Field(description="pairs done by different pools")] = ()
    coexist: Annotated[Pairs, Field(description="pairs of which a case has both or neither")] = ()
    not_coexist: Annotated[Pairs, Field(description="the same as excludes")] = ()
    response: Annotated[
        Pairs, Field(description="pairs: the second follows some time after the first, unless the case ends")
    ] = ()
    chain: Annotated[Pairs, Field(description="pairs: the second comes directly after the first")] = ()
    different_people: Annotated[Pairs, Field(description="pairs done by different people")] = ()
    same_person: Annotated[Pairs, Field(description="pairs done by the same person")] = ()
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


class OutcomeBranch(RequirementPart):
    """What happens after one of the results of an activity."""

    probability: Annotated[float, Field(gt=0, le=1)]
    activities: tuple[str, ...] = ()
    ends: Annotated[bool, Field(description="whether the case is over after the branch")] = False


def _answers(value: Any) -> Any:
    # YAML reads the names yes and no as true and false.
    if not isinstance(value, dict):
        return value
    return {("yes" if name else "no") if isinstance(name, bool) else name: part for name, part in value.items()}


class OutcomeAgain(RequirementPart):
    """A later part of the process that depends on a result which is known already."""

    after: Annotated[str, Field(description="the activity after which it is asked for again")]
    branches: Annotated[
        dict[str, tuple[str, ...]],
        BeforeValidator(_answers),
        Field(min_length=1, description="result → activities; they are added to the branch"),
    ]


class RequiredOutcome(RequirementPart):
    """What the world decides after an activity; an outcome after an activity of a branch is nested in that branch.

    The result of a case stays the same: work of a branch may wait for other work in between, or be stated as `again`.
    """

    name: str
    after: Annotated[str, Field(description="the activity whose result decides")]
    branches: Annotated[dict[str, OutcomeBranch], BeforeValidator(_answers), Field(min_length=2)]
    again: Annotated[tuple[OutcomeAgain, ...], Field(description="where the result is asked for again later")] = ()

    @model_validator(mode="after")
    def _with_later_work(self) -> Self:
        """Add the work of later parts to the branches, where everything else looks for it."""
        for later in self.again:
            for name, activities in later.branches.items():
                if name not in self.branches:
                    meant = near(name, self.branches)
                    raise ValueError(f"{self.name!r} is asked for {name!r} again, which is not a branch{meant}")
                known = self.branches[name]
                new = tuple(one for one in activities if one not in known.activities)
                self.branches[name] = known.model_copy(update={"activities": (*known.activities, *new)})
        return self

    @property
    def decisions(self) -> Iterator[tuple[str, str]]:
        """Which activity comes before which, because it decides about it or because it is asked for again after it."""
        for branch in self.branches.values():
            yield from ((self.after, name) for name in branch.activities)
        for later in self.again:
            yield from ((later.after, name) for some in later.branches.values() for name in some)

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = sum(branch.probability for branch in self.branches.values())
        if abs(total - 1) > 1e-6:
            listed = ", ".join(f"{name!r} {branch.probability:g}" for name, branch in self.branches.items())
            raise ValueError(f"the probabilities of {self.name!r} add up to {total:.6g}, not 1: {listed}")
        return self


class GivingUp(RequirementPart):
    """What happens to a case whose loop may not be repeated once more, although the result asks for it."""

    activities: tuple[str, ...] = ()
    ends: Annotated[bool, Field(description="whether the case is over after that")] = True


class RequiredLoop(RequirementPart):
    """Work that is repeated with probability `again`, which is decided after its last activity."""

    name: str
    activities: Annotated[tuple[str, ...], Field(min_length=1)]
    after: Annotated[str, Field(description="the activity whose result decides; the last of a round")]
    again: Annotated[float, Field(gt=0, lt=1)]
    most: Annotated[int | None, Field(ge=1, description="repetitions at most; empty: no limit")] = None
    redo: Annotated[tuple[str, ...], Field(description="activities between two rounds")] = ()
    give_up: Annotated[
        GivingUp | None, Field(description="what happens if it is still not right after the last repetition")
    ] = None

    @model_validator(mode="after")
    def _parts(self) -> Self:
        if self.give_up is not None and self.most is None:
            raise ValueError(f"{self.name!r} says what happens on giving up, but not after how many repetitions (most)")
        if self.after not in self.activities:
            raise ValueError(f"{self.name!r} is decided after {self.after!r}, which is not one of its activities")
        both = [name for name in self.redo if name in self.activities]
        if both:
            raise ValueError(f"{both[0]!r} is both in the loop {self.name!r} and between its rounds")
        return self

    @property
    def giving_up(self) -> RequiredOutcome | None:
        """The outcome after the last round by which a case is given up, if the loop may be.

        It has the right share of cases, but does not know which of them were repeated so often.
        """
        if self.give_up is None or self.most is None:
            return None
        share = self.again ** (self.most + 1)
        up = OutcomeBranch(probability=share, activities=self.give_up.activities, ends=self.give_up.ends)
        branches = {"given up": up, "settled": OutcomeBranch(probability=1 - share)}
        return RequiredOutcome(name=f"{self.name} in the end", after=self.after, branches=branches)

    @property
    def repetitions(self) -> float:
        """How often the loop is repeated on average: again + again² + … up to `most` terms."""
        rest = self.again**self.most if self.most is not None else 0.0
        return self.again * (1 - rest) / (1 - self.again)


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
    outcomes: tuple[RequiredOutcome, ...] = ()
    loops: tuple[RequiredLoop, ...] = ()
    people: Annotated[dict[str, Person], Field(description="members of pools, by name")] = {}
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
        for name, activity in self.activities.items():
            for pool in activity.pools:
                if pool not in self.pools:
                    meant = near(pool, self.pools)
                    raise ValueError(f"activity {name!r} names the pool {pool!r}, which is not in pools{meant}")
        for where, name in self._named():
            if name not in self.activities:
                meant = near(name, self.activities)
                raise ValueError(f"{where} names {name!r}, which is not in activities{meant}")
        self._add_giving_up()
        self._check_places()
        self._check_people()
        return self

    def _add_giving_up(self) -> None:
        """Giving up after a loop is an outcome like others, where everything else looks for it."""
        known = {outcome.name for outcome in self.outcomes}
        more = [one for loop in self.loops if (one := loop.giving_up) is not None and one.name not in known]
        if more:
            self.__dict__["outcomes"] = (*self.outcomes, *more)

    def _named(self) -> Iterator[tuple[str, str]]:
        """Every activity that a rule, branch, outcome or loop names, and where."""
        for rule in PAIR_RULES:
            yield from ((f"rules.{rule}", name) for pair in getattr(self.rules, rule) for name in pair)
        yield from (("rules.must_include", name) for name in self.rules.must_include)
        for branch in self.branches:
            yield from ((f"branch {branch.name!r}", name) for name in branch.options)
        for outcome in self.outcomes:
            yield f"outcome {outcome.name!r}", outcome.after
            yield from ((f"outcome {outcome.name!r}", later.after) for later in outcome.again)
            for title, part in outcome.branches.items():
                yield from ((f"branch {title!r} of {outcome.name!r}", name) for name in part.activities)
        for loop in self.loops:
            yield from ((f"loop {loop.name!r}", name) for name in (*loop.activities, *loop.redo))
            if loop.give_up is not None:
                yield from ((f"give_up of loop {loop.name!r}", name) for name in loop.give_up.activities)

    def _check_places(self) -> None:
        """An activity is in one branch at most, and outcomes are nested in one direction."""
        inside: dict[str, str] = {name: branch.name for branch in self.branches for name in branch.options}
        title = {name: repr(branch) for name, branch in inside.items()}
        for outcome in self.outcomes:
            for branch, name in ((b, name) for b, part in outcome.branches.items() for name in part.activities):
                here = f"{branch!r} of {outcome.name!r}"
                if title.get(name) == here:
                    raise ValueError(f"{name!r} is twice in branch {here}")
                if name in title:
                    said = f"{name!r} is in two branches: {title[name]} and {here}"
                    nested = inside.get(outcome.after) == inside[name]
                    raise ValueError(f"{said}; list it only in the inner one" if nested else said)
                inside[name], title[name] = outcome.name, here
        after = {outcome.name: outcome.after for outcome in self.outcomes}
        if len(after) < len(self.outcomes):
            raise ValueError("two outcomes have the same name")
        for outcome in self.outcomes:
            way = [outcome.name]
            while (outer := inside.get(after[way[-1]])) in after:
                if outer in way:
                    circle = " → ".join(map(repr, [*way, outer]))
                    raise ValueError(f"an outcome would have to be decided before itself: {circle}")
                way.append(str(outer))

    def _check_people(self) -> None:
        members: dict[str, int] = {}
        for person, told in self.people.items():
            for pool in told.pools:
                if pool not in self.pools:
                    meant = near(pool, self.pools)
                    raise ValueError(f"{person!r} is in the pool {pool!r}, which is not in pools{meant}")
                members[pool] = members.get(pool, 0) + 1
        for name, count in members.items():
            asked = self.pools[name]
            if asked.least > count:
                people = "1 person" if count == 1 else f"{count} people"
                raise ValueError(f"pool {name!r} must have at least {asked.least} servers, but has only {people}")
            # A pool has no more servers than people, whatever `most` says.
            self.pools[name] = asked.model_copy(update={"most": min(asked.most, count)})
        for name, activity in self.activities.items():
            if activity.skills and not any(pool in members for pool in activity.pools):
                raise ValueError(f"{name!r} needs the skill {activity.skills[0]!r}, but its pools have no people")


PAIR_RULES = (
    "precedes", "excludes", "separate", "coexist", "not_coexist", "response", "chain", "different_people",
    "same_person",
)  # fmt: skip


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
        raise error_of(error, Requirements) from error
