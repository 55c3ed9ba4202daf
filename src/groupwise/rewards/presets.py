"""Presets for five domains: does a reply answer, and if so, how well does it do what the domain asks for?

Half of the weight is the part `answers`; the other half are the domain's own parts, each multiplied by its square.
The weights of every preset add up to 1.
"""

from collections.abc import Callable, Sequence

from groupwise.rewards.combination import MultiObjectiveRewardFunction
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.rules import customer_service, teaching_and_writing
from groupwise.rewards.rules.components import LengthRewardComponent, SimilarityRewardComponent
from groupwise.rewards.rules.gate import AnswersRewardComponent, Gated

Expected = str | Sequence[str] | None
ANSWERS = 0.5  # share of the total for answering at all
SIMILARITY = (
    0.15  # share of a domain's own parts for similarity to expected responses, where it has no other use for them
)


def _creator(
    name: str, parts: Callable[[Expected], Sequence[RewardFunction]]
) -> Callable[..., MultiObjectiveRewardFunction]:
    def create(
        expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
    ) -> MultiObjectiveRewardFunction:
        own = parts(expected_responses)
        for part in own:
            part.weight *= 1 - ANSWERS
        gated = [Gated(part, expected_responses) for part in own]
        answers = AnswersRewardComponent(ANSWERS, expected_responses)
        return MultiObjectiveRewardFunction([answers, *gated], normalization_method, weight, name)

    create.__name__ = create.__qualname__ = f"create_{name}_reward"
    return create


def _with_similarity(expected: Expected, *parts: RewardFunction) -> Sequence[RewardFunction]:
    """The parts and, if there are expected responses, similarity to them, with a share beside the others."""
    if not expected:
        return parts
    for part in parts:
        part.weight *= 1 - SIMILARITY
    return [*parts, SimilarityRewardComponent(SIMILARITY, expected)]


create_customer_service_reward = _creator(
    "customer_service",
    lambda expected: [
        customer_service.EmpathyRewardComponent(0.25),
        customer_service.ActionOrientedRewardComponent(0.25),
        customer_service.ProfessionalismRewardComponent(0.25),
        LengthRewardComponent(0.1),
        SimilarityRewardComponent(0.15, expected),
    ],
)
create_technical_support_reward = _creator(
    "technical_support",
    lambda expected: [
        customer_service.AccuracyRewardComponent(0.3, expected),
        customer_service.StepByStepRewardComponent(0.3),
        customer_service.ProblemResolutionRewardComponent(0.3),
        LengthRewardComponent(0.1, target_words=60, max_words=300),
    ],
)
create_sales_reward = _creator(
    "sales",
    lambda expected: _with_similarity(
        expected,
        customer_service.ProductKnowledgeRewardComponent(0.3),
        customer_service.NeedsIdentificationRewardComponent(0.3),
        customer_service.ValuePropositionRewardComponent(0.3),
        LengthRewardComponent(0.1),
    ),
)
create_educational_reward = _creator(
    "educational",
    lambda expected: [
        teaching_and_writing.CorrectnessRewardComponent(0.4, expected),
        teaching_and_writing.PedagogicalApproachRewardComponent(0.3),
        teaching_and_writing.EngagementRewardComponent(0.2),
        LengthRewardComponent(0.1),
    ],
)
create_creative_reward = _creator(
    "creative",
    lambda expected: _with_similarity(
        expected,
        teaching_and_writing.CreativityRewardComponent(0.35),
        teaching_and_writing.CoherenceRewardComponent(0.25),
        teaching_and_writing.StyleRewardComponent(0.2),
        teaching_and_writing.EngagementRewardComponent(0.1),
        LengthRewardComponent(0.1, target_words=100, max_words=600),
    ),
)
