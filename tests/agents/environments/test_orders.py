"""Orders: a question is answered by the database, and only by what was looked up and left as it should be."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.environments.contract import Observation, Reply, ToolCall, Transition
from groupwise.agents.environments.orders import KINDS, NotPossible, OrderCase, OrderDatabase, Orders, Shop
from groupwise.agents.warm_start import demonstration_row
from groupwise.errors import ConfigError
from groupwise.language.tiny import tiny_model
from groupwise.types import End, Message, Task

SHOP = Shop(
    customers=(("Ada", "Rome"), ("Bob", "Oslo")),
    orders=(("4821", "Ada", "sent"), ("1234", "Bob", "open")),
    items=(("4821", "lamp", 12, 2), ("4821", "desk", 13, 1), ("1234", "clock", 5, 1)),
)


def case(kind: str, order: str = "4821") -> OrderCase:
    return OrderCase(kind, KINDS[kind][0].format(order), order, SHOP)


def say(text: str, *calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(text, tuple(ToolCall(f"t0000n{n:03}", *call) for n, call in enumerate(calls)))


def talk(about: OrderCase, *replies: Reply) -> Transition:
    async def hold() -> Transition:
        desk = Orders().make()
        await desk.reset(Task("orders/0", about))
        for reply in replies:
            transition = await desk.step(reply)
        await desk.close()
        return transition

    return asyncio.run(hold())


def test_the_database_keeps_its_rules() -> None:
    database = OrderDatabase(SHOP)
    assert database.total("4821") == "37"
    assert database.city(database.buyer("4821")) == "Rome"
    for refused in (lambda: database.cancel("4821"), lambda: database.refund("4821", 36), lambda: database.status("1")):
        with pytest.raises(NotPossible):
            refused()
    before = database.state()
    assert database.refund("4821", 37) == "refunded"
    assert database.cancel("1234") == "cancelled"
    assert database.state() != before
    with pytest.raises(NotPossible):
        database.refund("4821", 37)


def as_reply(message: Message) -> Reply:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return say(message["content"], *((function["name"], function["arguments"]) for function in functions))


@pytest.mark.parametrize("kind", KINDS)
def test_right_demonstrations_earn_everything(kind: str) -> None:
    scenarios = Orders(kinds=[kind])
    for number in range(20):
        about = scenarios.training(0, number)
        shown = [as_reply(m) for m in scenarios.demonstration(about) if m["role"] == "assistant"]
        end = talk(about, *shown)
        assert (end.reward, end.end, end.parts["correct"]) == (1.0, End.FINISHED, 1.0)


def test_demonstrations_of_the_form_are_right_less_than_half_the_time() -> None:
    scenarios = Orders(demonstrations="form")
    ends = []
    for number in range(60):
        about = scenarios.training(0, number)
        ends.append(talk(about, *[as_reply(m) for m in scenarios.demonstration(about) if m["role"] == "assistant"]))
    assert all(end.parts["format"] == 1.0 for end in ends)
    assert 0.2 < np.mean([end.parts["correct"] for end in ends]) < 0.5


LOOK, REFUND = ("total", {"order": "4821"}), ("refund", {"order": "4821", "sum": 37})


@pytest.mark.parametrize(
    ("kind", "replies", "correct"),
    [
        ("status", [say("", ("status", {"order": "4821"})), say("It has been sent.")], 1.0),
        ("status", [say("sent")], 0.0),  # a guess
        ("status", [say("", ("status", {"order": "4821"})), say("open, paid or sent")], 0.0),
        ("status", [say("", ("status", {"order": "1234"})), say("sent")], 0.0),
        ("status", [say("", ("status", {"order": "4821"}), LOOK), say("sent")], 1.0),
        ("refund", [say("", LOOK), say("", REFUND), say("refunded")], 1.0),
        ("refund", [say("", REFUND), say("refunded")], 1.0),  # the right sum is what counts
        ("refund", [say("", LOOK), say("refunded")], 0.0),  # a promise not kept
        ("total", [say("", LOOK), say("", REFUND), say("37")], 0.0),  # what nobody asked for
        ("cancel", [say("", ("cancel", {"order": "4821"})), say("It is sent.")], 1.0),  # refused, and told so
        ("cancel", [say("", ("cancel", {"order": "4821"})), say("cancelled")], 0.0),
    ],
)
def test_what_counts_is_the_database_and_the_answer(kind: str, replies: list[Reply], correct: float) -> None:
    end = talk(case(kind), *replies)
    assert end.end is End.FINISHED
    assert end.parts["correct"] == correct
    assert (end.reward == 1.0) == (correct == 1.0 and end.parts["progress"] == 1.0)


def test_faulty_calls_are_answered_and_cost_the_form() -> None:
    faulty = say("", ("state", {}), ("status", {"id": 1}), ("status", {"order": "4821"}))
    end = talk(case("status"), faulty, say("sent"))
    assert end.parts["correct"] == 1.0
    assert end.parts["format"] == pytest.approx(1 / 3)


def test_calls_without_end_are_cut_and_still_graded() -> None:
    end = talk(case("total"), *[say("", LOOK)] * 3)
    assert end.end is End.TURN_LIMIT
    assert end.parts["progress"] == 1.0
    assert end.parts["correct"] == 0.0


def test_judged_orders_and_customers_never_occur_in_training() -> None:
    def names(cases: list[OrderCase]) -> set[str]:
        return {name for c in cases for name, _ in c.shop.customers} | {row[0] for c in cases for row in c.shop.orders}

    scenarios = Orders()
    trained = names([scenarios.training(seed, n) for seed in (0, 1) for n in range(300)])
    judged = names([c for seed in (0, 7) for c in scenarios.held_out(seed, 100)])
    assert not trained & judged
    assert scenarios.training(3, 5) == Orders().training(3, 5)
    assert scenarios.held_out(3, 4) == Orders().held_out(3, 4)
    assert {c.kind for c in scenarios.held_out(0, 60)} == set(KINDS)


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="demonstrations"):
        Orders(demonstrations="wrong")
    with pytest.raises(ConfigError, match="kinds"):
        Orders(kinds=["weather"])


def test_a_demonstration_is_learned_where_the_model_speaks_and_fits_a_small_context() -> None:
    """Its tokens are those of the whole conversation in the chat template, and the mask is the template's own."""
    _, tokenizer = tiny_model(layers=1, width=16)
    frame, scenarios = Frame(tokenizer), Orders()
    for number in range(12):
        about = scenarios.training(0, number)
        opened: Observation = asyncio.run(scenarios.make().reset(Task("orders/0", about)))
        said = scenarios.demonstration(about)
        ids, own = demonstration_row(frame, opened, said)
        whole = tokenizer.apply_chat_template(
            [*opened.messages, *said], tools=list(opened.tools), tokenize=True, return_dict=True,
            return_assistant_tokens_mask=True,
        )  # fmt: skip
        assert ids.tolist() == whole["input_ids"]
        assert own.tolist() == [bool(mark) for mark in whole["assistant_masks"]]
        assert len(ids) <= 200
