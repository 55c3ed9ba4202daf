"""What a judge has done and what it cost: counters of a run, which go on when it is resumed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from groupwise.rewards.endpoint import EndpointError, Reply
from groupwise.types import Hint

RECENT = 64
By: TypeAlias = Literal["judge", "cache", "fallback", "nobody"]


class Price(NamedTuple):
    """What a million tokens cost, in any one currency."""

    prompt: float
    completion: float


class JudgeTally:
    """Counts calls, tokens and who scored each group; shares are of the last 64 groups, all else of the whole run."""

    def __init__(self, price: Price | None = None) -> None:
        self.price = price
        self.counts: Counter[str] = Counter()
        self.recent: deque[By] = deque(maxlen=RECENT)
        self.last: EndpointError | None = None
        self._told: set[str] = set()

    def call(self, number: int, reply: Reply | None) -> None:
        """One exchange with the server, the `number`-th retry; None if there was no reply."""
        self.counts.update({"calls": 1, "retries": number > 0})
        if reply is not None:
            tokens = (reply.prompt_tokens, reply.completion_tokens)
            self.counts.update({"prompt_tokens": tokens[0] or 0, "completion_tokens": tokens[1] or 0})
            self.counts["uncounted"] += None in tokens

    def group(self, by: By, why: EndpointError | None = None) -> None:
        """A group was scored, and by whom; `why` it was not the judge."""
        self.counts["groups"] += 1
        self.recent.append(by)
        self.last = why or self.last

    @property
    def cost(self) -> float | None:
        """In the price's currency; None without a price."""
        if self.price is None:
            return None
        paid = (
            self.counts["prompt_tokens"] * self.price.prompt + self.counts["completion_tokens"] * self.price.completion
        )
        return paid / 1e6

    def metrics(self) -> dict[str, float]:
        found = {f"judge/{name}": float(self.counts[name]) for name in COUNTED}
        for name, by in (("cache", "cache"), ("fallback", "fallback"), ("failed", "nobody")):
            found[f"judge/{name}_share"] = self.recent.count(by) / max(len(self.recent), 1)  # type: ignore[arg-type]
        return found if self.cost is None else {**found, "judge/cost": self.cost}

    def hints(self) -> Sequence[Hint]:
        """What is new, each kind of trouble once."""
        if self.last is None or self.last.code in self._told:
            return ()
        self._told.add(self.last.code)
        missed = sum(by in ("fallback", "nobody") for by in self.recent)
        remedy = self.last.hint or "Look at judge/fallback_share, and at the judge's record for what was answered."
        message = f"the judge did not score {missed} of the last {len(self.recent)} groups: {self.last.message}"
        return (Hint("judge_fallback", message, remedy),)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "recent": list(self.recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts = Counter(state["counts"])
        self.recent = deque(state["recent"], maxlen=RECENT)


COUNTED = ("groups", "calls", "retries", "prompt_tokens", "completion_tokens", "uncounted")
