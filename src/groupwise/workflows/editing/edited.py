"""Apply edits to a design and its requirements, and assess the result.

An edit never mends what it breaks: `assess` says which rules the result breaks, and scores it 0 then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import get_args

import groupwise.workflows.blocks as blocks
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Block, Design, Parallel, Skip
from groupwise.workflows.editing.chances import as_written, insist_known, with_chance
from groupwise.workflows.editing.edits import RULES, Assign, Chance, Edit, MoveActivity, Place, Rule, Staff
from groupwise.workflows.evaluation import Performance, TierChoice, evaluate
from groupwise.workflows.feasibility import Contradiction, contradictions
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.scoring import DesignScore, score
from groupwise.workflows.violations import Violation


@dataclass(frozen=True, slots=True)
class Edited:
    """A design and what is asked of it."""

    design: Design
    requirements: Requirements


@dataclass(frozen=True, slots=True)
class Assessment:
    """What an edited workflow is worth; a score of 0 if it breaks rules, None if no design could meet them all."""

    score: DesignScore | None
    performance: Performance | None
    broken: tuple[Violation, ...]
    conflicts: tuple[Contradiction, ...]


def applied(design: Design, requirements: Requirements, edits: Iterable[Edit]) -> Edited:
    """The design and requirements after all edits, in their order."""
    found = Edited(design, requirements)
    for edit in edits:
        found = _applied(found, edit)
    return found


def assess(edited: Edited, tier: TierChoice = "measured", seed: int = 0) -> Assessment:
    conflicts = tuple(contradictions(edited.requirements))
    if conflicts:
        return Assessment(None, None, (), conflicts)
    broken = broken_rules(edited.design, edited.requirements)
    performance = None if broken else evaluate(edited.design, edited.requirements, tier=tier, seed=seed)
    found = score(edited.design, edited.requirements, performance)
    return Assessment(found, performance, tuple(found.broken), ())


def _applied(at: Edited, edit: Edit) -> Edited:
    match edit:
        case MoveActivity():
            return replace(at, design=_moved(at.design, edit))
        case Staff(pool, count):
            insist_known("pool", pool, at.requirements.pools)
            servers = {**dict(at.design.servers), pool: count}
            return replace(at, design=replace(at.design, servers=tuple(servers.items())))
        case Assign(activity, pool):
            insist_known("activity", activity, _names(at.design))
            insist_known("pool", pool, at.requirements.pools)
            return replace(at, design=_handled(at.design, activity, pool))
        case Rule():
            return replace(at, requirements=_with_rule(at.requirements, edit))
        case Chance(of, value):
            return Edited(*with_chance(at.design, at.requirements, of, value))


def _names(design: Design) -> list[str]:
    return [one.name for one in blocks.activities(design.root)]


def _moved(design: Design, edit: MoveActivity) -> Design:
    names = _names(design)
    insist_known("activity", edit.activity, names)
    insist_known("activity", edit.other, names)
    if edit.activity == edit.other:
        raise ConfigError(f"{edit.activity!r:.80} cannot be moved {edit.place} itself", field="other")
    if edit.place not in get_args(Place):
        raise ConfigError(f"place is {edit.place!r:.80} but must be before, after or beside", field="place")
    mover = next(one for one in blocks.activities(design.root) if one.name == edit.activity)

    def change(block: Block) -> Block:
        if not isinstance(block, Activity):
            return block
        if block.name == edit.activity:
            return Skip()
        if block.name != edit.other:
            return block
        if edit.place == "beside":
            return Parallel((block, mover))
        return blocks.Sequence((mover, block) if edit.place == "before" else (block, mover))

    return replace(design, root=blocks.tidied(blocks.rewritten(design.root, change)))


def _handled(design: Design, activity: str, pool: str) -> Design:
    def change(block: Block) -> Block:
        if isinstance(block, Activity) and block.name == activity:
            return replace(block, handling=replace(block.handling, pool=pool))
        return block

    return replace(design, root=blocks.rewritten(design.root, change))


def _with_rule(requirements: Requirements, edit: Rule) -> Requirements:
    insist_known("rule", edit.rule, RULES)
    value = as_written(requirements)
    rules = value.setdefault("rules", {})
    if edit.rule == "deadline":
        if edit.seconds is None:
            raise ConfigError("a deadline needs its seconds", field="seconds")
        rules["deadline"] = edit.seconds
        return parse_requirements(value)
    insist_known("activity", edit.first, requirements.activities)
    if edit.rule == "must_include":
        rules[edit.rule] = [*rules.get(edit.rule, ()), edit.first]
        return parse_requirements(value)
    insist_known("activity", edit.then, requirements.activities)
    if edit.first == edit.then:
        raise ConfigError(f"the rule {edit.rule} needs two activities, not {edit.first!r:.80} twice", field="then")
    rules[edit.rule] = [*rules.get(edit.rule, ()), [edit.first, edit.then]]
    return parse_requirements(value)
