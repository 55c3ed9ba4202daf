"""Rewards for whole domains, made of components with weights that add up to 1.

| preset | weights |
|---|---|
| customer_service | empathy 0.25, action_oriented 0.25, professionalism 0.25, length 0.1, similarity 0.15 |
| technical_support | accuracy 0.3, step_by_step 0.3, problem_resolution 0.3, length 0.1 |
| sales | product_knowledge 0.3, needs_identification 0.3, value_proposition 0.3, length 0.1 |
| educational | correctness 0.4, pedagogical_approach 0.3, engagement 0.2, length 0.1 |
| creative | creativity 0.35, coherence 0.25, style 0.2, engagement 0.1, length 0.1 |

Expected responses are what similarity, accuracy and correctness compare with. The sales and creative presets have none
of these; given expected responses, similarity counts 0.15 there and the others share the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupwise.rewards.combining import MultiObjectiveRewardFunction
from groupwise.rewards.components import LengthRewardComponent, SimilarityRewardComponent
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.selling import (
    NeedsIdentificationRewardComponent,
    ProductKnowledgeRewardComponent,
    ValuePropositionRewardComponent,
)
from groupwise.rewards.service import (
    ActionOrientedRewardComponent,
    EmpathyRewardComponent,
    ProfessionalismRewardComponent,
)
from groupwise.rewards.support import (
    AccuracyRewardComponent,
    ProblemResolutionRewardComponent,
    StepByStepRewardComponent,
)
from groupwise.rewards.teaching import (
    CorrectnessRewardComponent,
    EngagementRewardComponent,
    PedagogicalApproachRewardComponent,
)
from groupwise.rewards.writing import CoherenceRewardComponent, CreativityRewardComponent, StyleRewardComponent

Expected = str | Sequence[str] | None
SIMILARITY = 0.15


def create_customer_service_reward(
    expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
) -> MultiObjectiveRewardFunction:
    """Empathy, action and professionalism a quarter each, length 10% and similarity to expected responses 15%."""
    parts = [
        EmpathyRewardComponent(0.25),
        ActionOrientedRewardComponent(0.25),
        ProfessionalismRewardComponent(0.25),
        LengthRewardComponent(0.1),
        SimilarityRewardComponent(0.15, expected_responses),
    ]
    return MultiObjectiveRewardFunction(parts, normalization_method, weight, "customer_service")


def create_technical_support_reward(
    expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
) -> MultiObjectiveRewardFunction:
    """Accuracy, guidance step by step and problem resolution 30% each, length 10%."""
    parts = [
        AccuracyRewardComponent(0.3, expected_responses),
        StepByStepRewardComponent(0.3),
        ProblemResolutionRewardComponent(0.3),
        LengthRewardComponent(0.1, target_words=60, max_words=300),
    ]
    return MultiObjectiveRewardFunction(parts, normalization_method, weight, "technical_support")


def create_sales_reward(
    expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
) -> MultiObjectiveRewardFunction:
    """Product knowledge, needs identification and value proposition 30% each, length 10%."""
    parts = [
        ProductKnowledgeRewardComponent(0.3),
        NeedsIdentificationRewardComponent(0.3),
        ValuePropositionRewardComponent(0.3),
        LengthRewardComponent(0.1),
    ]
    return MultiObjectiveRewardFunction(_alike(parts, expected_responses), normalization_method, weight, "sales")


def create_educational_reward(
    expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
) -> MultiObjectiveRewardFunction:
    """Correctness 40%, pedagogical approach 30%, engagement 20%, length 10%."""
    parts = [
        CorrectnessRewardComponent(0.4, expected_responses),
        PedagogicalApproachRewardComponent(0.3),
        EngagementRewardComponent(0.2),
        LengthRewardComponent(0.1),
    ]
    return MultiObjectiveRewardFunction(parts, normalization_method, weight, "educational")


def create_creative_reward(
    expected_responses: Expected = None, weight: float = 1.0, normalization_method: str = "weighted_sum"
) -> MultiObjectiveRewardFunction:
    """Creativity 35%, coherence 25%, style 20%, engagement and length 10% each."""
    parts = [
        CreativityRewardComponent(0.35),
        CoherenceRewardComponent(0.25),
        StyleRewardComponent(0.2),
        EngagementRewardComponent(0.1),
        LengthRewardComponent(0.1, target_words=100, max_words=600),
    ]
    return MultiObjectiveRewardFunction(_alike(parts, expected_responses), normalization_method, weight, "creative")


PRESETS: Mapping[str, Callable[..., MultiObjectiveRewardFunction]] = {
    "customer_service": create_customer_service_reward,
    "technical_support": create_technical_support_reward,
    "sales": create_sales_reward,
    "educational": create_educational_reward,
    "creative": create_creative_reward,
}


def _alike(parts: Sequence[RewardFunction], expected_responses: Expected) -> Sequence[RewardFunction]:
    """With expected responses, likeness to them has a share beside the other parts."""
    if not expected_responses:
        return parts
    for part in parts:
        part.weight *= 1 - SIMILARITY
    return [*parts, SimilarityRewardComponent(SIMILARITY, expected_responses)]
