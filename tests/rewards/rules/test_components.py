"""Components: in [0, 1], monotone where a person expects it, blind to all but the assistant's words."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.rewards.rules import components
from groupwise.rewards.rules import correctness as formats
from groupwise.rewards.rules import customer_service as selling
from groupwise.rewards.rules import customer_service as service
from groupwise.rewards.rules import customer_service as support
from groupwise.rewards.rules import teaching_and_writing as teaching
from groupwise.rewards.rules import teaching_and_writing as writing
from groupwise.rewards.rules.components import (
    Component,
    Ideas,
    KeywordRewardComponent,
    LengthRewardComponent,
    Referenced,
    SimilarityRewardComponent,
)
from groupwise.rewards.rules.correctness import FormatReward
from groupwise.rewards.rules.customer_service import (
    AccuracyRewardComponent,
    EmpathyRewardComponent,
    NeedsIdentificationRewardComponent,
    ProductKnowledgeRewardComponent,
    ProfessionalismRewardComponent,
    StepByStepRewardComponent,
)
from groupwise.rewards.rules.safety import SafetyReward
from groupwise.rewards.rules.teaching_and_writing import (
    CoherenceRewardComponent,
    CorrectnessRewardComponent,
    CreativityRewardComponent,
    StyleRewardComponent,
    variety,
)
from groupwise.types import Score

KINDS = sorted(
    {
        kind
        for module in (components, service, support, selling, teaching, writing)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Component) and kind not in (Component, Ideas, Referenced)
    },
    key=lambda kind: kind.__name__,
)
LEXICAL = [kind for kind in KINDS if issubclass(kind, Ideas)]
WORDS = "sorry|please|I will check|today?|1.|yeah|because|you|great!|LOUD WORDS|like a|b|c|.|\n"
TEXT = st.text(max_size=200) | st.lists(st.sampled_from(WORDS.split("|")), max_size=40).map(" ".join)


def turns(*replies, user="And?"):
    return [t for r in replies for t in ({"role": "user", "content": user}, {"role": "assistant", "content": r})]


def total(reward, conversation):
    found = reward.compute_reward(conversation)
    return found.total if isinstance(found, Score) else found


def test_there_are_all_the_components_the_presets_are_made_of():
    assert [kind.label for kind in KINDS] == [
        "accuracy", "action_oriented", "coherence", "correctness", "creativity", "empathy", "engagement", "keywords",
        "length", "needs_identification", "pedagogical_approach", "problem_resolution", "product_knowledge",
        "professionalism", "similarity", "step_by_step", "style", "value_proposition",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(replies=st.lists(TEXT, max_size=3))
@settings(max_examples=25)
def test_every_component_stays_between_0_and_1_whatever_is_said(kind, replies):
    assert 0.0 <= total(kind(), turns(*replies)) <= 1.0


@pytest.mark.parametrize("kind", KINDS)
@given(reply=TEXT, user=TEXT)
@settings(max_examples=10)
def test_what_the_user_or_a_tool_says_never_counts(kind, reply, user):
    tool = {"role": "tool", "tool_call_id": "1", "content": "I am so sorry, I understand. 1. 2. 3."}
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    conversation = [{"role": "system", "content": user}, *turns(reply, user=user), calls, tool]
    assert total(kind(), conversation) == total(kind(), turns(reply))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not issubclass(kind, Referenced)])
def test_saying_nothing_scores_0(kind):
    assert total(kind(), []) == total(kind(), turns("")) == total(kind(), turns(" \n ")) == 0.0


@pytest.mark.parametrize("kind", LEXICAL)
@given(reply=TEXT, choice=st.integers(0, 1000))
@settings(max_examples=25)
def test_one_more_phrase_never_lowers_a_component_that_looks_for_phrases(kind, reply, choice):
    phrases = [phrase for idea in kind.ideas.values() for phrase in idea]
    phrase = phrases[choice % len(phrases)].rstrip("*")
    assert total(kind(), turns(f"{reply} {phrase}")) >= total(kind(), turns(reply))


@pytest.mark.parametrize("kind", LEXICAL)
def test_each_idea_raises_the_score_until_there_are_enough_and_repeating_one_does_not(kind):
    first_words = [idea[0].rstrip("*") for idea in kind.ideas.values()]
    scores = [total(kind(), turns(" ".join(first_words[:n]))) for n in range(len(first_words) + 1)]
    assert scores[0] == 0.0
    assert scores == sorted(scores)
    assert scores[-1] == 1.0
    assert total(kind(), turns(" ".join(first_words[:1] * 50))) == total(kind(), turns(first_words[0])) < 1.0


def test_empathy_finds_feeling_and_not_its_letters():
    empathy = EmpathyRewardComponent()
    assert total(empathy, turns("I’m so SORRY for the inconvenience!")) == 1.0
    assert total(empathy, turns("Sorry.")) == 0.5
    assert total(empathy, turns("The sorryness index of worldwide trade")) == 0.0
    assert total(empathy, turns("I'm sorry, I understand.", "Your order number?")) == 0.5


def test_professionalism_rises_with_courtesy_and_falls_with_slang_and_shouting():
    rate = ProfessionalismRewardComponent()
    scores = [
        total(rate, turns(text))
        for text in (
            "Thank you for writing. Please let me know if there is anything else.",
            "Thank you for writing.",
            "It was shipped.",
            "It was shipped!!",
            "yeah dude, it was shipped!!",
        )
    ]
    assert scores == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert total(rate, turns("The HTTP API speaks JSON.")) == 0.5


@given(n=st.integers(0, 400))
@settings(max_examples=50)
def test_longer_is_better_only_up_to_the_target_and_worse_beyond_the_limit(n):
    rate = LengthRewardComponent(target_words=20, max_words=100)
    now, more = (total(rate, turns("word " * count)) for count in (n, n + 1))
    if n < 20:
        assert more > now == n / 20
    elif n < 100:
        assert more == now == 1.0
    else:
        assert more < now


@pytest.mark.parametrize("setting", [{"target_words": 0}, {"target_words": 300}, {"max_words": 1}])
def test_a_length_without_sense_is_refused(setting):
    with pytest.raises(ConfigError, match="does not fit max_words"):
        LengthRewardComponent(**setting)


@given(words=st.lists(st.sampled_from(["refund", "order", "ship", "other"]), max_size=30))
@settings(max_examples=40)
def test_keywords_count_once_each_and_stuffing_gains_nothing_more(words):
    rate = KeywordRewardComponent(keywords=["refund", "Order", "ship"], enough=2)
    found = len({"refund", "order", "ship"} & set(words))
    assert total(rate, turns(" ".join(words))) == min(1.0, found / 2)
    assert total(rate, turns(" ".join(words * 20))) == min(1.0, found / 2)


def test_keywords_may_be_phrases_and_beginnings_and_have_a_default():
    rate = KeywordRewardComponent(keywords=["money back", "resolv*"], enough=2)
    assert total(rate, turns("We are resolving it; you get your MONEY back.")) == 1.0
    assert total(rate, turns("money, or something back")) == 0.0
    assert 0.0 < total(KeywordRewardComponent(weight=0.7), turns("Happy to help!")) < 1.0
    with pytest.raises(ConfigError, match="none of them contains a word"):
        KeywordRewardComponent(keywords=["…"])
    with pytest.raises(ConfigError, match="enough = 3, but there are 2"):
        KeywordRewardComponent(keywords=["a", "b"], enough=3)


def test_similarity_is_1_for_the_expected_words_and_falls_with_distance():
    rate = SimilarityRewardComponent(expected_responses=["I'll help you with that", "Let me check on that"])
    exact, inside, close, shuffled, far = (
        total(rate, turns(text))
        for text in (
            "I’ll help you with that!",
            "Good morning to you. I'll help you with that. It will take a while, as there are many of us here today.",
            "I'll help you with this",
            "that with you help I'll",
            "Bananas are yellow",
        )
    )
    assert exact == inside == 1.0
    assert 1.0 > close > shuffled > far == 0.0


@given(first=TEXT, second=TEXT)
@settings(max_examples=40)
def test_similarity_is_the_same_both_ways_for_single_sentences(first, second):
    one, other = components.words_of(first), components.words_of(second)
    assert components.likeness(one, other) == components.likeness(other, one)
    assert components.likeness(one, one) == (1.0 if one else 0.0)


@pytest.mark.parametrize("kind", [SimilarityRewardComponent, AccuracyRewardComponent, CorrectnessRewardComponent])
def test_without_a_reference_a_comparison_says_so_and_prefers_nobody(kind, scored):
    assert scored(kind(), "yes", "no", "Paris is the capital") == (Score(0.5, flags=("no_reference",)),) * 3


@pytest.mark.parametrize("kind", [SimilarityRewardComponent, AccuracyRewardComponent, CorrectnessRewardComponent])
@pytest.mark.parametrize("payload", [{"answer": "Paris"}, {"expected_responses": ["Rome", "Paris"], "answer": "x"}])
def test_references_come_with_the_task_too(kind, payload, scored):
    right, wrong = scored(kind(), "Paris", "Berlin", payload=payload)
    assert right.total == 1.0
    assert wrong.total < 0.5


def test_accuracy_is_the_share_of_telling_words_that_are_stated():
    rate = AccuracyRewardComponent(expected_responses="Hold the power button for 10 seconds")
    # Telling: hold, power, button, 10, seconds.
    assert total(rate, turns("Press the power button.")) == pytest.approx(2 / 5)
    assert total(rate, turns("Press the power button.", "Hold it 10 seconds, then talk about the weather.")) == 1.0


def test_correctness_wants_the_answer_stated_in_the_end():
    rate = CorrectnessRewardComponent(expected_responses="the mitochondria")
    assert total(rate, turns("It is the mitochondria, of course.")) == 1.0
    assert total(rate, turns("It is the mitochondria.", "Or is it?")) < 0.5


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("It is Canberra.", 1.0),
        ("Canberra, not Sydney.", 1.0),
        ("It isn't Sydney, it's Canberra.", 1.0),
        ("Not Sydney but Canberra.", 1.0),
        ("It is certainly not Canberra.", 0.0),
        ("The capital is never Canberra. It is Sydney.", 0.0),
        ("Not Sydney, Canberra.", 1.0),
        ("It used to be Melbourne; now it is Canberra.", 1.0),
        ("Canberra? No, it's Sydney.", 0.0),
        ("Canberra is wrong; it is Sydney.", 0.0),
        ("Some say Canberra, but it is Sydney.", 0.0),
        ("Anything but Canberra.", 0.0),
        ("It isn't true that it is Canberra.", 0.0),
    ],
)
def test_an_answer_that_is_negated_is_not_stated(reply, right):
    assert total(CorrectnessRewardComponent(expected_responses="Canberra"), turns(reply)) == right


@pytest.mark.parametrize(
    "reply",
    [
        "It is Sydney, Melbourne, Canberra, Perth or Brisbane.",
        "Either Sydney or Canberra.",
        "Canberra or Sydney, I think.",
        "Sydney, Melbourne, Canberra, Perth, Hobart",
        "The capital is Sydney. The capital is Canberra. The capital is Perth.",
        "- Sydney\n- Canberra\n- Perth\n- Hobart",
        "The capital is Canberra. That was a lie.",
        "It is Canberra. Just kidding.",
        "Canberra. Scratch that, it is Sydney.",
        "It is Canberra, said nobody ever.",
    ],
)
def test_naming_every_candidate_or_taking_the_answer_back_is_no_answer(reply):
    assert total(CorrectnessRewardComponent(expected_responses="Canberra"), turns(reply)) < 0.5


@pytest.mark.parametrize(
    "reply",
    [
        "Canberra, of course, and not Sydney.",
        "The capital is Canberra, whether you like it or not.",
        "It was planned by Walter Griffin. It is Canberra.",
        "Sydney and Melbourne are larger, but the capital is Canberra, ACT, Australia.",
        "Sydney is the largest city. Canberra is the capital.",
        "Melbourne was the capital until 1927. Canberra is the capital today.",
        "- The largest city is Sydney.\n- The capital is Canberra.",
    ],
)
def test_other_names_beside_an_answer_do_no_harm(reply):
    assert total(CorrectnessRewardComponent(expected_responses="Canberra"), turns(reply)) == 1.0


def test_a_right_answer_that_has_alternatives_of_its_own_is_right():
    rate = CorrectnessRewardComponent(expected_responses="tea or coffee")
    assert total(rate, turns("You can have tea or coffee.")) == 1.0


def test_an_answer_of_several_parts_is_found_over_its_commas():
    rate = CorrectnessRewardComponent(expected_responses="red, green and blue")
    assert total(rate, turns("They are red, green and blue.")) == 1.0
    assert total(rate, turns("Are they red, green and blue?")) < 1.0


def test_steps_are_counted_by_number_or_by_words_of_order():
    rate = StepByStepRewardComponent()
    assert total(rate, turns("1. Open it.\n2) Press it.\nStep 3: Close it.")) == 1.0
    assert total(rate, turns("1. Open it.\n1. Open it.\n1. Open it.")) == pytest.approx(1 / 3)
    assert total(rate, turns("First open it, then close it.")) == pytest.approx(2 / 3)
    assert total(rate, turns("It has 3. And 4. Also 5.")) == 0.0


def test_needs_are_found_out_by_different_questions():
    rate = NeedsIdentificationRewardComponent()
    assert total(rate, turns("What is it for? How many people use it?")) == 1.0
    assert total(rate, turns("What is it for? What is it for? What is it for?")) == 0.5


def test_product_facts_of_ones_own_replace_the_usual_signs():
    rate = ProductKnowledgeRewardComponent(facts=["12 hours of battery", "two year warranty"])
    assert total(rate, turns("It has 12 hours of battery.")) == 0.5
    assert total(rate, turns("Features, price, warranty, compared to others.")) == 0.0
    with pytest.raises(ConfigError, match="none of the facts"):
        ProductKnowledgeRewardComponent(facts=["?"])


def test_creativity_prefers_varied_words_and_figures_to_repetition_and_cliches():
    rate = CreativityRewardComponent()
    vivid = (
        "The harbour slept like a cat while rain stitched silver seams along every crooked roof, "
        "as if mending old grief."
    )
    dull = "The cat sat and the cat sat and the cat sat and the cat sat and the cat sat and the cat sat."
    assert total(rate, turns(vivid)) > 0.9
    assert total(rate, turns(dull)) < 0.3
    assert total(rate, turns(f"Once upon a time. {vivid}")) < total(rate, turns(vivid))
    assert total(rate, turns("Moon.")) < 0.1


def test_variety_does_not_fall_with_length_by_itself():
    words = [f"w{n % 60}" for n in range(3000)]
    assert variety(words) == variety(words[:60]) == 1.0
    assert variety(["a", "b"] * 500) == pytest.approx(2 / 50)


def test_coherence_wants_linked_sentences_and_no_repetition():
    rate = CoherenceRewardComponent()
    linked = "The river rose. It took the bridge. The bridge was never built again."
    assert total(rate, turns(linked)) == 1.0
    assert total(rate, turns("Cats purr. Stocks fell. Blue paint dries.")) == 0.0
    assert total(rate, turns("The river rose. The river rose. The river rose.")) == pytest.approx(1 / 3)


def test_style_prefers_a_rhythm_and_no_filler():
    rate = StyleRewardComponent()
    good = (
        "Night fell. Along the whole length of the quay the lamps came on, one after another, without a "
        "sound. Nobody spoke."
    )
    flat = "It was really very nice. He was just quite sad. She was actually rather glad."
    assert total(rate, turns(good)) == 1.0
    assert total(rate, turns(flat)) < 0.2


def test_form_is_the_share_of_demands_that_are_met():
    tags = FormatReward(tags=["think", "answer"])
    assert total(tags, turns("<think>a</think><answer>b</answer>")) == 1.0
    assert total(tags, turns("<answer>b</answer><think>a</think>")) == 0.5
    assert total(tags, turns("<think>a</think><think>a</think><answer>b</answer>")) == 0.5
    assert total(tags, turns("</think><think>")) == 0.0
    keys = FormatReward(json_keys=["city", "country"])
    assert total(keys, turns('```json\n{"city": "Rome", "country": "Italy"}\n```')) == 1.0
    assert total(keys, turns('{"city": "Rome"}')) == 0.5
    assert total(keys, turns("[" * 100_000)) == total(keys, turns("Rome")) == 0.0
    assert total(FormatReward(json_keys=[]), turns("null")) == 1.0
    assert total(FormatReward(pattern=r"#### \d+$"), turns("so\n#### 12")) == 1.0


def test_form_without_demands_or_with_a_broken_pattern_is_refused():
    with pytest.raises(ConfigError, match="there is nothing to check"):
        FormatReward()
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        FormatReward(pattern="(")


HOSTILE = ("sorry please ", "-", "1", "1 ", "A", "?!", "1.\n", "<think>", "a. ")


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_very_long_message_is_rated_in_time_that_grows_with_its_length_alone(piece, growth):
    rewards = [kind() for kind in KINDS if not issubclass(kind, Referenced)]
    rewards += [kind(expected_responses="as you like") for kind in KINDS if issubclass(kind, Referenced)]
    rewards += [SafetyReward(), FormatReward(tags=["think"], json_keys=[]), FormatReward(pattern="ab$")]
    for reward in rewards:
        assert growth(lambda size, reward=reward: total(reward, turns((piece * size)[:size]))) < 8, reward.name


def test_content_in_parts_is_read_as_text():
    parts = [{"type": "text", "text": "I am sorry."}, {"type": "image_url", "image_url": "…"}, "I understand."]
    assert total(EmpathyRewardComponent(), [{"role": "assistant", "content": parts}]) == 1.0


def test_modules_say_what_they_are():
    assert all(kind.__doc__ and len(kind.__doc__) > 40 for kind in [*KINDS, formats.FormatReward, SafetyReward])
