"""Text from tokens: all of it, nothing but it, as soon as it is certain."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
import transformers

from groupwise.agents.conversation.chat_format import TextStream
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
    stream = TextStream(CHARACTERS, held=held)
    given = [stream.feed(token) for token in CHARACTERS.encode(text, add_special_tokens=False)]
    assert "".join(given) == shown
    assert shown + stream.finish() == text == stream.text
