"""Text from tokens: all of it, nothing but it, as soon as it is certain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.streaming import SpeechStream, TextStream, ThoughtPiece, Utterance
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.tiny import character_tokenizer

CHARACTERS = character_tokenizer()


@pytest.fixture(scope="module")
def bytes_tokenizer() -> Any:
    """One token per byte, so that letters beyond ASCII take several."""
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={c: i for i, c in enumerate(sorted(alphabet()))}, merges=[])
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner)


def alphabet() -> list[str]:
    return tokenizers.pre_tokenizers.ByteLevel.alphabet()


def pieces(tokenizer: Any, text: str, *stop: str) -> list[str]:
    stream = TextStream(tokenizer, stop)
    given = [stream.feed(token) for token in tokenizer.encode(text, add_special_tokens=False)]
    given.append(stream.finish())
    assert stream.text == "".join(given)
    return given


def test_every_character_comes_with_its_token() -> None:
    assert pieces(CHARACTERS, "one two") == [*"one two", ""]


def test_special_tokens_are_not_text() -> None:
    assert "".join(pieces(CHARACTERS, "a<|end|>b<pad>")) == "ab"


def test_a_letter_of_several_tokens_comes_whole(bytes_tokenizer: Any) -> None:
    assert [piece for piece in pieces(bytes_tokenizer, "aé€😀b") if piece] == ["a", "é", "€", "😀", "b"]


def test_half_a_letter_at_the_end_is_not_hidden(bytes_tokenizer: Any) -> None:
    stream = TextStream(bytes_tokenizer)
    first = bytes_tokenizer.encode("é", add_special_tokens=False)[0]
    assert (stream.feed(first), stream.finish()) == ("", "�")


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("answer END more", ("END",), "answer "),
        ("answer EN", ("END",), "answer EN"),
        ("EENEND", ("END",), "EEN"),
        ("a\n\nb", ("\n\n",), "a"),
        ("a\nb", ("\n\n",), "a\nb"),
        ("abcabd", ("abd", "cab"), "ab"),
        ("END", ("END",), ""),
    ],
)
def test_no_part_of_a_stop_string_is_ever_shown(text: str, stop: tuple[str, ...], shown: str) -> None:
    given = pieces(CHARACTERS, text, *stop)
    assert "".join(given) == shown
    for end in range(len(given)):
        assert shown.startswith("".join(given[:end]))


@pytest.mark.parametrize(
    ("text", "held", "shown"),
    [
        ("see <tool_call>{}", ("<tool_call>",), "see "),
        ("a < b <tool> c", ("<tool_call>",), "a < b <tool> c"),
        ("@add {}", ("\n@",), ""),
        ("so\n@add {}", ("\n@",), "so"),
        ("me@home\nyes", ("\n@",), "me@home\nyes"),
    ],
)
def test_from_a_mark_on_text_is_held_back_to_the_end(text: str, held: tuple[str, ...], shown: str) -> None:
    stream = SpeechStream(CHARACTERS, (), held=held)
    given = [piece for token in CHARACTERS.encode(text, add_special_tokens=False) for piece in stream.feed(token)]
    assert "".join(given).rstrip() == shown.rstrip()
    assert "".join([*given, *stream.finish()]) == text == stream.said.content


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("<think>a b</think>\n\n14 ok", [ThoughtPiece("a b"), "14 ok"]),
        ("\n<think>\na\n</think>14", [ThoughtPiece("a"), "14"]),
        ("a < b", ["a < b"]),
        ("<thin", ["<thin"]),
        ("<think>a", [ThoughtPiece("a")]),
        ("<think>@f {}</think>ok\n@f {}", [ThoughtPiece("@f {}"), "ok"]),
        ("use `<think>` so", ["use `<think>` so"]),
        ("so</think>14", [ThoughtPiece("so"), "so14"]),
    ],
)
def test_thoughts_are_streamed_apart_from_words(text: str, pieces: list[Any]) -> None:
    stream = SpeechStream(CHARACTERS, (), held=("\n@",))
    given = [piece for token in CHARACTERS.encode(text, add_special_tokens=False) for piece in stream.feed(token)]
    given += [] if "@f" in text else stream.finish()
    thought = "".join(piece.text for piece in given if isinstance(piece, ThoughtPiece))
    words = "".join(piece for piece in given if isinstance(piece, str))
    assert [*([ThoughtPiece(thought)] if thought else []), *([words] if words else [])] == pieces


def test_a_thought_that_the_prompt_opened_is_streamed_as_one() -> None:
    prompt = CHARACTERS.encode("<|assistant|><think>\n", add_special_tokens=False)
    stream = SpeechStream(CHARACTERS, prompt)
    given = [
        piece for token in CHARACTERS.encode("a</think>b", add_special_tokens=False) for piece in stream.feed(token)
    ]
    assert given == [ThoughtPiece("a"), "b"]


def test_marks_that_are_special_tokens_still_split() -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]"]})
    tokenizer.chat_template = "[THINK][/THINK]"
    stream = SpeechStream(tokenizer, ())
    text = "[THINK]a[/THINK]b<|end|>"
    given = [piece for token in tokenizer.encode(text, add_special_tokens=False) for piece in stream.feed(token)]
    assert given == [ThoughtPiece("a"), "b"]


@pytest.mark.parametrize("heard", [0, 1, 3])
def test_only_the_tokens_that_were_heard_count(heard: int) -> None:
    """The engine may be ahead when an answer is stopped."""
    said = Utterance(None, Frame(CHARACTERS), (), SamplingParams(), 0)  # type: ignore[arg-type]
    ids = CHARACTERS.encode("abc", add_special_tokens=False)
    for token in ids[:heard]:
        said.stream.feed(token)
    sampled = Sampled(np.array(ids), np.arange(3, dtype=np.float32), np.array([4, 5, 6]), 4, "stop")
    kept = said._heard(sampled)
    assert kept.ids.tolist() == ids[:heard]
    assert kept.logp.tolist() == [0, 1, 2][:heard]
    assert kept.versions.tolist() == [4, 5, 6][:heard]
    assert kept.end == ("stop" if heard == 3 else "cancelled")


def test_a_stream_gives_every_letter_once_and_counts_hidden_tokens_too() -> None:
    stream = TextStream(CHARACTERS, ("END",))
    given = [stream.feed(token) for token in CHARACTERS.encode("aE<pad>Nb", add_special_tokens=False)]
    assert given == ["a", "", "", "", "ENb"]
    assert (stream.tokens, stream.text, stream.finish()) == (5, "aENb", "")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a b ", ["a", " b"]),
        ("x\n@", ["x"]),
        ("@f", []),
        ("x @", ["x", " @"]),
        ("<think>a</think> b", [ThoughtPiece("a"), "b"]),
    ],
)
def test_pieces_come_as_soon_as_they_are_certain_and_no_sooner(text: str, pieces: list[Any]) -> None:
    """Spaces wait for what follows them, and a newline for what may be a call."""
    stream = SpeechStream(CHARACTERS, (), held=("\n@",))
    tokens = CHARACTERS.encode(text, add_special_tokens=False)
    assert [piece for token in tokens for piece in stream.feed(token)] == pieces
