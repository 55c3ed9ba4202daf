"""Strategies understand example dialogues as a person would, each in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.agents.strategies import (
    DOMAINS,
    CustomerService,
    Educational,
    Sales,
    Strategy,
    TechnicalSupport,
    UnknownStrategy,
    find_strategy,
    known_strategies,
    registry,
    report,
    restore,
    strategy,
)
from groupwise.agents.strategies.polarity import polarity
from groupwise.agents.strategies.reading import last_turn, verdict
from groupwise.agents.strategies.resolution import is_resolved
from groupwise.errors import ContractError
from groupwise.types import Message

OWN = ("customer_service", "educational", "sales", "technical_support")


def dialogue(state: Any, *turns: str) -> Iterator[Any]:
    """The state after every turn; `>` begins one of the customer's, `<` one of the model's."""
    for turn in turns:
        role = "user" if turn.startswith(">") else "assistant"
        state = state.advance({"role": role, "content": turn[1:].strip()})
        yield state


def test_a_sale_goes_through_its_stages() -> None:
    states = [*dialogue(
        Sales(),
        "> Hello there!",
        "> We need a help desk for 12 people. Our budget is $500 a month.",
        "< How do you answer requests today?",
        "> By mail, and we are struggling to keep up. Which plan would you recommend?",
        "< I would recommend our Team plan at $480.",
        "> Hmm, that's too expensive for us.",
        "< It saves each person two hours a week; billed yearly it is $400.",
        "> Okay, that makes sense.",
        "< Shall I set it up for Monday?",
        "> Yes, sign us up.",
    )]  # fmt: skip
    stages = [state.stage for state in states]
    assert stages[:5] == ["opening", "needs", "needs", "proposal", "proposal"]
    assert stages[5:] == ["objection", "objection", "close", "close", "close"]
    assert [state.outcome for state in states] == ["open"] * 9 + ["won"]
    assert states[-1].budget == "$500"
    assert states[-1].needs[0] == "We need a help desk for 12 people"
    assert states[-1].objections == ("Hmm, that's too expensive for us",)


def test_a_customer_who_knows_what_they_want_is_not_led_through_every_stage() -> None:
    (state,) = dialogue(Sales(), "> I want to buy the Team plan.")
    assert (state.stage, state.outcome) == ("close", "won")


def test_a_refusal_ends_the_sale_at_any_stage_and_the_model_is_told_to_stop() -> None:
    for stage in ("opening", "needs", "proposal", "objection", "close"):
        (state,) = dialogue(Sales(stage=stage), "> No thanks, we are not interested.")
        assert state.outcome == "lost"
        assert "do not try again" in state.guidance()


def test_an_offer_of_the_model_begins_the_proposal_once_a_need_is_known() -> None:
    offer = "< I recommend our Team plan."
    assert [*dialogue(Sales(stage="needs", needs=("a help desk",)), offer)][-1].stage == "proposal"
    assert [*dialogue(Sales(stage="needs"), offer)][-1].stage == "needs"


def test_a_fault_is_narrowed_down_step_by_step() -> None:
    states = [*dialogue(
        TechnicalSupport(),
        "> Hi, can you help me?",
        "< Of course! What happens?",
        "> My printer won't print. It shows error E-52. I already restarted it.",
        "< Please check that the cable is plugged in firmly.",
        "> I did, still the same error.",
        "< Then update the driver from the settings page.",
        "> That did it, it works now!",
    )]  # fmt: skip
    assert [state.status for state in states] == ["gathering"] * 3 + ["trying"] * 3 + ["resolved"]
    steps = [state.next_step for state in states]
    assert steps[:4] == ["ask_symptoms", "ask_symptoms", "suggest_step", "await_result"]
    assert steps[4:] == ["suggest_step", "await_result", "confirm_fix"]
    reported = states[2]
    assert reported.symptoms == ("My printer won't print", "It shows error E-52")
    assert reported.error_codes == ("E-52",)
    assert reported.tried == ("I already restarted it",)
    assert states[4].tried[-1] == "check that the cable is plugged in firmly (did not help)"
    assert "check that the cable" in states[4].guidance()
    assert states[6].tried[-1] == "update the driver from the settings page"


def test_three_steps_that_fail_or_a_wish_for_a_person_hand_the_fault_over() -> None:
    turns = ["> The app crashes.", *(["< Restart it.", "> Still crashes."] * 3)]
    states = [*dialogue(TechnicalSupport(), *turns)]
    assert [state.failed for state in states[2::2]] == [1, 2, 3]
    assert states[-1].next_step == "hand_over"
    (state,) = dialogue(TechnicalSupport(), "> I want to talk to a technician.")
    assert state.status == "escalated"


def test_a_fault_that_comes_back_is_worked_on_again() -> None:
    solved = TechnicalSupport(status="resolved", symptoms=("no sound",), asked_details=True)
    (state,) = dialogue(solved, "> It came back after an hour.")
    assert (state.status, state.next_step) == ("trying", "suggest_step")


def test_an_error_without_details_is_asked_about_before_a_step_is_suggested() -> None:
    (state,) = dialogue(TechnicalSupport(), "> My laptop is slow.")
    assert state.next_step == "ask_details"


def test_a_learner_who_answers_well_is_led_on() -> None:
    states = [*dialogue(
        Educational(),
        "> Can you explain fractions?",
        "< A half is one of two equal parts. What is half of 6?",
        "> It is 3",
        "< Correct! What is a third of 9?",
        "> 3 as well",
        "< Exactly. And what is two thirds of 9?",
    )]  # fmt: skip
    assert states[0].topic == "fractions"
    assert states[2].mode == "check"
    assert [state.right for state in states[3::2]] == [1, 2]
    assert (states[-1].level, states[-1].mode) == ("advanced", "extend")


def test_a_learner_who_is_lost_gets_simpler_words() -> None:
    states = [*dialogue(
        Educational(),
        "> Explain derivatives please",
        "< The derivative is the limit of the difference quotient. What is it for x^2?",
        "> x^3?? I have no idea",
        "< Let us go slower. How far does a car go in 2 hours at 50 km/h?",
        "> 25",
        "< Not quite. Think again: what is 2 times 50?",
        "> I don't understand.",
    )]  # fmt: skip
    assert (states[2].mode, states[2].level) == ("simplify", "beginner")
    assert states[5].wrong == 1
    assert states[-1].ability < states[2].ability
    assert "everyday words" in states[-1].guidance()


def test_what_learners_say_of_themselves_counts() -> None:
    (new,) = dialogue(Educational(), "> I am a complete beginner, teach me about sets.")
    (versed,) = dialogue(Educational(), "> I have a degree in maths; can you give a proof?")
    assert (new.level, versed.level) == ("beginner", "advanced")


def test_a_complaint_is_understood_kept_to_and_settled() -> None:
    states = [*dialogue(
        CustomerService(),
        "> Hello",
        "> My package has not arrived. Order 4711 is two weeks late!! This is unacceptable.",
        "< I am sorry. I'll ask the carrier today. Let me refund the shipping.",
        "> Fine. And when do I hear from you?",
        "< I'll write to you by Friday. Is there anything else?",
        "> No, that's all, thank you.",
    )]  # fmt: skip
    assert [state.status for state in states] == ["listening", "working", "working", "working", "checking", "resolved"]
    assert states[1].issue == "delivery"
    assert states[1].references == ("4711",)
    assert states[1].mood == "upset"
    assert states[2].promised == ("I'll ask the carrier today", "Let me refund the shipping")
    assert states[-1].promised[-1] == "I'll write to you by Friday"
    assert states[-1].sentiment > states[1].sentiment
    assert "apologise" in CustomerService(mood="angry").guidance()


def test_not_happy_is_not_happy() -> None:
    (happy,) = dialogue(CustomerService(), "> I am happy with it.")
    (unhappy,) = dialogue(CustomerService(), "> I am not happy with it.")
    assert unhappy.sentiment < 0 < happy.sentiment


def test_a_customer_who_stays_angry_or_asks_for_a_manager_is_handed_over() -> None:
    shout = "> This is TERRIBLE, my refund is still missing!!"
    assert [*dialogue(CustomerService(), shout, shout, shout)][-1].status == "escalated"
    assert [*dialogue(CustomerService(), "> Get me your manager about my refund")][-1].status == "escalated"


def test_what_was_settled_and_comes_up_again_is_worked_on() -> None:
    settled = CustomerService(status="resolved", issue="refund")
    states = [*dialogue(settled, "> Thanks again for your help, bye", "> My refund is still not here")]
    assert states[-1].status == "working"


def test_the_same_words_lead_each_strategy_elsewhere() -> None:
    words: Message = {"role": "user", "content": "Hello, I need help with my order, it does not work."}
    states = {name: find_strategy(name)().advance(words) for name in OWN}
    assert len({state.guidance() for state in states.values()}) == 4
    assert isinstance(states["customer_service"], CustomerService)
    assert states["customer_service"].issue == "order"
    assert isinstance(states["sales"], Sales)
    assert states["sales"].stage == "needs"
    assert isinstance(states["technical_support"], TechnicalSupport)
    assert states["technical_support"].symptoms
    assert isinstance(states["educational"], Educational)
    assert states["educational"].mode == "explain"


@pytest.mark.parametrize("name", OWN)
@given(
    turns=st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), st.text(max_size=80)), max_size=6
    )
)
def test_any_words_are_taken_and_the_state_survives_being_written_down(name: str, turns: list[tuple[str, str]]) -> None:
    state: Strategy = find_strategy(name)()
    for role, content in turns:
        before = report(state)
        after = state.advance({"role": role, "content": content})
        assert report(state) == before, "a state is a value"
        state = after
    assert restore(name, report(state)) == state
    assert len(state.guidance()) < 4000


def test_a_state_written_by_another_version_is_read() -> None:
    assert restore("sales", {"stage": "close", "gone": 1}) == Sales(stage="close")


def test_an_unknown_strategy_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(
        UnknownStrategy, match="there is no strategy 'sale'; there are customer_service, educational"
    ) as e:
        find_strategy("sale")
    assert e.value.hint == "Did you mean 'sales'?"
    with pytest.raises(UnknownStrategy, match="there is no strategy '5'"):
        find_strategy(5)  # type: ignore[arg-type]
    with pytest.raises(UnknownStrategy) as e:
        find_strategy("tutoring")
    assert e.value.hint == "Did you mean 'educational'?"
    with pytest.raises(UnknownStrategy) as e:
        find_strategy("")
    assert e.value.hint == "Add one with @strategy(name)."


def test_every_domain_has_its_strategy() -> None:
    assert {find_strategy(name) for name in DOMAINS.values()} == {find_strategy(name) for name in OWN}


def test_a_strategy_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))

    @strategy("waiter")
    @dataclass(frozen=True, slots=True)
    class Waiter:
        ordered: bool = False

        def advance(self, message: Message) -> Waiter:
            return replace(self, ordered=self.ordered or "please" in message["content"])

        def guidance(self) -> str:
            return "Confirm the order." if self.ordered else "Ask what it may be."

    assert "waiter" in known_strategies()
    state = restore("waiter", report(find_strategy("waiter")().advance({"role": "user", "content": "Soup please"})))
    assert state.guidance() == "Confirm the order."
    with pytest.raises(ContractError, match="'sales' is already Sales"):
        strategy("sales")(Waiter)
    with pytest.raises(ContractError, match="no guidance"):
        strategy("mute")(type("Mute", (), {"advance": Waiter.advance}))


@pytest.mark.parametrize(
    ("before", "said", "wanted"),
    [
        ("I have refunded the amount to your card.", "Thanks for nothing.", ["open"]),
        ("Please restart the router.", "Thank you, it works now!", ["settled"]),
        ("Please restart the router.", "It works, but now there is no sound.", ["open"]),
        ("Please restart the router.", "It didn't work at first, but now it's fine, it works.", ["settled"]),
        ("Please restart the router.", "Great, now my screen is black too.", ["open"]),
        ("Please restart the router.", "I'll try that and let you know.", ["open", ""]),
        ("Please restart the router.", "That did it, you're a lifesaver.", ["settled"]),
        ("Does that solve it?", "Yes.", ["settled"]),
        ("Does that solve it?", "No.", ["open"]),
        ("Is there anything else I can help you with?", "No, that's all.", ["settled"]),
        ("Are you still seeing the error?", "No.", ["settled"]),
        ("Are you still seeing the error?", "Yes, I am.", ["open"]),
        ("I have refunded the amount to your card.", "Thanks.", ["settled"]),
        ("Unfortunately we cannot refund that.", "Thanks.", ["", "open"]),
        ("I have refunded the amount to your card.", "You said it was fixed.", ["", "open"]),
        ("I have refunded the amount to your card.", "Is it fixed?", ["", "open"]),
        ("I have refunded the amount to your card.", "If it was fixed I wouldn't be writing.", ["", "open"]),
        ("Please restart the router.", "I'd be happy if it worked.", ["", "open"]),
        ("Please restart the router.", "No more errors, thank you so much.", ["settled"]),
        ("Please restart the router.", "It doesn't crash any more.", ["settled"]),
        ("Please restart the router.", "It no longer works at all.", ["open"]),
        ("I have refunded the amount to your card.", "The refund came through this morning.", ["settled"]),
        ("I have refunded the amount to your card.", "Still nothing in my account.", ["open"]),
        ("I have refunded the amount to your card.", "Perfect, exactly what I needed.", ["settled"]),
        ("I have refunded the amount to your card.", "Perfect. Another useless answer.", ["open"]),
        ("I have refunded the amount to your card.", "I give up, I'll buy elsewhere.", ["open"]),
        ("Which model do you have?", "Never mind, I found it myself, all sorted.", ["settled"]),
        ("Which model do you have?", "The website says it is delivered but I have nothing.", ["open"]),
        ("Which model do you have?", "My order 123 has not arrived.", ["open", ""]),
        (
            "Please restart the router.",
            "Okay so I restarted it and the light is green again, everything works.",
            ["settled"],
        ),
        ("Please restart the router.", "Hm, same error.", ["open"]),
        ("Please restart the router.", "I hope this solves it.", ["", "open"]),
        ("Which model do you have?", "Can you solve it?", ["", "open"]),
        ("I have refunded the amount to your card.", "That helps, thank you.", ["settled"]),
        ("I have refunded the amount to your card.", "That doesn't help me at all.", ["open"]),
        ("I have refunded the amount to your card.", "Oh wonderful, three more weeks of waiting.", ["open"]),
        ("I have refunded the amount to your card.", "Thanks, but that's not what I asked.", ["open"]),
        ("I have refunded the amount to your card.", "Not a problem any more.", ["settled"]),
        ("Unfortunately we cannot refund that.", "Wow, how helpful.", ["open"]),
        ("I have refunded the amount to your card.", "It arrived today, thank you!", ["settled"]),
        ("I have refunded the amount to your card.", "I finally got my money back, cheers.", ["settled"]),
        ("Please restart the router.", "Nothing you suggested worked.", ["open"]),
        ("Does that solve it?", "Yes it's working, thanks a million", ["settled"]),
        ("Please restart the router.", "Well it's on, at least until it crashes again.", ["open"]),
        ("I have refunded the amount to your card.", "Good, then please close the ticket.", ["settled"]),
        ("I have refunded the amount to your card.", "I guess that's fine.", ["settled", ""]),
        ("Please restart the router.", "Thank you for your patience with me, I can log in again.", ["settled"]),
        ("Unfortunately we cannot refund that.", "Fine, whatever.", ["", "open"]),
        ("I have refunded the amount to your card.", "You've been great, bye!", ["settled"]),
        (
            "I have refunded the amount to your card.",
            "I was told the same thing last week and it wasn't solved.",
            ["open"],
        ),
    ],
)
def test_whether_a_matter_is_settled_is_read_from_the_dialogue(before: str, said: str, wanted: list[str]) -> None:
    assert verdict(said, last_turn(before)) in wanted


@pytest.mark.parametrize(
    ("turns", "resolved"),
    [
        # The last word counts, whoever has it.
        (["> Please end my plan.", "< Which date?", "> The 31st.", "< Done: it ends on the 31st."], True),
        (["> Please end my plan.", "< Which date?", "> The 31st.", "< Why do you want to leave us?"], False),
        (
            ["> Why does the moon have phases?", "< We see its sunlit half.", "> So it is our shadow.", "< Not quite."],
            False,
        ),
        # A promise is not its fulfilment, however friendly the thanks.
        (["> Where is my desk?", "< I'll ask the courier.", "> Lovely, thank you so much!"], False),
        (["> Where is my desk?", "< It should come by noon.", "> It just arrived, thank you!"], True),
        # An honest no answers a question, and grants no request.
        (["> Are you open on Monday?", "< No, we are closed, I'm afraid.", "> Pity. Thanks anyway."], True),
        (["> I want a refund.", "< I'm afraid tickets are non-refundable.", "> Okay. Thanks anyway."], False),
        # A report after a step or a question for the result means what it sounds like.
        (["> The lamp flickers.", "< Please tighten the bulb.", "> Tightened it, steady light."], True),
        (["> The lamp flickers.", "< Please tighten the bulb.", "> Tightened it, nothing changed."], False),
        (["> The fan is loud.", "< I replaced it. How does it sound now?", "> Like a whisper."], True),
        (["> The fan is loud.", "< I replaced it. How does it sound now?", "> I'll listen tomorrow."], False),
        # Anger at what it took does not undo what works; what works in part is not settled.
        (["> No picture.", "< Try the other port.", "> That did it. Two wasted hours, a disgrace."], True),
        (["> No wifi.", "< Restart the router.", "> The phone is online again, but the laptop isn't."], False),
        # What was settled may come undone.
        (
            ["> It crashes.", "< Update it.", "> It works now!", "< Great.", "> Spoke too soon, it crashed again."],
            False,
        ),
    ],
)
def test_whether_a_need_was_met_is_read_from_the_whole_dialogue(turns: list[str], resolved: bool) -> None:
    roles = {">": "user", "<": "assistant"}
    assert is_resolved([{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]) is resolved


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("Not a single error since.", 1), ("I can't believe how quick it was.", 1), ("Never thought of that, neat.", 1),
        ("Nothing on mine.", -1), ("I haven't got one.", -1), ("Great, but the cable is broken.", -1),
        ("It is blue.", 0),
    ],
)  # fmt: skip
def test_how_a_turn_sounds_is_read_from_words_and_what_negates_them(text: str, sound: int) -> None:
    assert polarity(text) == sound


def test_thanks_for_nothing_settles_nothing() -> None:
    asked = ["> My refund is missing.", "< I have refunded it. Is there anything else?"]
    for said, status in (("> Thanks for nothing.", "working"), ("> No, thanks, that is all.", "resolved")):
        assert [*dialogue(CustomerService(), *asked, said)][-1].status == status
    fault = ["> The app crashes.", "< Please reinstall it."]
    for said, status in (("> Great, now nothing works.", "trying"), ("> Great, now it works.", "resolved")):
        assert [*dialogue(TechnicalSupport(), *fault, said)][-1].status == status


@pytest.mark.parametrize(
    ("said", "intent"),
    [
        ("It's expensive, but okay, let's do it.", "buy"),
        ("I'd love to, but it's too expensive.", "object"),
        ("We would buy it if it were cheaper.", "object"),
        ("Not too expensive, I like it.", "agree"),
        ("I'm not ready to buy.", "object"),
        ("Oh great, another price increase.", "object"),
    ],
)
def test_what_a_customer_wants_is_the_last_thing_they_say(said: str, intent: str) -> None:
    assert [*dialogue(Sales(stage="proposal"), f"> {said}")][-1].intent == intent


@pytest.mark.parametrize(
    ("said", "issue"),
    [
        ("I don't want a refund, I want a replacement.", "return or exchange"),
        ("I'm not asking for a refund; I just want to know where my package is.", "delivery"),
        ("Please cancel my order, it is late.", "cancellation"),
    ],
)
def test_what_is_asked_for_is_the_issue_and_not_what_is_denied(said: str, issue: str) -> None:
    assert [*dialogue(CustomerService(), f"> {said}")][-1].issue == issue
