"""The language policy as a prior: how likely it would write each legal line next.

A line's probability is what it would be if the policy wrote with everything illegal struck out, in two stages: how the
line begins (with the small model's tokenizer that is the operator), made to sum to one over the beginnings of legal
lines, and then the rest of it, made to sum to one over the legal rests. Where a beginning has less than `LEAST` of the
probability, its lines share it equally instead of being read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.language.policy import LanguagePolicy
from groupwise.training.choosing import choose_checkpoint
from groupwise.training.estimate import padded
from groupwise.workflows.code.grammar import legal_lines
from groupwise.workflows.code.learning.model import load_policy
from groupwise.workflows.code.learning.writing import line_text, prompt_of
from groupwise.workflows.code.problem import CodeProblem

LEAST = log(0.02)
BEGINNING = 2
KEPT = 20_000


class LanguagePrior:
    """`Prior` of a search: the policy's present weights, asked about legal lines only."""

    def __init__(self, policy: LanguagePolicy, tokenizer: Any, name: str = "policy") -> None:
        self.policy, self.tokenizer, self.name = policy, tokenizer, name
        self._known: dict[str, tuple[int, ...]] = {}

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> list[tuple[str, float]]:
        """Every legal line with its log-probability."""
        lines = legal_lines(prefix, problem)
        before = (*self.tokens(prompt_of(problem)), *(t for line in prefix for t in self.tokens(line_text(line))))
        rows = [self.tokens(line_text(line)) for line in lines]
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(row[:BEGINNING], []).append(number)
        shares = self._proportions(before, list(groups))
        found = [0.0] * len(lines)
        for (beginning, members), share in zip(groups.items(), shares, strict=True):
            inside = [-log(len(members))] * len(members)
            if len(members) > 1 and share > LEAST:
                inside = self._proportions((*before, *beginning), [rows[number][BEGINNING:] for number in members])
            for number, part in zip(members, inside, strict=True):
                found[number] = share + part
        return list(zip(lines, found, strict=True))

    def tokens(self, text: str) -> tuple[int, ...]:
        if text not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[text] = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return self._known[text]

    @torch.no_grad()
    def _proportions(self, before: Sequence[int], rests: Sequence[Sequence[int]]) -> list[float]:
        """The log-probabilities of continuations, made to sum to one over them."""
        if len(rests) < 2:
            return [0.0] * len(rests)
        rows = [np.array([*before, *rest], np.int64) for rest in rests]
        ids = padded(rows, np.int64)
        lengths = torch.tensor([len(row) for row in rows])
        there = torch.arange(ids.shape[1]) < lengths[:, None]
        own = there & (torch.arange(ids.shape[1]) >= len(before))
        inputs = {"input_ids": ids, "attention_mask": there.long(), "action_mask": own}
        device = next(self.policy.model.parameters()).device
        logp = self.policy.evaluate({name: tensor.to(device) for name, tensor in inputs.items()}).logp.sum(1).double()
        found: list[float] = (logp - logp.logsumexp(0)).tolist()
        return found


def prior_of_run(run: Path) -> LanguagePrior:
    """The prior of a run's newest checkpoint, under a name that tells both."""
    policy, language = load_policy(run)
    return LanguagePrior(policy, language.tokenizer, f"policy {run.name} {choose_checkpoint(run, None).step}")
