"""The graph policy: attention over activities and pools, and a small head for each of the twelve kinds of decision.

The logit of a candidate is out · relu(subject + candidate + known), each term a linear map: the subject of the decision
and the candidate are nodes of the graph, and `known` are the numbers that the construction computes for the candidate.
Only `known` depends on earlier decisions, and it is recorded, so all log-probabilities of a plan take one pass.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.config import TrainingConfig
from groupwise.designer.features import NUMBERS, RELATIONS, SCHEMA_HASH
from groupwise.designer.problem import CANDIDATES, FEATURES, HEADS, Head
from groupwise.errors import ConfigError
from groupwise.files import open_regular, write_output
from groupwise.types import Evaluation, Tensors

WIDTH, HIDDEN, LAYERS, ATTENTION_HEADS = 64, 32, 3, 4
# The name of the weights that ship with the package.
PRETRAINED = "pretrained"


class AttentionLayer(nn.Module):
    """Self-attention with a learned bias for each relation between two nodes, then a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.relation = nn.Parameter(torch.zeros(len(RELATIONS), heads))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, nodes: Tensor, relations: Tensor, present: Tensor) -> Tensor:
        batch, count, width = nodes.shape
        mixed = self.project(self.first(nodes)).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = (relations @ self.relation).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~present[:, None, None, :], -1e9)
        found = functional.scaled_dot_product_attention(mixed[0], mixed[1], mixed[2], attn_mask=bias)
        nodes = nodes + self.out(found.transpose(1, 2).reshape(batch, count, width))
        grown: Tensor = nodes + self.down(functional.gelu(self.up(self.second(nodes))))
        return grown


