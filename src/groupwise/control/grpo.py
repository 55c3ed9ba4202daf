"""The control product by GRPO: an environment, a small network and groups of episodes, ready for the training loop.

seeds → groups of episodes (`Episodes`) → one row per step (`rows_of_steps`) → the common loss and learner
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.config.rules import OUTCOME_STRATEGIES, needs_critic
from groupwise.control.checks import check_groups as check
from groupwise.control.checks import insist_on_network
from groupwise.control.environments import make_environment
from groupwise.control.episode_workers import EpisodeWorker, collect_on_workers
from groupwise.control.gif import write_gif
from groupwise.control.multitask import MultiTask, TaskCurriculum
from groupwise.control.normaliser import Normaliser, ScaledReward
from groupwise.control.policy import MLPPolicy, Network
from groupwise.control.soft_modules import soft_modules
from groupwise.control.spaces import Interface, interface_of
from groupwise.core import loss_rule
from groupwise.errors import ContractError
from groupwise.rewards.function import EnvironmentReward
from groupwise.rollout.backends import RolloutWorkers, make_workers
from groupwise.rollout.checker import check_environment
from groupwise.rollout.contract import action_space_of, name_of
from groupwise.rollout.episodes import as_groups, collect_episodes, evaluate_greedy
from groupwise.training.batch_source import BatchRows, GroupSource, NumberedTasks, TaskStream
from groupwise.training.estimators import Attempts
from groupwise.training.loop import Evaluate
from groupwise.training.ranks.communication import ALONE
from groupwise.training.session import Parts
from groupwise.types import Array, Box, Group, Policy, Reward, Source, Task, Tensors, Trajectory, VectorEnvironment

# Training starts lie above every seed that `run.eval_seed` can name, so no start is both trained and evaluated on.
BEYOND_EVALUATION = 2**32
# Settings of common sections that groups of episodes do not use.
IDLE_SETTINGS = ("model_name", "gradient_checkpointing", "max_conversation_turns", "num_envs", "num_steps")


def make_policy(cfg: TrainingConfig, interface: Interface, network: Network | None = None) -> MLPPolicy:
    """The network that the settings describe, or the user's own, sized for an environment with this interface."""
    actions = interface.action_space
    return MLPPolicy(
        interface.observation_size,
        actions,
        hidden_sizes=cfg.policy.hidden_sizes,
        critic=needs_critic(cfg.advantage.estimator),
        seed=cfg.run.seed,
        network=network or network_of(cfg, interface),
        normalise=chosen(cfg.policy.normalize_observations, isinstance(actions, Box) and not sees_images(interface)),
        interface=interface,
    )


def network_of(cfg: TrainingConfig, interface: Interface) -> Network | None:
    """The network that `policy.architecture` asks for; None for the usual layers."""
    policy = cfg.policy
    if policy.architecture == "layers":
        return None
    insist_on_network(cfg, interface)
    return soft_modules(interface.tasks, modules=policy.module_count, width=policy.module_width, seed=cfg.run.seed)


def build(cfg: TrainingConfig, reward: Reward | None = None, network: Network | None = None) -> Parts:
    """Everything a control run needs, made from its settings.

    `reward` replaces the environment's own; `network(inputs, outputs)` makes the networks instead of tanh layers.
    """
    check(cfg)
    environment = make_environment(cfg.task)
    policy = make_policy(cfg, interface_of(environment), network)
    normaliser = Normaliser(policy, environment.observation_size)
    reward = reward or EnvironmentReward()
    if chosen(cfg.advantage.normalize_returns, isinstance(policy.action_space, Box)):
        reward = ScaledReward(reward, normaliser, cfg.advantage.gamma)
    tasks = make_tasks(environment, cfg.task.environment, cfg.run.seed)
    watch = tasks.see if isinstance(tasks, TaskCurriculum) else None
    workers = make_workers(cfg.rollout, EpisodeWorker, (cfg.to_dict(),))
    # The reward sees whole groups; everything after it is common to all products.
    source = GroupSource(
        cfg,
        tasks=tasks,
        rollout=Episodes(
            environment,
            policy,
            cfg.rollout.num_generations,
            cfg.run.seed,
            normaliser,
            watch,
            workers,
            any_start=bool(cfg.task.options.get("different_starts", False)),
        ),
        workers=workers,
        reward=reward,
        collate=lambda attempts: rows_of_steps(attempts, cfg.loss.loss_type),
        values=critic_values(policy) if needs_critic(cfg.advantage.estimator) else None,
        reference=frozen_reference(policy) if cfg.policy.use_reference_model else None,
    )
    return make_parts(cfg, policy, source, notes(cfg))


