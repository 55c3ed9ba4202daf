"""The tiny model and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from groupwise.language.tiny import CHARACTERS, SPECIALS, character_tokenizer, piece_tokenizer, tiny_model

TOKENIZER = character_tokenizer()
TURNS = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "2 + 2 = ?"},
    {"role": "assistant", "content": " 4"},
    {"role": "user", "content": "And 3 + 3?"},
]


def test_the_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first, _ = tiny_model(0)
    state = torch.random.get_rng_state()
    again, _ = tiny_model(0)
    other, _ = tiny_model(1)
    assert torch.equal(torch.random.get_rng_state(), state)
    for (name, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.dim() < 2 or not torch.equal(a, c), name


def test_the_model_is_small_tied_and_undecided() -> None:
    model, tokenizer = tiny_model(0)
    assert 5e5 < sum(p.numel() for p in model.parameters()) < 1.5e6
    assert model.lm_head.weight is model.get_input_embeddings().weight
    ids = tokenizer("The quick brown fox jumps.", return_tensors="pt").input_ids
    logits = model(ids).logits.detach()
    assert logits.std() < 1.5
    assert -torch.log_softmax(logits, -1).mean() < 1.2 * torch.tensor(float(len(tokenizer))).log()


@given(st.text(CHARACTERS, max_size=60))
@settings(max_examples=100, deadline=None)
def test_decoding_what_was_encoded_gives_the_text_back(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert TOKENIZER.decode(ids) == text
    assert len(ids) == len(text) or "<" in text


def test_every_printable_character_has_a_token_and_others_are_unknown() -> None:
    ids = TOKENIZER(CHARACTERS).input_ids
    assert len(set(ids)) == len(CHARACTERS) == 96
    assert TOKENIZER.unk_token_id not in ids
    assert TOKENIZER("é\t").input_ids == [TOKENIZER.unk_token_id] * 2


def test_the_chat_template_marks_turns_and_what_the_assistant_wrote() -> None:
    text = TOKENIZER.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|system|>Add.<|end|><|user|>2 + 2 = ?<|end|><|assistant|> 4<|end|><|user|>And 3 + 3?<|end|><|assistant|>"
    )
    seen = TOKENIZER.apply_chat_template(TURNS, return_dict=True, return_assistant_tokens_mask=True)
    own = [token for token, mine in zip(seen["input_ids"], seen["assistant_masks"], strict=True) if mine]
    assert TOKENIZER.decode(own) == " 4<|end|>"
    assert own[-1] == TOKENIZER.eos_token_id


def test_a_saved_tokenizer_is_the_same_tokenizer(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "".join(reversed(CHARACTERS)) + " a , b .  's\n\n"
    assert loaded(text).input_ids == TOKENIZER(text).input_ids
    assert loaded.decode(loaded(text).input_ids) == text
    assert loaded.get_vocab() == TOKENIZER.get_vocab()
    assert (loaded.pad_token, loaded.bos_token, loaded.eos_token) == ("<pad>", "<bos>", "<|end|>")
    assert loaded.apply_chat_template(TURNS) == TOKENIZER.apply_chat_template(TURNS)


def test_the_model_has_the_shape_that_is_wanted() -> None:
    model, tokenizer = tiny_model(0)
    shape = model.config
    assert (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size) == (4, 128, 384)
    assert (shape.num_attention_heads, shape.num_key_value_heads) == (4, 4)
    assert shape.max_position_embeddings == tokenizer.model_max_length == 2048
    assert shape.vocab_size == len(tokenizer) == 104
    assert (shape.pad_token_id, shape.bos_token_id, shape.eos_token_id) == (0, 2, 3)
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    given = piece_tokenizer(["ab"])
    other, same = tiny_model(0, layers=2, width=32, kv_heads=2, tokenizer=given)
    assert same is given
    shape = other.config
    assert (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size) == (2, 32, 96)
    assert (shape.num_key_value_heads, shape.vocab_size) == (2, len(given))


@pytest.mark.parametrize("layers", [1, 8])
def test_weights_have_the_variance_of_their_inputs_and_shrink_with_depth_where_they_are_added(layers: int) -> None:
    model, _ = tiny_model(0, layers=layers)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            assert parameter.eq(1).all(), name
            continue
        added = name.endswith(("o_proj.weight", "down_proj.weight"))
        wanted = parameter.shape[1] ** -0.5 * ((2 * layers) ** -0.5 if added else 1)
        assert parameter.std().item() == pytest.approx(wanted, rel=0.03), name


def test_tools_and_calls_are_lines_of_the_template() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}
        for name, properties in (("add", {"a": {}, "b": {}}), ("now", {}))
    ]
    calls = [{"function": {"name": "add", "arguments": {"a": 1}}}, {"function": {"name": "now", "arguments": {}}}]
    turns = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "3"},
        {"role": "assistant", "content": "@now {}", "tool_calls": calls[1:]},
    ]
    assert TOKENIZER.apply_chat_template(turns, tools=tools, tokenize=False) == (
        "<|system|>@add a b\n@now <|end|><|user|>Go.<|end|>"
        '<|assistant|>@add {"a": 1}\n@now {}<|end|><|tool|>3<|end|><|assistant|>@now {}<|end|>'
    )
    with pytest.raises(Exception, match="there is no role narrator, only system, user, assistant and tool"):
        TOKENIZER.apply_chat_template([{"role": "narrator", "content": ""}], tokenize=False)


def test_a_tokenizer_of_characters_adds_nothing_and_is_as_long_as_it_is_told() -> None:
    assert TOKENIZER("").input_ids == []
    assert TOKENIZER.model_max_length == 2048
    assert character_tokenizer(99).model_max_length == 99
    assert piece_tokenizer([], 77).model_max_length == 77
    assert TOKENIZER.padding_side == "right"
    assert set(TOKENIZER.all_special_tokens) == set(SPECIALS)
    assert [TOKENIZER.convert_tokens_to_ids(token) for token in SPECIALS] == list(range(8))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("map filter", ["map", "filter"]),
        ("mapfilter", [*"mapfilter"]),
        ("remap map1 map_", [*"remapmap1map_"]),
        ("map(x)", ["map", "(", "x", ")"]),
        # The longest piece is taken, and spaces inside of one are kept.
        ("x <= y <=> z", ["x", "<=", "y", "<=>", "z"]),
        ("sort by key, sort", ["sort by key", ",", "sort"]),
        ("a\n  b", ["a", "\n", "b"]),
        ("or for", ["or", *"for"]),
        ("no2", ["no2"]),
        # A boundary is wanted only at an end that is a letter or a digit.
        ("f((", ["f(", "("]),
        ("#a #ab", ["#a", "#", "a", "b"]),
        ("", []),
    ],
)
def test_text_is_cut_into_the_longest_pieces_at_word_boundaries(text: str, tokens: list[str]) -> None:
    pieces = ["map", "filter", "<=", "<=>", "sort", "sort by key", "or", "no", "no2", "x", "map", "f(", "#a"]
    tokenizer = piece_tokenizer(pieces)
    ids = tokenizer(text).input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenizer.decode(ids) == "".join(tokens)
    assert len(tokenizer) == len(SPECIALS) + len(set(pieces) | set(CHARACTERS))
