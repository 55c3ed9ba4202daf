"""Programs found by searches, as rows of tokens to learn from.

A search does not sample from the policy but from its tree's distribution, which is recorded line by line. There are two
sound ways to learn from such samples:

*imitate* (the default): expert iteration (Anthony et al. 2017), the low-temperature limit of advantage-weighted
regression (Peng et al. 2019). Maximising the likelihood of solved programs moves the policy towards the search's
distribution given success. A likelihood needs no importance ratio: it is an expectation under the distribution that the
programs came from. Unsolved programs are not used.

*ratio*: all programs of a tree form one group, with advantages relative to that tree. The loss takes the ratio of the
policy's probability to the recorded one, per program, and clips it as usual: the policy's own gradient, estimated from
other samples. Programs that the policy would hardly write have little weight.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.programs.language.grammar import as_program
from groupwise.programs.language.program import CodeProblem
from groupwise.programs.learning.model import body_of, line_text, prompt_of
from groupwise.programs.learning.rollout import prompt_ids, shuffled
from groupwise.programs.search.tree import EvaluationRecord, SearchTree
from groupwise.programs.search.tree_view import outline
from groupwise.training.events import plain
from groupwise.training.token_attempts import Row
from groupwise.types import SEARCHED, SHOWN, Batch, End, Group, GroupRecord, Score, ScoredGroup, Task, Trajectory

# Problems with stored programs; the oldest is dropped first.
MOST = 5000
SEARCH = "search"
# Programs of a search that can be looked at, and branches of their trees.
MOST_SHOWN, TREE_SIZE = 6, 80


def searched_group(task: Task, tree: SearchTree, tokenizer: Any, limit: int, placebo: bool) -> ScoredGroup:
    """All programs that a search evaluated for a task as one group, with the tree's log-probabilities.

    The log-probability of a line is stored at its first token, with 0 at the others, so that the sum over a program is
    that of the draw. As a placebo, scores are shuffled within the tree.
    """
    problem: CodeProblem = task.payload
    prompt = prompt_ids(tokenizer, problem, limit)
    members = tuple(_attempt(task, problem, prompt, record, tokenizer) for record in tree.records)
    scores = []
    for record in tree.records:
        solved, outcome = float(record.judged.solved), str(record.judged.notes.get("outcome", ""))
        scores.append(Score(solved, {"correct": solved, "format": 1.0}, (SEARCH, outcome)))
    return ScoredGroup(Group(f"s{task.seed}", task, members), tuple(shuffled(scores, task.seed) if placebo else scores))


def search_records(tree: SearchTree, group: ScoredGroup) -> list[GroupRecord]:
    """The best programs of a search, to look at: each with the tree and its own path through it.

    Their advantage is 0 here: what is learned from a search is decided later, or in another way.
    """
    members = {record.number: member for record, member in zip(tree.records, group.group.members, strict=True)}
    best = sorted(tree.records, key=lambda one: (not one.judged.solved, -one.judged.value, one.number))[:MOST_SHOWN]
    return [
        GroupRecord(
            group_id=group.group.id, task_id=group.group.task.id, trajectory_id=members[one.number].id,
            total=one.judged.value, parts={"correct": float(one.judged.solved)},
            flags=(SEARCH, str(one.judged.notes.get("outcome", ""))), advantage=0.0, length=len(one.actions),
            end=str(End.FINISHED), failure="", version=SEARCHED, text=members[one.number].meta["text"],
            prompt=members[one.number].meta["prompt"], exhibit=partial(search_exhibit, tree, one),
        )
        for one in best
    ]  # fmt: skip


def search_exhibit(tree: SearchTree, record: EvaluationRecord) -> str:
    """The tree around the path to one program, as JSON."""
    found = asdict(outline(tree, TREE_SIZE, path=record.actions))
    told = {"kind": "search", "tries": tree.root.tally.count, "solved": record.judged.solved, "tree": found}
    return json.dumps(plain(told), ensure_ascii=False, separators=(",", ":"))


def trajectories_of(
    problem: CodeProblem, tree: SearchTree, tokenizer: Any, paths: Sequence[Path] = ()
) -> dict[str, Any]:
    """What a search found as a table for `TrajectoryDataset`: problem, programs, rewards, tokens and log-probabilities.

    `workflow_paths` name the files of the programs, if they were saved.
    """
    task = Task(f"{problem.family} {problem.difficulty}/0", problem, 0)
    group = searched_group(task, tree, tokenizer, 1 << 30, placebo=False)
    members = group.group.members
    return {
        "problem": prompt_of(problem),
        "problem_id": problem.id,
        "workflow_codes": [member.meta["text"] for member in members],
        "workflow_paths": [str(path) for path in paths],
        "rewards": group.totals().tolist(),
        "token_ids": [member.actions[member.mask].tolist() for member in members],
        "behavior_logp": [member.behavior_logp[member.mask].tolist() for member in members],
    }


def _attempt(
    task: Task, problem: CodeProblem, prompt: Sequence[int], record: EvaluationRecord, tokenizer: Any
) -> Trajectory:
    ids, logp = list(prompt), [0.0] * len(prompt)
    for step in record.steps:
        tokens = tokenizer.encode(line_text(step.action), add_special_tokens=False)
        ids += tokens
        logp += [step.log_prob, *[0.0] * (len(tokens) - 1)]
    ids.append(tokenizer.eos_token_id)
    logp.append(0.0)
    row = np.array(ids, np.int64)
    return Trajectory(
        id=f"s{task.seed}/{record.number}",
        task_id=task.id,
        group_id=f"s{task.seed}",
        obs=row,
        actions=row,
        mask=np.arange(len(row)) >= len(prompt),
        behavior_logp=np.array(logp, np.float32),
        versions=np.full(len(row), SEARCHED, np.int64),
        rewards=np.zeros(len(row)),
        end=End.FINISHED,
        terminated=True,
        meta={"text": body_of(as_program(record.actions, problem)), "prompt": prompt_of(problem)},
    )


class Finds:
    """The latest programs that solved a problem, sampled uniformly over problems."""

    def __init__(self, seed: int) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.rng = np.random.default_rng([seed, 11])

    def add(self, scored: ScoredGroup) -> None:
        problem: CodeProblem = scored.group.task.payload
        for member, score in zip(scored.group.members, scored.scores, strict=True):
            if isinstance(score, Score) and score.total > 0:
                kept = self.rows.setdefault(problem.id, [])
                if not any(np.array_equal(member.actions, other) for other, _ in kept):
                    kept.append((np.array(member.actions), np.array(member.mask)))
        while len(self.rows) > MOST:
            self.rows.pop(next(iter(self.rows)))

    def draw(self, count: int) -> list[Row]:
        """Sample rows to imitate; empty while nothing was found."""
        if not self.rows:
            return []
        places = list(self.rows.values())
        chosen = [places[number] for number in self.rng.integers(len(places), size=count)]
        return [kept[int(self.rng.integers(len(kept)))] for kept in chosen]

    def __len__(self) -> int:
        return len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        rows = {
            problem: [(torch.from_numpy(ids), torch.from_numpy(own)) for ids, own in kept]
            for problem, kept in self.rows.items()
        }
        return {"rows": rows, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        stored = state["rows"].items()
        self.rows = {problem: [(ids.numpy(), own.numpy()) for ids, own in kept] for problem, kept in stored}
        self.rng.bit_generator.state = state["rng"]


def beside(batch: Batch, shown: Batch, weight: float) -> Batch:
    """A batch of groups followed by rows to imitate, whose mean likelihood is weighted by `weight`."""
    width = max(batch.mask.shape[1], shown.mask.shape[1])
    scale = weight * batch.denominator / shown.denominator

    def joined(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
        return torch.cat([_wide(above, width), _wide(below.to(above.dtype), width)])

    def maybe(above: torch.Tensor | None, below: torch.Tensor) -> torch.Tensor | None:
        return None if above is None else joined(above, below)

    own = shown.mask
    return replace(
        batch,
        inputs={name: joined(tensor, shown.inputs[name]) for name, tensor in batch.inputs.items()},
        mask=joined(batch.mask, own),
        behavior_logp=joined(batch.behavior_logp, shown.behavior_logp),
        advantages=joined(batch.advantages, shown.advantages * scale),
        total_rows=batch.total_rows + shown.total_rows,
        total_tokens=batch.total_tokens + shown.total_tokens,
        keep=maybe(batch.keep, own),
        versions=maybe(batch.versions, torch.full(own.shape, SHOWN)),
        weight_group=maybe(batch.weight_group, torch.zeros_like(own)),
        weights=maybe(batch.weights, torch.ones_like(own)),
        reference_logp=maybe(batch.reference_logp, shown.behavior_logp),
    )


def _wide(table: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(table, (0, width - table.shape[1]))
