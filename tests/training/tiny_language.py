"""A language product of the smallest size: a real causal language model, made from a config, for the one loop.

A prompt is a marker and a few fillers; the marker decides which token is wanted, and an answer earns the share
of its tokens that are the wanted one. Held-out prompts combine fillers in ways that training never shows.

A trajectory reads one token and writes the next: `obs` is ids[:-1], `actions` is ids[1:], so that everything
recorded about an action stands where the model was when it chose it, and T is one less than there are tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from groupwise.config import TrainingConfig
from groupwise.control.grpo import frozen_reference
from groupwise.core import token_entropy, token_logp
from groupwise.language.policy import ValueHead
from groupwise.rewards.scoring import per_attempt
from groupwise.training.batch_source import BatchRows, GroupSource
from groupwise.training.estimators import Attempts, padded
from groupwise.training.session import Parts
from groupwise.types import Array, End, Evaluation, Group, Reward, Task, Tensors, Trajectory

VOCABULARY, WIDTH, ANSWER = 32, 32, 5
PAD, EOS = 0, 1
MARKERS, FILLERS = range(2, 6), range(10, 32)


def qwen2(seed: int = 0) -> nn.Module:
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
        pad_token_id=PAD, bos_token_id=None, eos_token_id=EOS,
    )  # fmt: skip
    return _seeded(Qwen2ForCausalLM, config, seed)


def gpt2(seed: int = 0) -> nn.Module:
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=2, n_head=2,
        bos_token_id=None, eos_token_id=EOS, tie_word_embeddings=False,
    )  # fmt: skip
    return _seeded(GPT2LMHeadModel, config, seed)


def _seeded(kind: Callable[[Any], nn.Module], config: Any, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


class LanguagePolicy(nn.Module):
    """A causal language model, with or without a value head on its hidden states, as a `Policy`.

    Dropout stays off, also while learning: with it on, no ratio to the recorded log-probabilities would be 1.
    """

    def __init__(self, model: nn.Module, *, critic: bool = False) -> None:
        super().__init__()
        self.version = 0
        self.model = model
        self.value_head = ValueHead(WIDTH, dropout=0.0) if critic else None
        self.eval()

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """What the model thinks of input_ids[:, 1:], for ids [B, T + 1]: everything [B, T]."""
        logits, hidden = self(inputs["input_ids"], inputs["attention_mask"])
        # The head learns on the model's states as they are: its gradient stops here.
        value = None if self.value_head is None else self.value_head(hidden.detach())[:, :-1]
        return Evaluation(token_logp(logits, inputs["input_ids"]), token_entropy(logits), value)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.model(input_ids=ids, attention_mask=attention_mask, output_hidden_states=True)
        return seen.logits, seen.hidden_states[-1]

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return [] if self.value_head is None else list(self.value_head.parameters())


def all_prompts(held_out: bool = False) -> list[tuple[int, ...]]:
    """Every marker with every pair or triple of neighbouring fillers; the held-out ones are a quarter."""
    fillers = [tuple(FILLERS[n : n + k]) for k in (2, 3) for n in range(len(FILLERS) - k + 1)]
    chosen = [f for f in fillers if (f[0] % 4 == 0) == held_out]
    return [(marker, *f) for marker, f in itertools.product(MARKERS, chosen)]


def wanted(prompt: Sequence[int]) -> int:
    return prompt[0] + len(MARKERS)


class Prompts:
    """An endless stream of training prompts in one shuffled order; where it stands is all its state."""

    def __init__(self, seed: int) -> None:
        prompts = all_prompts()
        self.order = [prompts[n] for n in np.random.default_rng([seed, 0]).permutation(len(prompts))]
        self.cursor = 0

    def take(self, count: int) -> list[Task]:
        chosen = [self.order[n % len(self.order)] for n in range(self.cursor, self.cursor + count)]
        self.cursor += count
        return [Task("-".join(map(str, prompt)), prompt) for prompt in chosen]

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]


@torch.no_grad()
def complete(
    policy: LanguagePolicy, prompts: Sequence[Sequence[int]], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample an answer to each prompt: ids [N, L] padded behind, log-probabilities [N, L] and lengths [N]."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    rows, writing = torch.arange(len(prompts)), torch.ones(len(prompts), dtype=torch.bool)
    ids = padded([np.array([*prompt, *[PAD] * ANSWER]) for prompt in prompts], np.int64)
    logp = torch.zeros(ids.shape)
    for _ in range(ANSWER):
        attention = torch.arange(ids.shape[1]) < lengths[:, None]
        now = policy(ids, attention)[0][rows, lengths - 1].log_softmax(-1)
        token = torch.multinomial(now.exp(), 1, generator=generator).squeeze(1)
        at = rows[writing], lengths[writing]
        ids[at], logp[at] = token[writing], now[rows, token][writing]
        lengths = lengths + writing
        writing = writing & (token != EOS)
    return ids, logp, lengths


class Completions:
    """Groups of answers by the present policy; the generator's state is part of a checkpoint."""

    def __init__(self, policy: LanguagePolicy, group_size: int, seed: int) -> None:
        self.policy = policy
        self.group_size = group_size
        self.generator = torch.Generator().manual_seed(seed)
        self.rounds = 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        prompts = [task.payload for task in tasks for _ in range(self.group_size)]
        answers = zip(*complete(self.policy, prompts, self.generator), strict=True)
        return [
            self._group(f"{self.rounds}/g{number}", task, list(itertools.islice(answers, self.group_size)))
            for number, task in enumerate(tasks)
        ]

    def _group(self, name: str, task: Task, answers: Sequence[tuple[Tensor, ...]]) -> Group:
        cut = [(ids[:length].numpy(), logp[:length].numpy()) for ids, logp, length in answers]
        members = (self._attempt(f"{name}/m{n}", name, task, *answer) for n, answer in enumerate(cut))
        return Group(name, task, tuple(members))

    def _attempt(self, name: str, group: str, task: Task, ids: Array, logp: Array) -> Trajectory:
        steps = len(ids) - 1
        return Trajectory(
            id=name, task_id=task.id, group_id=group,
            obs=ids[:-1], actions=ids[1:], last_obs=ids[-1],
            mask=np.arange(1, len(ids)) >= len(task.payload),
            behavior_logp=logp[1:], versions=np.full(steps, self.policy.version), rewards=np.zeros(steps),
            # The score is for the answer as it stands, also where it was cut: nothing follows to be guessed at.
            end=End.FINISHED if ids[-1] == EOS else End.TRUNCATED, terminated=True,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.rounds = state["rounds"]


def share_of_wanted(task: Task, attempt: Trajectory) -> float:
    """The verifiable reward: which share of the answer's tokens is the wanted one."""
    return float(np.mean(attempt.actions[attempt.mask] == wanted(task.payload)))


def token_table(members: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    """The tokens of every attempt, the first one included, [B, T + 1] padded behind; and where they are."""
    rows = [np.append(member.obs, member.last_obs) for member in members]
    return padded(rows, np.int64), padded([np.ones(len(row)) for row in rows], np.bool_)


def rows_of_answers(attempts: Attempts) -> BatchRows:
    """Every attempt its own row [B, T], padded behind."""
    ids, attention = token_table(attempts.members)
    return BatchRows(
        inputs={"input_ids": ids, "attention_mask": attention},
        mask=attempts.mask,
        behavior_logp=padded([m.behavior_logp for m in attempts.members], np.float32),
        pick=lambda table: table,
    )


def critic_values(policy: LanguagePolicy) -> Callable[[Sequence[Trajectory]], list[Array]]:
    """For every attempt the value of each prefix, the last one included: [T + 1]."""

    @torch.no_grad()
    def values(members: Sequence[Trajectory]) -> list[Array]:
        assert policy.value_head is not None
        ids, attention = token_table(members)
        seen = policy.value_head(policy(ids, attention)[1]).numpy()
        return [row[: len(member) + 1] for row, member in zip(seen, members, strict=True)]

    return values


def held_out_reward(policy: LanguagePolicy, seed: int, rounds: int = 2) -> float:
    """The mean reward of sampled answers to the held-out prompts."""
    prompts = all_prompts(held_out=True) * rounds
    ids, _, lengths = complete(policy, prompts, torch.Generator().manual_seed(seed))
    answers = [row[len(p) : n] for row, n, p in zip(ids, lengths, prompts, strict=True)]
    return float(np.mean([float((a == wanted(p)).float().mean()) for a, p in zip(answers, prompts, strict=True)]))


def build(cfg: TrainingConfig, reward: Reward | None = None) -> Parts:
    """Everything a run needs, made from its settings, in the manner of a product."""
    critic = cfg.advantage.estimator == "gae"
    policy = LanguagePolicy(qwen2(cfg.run.seed), critic=critic)
    source = GroupSource(
        cfg,
        tasks=Prompts(cfg.run.seed),
        rollout=Completions(policy, cfg.rollout.num_generations, cfg.run.seed),
        reward=reward or per_attempt(share_of_wanted),
        collate=rows_of_answers,
        values=critic_values(policy) if critic else None,
        reference=frozen_reference(policy) if cfg.policy.use_reference_model else None,
    )
    return Parts(policy, source, lambda p: {"eval/reward_mean": held_out_reward(p, cfg.run.eval_seed)})
