"""The warm-start product: supervised training on the same loop. A demonstration is an attempt with advantage 1 on every
token of the model's own turns.

With the current policy's own log-probabilities as the behaviour's, the ratio is 1, and the gradient of the policy loss
is that of the negative log-likelihood per token. Supervised runs therefore have the same checkpoints, resume and
reports; their reward is the mean probability that the model gives to a token of the right answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.agents.agent_product import ConversationEvaluation
from groupwise.agents.conversation.chat_format import Frame, special_tokens
from groupwise.agents.conversation.prompts import insist_on_plain_text, insist_on_room, prompt_ids
from groupwise.agents.data.dataset import DataProblems, find_problems
from groupwise.agents.data.problems import Problem, Problems
from groupwise.agents.data.rows import refused
from groupwise.agents.environments.contract import Observation, Scenarios
from groupwise.agents.environments.registry import find_scenarios, names_scenarios
from groupwise.agents.evaluation import greedy_evaluation
from groupwise.agents.language_product import check_listed, grader
from groupwise.agents.model_start import load_start, open_run
from groupwise.agents.model_start import pin_start as prepare
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.event_loop import EventLoop
from groupwise.language.engine import Engine
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.scoring import RewardScorer, per_attempt
from groupwise.training.session import Parts
from groupwise.training.token_attempts import Row, imitation
from groupwise.types import Array, Batch, Message, Policy, Task

__all__ = ["build", "check", "open_run", "prepare"]


def demonstration_row(frame: Frame, observation: Observation, said: Sequence[Message]) -> tuple[Array, Array]:
    """Return the tokens [T] of a conversation, and a mask [T] of those that are the model's.

    `said` are the messages after the opening, from the model's first turn to its last.
    """
    if not said or any(said[place]["role"] != "assistant" for place in (0, -1)):
        roles = ", ".join(str(message["role"]) for message in said) or "nothing"
        raise ContractError(f"a demonstration must begin and end with the assistant; this one is {roles}")
    ids = frame.opening(observation.messages, observation.tools)
    own = [False] * len(ids)
    heard: list[Message] = []
    for message in said:
        if message["role"] != "assistant":
            heard.append(message)
            continue
        # Before the model's first turn, the opening already ends with the generation prompt.
        if any(own):
            _extend(ids, own, frame.following(heard, ended=True), False)
        heard = []
        _extend(ids, own, frame.own_turn(message), True)
    return np.array(ids), np.array(own)


def _extend(ids: list[int], own: list[bool], new: Sequence[int], spoken: bool) -> None:
    ids += new
    own += [spoken] * len(new)


def demonstration_of(scenarios: Any, scenario: Any) -> Sequence[Message]:
    """Return the scenario's demonstration; refuse scenarios that have none."""
    if not hasattr(scenarios, "demonstration"):
        hint = "Add a method demonstration(scenario) that returns messages, or train without a warm start."
        raise refused(f"{scenarios.name!r} has no demonstrations to imitate", hint)
    messages: Sequence[Message] = scenarios.demonstration(scenario)
    return messages


def check(cfg: TrainingConfig) -> None:
    if names_scenarios(cfg.task):
        scenarios = find_scenarios(cfg.task)
        demonstration_of(scenarios, scenarios.training(cfg.run.seed, 0))
        return
    problems = find_problems(cfg.task)
    for problem in _listed(problems) or [problems.training(cfg.run.seed, 0)]:
        problems.demonstration(problem)


def build(cfg: TrainingConfig) -> Parts:
    language = load_start(cfg)
    if language.tokenizer.eos_token_id is None:
        message = f"the tokenizer of '{language.name}' has no end-of-text token, so the model cannot learn to stop"
        hint = "Set tokenizer.eos_token and save the tokenizer again."
        raise ConfigError(message, hint=hint, field="policy.model_name")
    policy = LanguagePolicy(language.model, seed=cfg.run.seed)
    engine = Engine(language.model, language.tokenizer)
    make = _of_scenarios if names_scenarios(cfg.task) else _of_problems
    source, evaluation = make(cfg, language.tokenizer, policy, engine)
    return Parts(policy, source, evaluation, lambda: evaluation.shown)


