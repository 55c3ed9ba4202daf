"""RULER: a language model judges a group at once, each attempt relative to the others.

    score_group ─► cache? ─► questions (balanced orders, neutral names) ─► endpoint ─► answers checked
                                  ▲                                              │ unusable
                                  └───────── again, in another order ◄───────────┘ … then the attempts have failed
    answers ─► effect of places taken off ─► mean over the orders ─► scores

A run whose judge cannot be used stops, unless you chose a fallback, which then scores the group and flags it. A group
is scored by the judge or by the fallback, never by both; missing scores are never made up. After "RULER" in OpenPipe's
ART. Unlike there, every criterion has its own score, and identical attempts get identical scores.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import ConfigError, ContractError
from groupwise.event_loop import contained
from groupwise.rewards.function import RewardFunction, stand_in, turns_of
from groupwise.rewards.judge import question_and_answer as prompt
from groupwise.rewards.judge.drift import JudgedGroup, JudgeWatch, agreement_of
from groupwise.rewards.judge.endpoint import EndpointError, JudgeEndpoint, http_client, resolve
from groupwise.rewards.judge.orders import Floats, PlaceEffects, Places, balanced_orders
from groupwise.rewards.judge.question_and_answer import JudgeQuestion, Marks, Talk
from groupwise.rewards.judge.records import By, JudgeCache, JudgeRecord, JudgeTally, Price, digest
from groupwise.rewards.judge.retries import CircuitBreaker, RetryPolicy
from groupwise.rewards.judge.rubrics import RUBRICS, Rubric, rubric_of
from groupwise.rewards.rules.heuristic import HeuristicReward
from groupwise.types import Failed, Failure, Group, Hint, Message, Metrics, Reward, Score, Task, Trajectory

FLAG = "judge_fallback"
MOST_LESSONS = 64  # groups that wait to be learned from
FALL_BACK = "To let a heuristic on the words stand in for the judge, set fallback_enabled = true in its options."


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """One answer of the judge: where each attempt was shown, and its marks."""

    places: Places
    marks: list[Marks]


@dataclass
class JudgeCase:
    """The distinct attempts of a group, as they are asked about."""

    talks: Sequence[Talk]
    reference: str
    key: str
    orders: int
    tokens: list[int | None] = field(default_factory=list)  # of every call


@dataclass(frozen=True, slots=True)
class JudgeLesson:
    """What an answered group teaches about the judge."""

    places: list[Places]
    marks: Floats  # [orders, attempts, criteria], as given
    judged: JudgedGroup


class RulerRewardFunction(RewardFunction):
    """A judge's scores from 0 to 1: the rubric's total, with the marks of its criteria as the parts.

    Args:
      model: `provider/model` (see `endpoint.PROVIDERS`), or any name together with `base_url`.
      rubric: a rubric, or the name of one.
      weight: the weight of this reward among others.
      fallback_enabled: if the judge is unavailable, score the group with `fallback` and flag it "judge_fallback";
        otherwise its attempts fail, and a step or evaluation without any score ends the run, which can be resumed.
      fallback: the reward to fall back on, which enables it; by default a heuristic on the words.
      base_url, api_key: used instead of the provider's and its environment variable.
      seed: determines the orders in which attempts are shown.
      orders: in how many balanced orders every group is judged, one call each; scores are their mean. 3 removes most of
        a judge's preference for places and much of its noise.
      consistency_share: with one order, the share of groups that are judged again in the reverse order, to measure
        `judge/agreement`; both answers count.
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
        orders: int = 1,
        consistency_share: float = 0.05,
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
        _insist_above(
            0, orders=orders, max_concurrency=max_concurrency, timeout=timeout, breaker_threshold=breaker_threshold
        )
        _insist_above(-1, retries=retries)
        if not 0 <= consistency_share <= 1:
            message = f"the judge's consistency_share is {consistency_share!r}, but must be a share from 0 to 1"
            raise ConfigError(message, field="consistency_share")
        http_client()
        options = {"temperature": temperature, "max_tokens": max_tokens}
        given = {name: value for name, value in options.items() if value is not None}
        self.endpoint = JudgeEndpoint(resolve(model, base_url, api_key), timeout, given)
        self.breaker = CircuitBreaker(breaker_threshold, breaker_cooldown)
        self.retry_policy = RetryPolicy(max_concurrency, retries, self.breaker, pause)
        self.fallback: Reward | None = HeuristicReward() if fallback_enabled and fallback is None else fallback
        self.seed, self.orders, self.consistency_share = seed, orders, consistency_share
        self.max_prompt_tokens = max_prompt_tokens
        self.cache = JudgeCache(cache_path)
        self.record = JudgeRecord(record_path, self.endpoint.address)
        self.tally = JudgeTally(None if price is None else Price(*price))
        self.place_effects = PlaceEffects(len(self.rubric.criteria))
        self.watch = JudgeWatch()
        self._arrived = self._under_way = 0
        self._lessons: dict[int, JudgeLesson] = {}

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
        with self._taking_in_lessons() as number:
            try:
                case = self._case(task, talks)
                answers, by = await self._answers(case)
                marks = self._settled(case, answers, number)
                scores = [Score(self.rubric.total(marks[talk]), marks[talk]) for talk in talks]
            except EndpointError as error:
                why = error
                scores, by = await self._without_judge(task, group, error)
        self.tally.group(by, why)
        self.record.verdict(task, group, scores, by, why.message if why else "")
        return scores

    @contextmanager
    def _taking_in_lessons(self) -> Iterator[int]:
        """A number for a group that arrives; what groups teach is learned when the last one under way has left.

        The groups of a step are judged at once and answered in any order. Learned from together, in the order of
        their arrival, they teach the same in every run.
        """
        self._arrived += 1
        self._under_way += 1
        try:
            yield self._arrived
        finally:
            self._under_way -= 1
            # In an asynchronous run there may always be a group under way.
            if not self._under_way or len(self._lessons) >= MOST_LESSONS:
                for _, lesson in sorted(self._lessons.items()):
                    self.place_effects.learn(lesson.places, lesson.marks)
                    self.watch.see(lesson.judged)
                self._lessons.clear()

    def _case(self, task: Task, talks: Sequence[Talk]) -> JudgeCase:
        # Sorted and without duplicates: equal attempts get equal scores, and the cache key has one form.
        distinct = sorted(set(talks))
        address, reference = self.endpoint.address, prompt.reference_of(task)
        asked = (address.url, address.model, dict(self.endpoint.options), prompt.SYSTEM, asdict(self.rubric))
        orders = self.orders
        if len(distinct) == 1:
            orders = 1  # nothing to be shown in another order
        elif orders == 1 and random.Random(digest("again", self.seed, distinct)).random() < self.consistency_share:
            orders = 2
        return JudgeCase(distinct, reference, digest(*asked, self.seed, orders, reference, distinct), orders)

    def _settled(self, case: JudgeCase, answers: Sequence[JudgeAnswer], number: int) -> dict[Talk, Marks]:
        """The marks of every attempt: without the effect of places, and averaged over the orders."""
        places = [answer.places for answer in answers]
        given = np.array([[[row[name] for name in self.rubric.names] for row in answer.marks] for answer in answers])
        fair = self.place_effects.removed(places, given)
        by_order = np.array([[self.rubric.total(self._named(row)) for row in order] for order in fair])
        marks = {talk: self._named(row) for talk, row in zip(case.talks, fair.mean(0), strict=True)}
        totals = tuple(self.rubric.total(each) for each in marks.values())
        counted = [count for count in case.tokens if count is not None]
        tokens = sum(counted) if counted and len(counted) == len(case.tokens) else None
        self._lessons[number] = JudgeLesson(places, given, JudgedGroup(totals, agreement_of(by_order), tokens))
        return marks

    def _named(self, row: Floats) -> Marks:
        return dict(zip(self.rubric.names, row.tolist(), strict=True))

    async def _without_judge(
        self, task: Task, group: Sequence[Trajectory], why: EndpointError
    ) -> tuple[Sequence[Score | Failed], By]:
        if self.fallback is None:
            return [Failed(Failure("judge", why.code, why.message, f"{why.hint} {FALL_BACK}".strip()))] * len(
                group
            ), "nobody"
        return await stand_in(self.fallback, Group(group[0].group_id, task, tuple(group)), FLAG), "fallback"

    async def _answers(self, case: JudgeCase) -> tuple[list[JudgeAnswer], By]:
        """The judge's answers, one per order, from the cache or from the judge."""
        known = self._known(case)
        if known is not None:
            return known, "cache"
        # Any order has the same length.
        self._insist_on_length(self._question(case, list(range(len(case.talks))), 0))
        asked = await asyncio.gather(*(contained(self._answer(case, order)) for order in range(case.orders)))
        answers = [answer for answer in asked if isinstance(answer, JudgeAnswer)]
        if not answers:
            raise next(error for error in asked if isinstance(error, EndpointError))
        if len(answers) == case.orders:
            self.cache.put(case.key, [asdict(answer) for answer in answers])
        return answers, "judge"

    async def _answer(self, case: JudgeCase, order: int) -> JudgeAnswer | EndpointError:
        try:
            return await self.retry_policy.persist(lambda number: self._ask(case, order, number))
        except EndpointError as error:
            # One order is enough to score the group.
            return error

    def _known(self, case: JudgeCase) -> list[JudgeAnswer] | None:
        found = self.cache.get(case.key)
        n = len(case.talks)
        # A file may be damaged: whatever is not as it was written is asked again.
        with suppress(EndpointError, TypeError, KeyError):
            answers = [
                JudgeAnswer(list(row["places"]), [prompt.checked_marks(marks, self.rubric) for marks in row["marks"]])
                for row in found
            ]
            sound = all(sorted(each.places) == list(range(n)) and len(each.marks) == n for each in answers)
            return answers if sound and len(answers) == case.orders else None
        return None

    async def _ask(self, case: JudgeCase, order: int, number: int) -> JudgeAnswer:
        """Call the judge once; an incomplete answer is rejected."""
        # A retry draws new orders, so that an answer that a place caused is not repeated.
        drawn = random.Random(digest(self.seed, case.talks, number))
        places = balanced_orders(len(case.talks), case.orders, drawn)[order]
        asked = self._question(case, places, number)
        began, reply, error = time.monotonic(), None, None
        try:
            reply = await self.endpoint.ask(asked.messages, asked.schema)
            return JudgeAnswer(places, prompt.marks_of(reply, asked.names, self.rubric))
        except EndpointError as unusable:
            error = unusable
            raise
        finally:
            if reply or error:  # neither if the call was cancelled
                self.tally.call(number, reply)
                case.tokens.append(reply.tokens if reply else 0)
                self.record.call(case.key, number, asked, reply, error, time.monotonic() - began)

    def _question(self, case: JudgeCase, places: Places, number: int) -> JudgeQuestion:
        names = random.Random(digest(self.seed, case.talks, places, number))
        return prompt.question(self.rubric, case.talks, places, names, case.reference)

    def _insist_on_length(self, asked: JudgeQuestion) -> None:
        tokens = prompt.estimated_tokens(asked)
        if tokens > self.max_prompt_tokens:
            size = f"about {tokens} tokens; the limit is {self.max_prompt_tokens}"
            message = f"judging {len(asked.names)} attempts would take {size}"
            hint = "Raise max_prompt_tokens if the judge can read that much, or use smaller groups or shorter attempts."
            raise EndpointError("too_long", message, hint=hint, again=False, ill=False)

    def metrics(self) -> Metrics:
        lost = self.cache.troubles + self.record.lost
        state = {"judge/breaker_open": float(self.breaker.open), "judge/lost": float(lost)}
        return {**self.tally.metrics(), **self.watch.metrics(self.place_effects.largest()), **state}

    def hints(self) -> Sequence[Hint]:
        return (*self.tally.hints(), *self.watch.hints(self.place_effects.largest(), self.orders))

    def state_dict(self) -> dict[str, Any]:
        """Counters, and what was learned about the judge. The breaker starts closed; the cache file keeps answers."""
        return {
            "tally": self.tally.state_dict(),
            "watch": self.watch.state_dict(),
            "place_effects": self.place_effects.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tally.load_state_dict(state["tally"])
        self.watch.load_state_dict(state["watch"])
        self.place_effects.load_state_dict(state["place_effects"])

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
