"""One step of a run, and what of its memory and arithmetic can be counted without measuring anything."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.language.capacity.model_shape import ModelShape

GIB = 2**30
HALF = 2  # bytes of a bfloat16 number


@dataclass(frozen=True, slots=True)
class Workload:
    """One step of a run: `tasks` × `group` answers of `answer` tokens to prompts of `prompt` tokens."""

    shape: ModelShape
    tasks: int = 8
    group: int = 8
    prompt: int = 128
    answer: int = 256
    micro_batch: int = 16
    lora_rank: int = 0
    checkpointing: bool = False
    at_once: int = 0  # answers that are generated at once; 0 is what the language product asks for

    @property
    def rows(self) -> int:
        return self.tasks * self.group

    @property
    def passes(self) -> int:
        """Passes through the layers, each about as long as a forward pass in launches."""
        return 3 + self.checkpointing

    def tokens(self, rows: int) -> int:
        """Tokens to learn from: a prompt is read once for its group."""
        return rows * self.answer + -(-rows // self.group) * self.prompt

    def operations(self, rows: int) -> float:
        """Floating-point operations to learn from that many rows."""
        tokens, shape = self.tokens(rows), self.shape
        # Multiplications and additions; causal attention reads half of the row on average, twice (scores and values).
        attention = 2 * shape.layers * shape.heads * shape.head_dim * (self.prompt + self.answer)
        forward = tokens * (2 * shape.multiplied + attention)
        # The gradient of frozen weights is not computed.
        return forward * ((2 if self.lora_rank else 3) + self.checkpointing)

    @property
    def tokens_at_once(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * (self.prompt + self.answer)

    def micro_batches(self, rows: int) -> int:
        return -(-rows // self.micro_batch)


def known_bytes(work: Workload, gpus: int = 1, sharded: bool = False) -> float:
    """Weights, gradients, the optimiser's moments, the engine's joined matrices, and its cache, on one GPU."""
    shape = work.shape
    trained = shape.adapter_parameters(work.lora_rank) if work.lora_rank else shape.parameters
    # A gradient and two moments for what is trained, all in bfloat16.
    learner = HALF * (shape.parameters + 3 * trained)
    joined = HALF * shape.layers * shape.layer_parameters
    # The engine reads the learner's own weights, but merges an adapter into a copy; shards are gathered into a whole
    # model to sample from.
    engine = HALF * shape.parameters if sharded else joined if work.lora_rank else 0
    rows = -(-work.rows // gpus)
    cache = shape.cache_bytes(min(rows, slots(work, rows)), work.prompt + work.answer, HALF)
    return (learner / gpus if sharded else learner) + engine + cache


def kept_inputs(work: Workload) -> int:
    """Bytes of the layers' inputs, which checkpointing keeps of a micro-batch; nothing without it."""
    return work.tokens_at_once * work.shape.layers * work.shape.width * HALF if work.checkpointing else 0


def kept_layers(work: Workload) -> int:
    """Numbers, up to a factor, that a backward pass keeps of a micro-batch: of every layer, or of one at a time."""
    return work.tokens_at_once * work.shape.inner * (1 if work.checkpointing else work.shape.layers)


def slots(work: Workload, rows: int) -> int:
    """Answers that the engine generates at once."""
    return work.at_once or max(64, work.group, min(rows, 16_384 // work.answer))
