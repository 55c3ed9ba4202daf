"""The vocabulary: frozen values that flow one way, and the contracts between the parts.

    Task → Group of Trajectory → Score | Failed → Batch → Stats → Event

NumPy only. Torch appears in annotations, never at run time, so that anything may import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

Array: TypeAlias = NDArray[Any]
Metrics: TypeAlias = Mapping[str, float]
Tensors: TypeAlias = "Mapping[str, Tensor]"
Message: TypeAlias = Mapping[str, Any]
"""One turn of a conversation, as chat APIs write it: `role`, `content`, and `tool_calls` or `tool_call_id`."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is attempted: a prompt, a requirement, or an environment with its reset seed.

    An id reads `kind/number`. Tasks of one kind earn on one scale of reward: `CartPole-v1/17` is a CartPole.
    """

    id: str
    payload: Any = None
    seed: int = 0

    @property
    def kind(self) -> str:
        """What its id says before the last slash; an id without one is a kind of its own."""
        return self.id.rpartition("/")[0] or self.id


class End(StrEnum):
    """How an attempt ended. Every ending has a name."""

    # The values are written to event logs and group files: they must not change.
    FINISHED = "finished"
    TRUNCATED = "truncated"
    TURN_LIMIT = "turn_limit"
    TOOL_FAILURE = "tool_failure"
    ENV_ERROR = "env_error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, where, and what to do: data about one attempt, not a crash of the run.

    `traceback` is that of user code which raised, from its own first frame on.
    """

    where: str
    code: str
    message: str
    hint: str = ""
    traceback: str = ""


# In place of a version of the policy: a search's distribution drew the token, or it was shown and nobody drew it.
SEARCHED, SHOWN = -1, -2


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt: arrays over one time axis T, no per-step Python objects.

    `mask` is true where the policy itself acted (not the prompt, a tool's answer or padding).
    `behavior_logp` and `versions` are recorded when an action is sampled and never recomputed.
    `terminated` is the environment's own end; an attempt cut by a limit is not terminated, and
    `last_obs` is then what the policy would have seen next. `action_mask` [T, K] tells which actions were
    allowed, where the environment forbids some. Of an attempt in words, `meta` holds `prompt`, `text` and
    `tokens` (each as a reader sees it), `text` also split into `reasoning` (what was thought) and `content`
    (what was said), and of a conversation also `messages`, the whole of it.
    """

    id: str
    task_id: str
    group_id: str
    # Over T unless noted: obs [T, …], actions [T, …], and mask, behavior_logp, versions, rewards [T].
    obs: Array = field(repr=False)
    actions: Array = field(repr=False)
    mask: Array = field(repr=False)
    behavior_logp: Array = field(repr=False)
    versions: Array = field(repr=False)
    rewards: Array = field(repr=False)
    end: End
    # terminated and truncated differ: after a truncation the value of `last_obs` still counts.
    terminated: bool
    last_obs: Array | None = field(default=None, repr=False)
    error: Failure | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    action_mask: Array | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.mask.shape[0])

    @property
    def actions_taken(self) -> int:
        """How many of its steps are the policy's own."""
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True)
class Group:
    """All attempts at one task. It is fixed before acting."""

    id: str
    task: Task
    members: tuple[Trajectory, ...]


# Gradients grow with rewards, and the optimiser squares them in float32, which ends at 3e38.
LARGEST_REWARD = 1e15


@dataclass(frozen=True, slots=True)
class Score:
    """What an attempt earned: a total, the named parts it is made of, and flags for the reader.

    `rewards` [T] says when it was earned, for estimators that look at single steps; None means at the end.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    # Left out of comparisons: equality of arrays has no single truth value.
    rewards: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt without a score. It is excluded and counted, never taken for 0."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group and, in the order of its members, what each earned."""

    group: Group
    scores: tuple[Score | Failed, ...]

    def totals(self) -> NDArray[np.float64]:
        """The totals in order, NaN where an attempt has no score."""
        return np.array([s.total if isinstance(s, Score) else np.nan for s in self.scores], np.float64)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One attempt as it is kept in `groups/<step>.parquet`: one row.

    `text` is what the attempt said, `reasoning` what it thought and `prompt` what it answered, where there are words:
    `meta["content"]`, `meta["reasoning"]` and `meta["prompt"]` of its trajectory. `tokens` are its single tokens in
    words (`meta["tokens"]`), `acted` says which of them are the policy's own, and `token_advantages` and `token_logps`
    what each was worth and how likely it was. `exhibit` makes what else can be shown of it, as JSON.
    """

    group_id: str
    task_id: str
    trajectory_id: str
    # None where the attempt failed: 0 would be a score.
    total: float | None
    parts: Mapping[str, float]
    flags: tuple[str, ...]
    advantage: float
    length: int
    end: str
    failure: str
    version: int
    text: str = ""
    prompt: str = ""
    tokens: tuple[str, ...] = ()
    acted: tuple[bool, ...] = ()
    token_advantages: tuple[float, ...] = ()
    token_logps: tuple[float, ...] = ()
    reasoning: str = ""
    exhibit: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """What is wrong, with its numbers, and what to try, with the setting's name; `traceback` if user code raised."""

    code: str
    message: str
    remedy: str
    traceback: str = ""

    def as_dict(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if name != "traceback" or value}


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of shape [B, T] for the loss; the mask is already aligned with the sampled actions.

    A row is a sequence: one completion, one episode, or (T = 1) one step of a control policy.
    `denominator` is what the summed loss is divided by. It is fixed when the batch is made, so that
    neither skipped groups nor micro-batches can change the size of a step; `total_rows` and `total_tokens`
    count what there was before idle rows were left out (0: nothing was). `keep` narrows the tokens the
    policy's loss acts on (cut-off attempts, say) without touching the denominator.

    `versions` [B, T] is for samplers that compute other log-probabilities than the policy does with the same weights:
    on tokens of the learner's own version (or `SHOWN`) the ratio is taken against the learner's log-probabilities
    before its first change, which the learner may keep in `old_logp`. Without versions, and on all other tokens, it is
    taken against `behavior_logp`.

    `tasks` [B, T] numbers the task that each row is about, where the learner asks for it.
    """

    # Column t of every tensor is about the action at t; the shift of language models is already done.
    inputs: Tensors
    mask: Tensor
    behavior_logp: Tensor
    advantages: Tensor
    # Rows or tokens of the whole batch, whatever was skipped or split since.
    denominator: float
    total_rows: int = 0
    total_tokens: int = 0
    keep: Tensor | None = None
    versions: Tensor | None = None
    old_logp: Tensor | None = None
    weight_group: Tensor | None = None
    weights: Tensor | None = None
    reference_logp: Tensor | None = None
    returns: Tensor | None = None
    values: Tensor | None = None
    tasks: Tensor | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    timing: Metrics = field(default_factory=dict)
    samples: int = 0
    attempts: int = 0
    records: tuple[GroupRecord, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def rows(self) -> int:
        return int(self.mask.shape[0])

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch whose every tensor went through `change`; the denominator stays the whole batch's."""
        tensors = {name: getattr(self, name) for name in TENSOR_FIELDS}
        changed: dict[str, Any] = {n: change(value) for n, value in tensors.items() if value is not None}
        inputs = {name: change(value) for name, value in self.inputs.items()}
        return replace(self, inputs=inputs, **changed)

    def select(self, rows: Tensor | slice) -> Batch:
        """The given rows."""
        return self.map(lambda tensor: tensor[rows])