def make_parts(cfg: TrainingConfig, policy: MLPPolicy, source: Source, notes: tuple[str, ...]) -> Parts:
    """A policy and its source, with evaluations, films and checks in environments of their own."""
    return Parts(
        policy,
        source,
        greedy_evaluation(cfg, make_environment(cfg.task)),
        film=lambda path, seed: film(policy, make_environment(cfg.task), path, seed),
        inspect=lambda: check_environment(make_environment(cfg.task)),
        notes=notes,
    )


def sees_images(interface: Interface) -> bool:
    return any(part.is_image for part in interface.parts)


def chosen(setting: bool | None, usual: bool) -> bool:
    return usual if setting is None else setting


def notes(cfg: TrainingConfig) -> tuple[str, ...]:
    """Settings that were changed but have no effect here, and groups that cannot teach."""
    idle = (*IDLE_SETTINGS, *idle_sizes(cfg))
    found = [f"{name} has no effect on a control run" for name in changed(cfg, idle)]
    if cfg.rollout.num_generations == 1 and not needs_critic(cfg.advantage.estimator):
        nothing = "a group of one has nothing to be compared with and learns nothing; 8 is usual"
        found.append(f"rollout.num_generations = 1: {nothing}")
    return (*found, *group_notes(cfg))


def idle_sizes(cfg: TrainingConfig) -> tuple[str, ...]:
    """The sizes of the network that `policy.architecture` does not ask for."""
    return ("module_count", "module_width") if cfg.policy.architecture == "layers" else ("hidden_sizes",)


def changed(cfg: TrainingConfig, names: Sequence[str]) -> list[str]:
    """The names of those settings that differ from the product's defaults."""
    given, usual = cfg.flat(), TrainingConfig(product=cfg.task.product).flat()
    return [name for name in names if given[name] != usual[name]]


def group_notes(cfg: TrainingConfig) -> tuple[str, ...]:
    """What the user should know about the chosen groups."""
    grouping, advantage = cfg.grouping, cfg.advantage
    found = []
    if advantage.estimator == "group_gae" and advantage.advantage_scale != "task_rms":
        scale = f"advantage.advantage_scale = {advantage.advantage_scale!r}"
        found.append(f"{scale} does not scale by task; group_gae is meant for 'task_rms'")
    if grouping.scale_group is not None and advantage.advantage_scale != "task_rms":
        found.append(
            f"grouping.scale_group = {grouping.scale_group!r} has no effect: advantage.advantage_scale is "
            f"{advantage.advantage_scale!r}, not 'task_rms'"
        )
    if grouping.baseline_group in OUTCOME_STRATEGIES:
        found.append(
            f"grouping.baseline_group = {grouping.baseline_group!r} groups attempts by how they ended, which rewards "
            "the best of the worst: for ablations only"
        )
    return tuple(found)


def make_tasks(environment: VectorEnvironment, name: str, seed: int) -> TaskStream:
    """Ever new starts of one environment; in a suite, its tasks in turn, or in the order a curriculum opens them."""

    def make(number: int, kind: int = 0) -> Task:
        return start_of(environment, name, fresh_start(seed, number), kind)

    if isinstance(environment, MultiTask) and environment.name == "curriculum":
        return TaskCurriculum(environment, make, seed)
    return NumberedTasks(lambda number: make(number, number))


def start_of(environment: VectorEnvironment, name: str, start: int, kind: int) -> Task:
    """The task that begins at `start`; in a suite, that of its task number `kind`, counted around."""
    if not isinstance(environment, MultiTask):
        return Task(f"{name}/{start}", name, start)
    kind = environment.order[kind % len(environment.order)]
    return Task(f"{environment.kinds[kind]}/{start}", name, environment.seed_of(kind, start))


def fresh_start(seed: int, number: int) -> int:
    return BEYOND_EVALUATION + int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


