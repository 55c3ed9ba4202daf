"""Complete episodes from a vector environment: every task is attempted by a group that starts in the same state.

All copies step together until the last one has ended.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError
from groupwise.rollout.contract import action_mask_of, action_space_of, check_choice, check_sizes, name_of
from groupwise.rollout.recording import Tape
from groupwise.types import Array, Failure, Group, Task, Trajectory, VectorEnvironment
from groupwise.user_code import traceback_of


class Actor(Protocol):
    """Samples actions [N, ...] and their log-probabilities [N] for `obs` [N, D], from uniform random numbers [N, ...].

    If the environment forbids actions, the `mask` of allowed ones is passed as a third argument.
    """

    def act(self, obs: Array, uniforms: Array) -> tuple[Array, Array]: ...


class Greedy(Protocol):
    """Chooses the best action for each row of `obs` [N, D]; the `mask` is passed as for an `Actor`."""

    def greedy(self, obs: Array) -> Array: ...


def collect_groups(
    env: VectorEnvironment,
    actor: Actor,
    tasks: Sequence[Task],
    group_size: int,
    rng: np.random.Generator,
    *,
    version: int = 0,
    prefix: str = "0",
) -> list[Group]:
    """One group per task: `group_size` episodes from the state that the task's seed resets to.

    `rng` is the only source of chance outside the environment, with one draw per copy and step: equal generators give
    equal groups. Group I is named `prefix/gI`, its member J `prefix/gI/mJ`.

    If the environment raises, every copy that is still running ends as `End.ENV_ERROR`; if one copy's observation or
    reward is not finite, only that copy does. Both keep the steps before. A broken contract raises `ContractError`.
    """
    copies = slice(0, len(tasks) * group_size)
    episodes, _ = collect_episodes(env, actor, tasks, group_size, rng, version=version, prefix=prefix, copies=copies)
    return as_groups(episodes, tasks, group_size, prefix)


def collect_episodes(
    env: VectorEnvironment,
    actor: Actor,
    tasks: Sequence[Task],
    group_size: int,
    rng: np.random.Generator,
    *,
    version: int,
    prefix: str,
    copies: slice,
) -> tuple[list[Trajectory], int]:
    """The episodes of some of the copies that `collect_groups` plays, bit for bit as they are among all of them.

    Also returns how often `rng` drew numbers for all copies.
    """
    check_sizes(env)
    if group_size < 1:
        raise ContractError(f"group_size is {group_size}, but must be at least 1", hint="Start with 8.")
    # Members of a group are neighbours and share the seed: copy = task · group_size + member.
    names = [
        (f"{prefix}/g{number}/m{member}", task.id, f"{prefix}/g{number}")
        for number, task in enumerate(tasks)
        for member in range(group_size)
    ]
    seeds = [task.seed for task in tasks for _ in range(group_size)]
    space, total, drawn = action_space_of(env), len(seeds), 0
    whole = len(seeds[copies]) == total
    # The last bits of a matrix product depend on its shape and on a row's place in it. So the actor always sees as many
    # rows as there are copies, with those that are played elsewhere left empty.
    seen = np.zeros((0 if whole else total, env.observation_size), np.float32)
    allowed = np.ones((len(seen), env.action_count), np.bool_)

    def sample(obs: Array, *mask: Array) -> tuple[Array, Array]:
        nonlocal drawn
        drawn += 1
        uniforms = rng.random((total, *space.shape))
        if whole:
            return check_choice(actor, actor.act(obs, uniforms, *mask), total, space)
        seen[copies] = obs
        for given in mask:
            allowed[copies] = given
        choice = actor.act(seen, uniforms, *(allowed for _ in mask))
        actions, logp = check_choice(actor, choice, total, space)
        return actions[copies], logp[copies]

    tape = _play(env, sample, seeds[copies])
    tape.check_logp(actor)
    return tape.cut(names[copies], version), drawn


def as_groups(episodes: Sequence[Trajectory], tasks: Sequence[Task], group_size: int, prefix: str) -> list[Group]:
    """The groups of the episodes of all copies, in their order."""
    members = iter(episodes)
    return [
        Group(f"{prefix}/g{number}", task, tuple(next(members) for _ in range(group_size)))
        for number, task in enumerate(tasks)
    ]


def evaluate_greedy(
    env: VectorEnvironment, policy: Greedy, seeds: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of one greedy episode per seed; a return is NaN if the environment failed."""
    check_sizes(env)
    space = action_space_of(env)

    def best(obs: Array, *mask: Array) -> tuple[Array, Array]:
        return check_choice(policy, (policy.greedy(obs, *mask), np.zeros(len(obs))), len(obs), space)

    tape = _play(env, best, seeds)
    return tape.returns(), tape.lengths


def _play(env: VectorEnvironment, choose: Callable[..., tuple[Array, Array]], seeds: Sequence[int]) -> Tape:
    tape = Tape(env, len(seeds))
    if tape.running:
        tape.start(_ask(env.reset, seeds))
    while tape.running:
        obs = tape.obs[tape.steps]
        mask = action_mask_of(env, len(seeds))
        actions, logp = choose(obs) if mask is None else choose(obs, mask)
        tape.record(actions, logp, _ask(env.step, actions), mask)
    return tape


def _ask(method: Callable[[Any], Any], argument: object) -> Any:
    """What the environment returns, or a failure if it raises: the one place where it may fail."""
    try:
        return method(argument)
    except ContractError:
        raise
    except Exception as error:
        name = f"{name_of(getattr(method, '__self__', method))}.{getattr(method, '__name__', 'step')}"
        hint = "Check it with `groupwise.rollout.checker.check_environment(env)`."
        return Failure(
            "environment", "raised", f"{name} raised {type(error).__name__}: {error}", hint, traceback_of(error)
        )
