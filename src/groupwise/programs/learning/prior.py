"""The language policy as the prior of a search: the probability of each legal next line.

The probability of a line is that of the policy with everything illegal masked, in two stages: the beginning of the line
(with the small model's tokenizer this is the operator), normalised over the beginnings of legal lines, then the rest of
the line, normalised over the legal continuations. Lines whose beginning has a probability below `LEAST` share it
equally instead of being evaluated one by one. `together` runs many searches at once and batches their questions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from groupwise.language.policy import LanguagePolicy
from groupwise.programs.language.grammar import legal_lines
from groupwise.programs.language.program import CodeProblem
from groupwise.programs.learning.model import line_text, load_policy, prompt_of
from groupwise.programs.search.program_search import Prior
from groupwise.programs.search.search_settings import SearchSettings
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.estimators import padded

LEAST = log(0.02)
# Settings of a search with a learned prior, which is sharp enough to be sampled from as it is.
SEARCH = SearchSettings(explore=0.1, sharpness=1.0)
BEGINNING = 2
KEPT = 20_000
ROWS = 512
Tokens = tuple[int, ...]
Lines = list[tuple[str, float]]
Asked = tuple[CodeProblem, tuple[str, ...]]


class LanguagePrior:
    """The prior of a search: the policy with its current weights, asked about legal lines only."""

    def __init__(self, policy: LanguagePolicy, tokenizer: Any, name: str = "policy") -> None:
        self.policy, self.tokenizer, self.name = policy, tokenizer, name
        self._known: dict[str, Tokens] = {}

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        """Every legal line with its log-probability."""
        return self.many([(problem, prefix)])[0]

    def many(self, asked: Sequence[Asked]) -> list[Lines]:
        """The lines of several problems and prefixes, evaluated in one batch."""
        places = [_Place(self, problem, prefix) for problem, prefix in asked]
        # Two passes: first how lines begin, then how the likely beginnings continue.
        shares = self._proportions([(place.before, list(place.groups)) for place in places])
        inner = [(place, *one) for place, found in zip(places, shares, strict=True) for one in place.inner(found)]
        rests = self._proportions([place.continued(beginning) for place, beginning, _ in inner])
        for place, found in zip(places, shares, strict=True):
            place.share_equally(found)
        for (place, beginning, share), parts in zip(inner, rests, strict=True):
            place.spread(beginning, share, parts)
        return [list(zip(place.lines, place.found, strict=True)) for place in places]

    def tokens(self, text: str) -> Tokens:
        if text not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[text] = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return self._known[text]

    def _proportions(self, asked: Sequence[tuple[Tokens, Sequence[Tokens]]]) -> list[list[float]]:
        # Normalised log-probabilities of the continuations of each beginning.
        rows = [(before, rest) for before, rests in asked if len(rests) > 1 for rest in rests]
        values = iter([value for at in range(0, len(rows), ROWS) for value in self._logp(rows[at : at + ROWS])])
        found = []
        for _, rests in asked:
            logp = np.array([next(values) for _ in rests]) if len(rests) > 1 else np.zeros(len(rests))
            found.append((logp - np.logaddexp.reduce(logp)).tolist() if len(rests) else [])
        return found

    @torch.no_grad()
    def _logp(self, rows: Sequence[tuple[Tokens, Tokens]]) -> list[float]:
        ids = padded([np.array([*before, *rest], np.int64) for before, rest in rows], np.int64)
        # [rows, tokens]: only the tokens of the continuation are scored.
        place = torch.arange(ids.shape[1])
        start = torch.tensor([len(before) for before, _ in rows])[:, None]
        end = torch.tensor([len(before) + len(rest) for before, rest in rows])[:, None]
        inputs = {
            "input_ids": ids,
            "attention_mask": (place < end).long(),
            "action_mask": (place >= start) & (place < end),
        }
        device = next(self.policy.model.parameters()).device
        seen = self.policy.evaluate({name: tensor.to(device) for name, tensor in inputs.items()})
        found: list[float] = seen.logp.sum(1).double().tolist()
        return found


class _Place:
    """A position in a program: the tokens so far, and the legal lines as tokens, grouped by their beginning."""

    def __init__(self, prior: LanguagePrior, problem: CodeProblem, prefix: tuple[str, ...]) -> None:
        self.lines = legal_lines(prefix, problem)
        written = [token for line in prefix for token in prior.tokens(line_text(line))]
        self.before = (*prior.tokens(prompt_of(problem)), *written)
        self.rows = [prior.tokens(line_text(line)) for line in self.lines]
        self.groups: dict[Tokens, list[int]] = {}
        for number, row in enumerate(self.rows):
            self.groups.setdefault(row[:BEGINNING], []).append(number)
        self.found = [0.0] * len(self.lines)

    def inner(self, shares: Sequence[float]) -> list[tuple[Tokens, float]]:
        """The beginnings worth evaluating further, with their probabilities."""
        pairs = zip(self.groups.items(), shares, strict=True)
        return [(beginning, share) for (beginning, members), share in pairs if len(members) > 1 and share > LEAST]

    def continued(self, beginning: Tokens) -> tuple[Tokens, list[Tokens]]:
        """Everything up to the end of a beginning, and how the lines continue that have it."""
        rests = [self.rows[number][BEGINNING:] for number in self.groups[beginning]]
        return (*self.before, *beginning), rests

    def share_equally(self, shares: Sequence[float]) -> None:
        for members, share in zip(self.groups.values(), shares, strict=True):
            for number in members:
                self.found[number] = share - log(len(members))

    def spread(self, beginning: Tokens, share: float, parts: Sequence[float]) -> None:
        for number, part in zip(self.groups[beginning], parts, strict=True):
            self.found[number] = share + part


def prior_of_run(run: Path) -> LanguagePrior:
    """The prior of a run's latest checkpoint; its name includes the run and the step."""
    policy, language = load_policy(run)
    return LanguagePrior(policy, language.tokenizer, f"policy {run.name} {choose_checkpoint(run, None).step}")


