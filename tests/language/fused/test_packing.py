"""Rows packed as one line of tokens: each shared beginning once, and every token sees what it saw in its row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.language.batch_layout import lay_out
from groupwise.language.fused.packing import LEAST_SHARED, PackedRows, pack

from ..test_batch_layout import groups

CPU = torch.device("cpu")


def contexts(rows: PackedRows) -> list[list[int]]:
    """The tokens that each wanted token sees, itself last, found by way of the sequences and their keys."""
    source = np.arange(len(rows.ids)) if rows.source is None else rows.source.numpy()
    queries, keys = rows.sequences.first_query.numpy(), rows.sequences.first_key.numpy()
    found = []
    for token in rows.wanted.tolist():
        sequence = int(np.searchsorted(queries, token, side="right")) - 1
        behind = queries[sequence + 1] - 1 - token
        found.append(rows.ids.numpy()[source[keys[sequence] : keys[sequence + 1] - behind]].tolist())
    return found


def row_contexts(inputs: dict[str, torch.Tensor]) -> list[list[int]]:
    layout = lay_out(inputs)
    return [layout.ids[row, : before + 1].tolist() for row, before in zip(layout.rows, layout.before, strict=True)]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    members=st.integers(1, 3),
    common=st.integers(0, 30),
    seed=st.integers(0, 99),
)
def test_every_action_sees_the_tokens_before_it(lengths: list[int], members: int, common: int, seed: int) -> None:
    inputs = groups(tuple(lengths), members, seed)
    inputs["input_ids"][:, :common] = 5 * inputs["attention_mask"][:, :common]
    rows = pack(lay_out(inputs), CPU)
    assert contexts(rows) == row_contexts(inputs)
    assert rows.positions[rows.wanted].tolist() == [len(context) - 1 for context in contexts(rows)]
    if rows.source is not None:
        assert rows.first_copy is not None
        assert rows.copies is not None
        for token in range(len(rows.ids)):
            copies = rows.copies[rows.first_copy[token] : rows.first_copy[token + 1]]
            assert (rows.source[copies] == token).all()
            assert len(copies) == int((rows.source == token).sum())


def test_a_groups_prompt_is_there_once() -> None:
    inputs = groups((40, 40), members=4)
    rows = pack(lay_out(inputs), CPU)
    answers = int(inputs["action_mask"].sum())
    # The last token of a prompt predicts the first action, so it is read with each row; the last action never is.
    assert len(rows.ids) == 2 * 39 + answers
    assert rows.sequences.longest_key > rows.sequences.longest_query >= 39


def test_the_beginning_of_all_prompts_is_there_once() -> None:
    inputs = groups((60, 60, 50), members=1)
    inputs["input_ids"][:, :40] = 200  # no other token
    rows = pack(lay_out(inputs), CPU)
    assert int((rows.ids == 200).sum()) == 40


def test_short_beginnings_are_read_with_every_row() -> None:
    rows = pack(lay_out(groups((LEAST_SHARED, LEAST_SHARED), members=4)), CPU)
    assert rows.source is None


def test_numbers_return_to_where_their_actions_stood() -> None:
    inputs = groups((20, 3, 9), members=2)
    layout = lay_out(inputs)
    rows = pack(layout, CPU)
    values = torch.arange(1.0, len(layout.tokens) + 1)
    assert torch.equal(rows.spread_out(values), layout.spread(values))


def test_rows_without_actions_are_left_out() -> None:
    inputs = groups((20, 9), members=2)
    inputs["action_mask"][1:] = False
    rows = pack(lay_out(inputs), CPU)
    assert len(rows.ids) == int(inputs["attention_mask"][0].sum()) - 1
    inputs["action_mask"][:] = False
    rows = pack(lay_out(inputs), CPU)
    assert (len(rows.ids), len(rows.wanted)) == (1, 0)


@pytest.mark.parametrize("front", [True, False])
def test_padding_is_nowhere(front: bool) -> None:
    inputs = groups((30, 20), members=2)
    wanted = pack(lay_out(inputs), CPU)
    if front:
        inputs = {name: torch.nn.functional.pad(tensor, (3, 0)) for name, tensor in inputs.items()}
    else:
        inputs = {name: torch.nn.functional.pad(tensor, (0, 3)) for name, tensor in inputs.items()}
    found = pack(lay_out(inputs), CPU)
    assert torch.equal(found.ids, wanted.ids)
    assert torch.equal(found.positions, wanted.positions)