def _of_problems(cfg: TrainingConfig, tokenizer: Any, policy: LanguagePolicy, engine: Engine) -> tuple[Any, Any]:
    problems = find_problems(cfg.task)
    check_listed(problems, tokenizer, engine.max_length)
    answers = DemonstratedAnswers(problems, tokenizer, engine.max_length)
    answers.check()
    source = Demonstrations(cfg, lambda n: answers.row(problems.training(cfg.run.seed, n)), policy, engine)
    return source, greedy_evaluation(cfg, problems, engine, tokenizer, source.scorer, per_attempt(grader(problems)))


def _of_scenarios(cfg: TrainingConfig, tokenizer: Any, policy: LanguagePolicy, engine: Engine) -> tuple[Any, Any]:
    scenarios, frame = find_scenarios(cfg.task), Frame(tokenizer)
    talks = DemonstratedConversations(scenarios, frame, engine.max_length)
    source = Demonstrations(
        cfg, lambda n: talks.row(scenarios.training(cfg.run.seed, n), n), policy, engine, close=talks.loop.close
    )
    return source, ConversationEvaluation(cfg, scenarios, engine, frame, EnvironmentReward(), source.scorer, talks.loop)


def _listed(problems: Problems) -> Sequence[Problem]:
    """Return all training problems if they are listed; generated ones are checked when they are drawn."""
    return problems.train if isinstance(problems, DataProblems) else []


class DemonstratedAnswers:
    """Problems with their right answers, as tokens and a mask of the answer."""

    def __init__(self, problems: Problems, tokenizer: Any, limit: int) -> None:
        self.problems, self.tokenizer, self.limit = problems, tokenizer, limit
        self.special = special_tokens(tokenizer)

    def row(self, problem: Problem) -> Row:
        prompt = prompt_ids(self.tokenizer, problem, self.limit)
        shown = self.problems.demonstration(problem)
        insist_on_plain_text(problem, self.special, shown)
        # The end-of-text token is learned too: without it an answer would never end.
        answer = [*self.tokenizer.encode(shown, add_special_tokens=False), self.tokenizer.eos_token_id]
        insist_on_room(problem, len(prompt) + len(answer), self.limit)
        return np.array(prompt + answer), np.arange(len(prompt) + len(answer)) >= len(prompt)

    def check(self) -> None:
        """Refuse demonstrations that cannot be learned from before the run starts; only long ones are encoded."""
        for problem in _listed(self.problems):
            shown = self.problems.demonstration(problem)
            insist_on_plain_text(problem, self.special, shown)
            if len(problem.text.encode()) + len(shown.encode()) >= self.limit // 2:
                self.row(problem)


class DemonstratedConversations:
    """Scenarios with demonstration conversations, as tokens and a mask of the model's turns."""

    def __init__(self, scenarios: Scenarios, frame: Frame, limit: int) -> None:
        self.scenarios, self.frame, self.limit = scenarios, frame, limit
        self.loop = EventLoop("demonstrations")

    def row(self, scenario: Any, number: int) -> Row:
        task = Task(f"{self.scenarios.name}/{number}", scenario, number)
        ids, own = self.loop.run(self._shown(task))
        if len(ids) > self.limit:
            message = f"the demonstration of {task.id} has {len(ids)} tokens, but the model's context is {self.limit}"
            raise refused(message, "Shorten it, or choose a model with a longer context.")
        return ids, own

    async def _shown(self, task: Task) -> Row:
        environment = self.scenarios.make()
        try:
            observation = await environment.reset(task)
            return demonstration_row(self.frame, observation, demonstration_of(self.scenarios, task.payload))
        finally:
            if hasattr(environment, "close"):
                await environment.close()


class Demonstrations:
    """Batches of `rollout.tasks_per_step` demonstrations, each made from its number."""

    def __init__(
        self, cfg: TrainingConfig, row: Callable[[int], Row], policy: LanguagePolicy, engine: Engine,
        close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.cfg, self.row, self.policy, self.engine, self.also_close = cfg, row, policy, engine, close
        self.scorer = RewardScorer(timeout=cfg.rollout.reward_timeout)
        self.cursor = 0

    def next(self) -> Batch:
        size = self.cfg.rollout.tasks_per_step
        numbers = range(self.cursor, self.cursor + size)
        self.cursor += size
        return imitation([self.row(number) for number in numbers], self.policy, self.cfg.policy.device)

    def publish(self, policy: Policy) -> None:
        self.engine.load(self.policy.model, policy.version)

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]

    def close(self) -> None:
        self.also_close()
        self.engine.close()
        self.scorer.close()
