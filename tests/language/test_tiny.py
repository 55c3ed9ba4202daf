"""The tiny model and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from groupwise.language.tiny import CHARACTERS, character_tokenizer, tiny_model

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
