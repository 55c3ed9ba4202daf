"""Several searches at once, whose questions to the prior are answered together.

A search asks its prior about one place at a time, and a language model reads twenty places in little more time than
one. Every search runs in a thread of its own until it asks; when all that still run are waiting, their questions are
answered in one go, by the thread that called. So what is read together depends on nothing but the searches, and two
runs of one seed are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from groupwise.workflows.code.learning.prior import Asked, LanguagePrior, Lines
from groupwise.workflows.code.problem import CodeProblem
from groupwise.workflows.search.priors import Prior

Found = TypeVar("Found")
WIDTH = 16


def together(prior: LanguagePrior, jobs: Sequence[Callable[[Prior], Found]], width: int = WIDTH) -> list[Found]:
    """What the jobs return, in order; `width` of them run at once."""
    found: list[Found] = []
    for start in range(0, len(jobs), width):
        found += _Meeting(prior, jobs[start : start + width]).run()
    return found


class _Meeting(Generic[Found]):
    """Searches that wait for each other whenever they have a question."""

    def __init__(self, prior: LanguagePrior, jobs: Sequence[Callable[[Prior], Found]]) -> None:
        self.prior, self.jobs = prior, jobs
        self.asked: dict[int, Asked] = {}
        self.answers: dict[int, Lines] = {}
        self.found: dict[int, Found] = {}
        self.failed: BaseException | None = None
        self.running = len(jobs)
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
        """Answer all questions once everybody who runs has one; False when nobody runs any more."""
        with self.state:
            self.state.wait_for(lambda: len(self.asked) == self.running)
            if not self.running:
                return False
            seats = sorted(self.asked)
            try:
                answers = self.prior.many([self.asked[seat] for seat in seats])
            except BaseException as error:  # every search must hear of it, or it would wait for ever
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
        except BaseException as error:  # raised again where the searches were asked for
            self.failed = self.failed or error
        finally:
            with self.state:
                self.running -= 1
                self.state.notify_all()


class _Seat:
    """The prior as one of the searches sees it."""

    def __init__(self, meeting: _Meeting[Found], seat: int) -> None:
        self.meeting, self.seat = meeting, seat
        self.name = meeting.prior.name

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        return self.meeting.ask(self.seat, (problem, prefix))
