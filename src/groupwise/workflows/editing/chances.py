"""The probabilities of requirements: listed by name, changed, and changed wherever a design draws them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Block, Choice, Design, Loop
from groupwise.workflows.requirement_errors import near
from groupwise.workflows.requirements import Requirements, parse_requirements

CLOSE = 1e-6  # by which a drawn probability may miss the one that the requirements state


def insist_known(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ConfigError(f"there is no {what} {name!r:.80}{near(name, known)}", field=what)


def as_written(requirements: Requirements) -> dict[str, Any]:
    """As in a file: without what is derived from loops that may be given up, and without the file to start from."""
    value = requirements.model_dump(mode="json", exclude_defaults=True)
    ups = [one for loop in requirements.loops if (one := loop.giving_up) is not None]
    derived = [one.model_dump(mode="json", exclude_defaults=True) for one in ups]
    value["outcomes"] = [one for one in value.get("outcomes", ()) if one not in derived]
    value.pop("start", None)
    return value


def chances(requirements: Requirements) -> dict[str, float]:
    """Every probability that can be changed, by its name: of knock-outs, failures, branches, results and loops."""
    return {name: value for name, (value, _) in _chances(as_written(requirements)).items()}


def _chances(value: Mapping[str, Any]) -> dict[str, tuple[float, tuple[str | int, ...]]]:
    """The value of each, and where it is in the requirements."""
    found: dict[str, tuple[float, tuple[str | int, ...]]] = {}
    for name, activity in value["activities"].items():
        found[f"{name} ends the case"] = (activity.get("knock_out", 0.0), ("activities", name, "knock_out"))
        found[f"{name} fails"] = (activity.get("failure", 0.0), ("activities", name, "failure"))
    for place, branch in enumerate(value.get("branches", ())):
        for option, share in branch["options"].items():
            found[f"{branch['name']}: {option}"] = (share, ("branches", place, "options", option))
    for place, outcome in enumerate(value.get("outcomes", ())):
        for result, told in outcome["branches"].items():
            found[f"{outcome['name']}: {result}"] = (
                told["probability"], ("outcomes", place, "branches", result, "probability"),
            )  # fmt: skip
    for place, loop in enumerate(value.get("loops", ())):
        found[f"{loop['name']} is repeated"] = (loop["again"], ("loops", place, "again"))
    return found


def with_chance(design: Design, requirements: Requirements, of: str, wanted: float) -> tuple[Design, Requirements]:
    """The design and requirements with another probability."""
    value = as_written(requirements)
    known = _chances(value)
    insist_known("probability", of, known)
    if not 0 <= wanted <= 1:
        raise ConfigError(f"{of!r:.80} is {wanted:g} but must be between 0 and 1", field="value")
    _, path = known[of]
    if path[0] == "outcomes":
        _rescale(value["outcomes"][path[1]]["branches"], str(path[3]), wanted)
    else:
        inner: Any = value
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = wanted
    now = parse_requirements(value)
    return _redrawn(design, requirements, now), now


def _rescale(branches: dict[str, Any], result: str, wanted: float) -> None:
    """The other results share what is left, in the proportions they had."""
    if not 0 < wanted < 1:
        raise ConfigError(f"{result!r:.80} is {wanted:g} but a result needs more than 0 and less than 1", field="value")
    others = sum(told["probability"] for name, told in branches.items() if name != result)
    for name, told in branches.items():
        told["probability"] = wanted if name == result else told["probability"] * (1 - wanted) / others


Options: TypeAlias = Mapping[str, tuple[float, frozenset[str]]]


def _options(requirements: Requirements) -> Iterator[tuple[str, Options]]:
    """Each choice of the world: its name, and for each of its results the probability and the activities."""
    for branch in requirements.branches:
        rest = 1 - sum(branch.options.values())
        own = {name: (share, frozenset((name,))) for name, share in branch.options.items()}
        yield branch.name, own | ({"": (rest, frozenset())} if rest > CLOSE else {})
    for outcome in requirements.outcomes:
        yield (
            outcome.name,
            {name: (told.probability, frozenset(told.activities)) for name, told in outcome.branches.items()},
        )


def _redrawn(design: Design, old: Requirements, new: Requirements) -> Design:
    """The design with the probabilities of the new requirements wherever it had those of the old ones.

    A choice that mixes several outcomes stays as drawn, and breaks a rule then.
    """
    pairs = [(name, was, now) for (name, was), (_, now) in zip(_options(old), _options(new), strict=True) if was != now]
    loops = {loop.after: (loop.again, other.again) for loop, other in zip(old.loops, new.loops, strict=True)}

    def change(block: Block) -> Block:
        if isinstance(block, Choice):
            for name, was, now in pairs:
                drawn, wanted = _probabilities(block, name, was), _probabilities(block, name, now)
                near_enough = drawn and all(
                    abs(a - b) <= CLOSE for a, b in zip(drawn, block.probabilities, strict=True)
                )
                if near_enough and wanted:
                    return replace(block, probabilities=wanted)
        if isinstance(block, Loop):
            inside = {one.name for one in blocks.activities(block.body)}
            for after, (was_again, now_again) in loops.items():
                if after in inside and abs(block.again - was_again) <= CLOSE:
                    return replace(block, again=now_again)
        return block

    return replace(design, root=blocks.rewritten(design.root, change))


def _alike(some: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(abs(a - b) <= CLOSE for a, b in zip(some, other, strict=True))


def _probabilities(block: Choice, name: str, options: Options) -> tuple[float, ...] | None:
    """What the parts of a drawn choice get if it is this choice of the world; None if it is another one."""
    if block.outcome:
        if block.outcome != name:
            return None
        shares = [sum(options[answer][0] for answer in some if answer in options) for some in block.answers]
    else:
        parts = [{one.name for one in blocks.activities(part)} for part in block.parts]
        homes = {result: [n for n, part in enumerate(parts) if part & own] for result, (_, own) in options.items()}
        empty = [n for n, part in enumerate(parts) if not part]
        rest = [result for result, places in homes.items() if not places]
        if any(len(places) > 1 for places in homes.values()) or len(empty) > 1 or (rest and not empty):
            return None
        shares = [0.0] * len(parts)
        for result, places in homes.items():
            shares[places[0] if places else empty[0]] += options[result][0]
    total = sum(shares)
    return tuple(share / total for share in shares) if total and all(shares) else None
