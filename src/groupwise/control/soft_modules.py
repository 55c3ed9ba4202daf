"""A network of soft modules for several tasks: `policy.architecture = "soft_modules"`.

"Multi-Task Reinforcement Learning with Soft Modularization" (arXiv 2003.13661): the modules see only the state; a
routing network that sees state and task decides how to combine them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from groupwise.core.shapes import check_shape


def soft_route(outputs: Tensor, logits: Tensor) -> Tensor:
    """ "Multi-Task Reinforcement Learning with Soft Modularization" (arXiv 2003.13661), section 4.2.

        g_i = Σ_j p_ij · o_j,    p_ij = exp(z_ij) / Σ_j exp(z_ij)

    Args:
      outputs: o, [..., n, d]: the outputs of a layer's n modules.
      logits: z, [..., m, n]: how much each of the m modules of the next layer takes from each; a routing network
        computes them from state and task, so that tasks share the modules they can and separate the others.

    Returns:
      g, [..., m, d]: the inputs of the next layer's m modules. Equal logits give every module the mean.
    """
    check_shape("logits", logits, (*outputs.shape[:-2], logits.shape[-2], outputs.shape[-2]))
    return logits.softmax(-1) @ outputs


class SoftModules(nn.Module):
    """[..., inputs] → [..., outputs], where the last `tasks` inputs are a one-hot of the task, as in suites.

    Two layers of `modules` modules with `width` units each. With f the embedded state and h the embedded task:

        e = f ⊙ h,   z¹ = W¹ relu(e),   z² = W² relu(U z¹ ⊙ e)        the routing network
        g¹ = relu(M¹ f),   g² = relu(M² · route(g¹, z¹)),   out = route(M³ g², z²)

    Departures: two layers (the paper has two and four), f is a single layer, and the output is routed like a layer.
    """

    def __init__(self, inputs: int, outputs: int, *, tasks: int, modules: int = 4, width: int = 16) -> None:
        super().__init__()
        self.tasks, self.count = tasks, modules
        hidden = 2 * width
        self.state = nn.Linear(inputs - tasks, hidden)
        self.task = nn.Linear(tasks, hidden)
        self.first, self.second, self.last = (
            nn.Parameter(torch.randn(modules, rows, columns) * gain / rows**0.5)
            for rows, columns, gain in ((hidden, width, 1.4), (width, width, 1.4), (width, outputs, 0.1))
        )
        self.shifts = nn.Parameter(torch.zeros(2, modules, width))
        self.route = nn.Linear(hidden, modules**2)
        self.again = nn.Linear(modules**2, hidden)
        self.gather = nn.Linear(hidden, modules)
        # Torch initialises with small weights; e = f ⊙ h would be smaller still, and all routes alike for a long time.
        nn.init.normal_(self.task.weight)
        for layer, gain in ((self.state, 1.4), (self.route, 1.0), (self.again, 1.0), (self.gather, 1.0)):
            nn.init.normal_(layer.weight, std=gain / layer.in_features**0.5)
            nn.init.zeros_(layer.bias)

    def routing(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """z¹ [..., n, n] and z² [..., 1, n]."""
        mixed = self.state(seen[..., : -self.tasks]).relu() * self.task(seen[..., -self.tasks :])
        wanted = self.route(mixed.relu())
        gathered = self.gather((self.again(wanted) * mixed).relu())
        return wanted.unflatten(-1, (self.count, self.count)), gathered.unsqueeze(-2)

    def forward(self, seen: Tensor) -> Tensor:
        wanted, gathered = self.routing(seen)
        state = self.state(seen[..., : -self.tasks]).relu()
        said = (torch.einsum("...d,ndh->...nh", state, self.first) + self.shifts[0]).relu()
        # Shapes: said and heard are [..., n, width]; wanted is [..., n, n], gathered [..., 1, n].
        heard = soft_route(said, wanted)
        said = (torch.einsum("...nd,ndh->...nh", heard, self.second) + self.shifts[1]).relu()
        answers = torch.einsum("...nd,ndh->...nh", said, self.last)
        return soft_route(answers, gathered).squeeze(-2)


def soft_modules(tasks: int, *, modules: int = 4, width: int = 16, seed: int = 0) -> Callable[[int, int], nn.Module]:
    """A factory of such networks, each with weights of its own that depend on the seed alone."""
    seeds = torch.Generator().manual_seed(seed)

    def make(inputs: int, outputs: int) -> nn.Module:
        # Torch initialises layers from the global random state, which is put back.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=seeds)))
            return SoftModules(inputs, outputs, tasks=tasks, modules=modules, width=width)

    return make
