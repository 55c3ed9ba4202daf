"""PCGrad: project conflicting gradients. "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782).

One small network learns four tasks at once. Each has different right answers, so they conflict, and their rewards are
1, 3, 10 and 30, so one dominates. Arms differ only in how the four gradients become a step: their sum, the sum after
surgery, and the sum of gradients scaled to equal length, much as if every task were scaled by its own spread. Gradients
are exact, each arm learns at three rates and its best one counts, and all seeds learn side by side.

Shapes: S seeds, K tasks, N questions, D numbers in a question, P weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from groupwise.control.papers.paper_result import PaperFinding, Progress, cell, gain, with_interval
from groupwise.core import project_conflicts, random_orders

# Four tasks; questions of six numbers with five answers, 64 per task and step; 16 hidden units.
TASKS, NUMBERS, ANSWERS, HIDDEN, QUESTIONS = 4, 6, 5, 16, 64
REWARDS = torch.tensor([1.0, 3.0, 10.0, 30.0])
ARMS = {"sum": "the sum", "surgery": "after surgery (PCGrad)", "scaled": "each of length 1"}
RATES = (0.03, 0.1, 0.3)
STEPS = 250
# Weights and biases of the two layers.
SHAPES = ((NUMBERS + TASKS, HIDDEN), (1, HIDDEN), (HIDDEN, ANSWERS), (1, ANSWERS))


class ConflictingTasks:
    """For every seed four tasks, each a matrix that says which of five answers is right: [S, K, D, A]."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.random = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.right = self.draw(TASKS, NUMBERS, ANSWERS)

    def draw(self, *shape: int) -> Tensor:
        """Normal numbers [S, *shape]; those of a seed do not depend on the other seeds."""
        return torch.stack([torch.randn(shape, generator=random) for random in self.random])

    def questions(self, count: int) -> tuple[Tensor, Tensor]:
        """Questions [S, K, N, D + K], which end in a one-hot of the task, and their right answers [S, K, N, 1]."""
        seen = self.draw(TASKS, count, NUMBERS)
        which = torch.eye(TASKS)[:, None].expand(len(seen), TASKS, count, TASKS)
        return torch.cat([seen, which], -1), (seen @ self.right).argmax(-1, keepdim=True)


def right_share(weights: Sequence[Tensor], questions: Tensor, answers: Tensor) -> Tensor:
    """The probability of a right answer [S, K]. Weights are [S, 1 or K, ...]: shared, or one copy per task."""
    first, shift, second, offset = weights
    logits = (questions @ first + shift).tanh() @ second + offset
    return logits.softmax(-1).gather(-1, answers).mean((-2, -1))


def task_gradients(weights: Sequence[Tensor], questions: Tensor, answers: Tensor) -> Tensor:
    """∇ of minus each task's expected reward, [S, K, P]. Each task differentiates its own copy of the weights."""
    copies = [weight.expand(-1, TASKS, -1, -1).clone().requires_grad_() for weight in weights]
    loss = -(right_share(copies, questions, answers) * REWARDS).sum()
    return torch.cat([part.flatten(2) for part in torch.autograd.grad(loss, copies)], -1)


def train(arm: str, seeds: Sequence[int], rate: float, steps: int = STEPS) -> Tensor:
    """The share of right answers to unseen questions [S, K] after gradient descent."""
    tasks, orders = ConflictingTasks(seeds), torch.Generator().manual_seed(0)
    held_out = tasks.questions(300)
    # Biases (one row) start at 0.
    weights = [tasks.draw(1, *shape) / shape[0] ** 0.5 * (shape[0] > 1) for shape in SHAPES]
    for _ in range(steps):
        gradients = task_gradients(weights, *tasks.questions(QUESTIONS))
        if arm == "surgery":
            gradients = project_conflicts(gradients, random_orders(TASKS, orders))
        elif arm == "scaled":
            gradients = nn.functional.normalize(gradients, dim=-1)
        # The flat step [S, P] is cut back into the layers' shapes.
        step, at = rate * gradients.sum(1), 0
        for number, (rows, columns) in enumerate(SHAPES):
            size = rows * columns
            weights[number] = weights[number] - step[:, at : at + size].reshape(-1, 1, rows, columns)
            at += size
    return right_share(weights, *held_out)


def experiment(seeds: Sequence[int], progress: Progress, steps: int = STEPS) -> PaperFinding:
    jobs = [(arm, rate) for arm in ARMS for rate in RATES]
    found: dict[str, list[Tensor]] = {arm: [] for arm in ARMS}
    for done, (arm, rate) in enumerate(jobs):
        progress(done, len(jobs))
        found[arm].append(train(arm, seeds, rate, steps))
    # The rate that is best on average over seeds and tasks, as a user would choose it.
    best = {arm: max(tables, key=lambda table: float(table.mean())) for arm, tables in found.items()}
    means = {arm: table.mean(1).tolist() for arm, table in best.items()}
    worst = {arm: table.min(1).values.tolist() for arm, table in best.items()}
    effects = {
        "mean_gain": gain(means["surgery"], means["sum"]),
        "worst_task_gain": gain(worst["surgery"], worst["sum"]),
        "mean_gain_of_scaling": gain(means["scaled"], means["sum"]),
        "worst_task_gain_of_scaling": gain(worst["scaled"], worst["sum"]),
    }
    return PaperFinding(
        "pcgrad",
        "Gradient Surgery for Multi-Task Learning (arXiv 2001.06782)",
        "Projecting away conflicts lets a network learn tasks that are drowned out in the sum of gradients",
        effects["mean_gain"].low > 0 and effects["worst_task_gain"].low > 0,
        f"by {with_interval(effects['mean_gain'])} in right answers on average and "
        f"{with_interval(effects['worst_task_gain'])} in the worst task",
        f"Scaling every task by its own spread gains {with_interval(effects['mean_gain_of_scaling'])} and "
        f'{with_interval(effects["worst_task_gain_of_scaling"])} without surgery: advantage_scale = "task_rms".',
        ("gradients", "right answers", *(f"× {reward:g}" for reward in REWARDS.tolist()), "worst task"),
        tuple(
            (name, cell(means[arm]), *(f"{x:.2f}" for x in best[arm].mean(0)), cell(worst[arm]))
            for arm, name in ARMS.items()
        ),
        effects,
        tuple(seeds),
        {arm: {str(r): t.tolist() for r, t in zip(RATES, tables, strict=True)} for arm, tables in found.items()},
    )
