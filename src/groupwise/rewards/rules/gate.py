"""Manners count only for replies that answer: the part `answers`, and a gate for every other part.

A reward of manners alone is won by one polite paragraph that fits any question. Behind the gate, a part is multiplied
by the square of how well the reply answers, so what does not answer earns nothing for its manners, and full manners
cannot make up for half an answer.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.answering import STYLE_ONLY, Answering, answering, specifics
from groupwise.rewards.rules.components import replies, task_references, text_of, texts_of
from groupwise.rewards.scoring import per_attempt
from groupwise.rewards.scoring import score_group as score_members
from groupwise.types import Failed, Group, Hint, Message, Score, Task, Trajectory

References = tuple[str, ...]
_answering = lru_cache(maxsize=1024)(answering)  # every part of a preset asks about the same replies


class AnswersRewardComponent(RewardFunction):
    """How well the replies answer what the user said, in [0, 1]; `rules.answering` says how that is read from words.

    References are those given, or else the task's `expected_responses`, `reference` or `answer`; only those with a word
    that does not fit any question count. Without one, the score carries the flag `style_only`, and the run hints once
    that words alone cannot tell a right answer from a wrong one.
    """

    label = "answers"

    def __init__(
        self, weight: float = 1.0, expected_responses: str | Sequence[str] | None = None, name: str | None = None
    ) -> None:
        super().__init__(weight, name or self.label)
        self.references = texts_of(expected_responses)
        self._style_only, self._hinted = 0, False

    def found(self, turns: Sequence[Message], references: Sequence[str] = ()) -> Answering:
        """The conversation as one question and one reply: what was asked in it, and what was said."""
        question = "\n".join(text_of(turn.get("content")) for turn in turns if turn.get("role") == "user")
        telling = tuple(text for text in self.references or tuple(references) if specifics(text))
        return _answering(question, "\n".join(reply.text for reply in replies(turns)), telling)

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        return self._score(self.found(turns))

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        references = task_references(task)
        scores = await per_attempt(lambda _, one: self._score(self.found(turns_of(one), references)))(task, group)
        self._style_only += sum(isinstance(score, Score) and STYLE_ONLY in score.flags for score in scores)
        return scores

    def hints(self) -> tuple[Hint, ...]:
        if self._hinted or not self._style_only:
            return ()
        self._hinted = True
        return (
            Hint(
                STYLE_ONLY,
                "The tasks have no reference answers, so this reward can only judge style: it cannot tell a right "
                "answer from a wrong one.",
                "Add a column `answer` or `expected_responses` to the data, or combine it with a judge (ruler). "
                "`groupwise reward check` shows what it can be fooled with.",
            ),
        )

    def state_dict(self) -> dict[str, bool]:
        return {"hinted": self._hinted}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        self._hinted = bool(state["hinted"])

    def _score(self, found: Answering) -> Score:
        return Score(found.total, flags=found.flags)


class Gated(RewardFunction):
    """A part that only counts for replies that answer: its score times the square of theirs.

    Flags and inner parts are kept.
    """

    def __init__(self, part: RewardFunction, expected_responses: str | Sequence[str] | None = None) -> None:
        super().__init__(part.weight, part.name)
        self.part = part
        self.answers = AnswersRewardComponent(expected_responses=expected_responses)

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        given = self.part.compute_reward(turns)
        score = given if isinstance(given, Score) else Score(given)
        return replace(score, total=score.total * self.answers.found(turns).total ** 2)

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        if not group:
            return []
        references = task_references(task)
        scores = (await score_members(self.part, Group(group[0].group_id, task, tuple(group)))).scores
        gates = [self.answers.found(turns_of(attempt), references).total for attempt in group]
        return [
            replace(score, total=score.total * gate**2) if isinstance(score, Score) else score
            for score, gate in zip(scores, gates, strict=True)
        ]
