"""Several rewards as one: what it is made of is told, what failed is not made up, and it can be nested."""

from __future__ import annotations

import asyncio

import pytest

from groupwise.core.objectives import COMBINATIONS
from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.combination import MultiObjectiveRewardFunction, absolute
from groupwise.rewards.function import RewardFunction, WithFallback, attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.types import Failed, Group, Hint, Score, Task


class Fixed(RewardFunction):
    """Scores what is written: a reply "0.3" scores 0.3, and "x" is a mistake."""

    def compute_reward(self, turns):
        return Score(float(turns[-1]["content"]), {"inner": 1.0}, ("seen",))


class Backwards(RewardFunction):
    def compute_reward(self, turns):
        return 1.0 - float(turns[-1]["content"])


def totals(scores):
    return [score.total for score in scores]


def test_parts_are_the_components_by_name_unweighted_and_flags_are_passed_on(scored):
    reward = MultiObjectiveRewardFunction([Fixed(weight=2.0, name="a"), Backwards(weight=1.0, name="b")])
    (score,) = scored(reward, "0.25")
    assert score == Score(2 * 0.25 + 0.75, {"a": 0.25, "a.inner": 1.0, "b": 0.75}, ("seen",))


@pytest.mark.parametrize("method", COMBINATIONS)
def test_every_method_combines_as_the_mathematics_says(method, scored):
    reward = MultiObjectiveRewardFunction([Fixed(3.0), Backwards(1.0)], normalization_method=method)
    table = [[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]
    assert totals(scored(reward, "0.1", "0.8", "0.5")) == pytest.approx(COMBINATIONS[method](table, [3, 1]).tolist())


def test_nested_rewards_name_their_parts_with_dots_and_count_by_their_own_weight(scored):
    inner = MultiObjectiveRewardFunction(
        [Fixed(name="a"), Backwards(name="b")], "weighted_average", weight=0.3, name="in"
    )
    (score,) = scored(MultiObjectiveRewardFunction([Fixed(0.7, "c"), inner]), "0.2")
    assert score.total == pytest.approx(0.7 * 0.2 + 0.3 * 0.5)
    assert dict(score.parts) == {"c": 0.2, "c.inner": 1.0, "in": 0.5, "in.a": 0.2, "in.a.inner": 1.0, "in.b": 0.8}


def test_two_components_of_one_name_are_told_apart(scored):
    (score,) = scored(MultiObjectiveRewardFunction([Fixed(), Fixed(), Fixed()]), "0.5")
    assert [name for name in score.parts if "." not in name] == ["Fixed", "Fixed_2", "Fixed_3"]


@pytest.mark.parametrize("method", COMBINATIONS)
def test_an_attempt_that_one_component_failed_on_has_failed_and_the_others_are_scored_without_it(method, scored):
    reward = MultiObjectiveRewardFunction([Fixed(name="a"), Backwards(name="b")], method)
    first, lost, last = scored(reward, "0.1", "x", "0.8")
    assert isinstance(lost, Failed)
    assert lost.failure.message.startswith("a: ")
    assert "ValueError" in lost.failure.message
    assert [first, last] == list(scored(reward, "0.1", "0.8"))


@pytest.mark.parametrize(
    ("method", "replies", "seen"),
    [
        ("chebyshev", ("0.25", "1000"), "chebyshev needs scores from 0 to 1, but a ranges from 0.25 to 1000"),
        (
            "geometric_mean",
            ("0.25", "-0.5"),
            "geometric_mean needs scores of at least 0, but a ranges from -0.5 to 0.25",
        ),
    ],
)
def test_a_scale_that_does_not_fit_the_method_is_refused_with_the_range_seen(method, replies, seen, scored):
    """For the whole group: a score within the limits is on the wrong scale too."""
    reward = MultiObjectiveRewardFunction([Fixed(name="a"), Fixed(name="idle", weight=0.0)], method)
    for score in scored(reward, *replies):
        assert isinstance(score, Failed)
        assert seen in score.failure.message
        assert "normalize_then_sum" in score.failure.hint
    assert all(isinstance(score, Score) for score in scored(reward, "0.25", "0.5"))


def test_a_component_without_weight_may_have_any_scale(scored):
    class Far(RewardFunction):
        def compute_reward(self, turns):
            return -1000.0

    for method in ("chebyshev", "geometric_mean"):
        reward = MultiObjectiveRewardFunction([Fixed(name="a"), Far(weight=0.0)], method)
        assert totals(scored(reward, "0.25", "0.5")) == pytest.approx([0.25, 0.5])


def test_components_may_be_functions_and_other_rewards(scored):
    async def longest(task, group):
        return [float(len(member.meta["messages"][-1]["content"])) for member in group]

    def polite(turns):
        return "please" in turns[-1]["content"]

    reward = MultiObjectiveRewardFunction([polite, longest, WithFallback(Fixed(), longest, retries=0)])
    (score,) = scored(reward, "please")
    assert dict(score.parts) == {"polite": 1.0, "longest": 6.0, "WithFallback": 6.0}
    assert score.flags == ("fallback",)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf"), "0.5", True, None])
def test_a_weight_that_is_none_is_refused_by_name(weight):
    with pytest.raises(ConfigError, match="the weight of a is"):
        MultiObjectiveRewardFunction([Fixed(weight=weight, name="a")])


def test_no_weight_no_component_and_an_unknown_method_are_refused():
    with pytest.raises(ConfigError, match=r"\[0.0\]"):
        MultiObjectiveRewardFunction([Fixed(weight=0.0)])
    with pytest.raises(ConfigError, match="at least one component"):
        MultiObjectiveRewardFunction([])
    with pytest.raises(ConfigError, match="Did you mean 'geometric_mean'.*weighted_sum") as error:
        MultiObjectiveRewardFunction([Fixed()], normalization_method="geometric")
    assert "normalize_then_sum" in error.value.hint


def test_without_components_it_has_rules_of_thumb_for_any_reply(rated):
    reward = MultiObjectiveRewardFunction(weight=0.3)
    assert reward.weight == 0.3
    assert sum(reward.weights.values()) == pytest.approx(1.0)
    good = (
        "Thank you for writing. The parcel left Leeds on Monday. It will reach your door on Friday; I will mail you "
        "the tracking number today."
    )
    assert rated(reward, good) > 0.5 > 0.1 > rated(reward, "no")


def test_a_conversation_can_be_scored_by_hand_also_inside_an_event_loop(rated):
    reward = MultiObjectiveRewardFunction([Fixed(name="a"), Backwards(name="b")])

    async def inside():
        return rated(reward, "0.25")

    assert rated(reward, "0.25") == asyncio.run(inside()) == 1.0
    with pytest.raises(ContractError, match="a: .*could not convert"):
        rated(reward, "x")


def test_a_group_of_none_has_no_scores():
    assert asyncio.run(MultiObjectiveRewardFunction([Fixed()])(Task("t"), [])) == []


def test_for_evaluation_methods_that_compare_become_an_average_all_the_way_down(scored):
    inner = MultiObjectiveRewardFunction([Fixed(), Backwards()], "normalize_then_sum", name="in")
    reward = MultiObjectiveRewardFunction([inner, Fixed(weight=3.0)], "normalize_then_sum")
    assert scored(reward, "0.2")[0].total == 0.0
    (alone,) = scored(absolute(reward), "0.2")
    assert alone.total == pytest.approx((0.5 + 3 * 0.2) / 4)
    assert reward.normalization_method == "normalize_then_sum"


class Learned(Fixed):
    def __init__(self):
        super().__init__(name="learned")
        self.seen = 0

    def compute_reward(self, turns):
        self.seen += 1
        return 0.0

    def metrics(self):
        return {"learned/accuracy": 0.5}

    def hints(self):
        return (Hint("judge", "the judge is away", "wait"),)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_what_components_learn_report_and_hint_goes_through(scored):
    reward, learned = MultiObjectiveRewardFunction([Fixed(), MultiObjectiveRewardFunction([Learned()])]), Learned()
    scored(reward, "1", "2")
    assert reward.metrics() == {"learned/accuracy": 0.5}
    both = MultiObjectiveRewardFunction([Learned(), Learned()])
    assert both.metrics() == {"learned/accuracy": 0.5, "learned_2/learned/accuracy": 0.5}
    assert [hint.code for hint in reward.hints()] == ["judge"]
    MultiObjectiveRewardFunction([Fixed(), MultiObjectiveRewardFunction([learned])]).load_state_dict(
        reward.state_dict()
    )
    assert learned.seen == 2


def test_seed_4_a_reward_of_one_half_and_one_of_manual_features_run_as_they_are_printed():
    class SimpleReward(RewardFunction):
        def compute_reward(self, turns):
            return 0.5  # Fixed reward

    class ManualReward(RewardFunction):
        def compute_reward(self, turns):
            score = 0.0
            # Manual feature engineering
            if "please" in turns[-1]["content"]:
                score += 0.2
            if "thank you" in turns[-1]["content"]:
                score += 0.3
            return score

    members = tuple(
        attempt_of([{"role": "assistant", "content": text}]) for text in ("thank you, please", "please", "")
    )
    group = Group("g", Task("t"), members)
    simple, manual = (score_groups(reward, [group])[0].totals().tolist() for reward in (SimpleReward(), ManualReward()))
    assert simple == [0.5, 0.5, 0.5]
    assert manual == [0.5, 0.2, 0.0]