Found = TypeVar("Found")
WIDTH = 16


def together(prior: LanguagePrior, jobs: Sequence[Callable[[Prior], Found]], width: int = WIDTH) -> list[Found]:
    """The results of the searches, in order; `width` of them run at the same time."""
    found: list[Found] = []
    for start in range(0, len(jobs), width):
        found += _Meeting(prior, jobs[start : start + width]).run()
    return found


class _Meeting(Generic[Found]):
    """A meeting point: searches wait here with their questions until all of them have one."""

    def __init__(self, prior: LanguagePrior, jobs: Sequence[Callable[[Prior], Found]]) -> None:
        self.prior, self.jobs = prior, jobs
        self.asked: dict[int, Asked] = {}
        self.answers: dict[int, Lines] = {}
        self.found: dict[int, Found] = {}
        self.failed: BaseException | None = None
        self.running = len(jobs)
        # Guards everything above: `running` searches, those of them that wait in `asked`, and their answers.
        self.state = threading.Condition()

    def run(self) -> list[Found]:
        threads = [threading.Thread(target=self._work, args=(seat,), daemon=True) for seat in range(len(self.jobs))]
        for thread in threads:
            thread.start()
        while self._answer():
            pass
        for thread in threads:
            thread.join()
        if self.failed is not None:
            raise self.failed
        return [self.found[seat] for seat in range(len(self.jobs))]

    def _answer(self) -> bool:
        # Answer all questions once every running search has one; False when none is running any more.
        with self.state:
            self.state.wait_for(lambda: len(self.asked) == self.running)
            if not self.running:
                return False
            seats = sorted(self.asked)
            try:
                answers = self.prior.many([self.asked[seat] for seat in seats])
            except BaseException as error:  # Every search must learn of the error, or it would wait forever.
                self.failed, answers = error, [[] for _ in seats]
            self.answers.update(zip(seats, answers, strict=True))
            self.asked.clear()
            self.state.notify_all()
        return True

    def ask(self, seat: int, question: Asked) -> Lines:
        with self.state:
            self.asked[seat] = question
            self.state.notify_all()
            self.state.wait_for(lambda: seat in self.answers)
            return self.answers.pop(seat)

    def _work(self, seat: int) -> None:
        try:
            self.found[seat] = self.jobs[seat](_Seat(self, seat))
        except BaseException as error:  # Raised again by `together`.
            self.failed = self.failed or error
        finally:
            with self.state:
                self.running -= 1
                self.state.notify_all()


class _Seat:
    """The prior as one search sees it."""

    def __init__(self, meeting: _Meeting[Found], seat: int) -> None:
        self.meeting, self.seat = meeting, seat
        self.name = meeting.prior.name

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        return self.meeting.ask(self.seat, (problem, prefix))