TENSOR_FIELDS = (
    "mask", "behavior_logp", "advantages", "keep", "versions", "old_logp", "weight_group", "weights",
    "reference_logp", "returns", "values", "tasks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A policy's view of given actions: log-probability and entropy [B, T], values if it has a critic."""

    logp: Tensor
    entropy: Tensor
    value: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One attempt at a held-out task, as a reader wants to see it; `correct` is None where its score does not say."""

    prompt: str
    text: str
    expected: str
    total: float
    correct: bool | None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of `events.jsonl`. `seq` has no gaps."""

    run: str
    seq: int
    attempt: int
    time: float
    step: int
    type: str
    data: Mapping[str, Any]
    v: int = 1


EVENT_TYPES = ("start", "step", "eval", "checkpoint", "control", "hint", "error", "end")


class Policy(Protocol):
    """Whatever acts. `version` grows by one with every update, and is recorded with every action."""

    version: int

    def evaluate(self, inputs: Tensors) -> Evaluation: ...
    def actor_parameters(self) -> Sequence[Parameter]: ...
    def critic_parameters(self) -> Sequence[Parameter]: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> Any: ...


class Reward(Protocol):
    """Scores a whole group at once, in order, so that a reward may compare its members."""

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]: ...


@dataclass(frozen=True, slots=True)
class Discrete:
    """One of `count` actions, as a whole number from 0."""

    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Several choices at once, the k-th one of `counts[k]`."""

    counts: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.counts),)


@dataclass(frozen=True, slots=True)
class Box:
    """Several numbers at once. Limits may be infinite; the environment takes what lies beyond for the limit."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)


ActionSpace: TypeAlias = Discrete | MultiDiscrete | Box


class VectorEnvironment(Protocol):
    """Many copies of one environment, stepped together in arrays.

    `reset(seeds)` starts `len(seeds)` copies; equal seeds start in equal states.
    `step(actions)` returns `(obs [N, ...], rewards [N], terminated [N], truncated [N])`. A copy that has
    ended stays where it is and returns reward 0 until the next reset. The same seeds and actions give the
    same run, and every call returns arrays of its own.

    `action_count` is how many numbers a policy gives per step: one score per action. Two things are optional. An
    environment with other actions than one of `action_count` choices says so in `action_space`: a `MultiDiscrete`
    (`action_count` is then the sum of its counts) or a `Box` (its length). One that forbids some actions has a method
    `action_mask()` that returns [N, action_count], true where an action is allowed after the last reset or step, or
    None where all are.
    """

    observation_size: int
    action_count: int
    max_steps: int

    def reset(self, seeds: Sequence[int]) -> Array: ...
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]: ...


class RestartingEnvironment(VectorEnvironment, Protocol):
    """A `VectorEnvironment` whose copies can start anew one by one.

    `restart(copies, seeds)` starts the copies of the given numbers, each from its seed, as `reset` would, and returns
    the observations of all; the others do not notice. `rollout.copies.Separate` makes one of any environment.
    """

    def restart(self, copies: Array, seeds: Sequence[int]) -> Array: ...


class Source(Protocol):
    """Where batches come from: rollout → score → advantages → tensors, in step or ahead of the learner.

    `publish` hands over the policy as it is now; who samples elsewhere must copy it. `state_dict` holds all
    that is needed to deliver the same batches again from here: groups in flight are made anew. A source may have a
    method `take_hints` that returns hints which did not come with a batch, each once.
    """

    def next(self) -> Batch: ...
    def publish(self, policy: Policy) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...
