"""`recall`: a tool with which the model looks up what its shortened view of a conversation no longer shows.

It is offered only when something was left out (`compression`), and searches the messages as they are stored.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from groupwise.agents.conversation.extraction import Sentence, conversation_lines
from groupwise.agents.memory.vocabulary import coverage, terms
from groupwise.agents.tools.function_tool import Tool
from groupwise.types import Message

FLOOR = 0.25  # share of the question that a line must cover
LINES = 5
QUESTION = 0.5  # what an earlier question counts: it has the words, but not the answer
NOTHING = "Nothing was said about that."


def recall_tool(messages: Sequence[Message] = (), known: Callable[[str], Sequence[str]] = lambda query: ()) -> Tool:
    """The tool for one conversation.

    Args:
      messages: all that was said.
      known: what is remembered about the user that bears on a question.
    """

    def recall(query: str) -> str:
        """Look up what was said earlier and is no longer shown.

        Args:
          query: a few words about it.
        """
        remembered = [f"known about the user: {text}" for text in known(query)]
        return "\n".join([*look_up(messages, query), *remembered]) or NOTHING

    return Tool.from_function(recall)


def look_up(messages: Sequence[Message], query: str, count: int = LINES) -> list[str]:
    """The lines of a conversation that cover most of a question, best first; what was corrected is left out."""
    said = [message for message in messages if "name" not in message or message["role"] == "tool"]
    # The newest question is the one that is being looked up.
    newest = max((n for n, message in enumerate(said) if message["role"] == "user"), default=len(said))
    lines = conversation_lines(said[:newest])
    found = [frozenset(terms(line.words)) for line in lines]
    frequency = Counter(term for some in found for term in some)
    asked = terms(query)

    def rarity(term: str) -> float:
        return math.log(1 + len(lines) / (1 + frequency[term]))

    scored = [
        (coverage(asked, some, rarity) * (QUESTION if line.words.endswith("?") else 1.0), line)
        for some, line in zip(found, lines, strict=True)
    ]
    near = [(score, line) for score, line in scored if score >= FLOOR]
    return [line.text for _, line in sorted(near, key=_best_first)[:count]]


def _best_first(scored: tuple[float, Sentence]) -> tuple[float, float, int]:
    """By how much of the question is covered; then statements before small remarks, and newer ones before older."""
    score, line = scored
    return (-round(score, 2), -line.weight, -line.place[0])
