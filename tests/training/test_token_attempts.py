"""What a language model wrote, as attempts and rows: prompts, masks, texts, ends, and rows to imitate."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.language.engine import Sampled
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer, tiny_model
from groupwise.training.estimators import scored_attempts
from groupwise.training.token_attempts import (
    answer_text,
    imitation,
    is_special,
    rows_of_tokens,
    sampling_seed,
    token_attempt,
    token_texts,
)
from groupwise.types import SHOWN, End, Group, Score, ScoredGroup, Task, Trajectory

TOKENIZER = character_tokenizer()


def sampled(text: str, end: Any = "stop", version: int = 5) -> Sampled:
    ids = np.array(TOKENIZER.encode(text), np.int64)
    logp = -np.arange(1, len(ids) + 1, dtype=np.float32) / 8
    return Sampled(ids, logp, np.full(len(ids), version), version, end)


def attempt(prompt: str, text: str, end: Any = "stop", number: int = 2) -> Trajectory:
    task = Task("sum/7", None, 13)
    return token_attempt(TOKENIZER, task, TOKENIZER.encode(prompt), number, sampled(text, end), prompt)


def test_an_attempt_by_hand() -> None:
    made = attempt("1+1=", "2<|end|>")
    ids = [*TOKENIZER.encode("1+1="), *TOKENIZER.encode("2<|end|>")]
    assert (made.id, made.group_id, made.task_id) == ("g13/m2", "g13", "sum/7")
    assert made.actions.tolist() == made.obs.tolist() == ids
    assert made.mask.tolist() == [False] * 4 + [True] * 2
    assert made.behavior_logp.tolist() == [0, 0, 0, 0, -0.125, -0.25]
    assert made.versions.tolist() == [0, 0, 0, 0, 5, 5]
    assert made.rewards.tolist() == [0.0] * 6
    assert (made.end, made.terminated, made.actions_taken) == (End.FINISHED, True, 2)
    assert (made.meta["text"], made.meta["content"], made.meta["prompt"]) == ("2", "2", "1+1=")
    assert made.meta["tokens"] == ("1", "+", "1", "=", "2", "<|end|>")
    assert attempt("", "2").mask.tolist() == [True]


@pytest.mark.parametrize(("end", "expected"), [
    ("stop", End.FINISHED), ("length", End.TRUNCATED), ("context", End.TRUNCATED), ("cancelled", End.CANCELLED),
])  # fmt: skip
def test_every_end_of_a_text_has_a_name_and_the_attempt_is_over(end: str, expected: End) -> None:
    made = attempt("1", "22", end)
    assert (made.end, made.terminated) == (expected, True)


@pytest.mark.parametrize(("text", "end", "shown"), [
    ("42<|end|>", "stop", "42"), ("42<|end|>", "length", "42<|end|>"), ("42", "stop", "42"),
    ("4<|end|><|end|>", "stop", "4<|end|>"), ("<|end|>", "stop", ""), ("42<pad>", "context", "42<pad>"),
])  # fmt: skip
def test_only_the_special_token_that_ended_a_text_is_left_out(text: str, end: str, shown: str) -> None:
    assert answer_text(TOKENIZER, sampled(text, end)) == shown


def test_special_tokens_have_no_text_and_are_known_again() -> None:
    (ended,), (letter,) = TOKENIZER.encode("<|end|>"), TOKENIZER.encode("x")
    for _ in range(2):
        assert [is_special(TOKENIZER, ended), is_special(TOKENIZER, letter)] == [True, False]
        assert token_texts(TOKENIZER, [letter, ended, letter]) == ("x", "<|end|>", "x")


def test_two_tokenizers_do_not_share_what_they_know() -> None:
    class Other:
        def decode(
            self, ids: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
        ) -> str:
            return f"<{ids[0]}>"

        def convert_ids_to_tokens(self, token: int) -> str:
            return "▁word" if token == 3 else "word"

    (letter,) = TOKENIZER.encode("x")
    assert token_texts(TOKENIZER, [letter]) == ("x",)
    assert token_texts(Other(), [letter, 3]) == (f"<{letter}>", " <3>"), "a word's space is shown"
    assert not is_special(Other(), letter)


def test_a_tokenizer_that_keeps_the_space_of_a_word_does_not_get_a_second_one() -> None:
    class Keeping:
        def decode(self, ids: Any, **_: Any) -> str:
            return " cat" if ids[0] == 1 else "cat"

        def convert_ids_to_tokens(self, token: int) -> str:
            return "▁cat"

    assert token_texts(Keeping(), [1, 2]) == (" cat", " cat")


def test_every_attempt_has_a_seed_of_its_own() -> None:
    seeds = [sampling_seed(s, t, m) for s in range(4) for t in range(8) for m in range(8)]
    assert Counter(seeds).most_common(1)[0][1] == 1
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sampling_seed(3, 1, 2) == sampling_seed(3, 1, 2)


def test_rows_are_padded_at_their_end() -> None:
    members = (attempt("1+1=", "2<|end|>"), attempt("7", "8", number=1))
    scores = (Score(1.0), Score(0.0))
    attempts = scored_attempts([ScoredGroup(Group("g13", Task("sum/7"), members), scores)])
    rows = rows_of_tokens(attempts)
    assert rows.inputs["input_ids"].tolist()[1] == [*TOKENIZER.encode("78"), 0, 0, 0, 0]
    assert rows.inputs["attention_mask"].tolist() == [[1] * 6, [1, 1, 0, 0, 0, 0]]
    assert rows.inputs["action_mask"].int().tolist() == [[0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0]]
    assert torch.equal(rows.mask, rows.inputs["action_mask"])
    assert rows.behavior_logp.tolist() == [[0, 0, 0, 0, -0.125, -0.25], [0, -0.125, 0, 0, 0, 0]]
    assert (rows.engine, rows.behavior_logp.dtype) == (True, torch.float32)
    table = torch.ones(2, 6)
    assert rows.pick(table) is table


def test_rows_to_imitate_are_worth_1_at_their_own_tokens() -> None:
    policy = LanguagePolicy(tiny_model(0, layers=1)[0])
    given = [
        (np.array([5, 6, 7, 8]), np.array([False, True, True, False])),
        (np.array([9, 0]), np.array([False, True])),
    ]
    batch = imitation(given, policy, "cpu")
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7, 8], [9, 0, 0, 0]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]], "token 0 is a token too"
    assert batch.mask.int().tolist() == [[0, 1, 1, 0], [0, 1, 0, 0]]
    assert torch.equal(batch.advantages, batch.mask.float())
    assert torch.equal(batch.inputs["action_mask"], batch.mask)
    assert (batch.denominator, batch.total_rows, batch.total_tokens, batch.samples, batch.attempts) == (3, 2, 3, 3, 2)
    assert batch.versions is not None
    assert batch.versions.unique().tolist() == [SHOWN]
    with torch.no_grad():
        logits = policy.model(torch.tensor([[5, 6, 7, 8]])).logits.log_softmax(-1)
        alone = policy.model(torch.tensor([[9, 0]])).logits.log_softmax(-1)
    own = torch.stack([logits[0, 0, 6], logits[0, 1, 7], alone[0, 0, 0]])
    torch.testing.assert_close(batch.behavior_logp[batch.mask], own, rtol=1e-4, atol=1e-5)
    assert batch.metrics["loss/supervised"] == pytest.approx(-float(own.mean()), rel=1e-4)
    # Nothing was attempted, and the surrogate loss is -1 at every step: neither is reported.
    assert [batch.metrics[name] for name in ("reward/mean", "loss/total", "loss/policy")] == [None, None, None]
