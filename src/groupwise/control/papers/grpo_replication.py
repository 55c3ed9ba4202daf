"""GRPO: the group's mean in place of a critic. "DeepSeekMath" (arXiv 2402.03300), section 4.1.

A linear softmax policy answers questions it sees only once: eight numbers, one of six answers is right. A score is 1
for the right answer plus a bonus that depends only on the question, so scores are comparable only within a question,
like those of a reward model. Three arms see the same questions and differ in what they subtract: nothing, the estimate
of a critic (a small network trained alongside), or the group's mean, divided by its deviation. Each arm learns at three
rates, and its best one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from groupwise.control.papers.paper_result import PaperFinding, Progress, cell, ratio, with_interval
from groupwise.core import group_advantages

# Questions of eight numbers with six answers, sixteen a batch, eight attempts at each.
NUMBERS, ANSWERS = 8, 6
QUESTIONS, GROUP = 16, 8
RATES = (0.1, 0.3, 1.0)
ARMS = {"nothing": "nothing (REINFORCE)", "critic": "a critic's estimate", "group": "the group's mean (GRPO)"}
# The share of right answers that counts as learned, and the updates after which an arm gives up.
ENOUGH, LIMIT = 0.75, 200
# Gradients drawn to measure their noise.
DRAWS = 100


@dataclass(frozen=True, slots=True)
class World:
    """Which answers are right [D, A], and which questions get a bonus [D, 1]."""

    right: Tensor
    liked: Tensor

    @classmethod
    def of(cls, seed: int) -> World:
        random = torch.Generator().manual_seed(seed)
        return cls(
            torch.randn(NUMBERS, ANSWERS, generator=random, dtype=torch.float64),
            torch.randn(NUMBERS, 1, generator=random, dtype=torch.float64) / 2,
        )

    def answer(self, questions: Tensor) -> Tensor:
        return (questions @ self.right).argmax(1)

    def score(self, questions: Tensor, answers: Tensor) -> Tensor:
        # Between −2 and 2: larger than the reward for a right answer, so scores differ mostly between questions.
        liking = 2 * (questions @ self.liked).tanh().squeeze(1)
        return (answers == self.answer(questions)).double() + liking


class CriticBaseline:
    """A small network that learns the average score of a question."""

    def __init__(self, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = nn.Sequential(nn.Linear(NUMBERS, 64), nn.Tanh(), nn.Linear(64, 1)).double()
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-2)

    def advantages(self, questions: Tensor, scores: Tensor) -> Tensor:
        """Scores minus the expected ones; then four updates of the expectation."""
        with torch.no_grad():
            expected = self.net(questions).squeeze(1)
        for _ in range(4):
            self.optimiser.zero_grad()
            (self.net(questions).squeeze(1) - scores).square().mean().backward()
            self.optimiser.step()
        advantages: Tensor = scores - expected
        return advantages


class AnswerLearner:
    """A policy, and the gradient of one arm."""

    def __init__(self, arm: str, seed: int) -> None:
        self.world = World.of(seed)
        self.random = torch.Generator().manual_seed(seed + 1)
        self.weights = torch.zeros(NUMBERS, ANSWERS, dtype=torch.float64, requires_grad=True)
        self.groups = torch.arange(QUESTIONS).repeat_interleave(GROUP)
        self.critic = CriticBaseline(seed) if arm == "critic" else None
        self.grouped = arm == "group"

    def gradient(self) -> Tensor:
        """∇ of −mean(A log π) over a batch of fresh questions, each answered by a group: X'(π − 1[a])·A / N."""
        questions = self.questions(QUESTIONS).repeat_interleave(GROUP, 0)
        chances = (questions @ self.weights.detach()).softmax(1)
        answers = torch.multinomial(chances, 1, generator=self.random).squeeze(1)
        advantages = self.advantages(questions, self.world.score(questions, answers))
        chosen = nn.functional.one_hot(answers, ANSWERS)
        return questions.T @ ((chances - chosen) * advantages[:, None]) / len(answers)

    def advantages(self, questions: Tensor, scores: Tensor) -> Tensor:
        if self.grouped:
            return group_advantages(scores, self.groups).to(scores.dtype)
        return scores if self.critic is None else self.critic.advantages(questions, scores)

    def questions(self, count: int) -> Tensor:
        return torch.randn(count, NUMBERS, generator=self.random, dtype=torch.float64)

    def right_share(self, questions: Tensor) -> float:
        chances = (questions @ self.weights.detach()).softmax(1)
        return float(chances.gather(1, self.world.answer(questions)[:, None]).mean())


def steps_to_learn(arm: str, seed: int, rate: float) -> int:
    """Updates until three quarters of the answers to held-out questions are right; at most `LIMIT`."""
    learner = AnswerLearner(arm, seed)
    optimiser = torch.optim.Adam([learner.weights], lr=rate)
    held_out = torch.randn(500, NUMBERS, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
    for step in range(1, LIMIT + 1):
        learner.weights.grad = learner.gradient()
        optimiser.step()
        if step % 2 == 0 and learner.right_share(held_out) >= ENOUGH:
            return step
    return LIMIT


def noise(arm: str, seed: int) -> float:
    """Variance of the untrained policy's gradient over its squared mean: how much of a step is noise."""
    learner = AnswerLearner(arm, seed)
    # A critic is trained first, so that its noise is not that of an untrained estimate.
    if learner.critic is not None:
        for _ in range(DRAWS):
            learner.gradient()
    drawn = torch.stack([learner.gradient().flatten() for _ in range(DRAWS)])
    # E‖mean of n draws‖² = ‖true mean‖² + variance / n, hence the correction.
    variance = float(drawn.var(0).sum())
    return variance / (float(drawn.mean(0).square().sum()) - variance / DRAWS)


def experiment(seeds: Sequence[int], progress: Progress) -> PaperFinding:
    jobs = [(arm, seed) for seed in seeds for arm in ARMS]
    steps: dict[str, list[list[int]]] = {arm: [] for arm in ARMS}
    noises: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for done, (arm, seed) in enumerate(jobs):
        progress(done, len(jobs))
        steps[arm].append([steps_to_learn(arm, seed, rate) for rate in RATES])
        noises[arm].append(noise(arm, seed))
    best: dict[str, Any] = {arm: np.array(table)[:, np.mean(table, 0).argmin()] for arm, table in steps.items()}
    effects = {
        "steps_vs_nothing": ratio(best["group"], best["nothing"]),
        "steps_vs_critic": ratio(best["group"], best["critic"]),
        "noise_vs_nothing": ratio(noises["group"], noises["nothing"]),
        "noise_vs_critic": ratio(noises["group"], noises["critic"]),
    }
    return PaperFinding(
        "grpo",
        "DeepSeekMath (arXiv 2402.03300)",
        "The mean of a group is a baseline that needs no critic, so GRPO learns in fewer steps than without a baseline",
        effects["steps_vs_nothing"].high < 1,
        f"with {with_interval(effects['steps_vs_nothing'])} times as many steps, and "
        f"{with_interval(effects['steps_vs_critic'])} times as many as with a critic",
        "Where scores are comparable only within a task, groups are enough. A critic pays off if there is only one "
        "attempt per task, or if episodes are long.",
        ("subtracted", "noise of a gradient", "steps to 75% right", "best rate"),
        tuple(
            (name, cell(noises[arm], 1), cell(best[arm], 0), f"{RATES[np.mean(steps[arm], 0).argmin()]}")
            for arm, name in ARMS.items()
        ),
        effects,
        tuple(seeds),
        {"steps": steps, "rates": RATES, "noise": noises},
    )
