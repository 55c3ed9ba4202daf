"""A rough score of any reply, for when nothing better can be asked: the judge's fallback and the default components."""

from collections.abc import Sequence

from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.answering import STYLE_ONLY, specifics
from groupwise.rewards.rules.components import LengthRewardComponent, replies, task_references
from groupwise.rewards.rules.customer_service import ActionOrientedRewardComponent, ProfessionalismRewardComponent
from groupwise.rewards.rules.gate import AnswersRewardComponent, Gated
from groupwise.rewards.rules.teaching_and_writing import CoherenceRewardComponent
from groupwise.rewards.scoring import per_attempt
from groupwise.types import Failed, Message, Score, Task, Trajectory

ENOUGH_SPECIFICS = 12  # words about something that are full marks for substance


class HeuristicReward(RewardFunction):
    """relevance · variety · (1 + substance) / 2, each in [0, 1], from the words alone.

    - relevance: how far the replies say what the task's reference says; without one, whether they take up the question
      and add something of their own;
    - variety: falls with repetition, with words in an impossible order, and to 0 with instructions to the judge;
    - substance: different words that do not fit any question / `enough`, at most 1.
    """

    def __init__(self, weight: float = 1.0, name: str | None = None, enough: int = ENOUGH_SPECIFICS) -> None:
        super().__init__(weight, name or "heuristic")
        self.enough = enough
        self.answers = AnswersRewardComponent()

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        return self._score(turns, ())

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        references = task_references(task)
        return await per_attempt(lambda _, attempt: self._score(turns_of(attempt), references))(task, group)

    def _score(self, turns: Sequence[Message], references: Sequence[str]) -> Score:
        found = self.answers.found(turns, references)
        said = {word for reply in replies(turns) for word in specifics(reply.text)}
        substance = min(1.0, len(said) / self.enough)
        parts = {"relevance": found.substance, "substance": substance, "variety": found.form}
        # Rough with or without a reference, so only what is done to the score is flagged.
        flags = tuple(flag for flag in found.flags if flag != STYLE_ONLY)
        return Score(found.total * (1 + substance) / 2, parts, flags)


def heuristic_parts() -> list[RewardFunction]:
    """The default components: does a reply answer; and if so, is it courteous, coherent and brief, and does it act?"""
    manners = (
        ProfessionalismRewardComponent(weight=0.15),
        ActionOrientedRewardComponent(weight=0.15),
        CoherenceRewardComponent(weight=0.1),
        LengthRewardComponent(weight=0.1),
    )
    return [AnswersRewardComponent(weight=0.5), *map(Gated, manners)]
