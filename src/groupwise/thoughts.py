"""What a model thinks, apart from what it says. The only place that splits a model's text into the two.

    text ─► ThoughtFormat.split ─► SplitText: reasoning, content

Models write thoughts between marks, such as <think>…</think>, or in messages of their own, as gpt-oss does. Some chat
templates open the thought in the prompt, so that the text begins inside it: `opened` finds that out. A thought that is
not finished is not an answer: the content is then empty.

`language/thought_formats.py` finds a model's format from its chat template. `ANY` knows all formats; it is for texts
whose model is unknown, such as those handed to a reward from outside a run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

Marks: TypeAlias = tuple[str, str]
"""How a thought begins and ends."""

THINK: Marks = ("<think>", "</think>")
MARKS: tuple[Marks, ...] = (
    THINK,
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker, Sky-T1
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("◁think▷", "◁/think▷"),  # Kimi
)
QUOTES = "`'\""

# A turn of gpt-oss or Muse is several messages: a header says which channel each is on, and to whom it goes.
MESSAGE, CHANNEL = "<|message|>", "<|channel|>"
DELIMITERS = (MESSAGE, CHANNEL, "<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
DELIMITER = re.compile(f"({'|'.join(map(re.escape, DELIMITERS))})")
RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class SplitText(NamedTuple):
    """What was thought and what was said. `spoken` is the text outside of thoughts as written, to find calls in it."""

    reasoning: str
    content: str
    spoken: str


@dataclass(frozen=True)
class ThoughtFormat:
    """How a model writes thoughts: between which marks, and whether in messages of their own."""

    marks: tuple[Marks, ...] = (THINK,)
    messages: bool = False

    @cached_property
    def delimiters(self) -> tuple[str, ...]:
        """All texts that delimit thoughts."""
        return (*self._by_mark, *(DELIMITERS if self.messages else ()))

    def opened(self, prompt: str) -> Marks | None:
        """The marks of the thought that a prompt ends with, if it opens one."""
        end = prompt.rstrip()
        return next((marks for marks in self.marks if end.endswith(marks[0])), None)

    def split(self, text: str, opened: Marks | None = None) -> SplitText:
        """Take a whole turn apart; `opened` are the marks of a thought that the prompt opened."""
        said, thinking = self.so_far(text, opened)
        return SplitText(said.reasoning, "", "") if thinking else said

    def so_far(self, text: str, opened: Marks | None = None) -> tuple[SplitText, bool]:
        """Take the beginning of a turn apart, and tell whether it ends inside a thought."""
        if self.messages and opened is None and (MESSAGE in text or CHANNEL in text):
            return _by_messages(text)
        return self._by_marks(text, opened)

    def certain(self, text: str) -> int:
        """How much of the beginning of a turn can be taken apart already, whatever follows."""
        # Until its message begins, nobody knows to whom a text goes.
        if self.messages and MESSAGE not in text:
            return 0
        last = next((mark for mark in self.delimiters if text.endswith(mark)), "")
        # Whether a mark is quoted shows behind it.
        quoted = last and text.removesuffix(last)[-1:] in tuple(QUOTES)
        return len(text) - len(last) if quoted else open_end(text, self.delimiters)

    def _by_marks(self, text: str, opened: Marks | None) -> tuple[SplitText, bool]:
        thoughts: list[str] = []
        spoken: list[str] = []
        whole = ""  # both, in the order of the text
        place, inside, found = 0, opened, opened is not None
        for mark in self._marks.finditer(text):
            marks, opens = self._by_mark[mark.group()]
            if _is_quoted(text, mark) or (inside is not None and (opens or marks != inside)):
                continue
            before, place, found = text[place : mark.start()], mark.end(), True
            whole += before
            if inside is not None or opens:
                (spoken if inside is None else thoughts).append(before)
            else:
                # A thought that ends without having begun began before the text did.
                thoughts, spoken = [whole], []
            inside = marks if opens else None
        (spoken if inside is None else thoughts).append(text[place:])
        content = "".join(spoken)
        return SplitText(_joined(thoughts), content.lstrip() if found else content, content), inside is not None

    @cached_property
    def _by_mark(self) -> dict[str, tuple[Marks, bool]]:
        return {mark: (marks, mark == marks[0]) for marks in self.marks for mark in marks}

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._by_mark)))


ANY = ThoughtFormat(MARKS, messages=True)


def open_end(text: str, marks: Sequence[str]) -> int:
    """Where the end of a text begins that may become one of the marks; its length if there is none."""
    longest = max(map(len, marks), default=1)
    for start in range(max(0, len(text) - longest + 1), len(text)):
        if any(mark.startswith(text[start:]) for mark in marks):
            return start
    return len(text)


def _is_quoted(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark is only mentioned: `<think>`."""
    quote, behind = text[max(0, mark.start() - 2) : mark.start()], text[mark.end() : mark.end() + 1]
    # After a letter or a digit it is the quote at the end of something else.
    return bool(behind) and behind in QUOTES and quote[-1:] == behind and not quote[:-1].isalnum()


def _joined(texts: list[str]) -> str:
    return "\n\n".join(stripped for text in texts if (stripped := text.strip()))


def _by_messages(text: str) -> tuple[SplitText, bool]:
    thoughts: list[str] = []
    answers: list[str] = []
    spoken: list[str] = []
    thinking = False
    for header, body, end in _messages(text):
        to = RECIPIENT.search(header)
        # A message to a tool is a call, whatever its channel.
        thought = to[1] == "self" if to else "analysis" in header.rpartition(CHANNEL)[2]
        if thought:
            thoughts.append(body)
        else:
            spoken.append(f"{header}{MESSAGE}{body}{end}")
            answers += [body] if to is None or to[1] == "user" else []
        thinking = thought and not end
    return SplitText(_joined(thoughts), _joined(answers), "".join(spoken)), thinking


def _messages(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the header and body of each message, and what ended it: nothing if the text is cut off there."""
    header, body, heading = "", "", True
    for piece in DELIMITER.split(text):
        if not heading and DELIMITER.fullmatch(piece):
            yield header, body, piece
            header, body, heading = piece if piece == CHANNEL else "", "", True
        elif not heading:
            body = piece
        elif piece == MESSAGE:
            heading = False
        elif piece == CHANNEL or not DELIMITER.fullmatch(piece):
            header += piece
        else:
            header = ""
    if not heading:
        yield header, body, ""


REASONING = "reasoning_content"  # the key of a message's thought, as chat templates and servers name it


@lru_cache(maxsize=256)
def without_thoughts(text: str) -> str:
    """The text without its thoughts, whichever model wrote it."""
    return ANY.split(text).content


def apart(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with thought and answer apart, unless they already are."""
    content = message.get("content")
    if message.get("role") != "assistant" or REASONING in message or not isinstance(content, str):
        return message
    said = ANY.split(content)
    return message if said.content == content else {**message, "content": said.content, REASONING: said.reasoning}
