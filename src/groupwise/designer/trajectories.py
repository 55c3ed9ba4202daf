"""Plans as attempts that the one loop learns from, and attempts as rows for the policy.

The decisions of a plan stand in two tables: those of few candidates, then the turns of which unit comes next. An
attempt's arrays hold them in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from groupwise.designer.features import NUMBERS, features_of
from groupwise.designer.plans import Plans
from groupwise.designer.problem import (
    ALLOCATION,
    BRANCHING,
    CANDIDATES,
    FEATURES,
    NEXT,
    PLACE,
    SCHEDULING,
    STAFFING,
    Bools,
    DesignProblem,
    Floats,
    Ints,
)
from groupwise.designer.sampling import padded_members, pool_rows, table_rows
from groupwise.training.estimators import Attempts
from groupwise.training.source import BatchRows
from groupwise.types import End, Trajectory
from groupwise.workflows.blocks import Design


def table_order(problem: DesignProblem) -> tuple[Ints, Ints]:
    """The slots of few candidates, and those of the turns."""
    turns = problem.heads == NEXT
    return np.flatnonzero(~turns), np.flatnonzero(turns)


def trajectories(
    plans: Plans,
    designs: Sequence[Design],
    logp: Floats,
    *,
    task_id: str,
    group_id: str,
    version: int,
    taken: Bools | None = None,
) -> tuple[Trajectory, ...]:
    """One attempt for each plan; its design is in `meta`. Of an edit only what was `taken` again is its own doing."""
    own = plans.free if taken is None else plans.free & taken
    assert plans.seen is not None, "the plans were made without a record"
    assert plans.legal is not None
    order = np.concatenate(table_order(plans.problem))
    return tuple(
        Trajectory(
            id=f"{group_id}/{row}",
            task_id=task_id,
            group_id=group_id,
            obs=plans.seen[row, order],
            actions=plans.choices[row, order],
            mask=own[row, order],
            behavior_logp=logp[row, order],
            versions=np.full(len(order), version),
            rewards=np.zeros(len(order)),
            end=End.FINISHED,
            terminated=True,
            action_mask=plans.legal[row, order],
            meta={"design": design},
        )
        for row, design in enumerate(designs)
    )


class _Statics:
    """What of a problem does not depend on the plan, as padded later."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        self.small, self.turns = table_order(problem)
        self.features = features_of(problem)
        self.members = padded_members(problem)
        self.heads = problem.heads[self.small]
        self.rows = self._subjects()
        self.candidates = np.zeros((len(self.small), CANDIDATES), np.int64)
        for place in np.flatnonzero(self.heads == ALLOCATION):
            self.candidates[place] = pool_rows(problem, int(problem.subjects[self.small[place]]))

    def _subjects(self) -> Ints:
        """The row of each decision's subject; of places it is filled in plan by plan."""
        problem = self.problem
        subjects = problem.subjects[self.small].copy()
        forks = self.heads == BRANCHING
        subjects[forks] = [problem.forks[fork].options[0] for fork in subjects[forks].tolist()]
        about_pools = np.isin(self.heads, (SCHEDULING, STAFFING))
        subjects = subjects + about_pools * len(problem.names)
        return np.where(self.heads == PLACE, 0, subjects + 1)

    def placed(self, order: Ints) -> tuple[Ints, Ints]:
        """The rows of subjects with the units that were placed, and of each turn the unit placed before."""
        rows = self.rows.copy()
        units = table_rows(self.problem, PLACE, order)
        rows[self.heads == PLACE] = units
        last = np.concatenate([[0], units[:-1]]) if len(units) else units
        return rows, last