class GraphPolicy(nn.Module):
    """Encodes requirements as a graph and takes the decisions of a construction."""

    def __init__(self, width: int = WIDTH, hidden: int = HIDDEN, layers: int = LAYERS) -> None:
        super().__init__()
        self.version = 0
        # One projection for each kind of node: activity, pool, whole process.
        self.read = nn.Parameter(torch.randn(3, NUMBERS, width) / math.sqrt(NUMBERS))
        self.kind = nn.Parameter(torch.randn(3, width) * 0.1)
        self.layers = nn.ModuleList(AttentionLayer(width, ATTENTION_HEADS) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        heads = len(HEADS)
        # The maps of the formula above, one for each head: [heads, in, hidden].
        self.subject = nn.Parameter(torch.randn(heads, width, hidden) / math.sqrt(width))
        self.candidate = nn.Parameter(torch.randn(heads, width, hidden) / math.sqrt(width))
        self.whole = nn.Parameter(torch.randn(heads, width, hidden) / math.sqrt(width))
        self.known = nn.Parameter(torch.randn(heads, FEATURES, hidden) / math.sqrt(FEATURES))
        self.number = nn.Parameter(torch.randn(heads, CANDIDATES, hidden) * 0.3)
        self.bias = nn.Parameter(torch.zeros(heads, hidden))
        self.out = nn.Parameter(torch.randn(heads, hidden) * 0.05)

    def encode(self, nodes: Tensor, kinds: Tensor, relations: Tensor) -> Tensor:
        """The encoded nodes, [graphs, nodes, width]; nodes of kind −1 are padding."""
        present = kinds >= 0
        own = functional.one_hot(kinds.clamp(min=0), 3).to(nodes.dtype)
        found = torch.einsum("gnf,kfw,gnk->gnw", nodes, self.read, own) + own @ self.kind
        # [graphs, nodes, nodes, relations]: the bits of each pair as 0 or 1.
        bits = (relations[..., None] >> torch.arange(len(RELATIONS), device=relations.device)) & 1
        table = bits.to(nodes.dtype)
        for layer in self.layers:
            found = layer(found, table, present)
        normed: Tensor = self.norm(found) * present[..., None]
        return normed

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """Log-probabilities and entropies [rows, decisions]: few candidates first, then the next units."""
        # Rows of the same requirements share one encoding: encode each set once, at its first row.
        sets, row_set = inputs["set"].unique(return_inverse=True)
        first = torch.zeros(len(sets), dtype=torch.long, device=sets.device)
        first.scatter_(0, row_set, torch.arange(len(row_set), device=sets.device))
        graph = self.encode(inputs["nodes"][first], inputs["kinds"][first], inputs["relations"][first])
        units = inputs["members"][first] @ graph
        whole = graph[torch.arange(len(sets)), inputs["whole"][first]]
        # Row 0 of the table is "nothing" (no unit placed yet), then come nodes, then units.
        table = torch.cat([torch.zeros_like(whole)[:, None], graph, units], 1)
        small = self._few(inputs, table, whole, row_set)
        turns = self._turns(inputs, table, units, whole, row_set)
        logp, entropy = zip(small, turns, strict=True)
        return Evaluation(torch.cat(logp, 1), torch.cat(entropy, 1))

    def _few(self, inputs: Tensors, table: Tensor, whole: Tensor, row_set: Tensor) -> tuple[Tensor, Tensor]:
        # Logits head by head, computed only for legal candidates: about a third of the padded table.
        legal, heads = inputs["legal"], inputs["heads"]
        logits = torch.full(legal.shape, -1e9, dtype=table.dtype, device=legal.device)
        rows, slots, numbers = legal.nonzero(as_tuple=True)
        of_head = heads[rows, slots]
        for head in of_head.unique().tolist():
            mine = (of_head == head).nonzero()[:, 0]
            row, slot, number = rows[mine], slots[mine], numbers[mine]
            # The term of the subject and of the whole process, shared by all candidates of a decision.
            view = table @ self.subject[head] + (whole @ self.whole[head] + self.bias[head])[:, None]
            hidden = view[row_set[row], inputs["subjects"][row, slot]] + self.number[head][number]
            hidden = hidden + inputs["known"][row, slot, number] @ self.known[head]
            if head == Head.ALLOCATION:
                pool = inputs["candidates"][row, slot, number]
                hidden = hidden + (table @ self.candidate[head])[row_set[row], pool] * (pool > 0)[:, None]
            logits = logits.index_put((row, slot, number), hidden.relu() @ self.out[head])
        return _chosen(logits, legal, inputs["choices"])

    def _turns(
        self, inputs: Tensors, table: Tensor, units: Tensor, whole: Tensor, row_set: Tensor
    ) -> tuple[Tensor, Tensor]:
        legal = inputs["next_legal"]
        row, turn, unit = legal.nonzero(as_tuple=True)
        view = table @ self.subject[Head.NEXT] + (whole @ self.whole[Head.NEXT] + self.bias[Head.NEXT])[:, None]
        hidden = view[row_set[row], inputs["last"][row, turn]] + (units @ self.candidate[Head.NEXT])[row_set[row], unit]
        hidden = hidden + inputs["next_known"][row, turn, unit] @ self.known[Head.NEXT]
        logits = torch.full(legal.shape, -1e9, dtype=table.dtype, device=legal.device)
        logits = logits.index_put((row, turn, unit), hidden.relu() @ self.out[Head.NEXT])
        return _chosen(logits, legal, inputs["next_choices"])

    def actor_parameters(self) -> Sequence[nn.Parameter]:
        return list(self.parameters())

    def critic_parameters(self) -> Sequence[nn.Parameter]:
        return []


def _chosen(logits: Tensor, legal: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    # Log-probability of the choice and entropy where there was a choice, 0 elsewhere.
    free = legal.any(-1)
    logits = logits.masked_fill(~legal, -1e9)
    logp = torch.log_softmax(logits, -1)
    entropy = -(logp.exp() * logp.masked_fill(~legal, 0.0)).sum(-1)
    # Rows without a legal candidate are padding or forced decisions: probability 1, no entropy.
    taken = logp.gather(-1, choices.clamp(min=0)[..., None])[..., 0]
    return torch.where(free, taken, 0.0), torch.where(free, entropy, 0.0)


def save_weights(state: Mapping[str, Any], path: Path, schema: str, facts: Mapping[str, str] | None = None) -> None:
    """Write weights with the hash of their features and other facts."""
    from safetensors.torch import save

    tensors = {name: value.contiguous() for name, value in state.items()}
    write_output(path, save(tensors, {**(facts or {}), "schema": schema}))


def load_weights(path: Path, schema: str, script: str) -> dict[str, Any]:
    """Read weights; those trained on other features are refused, with the script that trains new ones."""
    from safetensors.torch import load_file

    known = read_facts(path).get("schema", "none")
    if known != schema:
        raise ConfigError(
            f"{path} was trained on other features (schema {known}; this version has {schema})",
            hint=f"Train again with {script}, or use the version of Groupwise that wrote the file.",
        )
    found: dict[str, Any] = load_file(path)
    return found


def read_facts(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, safe_open

    try:
        open_regular(path).close()
        with safe_open(path, "pt") as opened:
            return dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} is not a policy: {error}") from error


def save_policy(policy: GraphPolicy, path: str | Path, facts: Mapping[str, str] | None = None) -> None:
    save_weights(policy.state_dict(), Path(path), SCHEMA_HASH, facts)


def load_policy(path: str | Path = PRETRAINED) -> GraphPolicy:
    """The policy in a file, or the one that ships with the package."""
    policy = GraphPolicy()
    weights = load_weights(_place(path), SCHEMA_HASH, "benchmarks/train_designer.py")
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        said = str(error).splitlines()[-1].strip()
        raise ConfigError(f"{path} is not a policy of the designer: {said:.300}") from error
    return policy.eval()


def facts_of(path: str | Path = PRETRAINED) -> dict[str, str]:
    return read_facts(_place(path))


def _place(path: str | Path) -> Path:
    return Path(__file__).with_name("pretrained.safetensors") if str(path) == PRETRAINED else Path(path)


def first_policy(cfg: TrainingConfig) -> GraphPolicy:
    """The policy before the first step: the weights that `task.options.start` names, or random ones from the seed."""
    torch.manual_seed(cfg.run.seed)
    start = str(cfg.task.options.get("start", ""))
    return load_policy(start) if start else GraphPolicy()