class Episodes:
    """Complete episodes by the current policy; every group starts from one reset state."""

    def __init__(
        self,
        environment: VectorEnvironment,
        policy: MLPPolicy,
        group_size: int,
        seed: int,
        normaliser: Normaliser,
        watch: Callable[[Sequence[Group]], None] | None = None,
        workers: RolloutWorkers | None = None,
        any_start: bool = False,
    ) -> None:
        self.any_start = any_start
        self.environment, self.policy, self.group_size = environment, policy, group_size
        self.normaliser, self.watch, self.workers = normaliser, watch, workers
        # Actions are sampled from one generator, whose state is saved with the run.
        self.rng = np.random.default_rng([seed, 1])
        self.rounds = 0
        self.ranks = ALONE

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        self.normaliser.freeze()
        groups = named_by_environment(self._play(tasks), self.environment)
        if not self.any_start:
            insist_on_equal_starts(groups, self.environment)
        if self.policy.normalise:
            self.normaliser.see(groups)
        if self.watch is not None:
            self.watch(groups)
        return groups

    def _play(self, tasks: Sequence[Task]) -> list[Group]:
        """All groups; each rank plays some of them, with the numbers that they would have drawn in one process."""
        ranks, prefix = self.ranks, str(self.rounds)
        if self.workers is not None:
            return collect_on_workers(
                self.workers, self.environment, self.policy, tasks, self.group_size, self.rng, prefix
            )
        bounds = [len(tasks) * rank // ranks.size * self.group_size for rank in range(ranks.size + 1)]
        played = ranks.gather(
            lambda: collect_episodes(
                self.environment, self.policy, tasks, self.group_size, self.rng, version=self.policy.version,
                prefix=prefix, copies=slice(*bounds[ranks.rank : ranks.rank + 2]),
            )
        )  # fmt: skip
        # Whoever plays shorter episodes draws on until all generators stand where the longest one left its own.
        size = (len(tasks) * self.group_size, *action_space_of(self.environment).shape)
        for _ in range(max(drawn for _, drawn in played) - played[ranks.rank][1]):
            self.rng.random(size)
        episodes = [episode for share, _ in played for episode in share]
        return as_groups(episodes, tasks, self.group_size, prefix)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state, "rounds": self.rounds, "normaliser": self.normaliser.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]
        if "normaliser" in state:
            self.normaliser.load_state_dict(state["normaliser"])


def insist_on_equal_starts(groups: Sequence[Group], environment: VectorEnvironment) -> None:
    """Stop where the members of a group did not start in the same state: they cannot be compared."""
    for group in groups:
        starts = [member.obs[0] for member in group.members if len(member)]
        for start in starts[1:]:
            if not np.array_equal(starts[0], start):
                place = int(np.argmax(starts[0] != start))
                one, other = starts[0][place], start[place]
                message = (
                    f"{name_of(environment)}: copies that were reset with the same seed start differently (number "
                    f"{place} of the observation is {one:.4g} and {other:.4g}), so a group cannot compare them"
                )
                hint = (
                    "Call super().reset(seed=seed) and draw the start from self.np_random. If it is meant: "
                    "task.options.different_starts = true, or PPO, which needs no groups."
                )
                raise ContractError(message, hint=hint, field="task.environment")


def named_by_environment(groups: list[Group], environment: VectorEnvironment) -> list[Group]:
    """The groups, whose tasks have the names that a multi-task environment gave in the info of their reset."""
    names = getattr(environment, "task_names", [])
    if not any(names):
        return groups
    size = len(names) // len(groups)
    return [renamed(group, f"{names[number * size]}/{group.task.seed}") for number, group in enumerate(groups)]


def renamed(group: Group, id: str) -> Group:
    members = tuple(replace(member, task_id=id) for member in group.members)
    return replace(group, task=replace(group.task, id=id), members=members)


