"""What the service needs for chat before a model is loaded: saved conversations, strategies, and who answers.

`WORKER` names the module whose process loads models and answers; nothing here imports torch.
"""

from pathlib import Path
from typing import Any

from groupwise.agents.conversation.store import ConversationContext, ConversationNotFound, ConversationStore
from groupwise.agents.strategies import find_strategy, known_strategies

WORKER = "groupwise.agents.chat_worker"
PREVIEW = 80  # characters of a conversation's first message in a list


class ConversationArchive:
    """The conversations in one file. Each user sees their own; an administrator sees all."""

    def __init__(self, file: Path) -> None:
        self._store = ConversationStore(file)

    def newest(self, user: str, begin: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """How many conversations the user has, and those from number `begin` on, newest first."""
        names = self._store.of_user(user)
        return len(names), [_summary(self._store.load(name)) for name in names[begin : begin + limit]]

    def read(self, name: str, user: str, *, admin: bool) -> dict[str, Any]:
        context = self._store.load(name)
        if context.user_id != user and not admin:
            raise _not_found(name)
        messages = [dict(message) for message in context.messages]
        return {**_summary(context), "state": context.state, "messages": messages}

    def delete(self, name: str, user: str, *, admin: bool) -> None:
        self.read(name, user, admin=admin)
        if not self._store.delete(name):
            raise _not_found(name)

    def close(self) -> None:
        self._store.close()


def strategies() -> list[str]:
    """The names of the conversation strategies."""
    return list(known_strategies())


def check_strategy(name: str) -> None:
    """Refuse a strategy that does not exist, with a suggestion."""
    find_strategy(name)


def _not_found(name: str) -> ConversationNotFound:
    return ConversationNotFound(f"there is no conversation {name!r:.60}", hint="GET /api/conversations lists yours.")


def _summary(context: ConversationContext) -> dict[str, Any]:
    first = next((str(m.get("content") or "") for m in context.messages if m["role"] == "user"), "")
    return {
        "conversation_id": context.conversation_id, "strategy": context.strategy, "turns": context.turns,
        "created": context.created, "updated": context.updated, "preview": first[:PREVIEW],
    }  # fmt: skip
