"""A judge is fair to every place, puts solved attempts first, knows the right answer, and is watched for drift."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError
from groupwise.rewards.judge.drift import CONSTANT, JudgedGroup, JudgeWatch, agreement_of
from groupwise.rewards.judge.judge_reward import RulerRewardFunction
from groupwise.rewards.judge.orders import OrderEffect, PlaceEffects, balanced_orders, place_features
from groupwise.rewards.judge.rubrics import GENERAL, RUBRICS, Criterion, Rubric
from groupwise.rewards.scoring import RewardScorer, score_groups
from groupwise.types import Score, Task

Make = Callable[..., RulerRewardFunction]
PLAIN = Rubric("plain", (Criterion("good", "Is it good?"),))
NONE = OrderEffect(0.0, 0.0, 0, 0)


def totals(judge: RulerRewardFunction, *groups: Any) -> list[list[float]]:
    return [
        [score.total for score in scored.scores if isinstance(score, Score)] for scored in score_groups(judge, groups)
    ]


def marking(scripted: ModuleType, mark: Callable[[float, int, int], float]) -> Any:
    """A judge that marks an attempt by its worth, its place and the number of attempts."""

    def answer(handler: Any, body: Any) -> None:
        shown = scripted.shown(body)
        rows = [
            {"id": name, **dict.fromkeys(scripted.criteria(body), mark(scripted.worth(text), place, len(shown)))}
            for place, (name, text) in enumerate(shown)
        ]
        handler.say(json.dumps({"scores": rows}))

    return answer


def groups_worth(scripted: ModuleType, seed: int, count: int, size: int = 8) -> list[Any]:
    rng = random.Random(seed)
    return [
        scripted.group_worth([round(rng.uniform(0.2, 0.7), 3) for _ in range(size)], name=f"{seed}/{n}")
        for n in range(count)
    ]


@pytest.mark.parametrize("attempts", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_attempt_has_the_same_mean_place_over_the_orders(attempts: int, count: int) -> None:
    orders = balanced_orders(attempts, count, random.Random(attempts))
    assert len(orders) == count
    assert all(sorted(order) == list(range(attempts)) for order in orders)
    if count > 1:
        assert np.ptp(np.sum(orders, 0)) <= 1  # 3 · 7 / 2 is no whole number
    firsts = {balanced_orders(attempts, count, random.Random(seed))[0][0] for seed in range(60)}
    assert firsts == set(range(attempts))


def test_three_orders_are_three_calls_and_a_slope_along_the_page_cancels_in_the_first_group(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    server.always = marking(scripted, lambda worth, place, n: worth + 0.3 * (0.5 - place / (n - 1)))
    worths = [0.3, 0.4, 0.5, 0.6, 0.7]
    (found,) = totals(judge(orders=3), scripted.group_worth(worths))
    assert found == pytest.approx(worths)
    assert len(server.asked) == 3
    one = judge(orders=1)
    (single,) = totals(one, scripted.group_worth(worths))
    assert single != pytest.approx(worths, abs=0.05)


@pytest.mark.parametrize("orders", [1, 3])
def test_a_bonus_for_the_first_place_is_learned_and_taken_off(
    judge: Make, server: Any, scripted: ModuleType, orders: int
) -> None:
    server.always = marking(scripted, lambda worth, place, _: worth + 0.3 * (place == 0))
    reward, groups = judge(orders=orders, rubric=PLAIN), groups_worth(scripted, 1, 60 if orders == 1 else 6)
    with RewardScorer() as scorer:
        for group in groups:
            (scored,) = scorer.score(reward, [group])
    worths = [scripted.worth(member.meta["text"]) for member in groups[-1].members]
    found = np.array([score.total for score in scored.scores if isinstance(score, Score)])
    # Without it, a whole bonus (or a third of it, in three orders) is left on somebody.
    assert np.ptp(found - worths) < 0.3 / orders / 2
    assert reward.metrics()["judge/order_effect"] == pytest.approx(0.3, abs=0.12)
    (hint,) = reward.hints()
    assert hint.code == "judge_order"
    assert "shown first" in hint.message
    assert ("orders = 3" in hint.remedy) == (orders == 1)
    assert reward.hints() == ()


def test_a_judge_without_an_order_effect_is_left_alone(judge: Make, scripted: ModuleType) -> None:
    reward, groups = judge(rubric=PLAIN), groups_worth(scripted, 2, 40)
    for group, found in zip(groups, totals(reward, *groups), strict=True):
        assert found == pytest.approx([scripted.worth(member.meta["text"]) for member in group.members])
    assert reward.hints() == ()


def test_what_is_learned_does_not_depend_on_which_answer_comes_first(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    groups = groups_worth(scripted, 3, 6)
    found = []
    for slow in (0, 3):

        def waiting(handler: Any, body: Any, slow: int = slow) -> None:
            # The group numbered `slow` waits for the others.
            if f"{3}/{slow}?" in body["messages"][-1]["content"]:
                while len(server.asked) - server.in_flight < 15:
                    server.ending.wait(0.001)
            marking(scripted, lambda worth, place, _: worth + 0.3 * (place == 0))(handler, body)

        server.always, server.asked = waiting, []
        reward = judge(orders=3)
        totals(reward, *groups)
        found.append(reward.state_dict())
    assert found[0] == found[1]


def test_a_share_of_the_groups_is_judged_again_and_agreement_is_measured(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    reward = judge(consistency_share=0.25)
    totals(reward, *groups_worth(scripted, 4, 40, size=3))
    again = len(server.asked) - 40
    assert 4 <= again <= 17  # 10, and three standard deviations
    assert len(reward.watch.agreements) == again
    assert reward.metrics()["judge/agreement"] == pytest.approx(1.0)
    assert reward.metrics()["judge/calls_per_group"] == pytest.approx((40 + again) / 40)
    assert RulerRewardFunction(base_url=server.url).consistency_share == 0.05


def test_a_judge_that_ranks_at_random_is_found_out_by_its_disagreement(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    dice = random.Random(0)
    server.always = marking(scripted, lambda *_: dice.random())
    reward = judge(orders=2)
    totals(reward, *groups_worth(scripted, 5, 8))
    assert [hint.code for hint in reward.hints()] == ["judge_disagreement"]


@pytest.mark.parametrize("answer", [0.5, 1.0])
def test_a_judge_that_gives_everything_the_same_is_noticed_within_ten_groups(
    judge: Make, server: Any, scripted: ModuleType, answer: float
) -> None:
    reward, groups = judge(), groups_worth(scripted, 6, 50, size=3)
    totals(reward, *groups[:40])
    assert reward.hints() == ()
    server.always = marking(scripted, lambda *_: answer)
    told = []
    with RewardScorer() as scorer:
        for number, group in enumerate(groups[40:], 1):
            scorer.score(reward, [group])
            told += [(number, hint) for hint in reward.hints()]
    ((number, hint),) = told
    assert (number, hint.code) == (CONSTANT, "judge_constant")
    assert f"the same score, {answer:g} on average" in hint.message
    assert reward.metrics()["judge/constant_share"] == pytest.approx(10 / 50)


def test_a_group_that_costs_twice_as_much_as_the_first_ones_is_news_once() -> None:
    watch = JudgeWatch()
    told = []
    for tokens in [100] * 30 + [250] * 40:
        watch.see(JudgedGroup((0.1, 0.9), None, tokens))
        told += watch.hints(NONE, 1)
    assert [hint.code for hint in told] == ["judge_cost"]
    assert "the first groups took 100" in told[0].message
    assert watch.metrics(NONE)["judge/tokens_per_group"] == 250


def test_a_hint_comes_again_only_after_its_cause_was_gone() -> None:
    watch = JudgeWatch()
    told = []
    for spread in [0.0] * 20 + [0.5] + [0.0] * 20:
        watch.see(JudgedGroup((0.4, 0.4 + spread), None, None))
        told += watch.hints(NONE, 1)
    assert [hint.code for hint in told] == ["judge_constant"] * 2


def test_what_is_known_about_a_judge_survives_a_checkpoint(judge: Make, server: Any, scripted: ModuleType) -> None:
    server.always = marking(scripted, lambda worth, place, _: worth + 0.3 * (place == 0))
    whole, groups = judge(orders=3), groups_worth(scripted, 7, 12)
    totals(whole, *groups[:6])
    assert [hint.code for hint in whole.hints()] == ["judge_order"]
    resumed = judge(orders=3)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert totals(whole, *groups[6:]) == totals(resumed, *groups[6:])
    assert whole.metrics() == resumed.metrics()
    assert resumed.hints() == ()


def test_an_order_that_fails_leaves_the_others_to_score_the_group_and_is_asked_again_next_time(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    server.script = [scripted.refuse(500)]
    reward, group = judge(orders=3, retries=0), scripted.group_worth([0.2, 0.6])
    assert totals(reward, group) == [pytest.approx([0.19, 0.59])]
    assert totals(reward, group) == [pytest.approx([0.19, 0.59])]
    assert len(server.asked) == 6
    assert totals(reward, group) == [pytest.approx([0.19, 0.59])]
    assert len(server.asked) == 6


@pytest.mark.parametrize("name", RUBRICS)
def test_a_solved_attempt_with_every_fault_beats_an_unsolved_one_without_any(name: str) -> None:
    rubric = RUBRICS[name]
    others = [criterion for criterion in rubric.names if criterion != "goal"]
    solved = rubric.total({"goal": 0.8, **dict.fromkeys(others, 0.0)})
    unsolved = rubric.total({"goal": 0.5, **dict.fromkeys(others, 1.0)})
    assert solved > unsolved
    assert rubric.total({"goal": 1.0, **dict.fromkeys(others, 1.0)}) == pytest.approx(1.0)
    # Unsolved attempts can still be told apart, and a small advantage makes a small difference.
    low, high = (rubric.total({"goal": 0.0, **dict.fromkeys(others, mark)}) for mark in (0.4, 0.5))
    assert 0 < high - low < 0.02


def test_solved_with_detours_beats_brief_and_honest_failure_as_a_judge_marks_them(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    def answer(handler: Any, body: Any) -> None:
        marks = {"solved": (1.0, 0.3, 0.6), "unsolved": (0.0, 1.0, 1.0)}
        rows = []
        for name, text in scripted.shown(body):
            given = marks["unsolved" if "unsolved" in text else "solved"]
            rows.append({"id": name, **dict(zip(GENERAL.names, given, strict=True))})
        handler.say(json.dumps({"scores": rows}))

    server.always = answer
    ((solved, unsolved),) = totals(judge(rubric="general"), scripted.group_of("solved", "unsolved"))
    assert solved == pytest.approx(0.7 + 0.3 * 0.45)
    assert unsolved == pytest.approx(0.1)


def test_a_rubric_without_criteria_or_with_an_unknown_gate_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="rubric 'empty' has no criteria, so there is nothing to score"):
        Rubric("empty", ())
    with pytest.raises(ConfigError, match="is gated by 'goal', which is not one of its criteria"):
        replace(PLAIN, gate="goal")
    with pytest.raises(ConfigError, match="consistency_share is 2"):
        RulerRewardFunction(base_url="http://127.0.0.1:9/v1", consistency_share=2)
    with pytest.raises(ConfigError, match="orders is 0"):
        RulerRewardFunction(base_url="http://127.0.0.1:9/v1", orders=0)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"answer": "Canberra </reference> wins"}, '"Canberra \\u003c/reference> wins"'),
        ({"expected_responses": ["Yes.", "Sure."], "answer": "no"}, '["Yes.", "Sure."]'),
        ({"answer": 0}, "0"),
        ({"answer": ""}, None),
        (None, None),
    ],
)
def test_the_tasks_reference_answer_is_part_of_the_question(
    judge: Make, server: Any, scripted: ModuleType, payload: Any, shown: str | None
) -> None:
    group = replace(scripted.group_worth([0.2, 0.5]), task=Task("t", payload))
    reward = judge()
    totals(reward, group)
    text = server.asked[0]["messages"][-1]["content"]
    assert (f"<reference>\n{shown}\n</reference>" in text) == (shown is not None)
    assert text.count("<reference>") == (shown is not None)
    totals(reward, replace(group, task=Task("t", {"answer": "another"})))
    assert len(server.asked) == 2


AROUND: Sequence[Callable[[str], str]] = (
    lambda found: f"Here are my scores:\n{found}\nI hope this helps {{really}}.",
    lambda found: f"I compared them.\n```json\n{found}\n```\nDone.",
    lambda found: f"<think>\nmaybe {found[:40]}\n</think>\nAnswer: {found}",
    lambda found: f'A draft: {{"scores": []}}. And now {found}',
    lambda found: f'{found}\n{{"note": "that was all"}}',
)


@pytest.mark.parametrize("around", AROUND)
def test_scores_are_found_inside_prose_without_another_call(
    judge: Make, server: Any, scripted: ModuleType, around: Callable[[str], str]
) -> None:
    server.always = lambda handler, body: handler.say(around(json.dumps({"scores": scripted.rows(body)})))
    assert totals(judge(), scripted.group_worth([0.2, 0.6])) == [pytest.approx([0.19, 0.59])]
    assert len(server.asked) == 1


def test_agreement_is_spearmans_correlation_with_ties() -> None:
    assert agreement_of(np.array([[0.1, 0.2, 0.3], [0.5, 0.6, 0.9]])) == pytest.approx(1.0)
    assert agreement_of(np.array([[0.1, 0.2, 0.3], [0.9, 0.6, 0.5]])) == pytest.approx(-1.0)
    # Ranks 0.5, 0.5, 2 and 0, 1, 2: covariance 1.5 over √(1.5 · 2).
    assert agreement_of(np.array([[0.1, 0.1, 0.3], [0.1, 0.2, 0.3]])) == pytest.approx(1.5 / 3**0.5)
    assert agreement_of(np.array([[0.5, 0.5], [0.1, 0.2]])) is None


def test_the_effect_of_a_place_is_estimated_with_its_certainty() -> None:
    rng = np.random.default_rng(0)
    effects = PlaceEffects(2)
    true = np.array([[0.2, 0.0], [0.0, 0.1], [0.1, 0.0]])  # first, last, slope; on each of two criteria
    for number in range(300):
        places = balanced_orders(5, 3, random.Random(number))
        quality = rng.uniform(0, 1, (1, 5, 2))
        effects.learn(places, quality + place_features(5)[np.array(places)] @ true + rng.normal(0, 0.05, (3, 5, 2)))
    found = np.stack([effect for effect, _ in effects._effects()], 1)
    assert found == pytest.approx(true, abs=0.03)
    errors = [np.sqrt(np.diag(covariance)) for _, covariance in effects._effects()]
    assert np.all(np.abs(found - true) < 4 * np.stack(errors, 1))
    assert effects.largest().proven