class Collation:
    """Attempts → rows. What the policy sees of requirements is worked out once for each."""

    def __init__(self, problem_of: Callable[[str], DesignProblem]) -> None:
        self.problem_of = problem_of
        self.known: dict[str, _Statics] = {}

    def _statics(self, task_id: str) -> _Statics:
        if len(self.known) > 256:
            self.known.clear()
        found = self.known.get(task_id)
        if found is None:
            found = self.known[task_id] = _Statics(self.problem_of(task_id))
        return found

    def __call__(self, attempts: Attempts) -> BatchRows:
        members = attempts.members
        statics = [self._statics(member.task_id) for member in members]
        count = len(members)
        few = max(len(one.small) for one in statics)
        turns = max(len(one.turns) for one in statics)
        nodes = max(len(one.features.kinds) for one in statics)
        units = max(len(one.members) for one in statics)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(member.task_id for member in members))}
        table = {
            "set": np.array([numbers[member.task_id] for member in members]),
            "nodes": np.zeros((count, nodes, NUMBERS), np.float32),
            "kinds": np.full((count, nodes), -1),
            "relations": np.zeros((count, nodes, nodes), np.int64),
            "members": np.zeros((count, units, nodes), np.float32),
            "whole": np.zeros(count, np.int64),
            "heads": np.zeros((count, few), np.int64),
            "subjects": np.zeros((count, few), np.int64),
            "candidates": np.zeros((count, few, CANDIDATES), np.int64),
            "known": np.zeros((count, few, CANDIDATES, FEATURES), np.float32),
            "legal": np.zeros((count, few, CANDIDATES), bool),
            "choices": np.zeros((count, few), np.int64),
            "last": np.zeros((count, turns), np.int64),
            "next_known": np.zeros((count, turns, units, FEATURES), np.float32),
            "next_legal": np.zeros((count, turns, units), bool),
            "next_choices": np.zeros((count, turns), np.int64),
        }
        index = np.zeros((count, few + turns), np.int64)
        there = np.zeros((count, few + turns), bool)
        for row, (member, one) in enumerate(zip(members, statics, strict=True)):
            _fill(table, row, member, one, nodes)
            own_few, own_turns = len(one.small), len(one.turns)
            index[row, :own_few] = np.arange(own_few)
            index[row, few : few + own_turns] = np.arange(own_few, own_few + own_turns)
            there[row, :own_few] = there[row, few : few + own_turns] = True
        place, known = torch.from_numpy(index), torch.from_numpy(there)

        def pick(values: Tensor) -> Tensor:
            return torch.where(known, values.gather(1, place), torch.zeros((), dtype=values.dtype))

        logp = np.zeros((count, max(len(member) for member in members)), np.float32)
        for row, member in enumerate(members):
            logp[row, : len(member)] = member.behavior_logp
        inputs = {name: torch.from_numpy(values) for name, values in table.items()}
        return BatchRows(inputs, pick(attempts.mask), pick(torch.from_numpy(logp)), pick)


def _fill(table: dict[str, np.ndarray], row: int, member: Trajectory, one: _Statics, nodes: int) -> None:
    seen, few, turns = one.features, len(one.small), len(one.turns)
    own, units = len(seen.kinds), len(one.members)
    table["nodes"][row, :own] = seen.nodes
    table["kinds"][row, :own] = seen.kinds
    table["relations"][row, :own, :own] = seen.relations
    table["members"][row, :units, :own] = one.members
    table["whole"][row] = own - 1
    table["heads"][row, :few] = one.heads
    table["candidates"][row, :few] = np.where(one.candidates > 0, one.candidates, 0)
    table["known"][row, :few] = member.obs[:few, :CANDIDATES]
    assert member.action_mask is not None
    table["legal"][row, :few] = member.action_mask[:few, :CANDIDATES]
    table["choices"][row, :few] = member.actions[:few]
    subjects, last = one.placed(member.actions[few:])
    # the table is nothing, nodes, units: units stand behind the longest list of nodes
    table["subjects"][row, :few] = np.where(subjects > own, subjects + nodes - own, subjects)
    table["last"][row, :turns] = np.where(last > own, last + nodes - own, last)
    table["next_known"][row, :turns, :units] = member.obs[few:, :units]
    table["next_legal"][row, :turns, :units] = member.action_mask[few:, :units]
    table["next_choices"][row, :turns] = member.actions[few:]
