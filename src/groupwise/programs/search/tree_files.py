"""A search tree as JSON, whole or not there: what is read back goes on bit for bit like what was written."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import StorageError
from groupwise.files import write_atomic
from groupwise.programs.search.tree import (
    ActionDraw,
    EvaluationRecord,
    Judged,
    SearchSettings,
    SearchTree,
    TreeEdge,
    TreeNode,
    TreeStep,
    VisitTally,
)

VERSION = 1
REMEDY = "Begin the search anew in another folder."


def save_tree(tree: SearchTree, path: Path) -> None:
    write_atomic(path, json.dumps(tree_as_dict(tree), ensure_ascii=False, allow_nan=False).encode(), durable=False)


def load_tree(path: Path) -> SearchTree:
    try:
        return tree_of(json.loads(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} does not hold a search tree: {error}", hint=REMEDY) from error


def tree_as_dict(tree: SearchTree) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": tree.name,
        "seed": tree.seed,
        "settings": tree.settings.as_dict(),
        "walks": tree.walks,
        "free": tree.free,
        "busy": tree.busy,
        "low": tree.low,
        "high": tree.high,
        "solved": tree.solved,
        "nodes": [_node_as_list(node) for node in tree.nodes],
        "records": [record_as_dict(record) for record in tree.records],
        "pending": [_draw_as_dict(draw) for draw in tree.pending],
        "numbers": tree.numbers,
    }


def tree_of(data: Mapping[str, Any]) -> SearchTree:
    if data.get("version") != VERSION:
        raise StorageError(
            f"a search tree of version {data.get('version')!r} cannot be read; this is version {VERSION}", hint=REMEDY
        )
    return SearchTree(
        data["name"], data["seed"], SearchSettings(**data["settings"]),
        [_node_of(node) for node in data["nodes"]], [record_of(record) for record in data["records"]],
        deque(_draw_of(draw) for draw in data["pending"]), data["walks"], data["free"], dict(data["numbers"]),
        list(data["busy"]), data["low"], data["high"], data["solved"],
    )  # fmt: skip


def _tally_as_list(tally: VisitTally) -> list[float]:
    return [tally.count, tally.total, tally.best]


def _tally_of(data: Sequence[Any]) -> VisitTally:
    return VisitTally(*data)


def _edge_as_list(edge: TreeEdge) -> list[Any]:
    """Most edges were never tried; they are only an action and its prior."""
    known = [edge.action, edge.log_prior]
    if not edge.tries and edge.child is None:
        return known
    return [*known, _tally_as_list(edge.tally), edge.waiting, edge.child]


def _edge_of(data: Sequence[Any]) -> TreeEdge:
    if len(data) == 2:
        return TreeEdge(*data)
    action, log_prior, tally, waiting, child = data
    return TreeEdge(action, log_prior, _tally_of(tally), waiting, child)


def _node_as_list(node: TreeNode) -> list[Any]:
    edges = [_edge_as_list(edge) for edge in node.edges]
    judged = None if node.judged is None else judged_as_dict(node.judged)
    experience = {trait: _tally_as_list(tally) for trait, tally in node.experience.items()}
    return [
        list(node.path), node.key, edges, _tally_as_list(node.tally), node.closed, node.waiting, judged, experience
    ]  # fmt: skip


def _node_of(data: Sequence[Any]) -> TreeNode:
    path, key, edges, tally, closed, waiting, judged, experience = data
    return TreeNode(
        tuple(path), key, [_edge_of(edge) for edge in edges], _tally_of(tally), closed, waiting,
        None if judged is None else judged_of(judged), {trait: _tally_of(one) for trait, one in experience.items()},
    )  # fmt: skip


def judged_as_dict(judged: Judged) -> dict[str, Any]:
    return {"value": judged.value, "solved": judged.solved, "notes": dict(judged.notes)}


def judged_of(data: Mapping[str, Any]) -> Judged:
    return Judged(data["value"], data["solved"], data["notes"])


def _steps_as_lists(steps: Sequence[TreeStep]) -> list[list[Any]]:
    return [[s.action, s.log_prob, s.log_prior, s.choices, s.rule] for s in steps]


def _steps_of(data: Sequence[Sequence[Any]]) -> tuple[TreeStep, ...]:
    return tuple(TreeStep(*step) for step in data)


def record_as_dict(record: EvaluationRecord) -> dict[str, Any]:
    return {
        "number": record.number, "actions": list(record.actions), "key": record.key,
        "judged": judged_as_dict(record.judged), "steps": _steps_as_lists(record.steps),
    }  # fmt: skip


def record_of(data: Mapping[str, Any]) -> EvaluationRecord:
    return EvaluationRecord(
        data["number"], tuple(data["actions"]), data["key"], judged_of(data["judged"]), _steps_of(data["steps"])
    )  # fmt: skip


def _draw_as_dict(draw: ActionDraw) -> dict[str, Any]:
    return {
        "nodes": list(draw.nodes), "edges": list(draw.edges), "steps": _steps_as_lists(draw.steps), "leaf": draw.leaf
    }  # fmt: skip


def _draw_of(data: Mapping[str, Any]) -> ActionDraw:
    return ActionDraw(tuple(data["nodes"]), tuple(data["edges"]), _steps_of(data["steps"]), data["leaf"])