def rows_of_steps(attempts: Attempts, loss_type: str) -> BatchRows:
    """Every step its own row [N, 1]: a control policy needs no history, so steps may be shuffled.

    Losses that first average within each attempt get that average as weights: 1 / length of the attempt.
    """
    mask = attempts.mask

    def joined(name: str, dtype: torch.dtype | None = None, *shape: int) -> Tensor:
        arrays = [getattr(member, name) for member in attempts.members] or [np.zeros((0, *shape), np.int64)]
        return torch.from_numpy(np.concatenate(arrays)).to(dtype)[:, None]

    def pick(table: Tensor) -> Tensor:
        return table[mask][:, None]

    # Rows no longer know their attempt, so its length has to travel as a weight.
    averaged = loss_rule(loss_type).aggregation == "mean_of_means"
    behavior_logp = joined("behavior_logp", torch.float32)
    inputs = {"obs": joined("obs", torch.float32, 1), "actions": joined("actions")}
    if choices := {member.action_mask.shape[1] for member in attempts.members if member.action_mask is not None}:
        inputs["action_mask"] = _joined_masks(attempts.members, max(choices))
    return BatchRows(
        inputs=inputs,
        mask=torch.ones(behavior_logp.shape, dtype=torch.bool),
        behavior_logp=behavior_logp,
        pick=pick,
        weights=pick(mask / mask.sum(1, keepdim=True).clamp(min=1)).float() if averaged else None,
    )


def _joined_masks(members: Sequence[Trajectory], choices: int) -> Tensor:
    """The action masks of all steps [N, 1, choices]; where an attempt has none, everything was allowed."""
    masks = [np.ones((len(m), choices), np.bool_) if m.action_mask is None else m.action_mask for m in members]
    return torch.from_numpy(np.concatenate(masks))[:, None]


def critic_values(policy: MLPPolicy) -> Callable[[Sequence[Trajectory]], list[Array]]:
    """For every attempt, the critic's value of each state and of the one after the last: [T + 1]."""

    def values(members: Sequence[Trajectory]) -> list[Array]:
        seen = []
        for member in members:
            # Without a recorded last state the attempt ended in a terminal one, whose value is never used.
            after = member.obs[-1:] * 0 if member.last_obs is None else member.last_obs[None]
            states = torch.from_numpy(np.concatenate([member.obs, after])).float()
            with torch.no_grad():
                seen.append(policy.value(states).numpy())
        return seen

    return values


def frozen_reference(policy: MLPPolicy) -> Callable[[Tensors], Tensor]:
    """The policy as it is now, for the KL term. It comes from the seed, so a resumed run gets the same one."""
    reference = copy.deepcopy(policy)
    return lambda inputs: reference.evaluate(inputs).logp


def greedy_evaluation(cfg: TrainingConfig, environment: VectorEnvironment) -> Evaluate:
    """Greedy episodes from starts that training never sees. Episodes that failed are counted, not scored."""
    seeds = [cfg.run.eval_seed + n for n in range(cfg.run.eval_episodes)]

    def evaluate(policy: Policy) -> dict[str, float]:
        returns, lengths = evaluate_greedy(environment, cast(MLPPolicy, policy), seeds)
        sound = returns[np.isfinite(returns)]
        return {
            "eval/reward_mean": float(np.mean(sound)) if len(sound) else math.nan,
            "eval/reward_std": float(np.std(sound)) if len(sound) else math.nan,
            "eval/reward_min": float(np.min(sound)) if len(sound) else math.nan,
            "eval/length_mean": float(np.mean(lengths)),
            "eval/attempts": float(len(seeds)),
            "eval/failed_share": 1.0 - len(sound) / len(seeds),
            **(by_kind(environment, seeds, returns, lengths) if isinstance(environment, MultiTask) else {}),
        }

    return evaluate


def film(policy: MLPPolicy, environment: VectorEnvironment, path: Path, seed: int) -> str:
    """Write one greedy episode as a GIF and describe it in a line."""
    shown = write_gif(policy, environment, path, seed=seed)
    return f"{shown.path}: seed {seed}, return {shown.total:g} in {shown.length} steps, {shown.frames} frames"


def by_kind(suite: MultiTask, seeds: Sequence[int], returns: Array, lengths: Array) -> dict[str, float]:
    """The same means for each task of a suite."""
    kinds = np.array([suite.kind_at(seed) for seed in seeds])
    found = {}
    for kind in dict.fromkeys(kinds.tolist()):
        sound = (kinds == kind) & np.isfinite(returns)
        found[f"eval/{kind}/reward_mean"] = float(np.mean(returns[sound])) if sound.any() else math.nan
        found[f"eval/{kind}/length_mean"] = float(np.mean(lengths[kinds == kind]))
    return found
