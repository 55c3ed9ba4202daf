"""The warm-start product: supervised training on the same loop. A demonstration is an attempt with advantage 1 on every
token of the model's own turns.

With the current policy's own log-probabilities as the behaviour's, the ratio is 1, and the gradient of the policy loss
is that of the negative log-likelihood per token. Supervised runs therefore have the same checkpoints, resume and
reports; their reward is the mean probability that the model gives to a token of the right answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.agents.agent_product import ConversationEvaluation, frame_of
from groupwise.agents.checks import check_warm_start as check
from groupwise.agents.checks import demonstration_of, listed_problems, talks
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.prompts import insist_on_plain_text, insist_on_room, prompt_ids
from groupwise.agents.data.dataset import find_problems
from groupwise.agents.data.problems import Problem, Problems
from groupwise.agents.data.rows import refused
from groupwise.agents.environments.contract import Observation, Scenarios
from groupwise.agents.environments.equipped import EquippedScenarios, scenarios_of
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
    shown = frame.with_options(observation.chat_template_kwargs)
    ids, own = ended(frame.tokenizer, *shown.demonstration(observation.messages, said, observation.tools))
    return np.array(ids), np.array(own)


def ended(tokenizer: Any, ids: list[int], own: list[bool]) -> tuple[list[int], list[bool]]:
    """Return the tokens with an end-of-text token behind the last turn, where the chat template ends turns with none.

    It is learned too: without it an answer would never end.
    """
    stop = max(place for place, mine in enumerate(own) if mine) + 1
    if not tokenizer.decode(ids[stop - 1 : stop], skip_special_tokens=True):
        return ids, own
    return [*ids[:stop], tokenizer.eos_token_id], [*own[:stop], True]


def build(cfg: TrainingConfig) -> Parts:
    language = load_start(cfg)
    if language.tokenizer.eos_token_id is None:
        message = f"the tokenizer of '{language.name}' has no end-of-text token, so the model cannot learn to stop"
        hint = "Set tokenizer.eos_token and save the tokenizer again."
        raise ConfigError(message, hint=hint, field="policy.model_name")
    policy = LanguagePolicy(language.model, seed=cfg.run.seed)
    frame = frame_of(cfg, language)
    engine = Engine(language.model, language.tokenizer, ends=frame.end_ids)
    make = _of_scenarios if talks(cfg) else _of_problems
    source, evaluation = make(cfg, frame, policy, engine)
    return Parts(policy, source, evaluation, lambda: evaluation.shown)


def _of_problems(cfg: TrainingConfig, frame: Frame, policy: LanguagePolicy, engine: Engine) -> tuple[Any, Any]:
    problems, tokenizer = find_problems(cfg.task), frame.tokenizer
    check_listed(problems, tokenizer, engine.max_length, cfg.language.chat_template_kwargs)
    answers = DemonstratedAnswers(problems, frame, engine.max_length)
    answers.check()
    source = Demonstrations(cfg, lambda n: answers.row(problems.training(cfg.run.seed, n)), policy, engine)
    grade = per_attempt(grader(problems))
    return source, greedy_evaluation(cfg, problems, engine, tokenizer, source.scorer, grade, grade)


def _of_scenarios(cfg: TrainingConfig, frame: Frame, policy: LanguagePolicy, engine: Engine) -> tuple[Any, Any]:
    scenarios = scenarios_of(cfg)
    shown = DemonstratedConversations(scenarios, frame, engine.max_length)

    def close() -> None:
        shown.loop.close()
        if isinstance(scenarios, EquippedScenarios):
            scenarios.close()

    source = Demonstrations(
        cfg, lambda n: shown.row(scenarios.training(cfg.run.seed, n), n), policy, engine, close=close
    )
    return source, ConversationEvaluation(cfg, scenarios, engine, frame, EnvironmentReward(), source.scorer, shown.loop)


class DemonstratedAnswers:
    """Problems with their right answers, as tokens and a mask of the answer."""

    def __init__(self, problems: Problems, frame: Frame, limit: int) -> None:
        self.problems, self.frame, self.limit = problems, frame, limit

    def row(self, problem: Problem) -> Row:
        shown = self.problems.demonstration(problem)
        insist_on_plain_text(problem, self.frame.special, shown)
        ids, own = self._shown(problem, shown)
        insist_on_room(problem, len(ids), self.limit)
        return np.array(ids), np.array(own)

    def _shown(self, problem: Problem, shown: str) -> tuple[list[int], list[bool]]:
        tokenizer, frame = self.frame.tokenizer, self.frame.with_options(problem.template_options)
        if tokenizer.chat_template or not isinstance(problem.prompt, str):
            said: list[Message] = [{"role": "assistant", "content": shown}]
            return ended(tokenizer, *frame.demonstration(problem.messages, said))
        # A model without a chat template continues the text.
        prompt, answer = prompt_ids(tokenizer, problem, self.limit), tokenizer.encode(shown, add_special_tokens=False)
        return ended(tokenizer, prompt + answer, [False] * len(prompt) + [True] * len(answer))

    def check(self) -> None:
        """Refuse demonstrations that cannot be learned from before the run starts; only long ones are encoded."""
        for problem in listed_problems(self.problems):
            shown = self.problems.demonstration(problem)
            insist_on_plain_text(problem, self.frame.special, shown)
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
