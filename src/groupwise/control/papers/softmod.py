"""Soft modules: a routing network combines modules, task by task. "Multi-Task Reinforcement Learning with Soft
Modularization" (arXiv 2003.13661).

Eight tasks in two families: tasks of one family read the world in the same way, but each task orders its answers
differently, so there is something to share and something to separate. Three networks with about the same number of
weights maximise the expected share of right answers plus an entropy bonus, as the paper's soft actor-critic does: a
plain network with the task as an input; the same modules with the task as an input but hidden from the routing; and
soft modules, whose routing sees the task. All seeds learn side by side.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from groupwise.control.papers.paper_result import PaperFinding, Progress, cell, gain, mean_of, with_interval
from groupwise.control.soft_modules import SoftModules

# Eight tasks in two families; questions of six numbers with five answers, eight per task and step.
TASKS, FAMILIES, NUMBERS, ANSWERS, QUESTIONS = 8, 2, 6, 5, 8
# Weight of the entropy bonus, learning rate, updates.
BONUS, RATE, STEPS = 0.1, 3e-3, 800
INPUTS = NUMBERS + TASKS
Function = Callable[[dict[str, Tensor], Tensor], Tensor]


def plain() -> nn.Module:
    """One network of four layers with as many weights as the modules and their routing."""
    width = 46
    layers = [nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, ANSWERS))


class Blind(SoftModules):
    """The same modules with the task as an input; the routing sees zeros instead of the task."""

    def __init__(self) -> None:
        super().__init__(INPUTS + TASKS, ANSWERS, tasks=TASKS)

    def forward(self, seen: Tensor) -> Tensor:
        return super().forward(torch.cat([seen, torch.zeros_like(seen[..., :TASKS])], -1))


ARMS: dict[str, Callable[[], nn.Module]] = {
    "one network": plain,
    "modules, routing blind to the task": Blind,
    "soft modules": lambda: SoftModules(INPUTS, ANSWERS, tasks=TASKS),
}


class FamilyTasks:
    """For every seed, tasks [S, K, D, A]: the matrix of their family, with the answers in an order of their own."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.random = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.right = torch.stack([self._tasks(random) for random in self.random])

    def _tasks(self, random: torch.Generator) -> Tensor:
        ways = torch.randn(FAMILIES, NUMBERS, ANSWERS, generator=random)
        orders = [torch.randperm(ANSWERS, generator=random) for _ in range(TASKS)]
        return torch.stack([ways[task % FAMILIES][:, order] for task, order in enumerate(orders)])

    def questions(self, count: int) -> tuple[Tensor, Tensor]:
        seen = torch.stack([torch.randn(TASKS, count, NUMBERS, generator=random) for random in self.random])
        # The task as a one-hot, appended to every question: [S, K, N, K].
        which = torch.eye(TASKS)[:, None].expand(len(seen), TASKS, count, TASKS)
        return torch.cat([seen, which], -1), (seen @ self.right).argmax(-1, keepdim=True)


def train(make: Callable[[], nn.Module], seeds: Sequence[int], steps: int) -> tuple[Tensor, list[nn.Module]]:
    """The share of right answers to unseen questions [S, K], and the networks."""
    tasks = FamilyTasks(seeds)
    held_out, answers = tasks.questions(200)
    networks = [seeded(make, seed) for seed in seeds]
    weights, _ = stack_module_state(networks)
    # One forward pass for all seeds: weights and questions both have a leading axis of seeds.
    act: Function = vmap(lambda own, seen: functional_call(networks[0], own, (seen,)))
    optimiser = torch.optim.Adam(weights.values(), lr=RATE)
    for _ in range(steps):
        seen, right = tasks.questions(QUESTIONS)
        logp = act(weights, seen).log_softmax(-1)
        # Exact expectation over answers instead of samples, so the only noise is in the questions.
        reward = logp.exp().gather(-1, right).mean((1, 2, 3)) - BONUS * (logp.exp() * logp).sum(-1).mean((1, 2))
        optimiser.zero_grad()
        (-reward.sum()).backward()
        optimiser.step()
    with torch.no_grad():
        share = act(weights, held_out).softmax(-1).gather(-1, answers).mean((2, 3))
        for number, network in enumerate(networks):
            network.load_state_dict({name: weight[number] for name, weight in weights.items()})
    return share, networks


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def likeness(network: nn.Module) -> float:
    """How much more similar routes are within a family than between families: a difference of mean cosines."""
    assert isinstance(network, SoftModules)
    states = torch.randn(200, 1, NUMBERS, generator=torch.Generator().manual_seed(0)).expand(-1, TASKS, -1)
    with torch.no_grad():
        routes = network.routing(torch.cat([states, torch.eye(TASKS).expand(200, -1, -1)], -1))
    # A task's route, averaged over states: both layers' mixing weights in one vector [K, n² + n].
    mean = torch.cat([z.softmax(-1).flatten(-2) for z in routes], -1).mean(0)
    cosines = nn.functional.cosine_similarity(mean[:, None], mean[None], dim=-1)
    family = torch.arange(TASKS) % FAMILIES
    # Pairs of different tasks of one family; a task with itself would always agree.
    same = (family[:, None] == family[None]) & ~torch.eye(TASKS, dtype=torch.bool)
    return float(cosines[same].mean() - cosines[family[:, None] != family[None]].mean())


def experiment(seeds: Sequence[int], progress: Progress, steps: int = STEPS) -> PaperFinding:
    found = {}
    for done, (name, make) in enumerate(ARMS.items()):
        progress(done, len(ARMS))
        found[name] = train(make, seeds, steps)
    means = {name: share.mean(1).tolist() for name, (share, _) in found.items()}
    worst = {name: share.min(1).values.tolist() for name, (share, _) in found.items()}
    alike = [likeness(network) for network in found["soft modules"][1]]
    one, blind, soft = means.values()
    effects = {
        "gain_over_one_network": gain(soft, one),
        "gain_over_blind_routing": gain(soft, blind),
        "likeness_of_family": mean_of(alike),
    }
    return PaperFinding(
        "softmod",
        "Multi-Task Reinforcement Learning with Soft Modularization (arXiv 2003.13661)",
        "Modules routed by task learn several tasks better than one network of the same size",
        effects["gain_over_one_network"].low > 0,
        f"by {with_interval(effects['gain_over_one_network'], 3)} in right answers, and "
        f"{with_interval(effects['gain_over_blind_routing'], 3)} against modules whose routing is blind to the task",
        f"Routes within a family are {with_interval(effects['likeness_of_family'])} more similar (cosine) than between "
        "families. control.soft_modules makes such networks; at this size a plain network is hard to beat.",
        ("network", "right answers", "worst task", "weights"),
        tuple((name, cell(means[name], 3), cell(worst[name], 3), str(size(make()))) for name, make in ARMS.items()),
        effects,
        tuple(seeds),
        {"right": {name: share.tolist() for name, (share, _) in found.items()}, "likeness": alike},
    )


def size(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())
