"""Watches whether the judge still judges: constant scores, orders that disagree, the effect of places, and the cost.

Each has a metric, and a hint when it goes wrong. A hint is given once, and again only after its cause was gone.
"""

import math
from collections import deque
from collections.abc import Mapping
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from groupwise.rewards.judge.orders import Floats, OrderEffect
from groupwise.types import Hint, Metrics

RECENT = 64  # groups that metrics are over
EQUAL = 0.005  # a group whose totals differ by less has no spread
CONSTANT = 8  # groups in a row without spread before there is a hint
COMPARED, LEAST_AGREEMENT = 6, 0.3  # groups in several orders, and the mean rank correlation they should have
COUNTED, DEARER = 16, 2.0  # groups at the start and now whose tokens are compared, and how many times as many are news


class JudgedGroup(NamedTuple):
    """What a group tells about the judge."""

    totals: tuple[float, ...]  # of distinct attempts
    agreement: float | None  # between orders; None if there was one order, or no spread
    tokens: int | None  # None if the answer came from the cache, or the server did not count


def agreement_of(totals: Floats) -> float | None:
    """The mean rank correlation (Spearman's) between orders, given totals [orders, attempts]."""
    ranks = [_ranks(row) for row in totals]
    found = [np.corrcoef(a, b)[0, 1] for a, b in combinations(ranks, 2) if np.ptp(a) > 0 and np.ptp(b) > 0]
    return float(np.mean(found)) if found else None


def _ranks(values: Floats) -> Floats:
    """Ranks from 0, equal values sharing their mean rank."""
    below, up_to = (values[:, None] > values).sum(1), (values[:, None] >= values).sum(1)
    return np.asarray((below + up_to - 1) / 2, np.float64)


class JudgeWatch:
    """The last groups, and the first ones to compare the cost with."""

    def __init__(self) -> None:
        self.spreads: deque[float] = deque(maxlen=RECENT)
        self.means: deque[float] = deque(maxlen=RECENT)
        self.agreements: deque[float] = deque(maxlen=RECENT)
        self.tokens: deque[int] = deque(maxlen=COUNTED)
        self.first_tokens: list[int] = []
        self.told: set[str] = set()

    def see(self, group: JudgedGroup) -> None:
        if len(group.totals) > 1:  # one attempt, or the same one several times, has no spread whoever judges
            self.spreads.append(max(group.totals) - min(group.totals))
            self.means.append(fmean(group.totals))
        if group.agreement is not None:
            self.agreements.append(group.agreement)
        if group.tokens is not None:
            self.tokens.append(group.tokens)
            if len(self.first_tokens) < COUNTED:
                self.first_tokens.append(group.tokens)

    def metrics(self, effect: OrderEffect) -> Metrics:
        found: dict[str, float] = {"judge/order_effect": effect.size}
        if self.spreads:
            constant = sum(spread < EQUAL for spread in self.spreads)
            found["judge/spread"] = fmean(self.spreads)
            found["judge/constant_share"] = constant / len(self.spreads)
        if self.agreements:
            found["judge/agreement"] = fmean(self.agreements)
        if self.tokens:
            found["judge/tokens_per_group"] = fmean(self.tokens)
        return found

    def hints(self, effect: OrderEffect, orders: int) -> list[Hint]:
        """What is new."""
        rules = (self._constant(), self._disagreement(), _order_effect(effect, orders), self._cost())
        wrong = {hint.code: hint for hint in rules if hint is not None}
        new = [hint for code, hint in wrong.items() if code not in self.told]
        self.told = set(wrong)
        return new

    def _constant(self) -> Hint | None:
        last = list(self.spreads)[-CONSTANT:]
        if len(last) < CONSTANT or max(last) >= EQUAL:
            return None
        given = fmean(list(self.means)[-CONSTANT:])
        message = (
            f"in each of the last {CONSTANT} groups the judge gave every attempt the same score, {given:.2g} on average"
        )
        remedy = "Read its answers (record_path). Use a stronger judge, or a rubric that tells these attempts apart."
        return Hint("judge_constant", message, remedy)

    def _disagreement(self) -> Hint | None:
        last = list(self.agreements)[-COMPARED:]
        if len(last) < COMPARED or fmean(last) >= LEAST_AGREEMENT:
            return None
        message = f"asked about the same {COMPARED} groups in another order, the judge ranks them differently"
        message += f" (mean rank correlation {fmean(last):.2f})"
        return Hint(
            "judge_disagreement", message, "Use a stronger judge, a clearer rubric, or more orders (orders = 3)."
        )

    def _cost(self) -> Hint | None:
        if len(self.first_tokens) < COUNTED or fmean(self.tokens) < DEARER * fmean(self.first_tokens):
            return None
        message = f"a group now takes {fmean(self.tokens):,.0f} tokens of the judge; the first groups took "
        message += f"{fmean(self.first_tokens):,.0f}"
        remedy = "Attempts have become longer: limit them (rollout.max_new_tokens), or watch judge/cost."
        return Hint("judge_cost", message, remedy)

    def state_dict(self) -> dict[str, Any]:
        series = {name: list(getattr(self, name)) for name in SERIES}
        return {**series, "first_tokens": list(self.first_tokens), "told": sorted(self.told)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in SERIES:
            kept = getattr(self, name)
            kept.clear()
            kept.extend(state[name])
        self.first_tokens, self.told = list(state["first_tokens"]), set(state["told"])


SERIES = ("spreads", "means", "agreements", "tokens")


def _order_effect(effect: OrderEffect, orders: int) -> Hint | None:
    if not effect.proven or effect.size < 2 * EQUAL or not math.isfinite(effect.size):
        return None
    message = f"the judge gives the attempt shown {_place(effect.best)} {effect.size:.2f} more than the one shown "
    message += f"{_place(effect.worst)}; this is estimated and taken off"
    remedy = (
        "" if orders > 1 else "Set orders = 3 to show every group in three balanced orders, for three times the cost."
    )
    return Hint("judge_order", message, remedy or "A stronger judge may have less of it.")


def _place(place: int) -> str:
    return {0: "first", 7: "last"}.get(place, f"in place {place + 1} of 8")
