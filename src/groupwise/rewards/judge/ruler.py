"""RULER: a language model judges a whole group at once, each attempt relative to the others.

    score_group ─► cache? ─► question (shuffled, neutral names) ─► endpoint ─► answer checked ─► scores, un-shuffled
                                  ▲                                              │ unusable
                                  └───────── again, in another order ◄───────────┘ … then the fallback, flagged

A group is scored by the judge or by the fallback, never by both; what the judge did not say is never made up. After
"RULER" of OpenPipe's ART; unlike there, every criterion has a score of its own and identical attempts get the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import HeuristicReward, RewardFunction, stand_in, turns_of
from groupwise.rewards.judge.endpoint import EndpointError, JudgeEndpoint, http_client, resolve
from groupwise.rewards.judge.prompt import (
    SYSTEM,
    JudgeQuestion,
    Marks,
    Talk,
    checked_marks,
    estimated_tokens,
    marks_of,
    question,
    talk_of,
)
from groupwise.rewards.judge.records import By, JudgeCache, JudgeRecord, JudgeTally, Price, digest
from groupwise.rewards.judge.retries import CircuitBreaker, RetryPolicy
from groupwise.rewards.judge.rubrics import Rubric, rubric_of
from groupwise.types import Failed, Failure, Group, Hint, Message, Metrics, Reward, Score, Task, Trajectory

FLAG = "judge_fallback"


class RulerRewardFunction(RewardFunction):
    """Scores from 0 to 1 by a judge: the weighted mean of the rubric's criteria, which are the parts.

    Args:
      model: `provider/model` (see `providers`), or any name together with `base_url`.
      rubric: what is looked for, itself or by name.
      weight: what the score counts beside others, where rewards are combined.
      fallback_enabled: score a group with `fallback`, flagged "judge_fallback", when the judge cannot be had; otherwise
        its attempts have failed.
      fallback: the stand-in; a heuristic on the words unless given.
      base_url, api_key: instead of the provider's and its environment variable's.
      seed: of the orders in which attempts are shown; the same group is shown in the same order under the same seed.
      max_concurrency: calls under way at once.
      timeout: seconds for one call.
      retries, pause: calls after the first for one group, each in a new order, and seconds between them at first.
      breaker_threshold, breaker_cooldown: failures in a row after which the judge is left alone, and for how long.
      temperature, max_tokens: of the judge's answer; None leaves it to the server.
      max_prompt_tokens: a group whose question would be longer, by estimate, is not sent.
      cache_path: a SQLite file that keeps answers; None keeps the last few thousand in memory.
      record_path: a file of JSON lines: what was asked, answered and given.
      price: of a million prompt and completion tokens, for `judge/cost`.
    """

    def __init__(
        self,
        model: str = "openai/gpt-4",
        rubric: Rubric | str = "general",
        weight: float = 1.0,
        fallback_enabled: bool = True,
        *,
        name: str | None = None,
        fallback: Reward | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        seed: int = 0,
        max_concurrency: int = 8,
        timeout: float = 60.0,
        retries: int = 4,
        pause: float = 1.0,
        breaker_threshold: int = 24,
        breaker_cooldown: float = 30.0,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        max_prompt_tokens: int = 100_000,
        cache_path: str | Path | None = None,
        record_path: str | Path | None = None,
        price: tuple[float, float] | None = None,
    ) -> None:
        self.rubric = rubric_of(rubric)
        super().__init__(weight, name or f"ruler_{self.rubric.name}")
        _insist_above(0, max_concurrency=max_concurrency, timeout=timeout, breaker_threshold=breaker_threshold)
        _insist_above(-1, retries=retries)
        http_client()
        options = {"temperature": temperature, "max_tokens": max_tokens}
        given = {name: value for name, value in options.items() if value is not None}
        self.endpoint = JudgeEndpoint(resolve(model, base_url, api_key), timeout, given)
        self.breaker = CircuitBreaker(breaker_threshold, breaker_cooldown)
        self.patience = RetryPolicy(max_concurrency, retries, self.breaker, pause)
        self.fallback: Reward | None = (fallback or HeuristicReward()) if fallback_enabled else None
        self.seed = seed
        self.max_prompt_tokens = max_prompt_tokens
        self.cache = JudgeCache(cache_path)
        self.record = JudgeRecord(record_path, self.endpoint.address)
        self.tally = JudgeTally(None if price is None else Price(*price))

    def compute_reward(self, turns: Sequence[Message]) -> Any:
        raise ContractError(
            "a judge compares the attempts of a group", hint="await judge(task, group), or score_groups."
        )

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        if not group:
            return []
        talks = [talk_of(turns_of(attempt)) for attempt in group]
        why: EndpointError | None = None
        scores: Sequence[Score | Failed]
        by: By
        try:
            marks, by = await self._marks(sorted(set(talks)))
            scores = [Score(self.rubric.total(marks[talk]), marks[talk]) for talk in talks]
        except EndpointError as error:
            why = error
            scores, by = await self._without_judge(task, group, error)
        self.tally.group(by, why)
        self.record.verdict(task, group, scores, by, why.message if why else "")
        return scores

    async def _without_judge(
        self, task: Task, group: Sequence[Trajectory], why: EndpointError
    ) -> tuple[Sequence[Score | Failed], By]:
        if self.fallback is None:
            return [Failed(Failure("judge", why.code, why.message, why.hint))] * len(group), "nobody"
        return await stand_in(self.fallback, Group(group[0].group_id, task, tuple(group)), FLAG), "fallback"

    async def _marks(self, talks: Sequence[Talk]) -> tuple[dict[Talk, Marks], By]:
        """The marks of different attempts, known or asked for."""
        address = self.endpoint.address
        options = dict(self.endpoint.options)
        key = digest(address.url, address.model, options, SYSTEM, asdict(self.rubric), self.seed, talks)
        known = self._known(key, len(talks))
        if known is not None:
            return dict(zip(talks, known, strict=True)), "cache"
        self._insist_on_length(question(self.rubric, talks, random.Random(key)))
        marks = await self.patience.persist(lambda number: self._ask(talks, key, number))
        self.cache.put(key, marks)
        return dict(zip(talks, marks, strict=True)), "judge"

    def _known(self, key: str, count: int) -> list[Marks] | None:
        """What the cache holds, if it is still what this rubric asks for."""
        found = self.cache.get(key)
        if not isinstance(found, list) or len(found) != count:
            return None
        with suppress(EndpointError):
            return [checked_marks(row, self.rubric) for row in found]
        return None

    async def _ask(self, talks: Sequence[Talk], key: str, number: int) -> list[Marks]:
        """One call, in an order of its own, believed only if it is whole."""
        asked = question(self.rubric, talks, random.Random(digest(self.seed, talks, number)))
        began, reply, error = time.monotonic(), None, None
        try:
            reply = await self.endpoint.ask(asked.messages, asked.schema)
            return marks_of(reply, asked.names, self.rubric)
        except EndpointError as unusable:
            error = unusable
            raise
        finally:
            if reply or error:  # a call that was cancelled is neither
                self.tally.call(number, reply)
                self.record.call(key, number, asked, reply, error, time.monotonic() - began)

    def _insist_on_length(self, asked: JudgeQuestion) -> None:
        tokens = estimated_tokens(asked)
        if tokens > self.max_prompt_tokens:
            raise EndpointError(
                "too_long",
                f"judging {len(asked.names)} attempts would take about {tokens} tokens, and the limit is "
                f"{self.max_prompt_tokens}",
                hint="Raise max_prompt_tokens if the judge can read so much, or make groups or attempts smaller.",
                again=False,
                ill=False,
            )

    def metrics(self) -> Metrics:
        lost = self.cache.troubles + self.record.lost
        return {**self.tally.metrics(), "judge/breaker_open": float(self.breaker.open), "judge/lost": float(lost)}

    def hints(self) -> Sequence[Hint]:
        return self.tally.hints()

    def state_dict(self) -> dict[str, Any]:
        """The counters. A breaker starts closed in a new process, and answers are kept by the cache's file."""
        return {"tally": self.tally.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tally.load_state_dict(state["tally"])

    def close(self) -> None:
        self.cache.close()


def create_customer_service_ruler(
    model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = True, **settings: Any
) -> RulerRewardFunction:
    """Helpfulness, empathy, clarity, professionalism, completeness."""
    return RulerRewardFunction(model, "customer_service", weight, fallback_enabled, **settings)


def create_technical_support_ruler(
    model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = True, **settings: Any
) -> RulerRewardFunction:
    """Accuracy, clarity, problem resolution."""
    return RulerRewardFunction(model, "technical_support", weight, fallback_enabled, **settings)


def create_sales_ruler(
    model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = True, **settings: Any
) -> RulerRewardFunction:
    """Product knowledge, needs identification, value proposition."""
    return RulerRewardFunction(model, "sales", weight, fallback_enabled, **settings)


def create_educational_ruler(
    model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = True, **settings: Any
) -> RulerRewardFunction:
    """Correctness, pedagogical approach, engagement."""
    return RulerRewardFunction(model, "educational", weight, fallback_enabled, **settings)


def create_creative_ruler(
    model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = True, **settings: Any
) -> RulerRewardFunction:
    """Creativity, coherence, style."""
    return RulerRewardFunction(model, "creative", weight, fallback_enabled, **settings)


def _insist_above(limit: float, **settings: float) -> None:
    for name, value in settings.items():
        if not value > limit:
            raise ConfigError(f"the judge's {name} is {value!r} but must be above {limit}", field=name)
