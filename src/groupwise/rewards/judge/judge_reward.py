"""RULER: a language model judges a group at once, each attempt relative to the others.

    score_group ─► cache? ─► question (shuffled, neutral names) ─► endpoint ─► answer checked ─► scores, un-shuffled
                                  ▲                                              │ unusable
                                  └───────── again, in another order ◄───────────┘ … then the attempts have failed

A run whose judge cannot be used stops, unless you chose a fallback, which then scores the group and flags it. A group
is scored by the judge or by the fallback, never by both; missing scores are never made up. After "RULER" in OpenPipe's
ART. Unlike there, every criterion has its own score, and identical attempts get identical scores.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import RewardFunction, stand_in, turns_of
from groupwise.rewards.judge import question_and_answer as prompt
from groupwise.rewards.judge.endpoint import EndpointError, JudgeEndpoint, http_client, resolve
from groupwise.rewards.judge.question_and_answer import JudgeQuestion, Marks, Talk
from groupwise.rewards.judge.records import By, JudgeCache, JudgeRecord, JudgeTally, Price, digest
from groupwise.rewards.judge.retries import CircuitBreaker, RetryPolicy
from groupwise.rewards.judge.rubrics import RUBRICS, Rubric, rubric_of
from groupwise.rewards.rules.heuristic import HeuristicReward
from groupwise.types import Failed, Failure, Group, Hint, Message, Metrics, Reward, Score, Task, Trajectory

FLAG = "judge_fallback"
FALL_BACK = "To let a heuristic on the words stand in for the judge, set fallback_enabled = true in its options."


class RulerRewardFunction(RewardFunction):
    """A judge's scores from 0 to 1: the weighted mean of the rubric's criteria, which are the parts.

    Args:
      model: `provider/model` (see `endpoint.PROVIDERS`), or any name together with `base_url`.
      rubric: a rubric, or the name of one.
      weight: the weight of this reward among others.
      fallback_enabled: if the judge is unavailable, score the group with `fallback` and flag it "judge_fallback";
        otherwise its attempts fail, and a step or evaluation without any score ends the run, which can be resumed.
      fallback: the reward to fall back on, which enables it; by default a heuristic on the words.
      base_url, api_key: used instead of the provider's and its environment variable.
      seed: determines the order in which attempts are shown.
      max_concurrency: how many calls may be under way at once.
      timeout: seconds for one call.
      retries, pause: further calls for one group, each in a new order, and the first pause between them in seconds.
      breaker_threshold, breaker_cooldown: after so many failures in a row, leave the judge alone for so many seconds.
      temperature, max_tokens: of the judge's answer; None leaves them to the server.
      max_prompt_tokens: a group whose question is estimated to be longer is not sent.
      cache_path: a SQLite file to keep answers in; None keeps the last few thousand in memory.
      record_path: a JSON Lines file of everything asked, answered and scored.
      price: of a million prompt and completion tokens, for the metric `judge/cost`.
    """

    def __init__(
        self,
        model: str = "openai/gpt-4",
        rubric: Rubric | str = "general",
        weight: float = 1.0,
        fallback_enabled: bool = False,
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
        self.retry_policy = RetryPolicy(max_concurrency, retries, self.breaker, pause)
        self.fallback: Reward | None = HeuristicReward() if fallback_enabled and fallback is None else fallback
        self.seed = seed
        self.max_prompt_tokens = max_prompt_tokens
        self.cache = JudgeCache(cache_path)
        self.record = JudgeRecord(record_path, self.endpoint.address)
        self.tally = JudgeTally(None if price is None else Price(*price))

    def compute_reward(self, turns: Sequence[Message]) -> Any:
        message = "a judge compares the attempts of a group"
        raise ContractError(message, hint="Use `await judge(task, group)`, or `score_groups`.")

    def insist_usable(self) -> None:
        """Refuse, before a run starts, a judge that has no key and no fallback."""
        if self.fallback is None:
            try:
                self.endpoint.insist_on_key()
            except EndpointError as error:
                raise ConfigError(error.message, hint=f"{error.hint} {FALL_BACK}", field="reward.name") from None

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        if not group:
            return []
        talks = [prompt.talk_of(turns_of(attempt)) for attempt in group]
        why: EndpointError | None = None
        scores: Sequence[Score | Failed]
        by: By
        try:
            # Sorted and without duplicates: equal attempts get equal scores, and the cache key has one form.
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
            return [Failed(Failure("judge", why.code, why.message, f"{why.hint} {FALL_BACK}".strip()))] * len(
                group
            ), "nobody"
        return await stand_in(self.fallback, Group(group[0].group_id, task, tuple(group)), FLAG), "fallback"

    async def _marks(self, talks: Sequence[Talk]) -> tuple[dict[Talk, Marks], By]:
        """The marks of distinct attempts, from the cache or from the judge."""
        address = self.endpoint.address
        options = dict(self.endpoint.options)
        key = digest(address.url, address.model, options, prompt.SYSTEM, asdict(self.rubric), self.seed, talks)
        known = self._known(key, len(talks))
        if known is not None:
            return dict(zip(talks, known, strict=True)), "cache"
        # Any order has the same length.
        self._insist_on_length(prompt.question(self.rubric, talks, random.Random(key)))
        marks = await self.retry_policy.persist(lambda number: self._ask(talks, key, number))
        self.cache.put(key, marks)
        return dict(zip(talks, marks, strict=True)), "judge"

    def _known(self, key: str, count: int) -> list[Marks] | None:
        found = self.cache.get(key)
        if not isinstance(found, list) or len(found) != count:
            return None
        with suppress(EndpointError):
            return [prompt.checked_marks(row, self.rubric) for row in found]
        return None

    async def _ask(self, talks: Sequence[Talk], key: str, number: int) -> list[Marks]:
        """Call the judge once, with the attempts in an order of their own; an incomplete answer is rejected."""
        # A retry shows another order, so that an answer that a position caused is not repeated.
        asked = prompt.question(self.rubric, talks, random.Random(digest(self.seed, talks, number)))
        began, reply, error = time.monotonic(), None, None
        try:
            reply = await self.endpoint.ask(asked.messages, asked.schema)
            return prompt.marks_of(reply, asked.names, self.rubric)
        except EndpointError as unusable:
            error = unusable
            raise
        finally:
            if reply or error:  # neither if the call was cancelled
                self.tally.call(number, reply)
                self.record.call(key, number, asked, reply, error, time.monotonic() - began)

    def _insist_on_length(self, asked: JudgeQuestion) -> None:
        tokens = prompt.estimated_tokens(asked)
        if tokens > self.max_prompt_tokens:
            size = f"about {tokens} tokens; the limit is {self.max_prompt_tokens}"
            message = f"judging {len(asked.names)} attempts would take {size}"
            hint = "Raise max_prompt_tokens if the judge can read that much, or use smaller groups or shorter attempts."
            raise EndpointError("too_long", message, hint=hint, again=False, ill=False)

    def metrics(self) -> Metrics:
        lost = self.cache.troubles + self.record.lost
        return {**self.tally.metrics(), "judge/breaker_open": float(self.breaker.open), "judge/lost": float(lost)}

    def hints(self) -> Sequence[Hint]:
        return self.tally.hints()

    def state_dict(self) -> dict[str, Any]:
        """The counters. A new process starts with a closed breaker, and the cache file keeps the answers."""
        return {"tally": self.tally.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tally.load_state_dict(state["tally"])

    def close(self) -> None:
        self.cache.close()


def _creator(rubric: str) -> Callable[..., RulerRewardFunction]:
    def create(
        model: str = "openai/gpt-4", weight: float = 1.0, fallback_enabled: bool = False, **settings: Any
    ) -> RulerRewardFunction:
        return RulerRewardFunction(model, rubric, weight, fallback_enabled, **settings)

    create.__name__ = create.__qualname__ = f"create_{rubric}_ruler"
    create.__doc__ = f"A judge with the rubric {rubric!r}: {', '.join(RUBRICS[rubric].names)}."
    return create


create_customer_service_ruler = _creator("customer_service")
create_technical_support_ruler = _creator("technical_support")
create_sales_ruler = _creator("sales")
create_educational_ruler = _creator("educational")
create_creative_ruler = _creator("creative")


def _insist_above(limit: float, **settings: float) -> None:
    for name, value in settings.items():
        if not value > limit:
            raise ConfigError(f"the judge's {name} is {value!r}, but must be above {limit}", field=name)
