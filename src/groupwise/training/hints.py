"""Plain-words hints when a run does not learn: the symptom in numbers, and which setting to try.

Pure: the engine gets the metrics of each step and evaluation and returns hints. It reads no clock and no file, and its
state is plain values, so a resumed run gives the same hints as an uninterrupted one.

A rule is a function of the evidence that returns a hint while its condition is true. A hint is given once; its rule
may fire again only after the condition was false for `COOLDOWN` steps. Thresholds err on the side of silence: a hint
on a healthy run teaches people to ignore hints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from groupwise.training.formatting import number, percent, trend
from groupwise.training.hint_evidence import RECENT, Evidence, RawMetrics
from groupwise.types import Hint

# Steps before the first hint, and steps without its condition before a hint may come again.
WARMUP = 5
COOLDOWN = 10
GRADIENTS = ("optim/grad_norm", "optim/critic_grad_norm")


class HintEngine:
    """Takes metrics as they were measured (before NaN becomes null in the event log)."""

    def __init__(self, config: Mapping[str, Any] | None = None, total_steps: int = 0) -> None:
        """`config` is the run's nested configuration as a plain dictionary."""
        self._evidence = Evidence(config or {}, total_steps)
        self._absent: dict[str, int] = {}

    def step(self, metrics: RawMetrics) -> tuple[Hint, ...]:
        """Take the metrics of a training step; return the hints that are new."""
        self._evidence.add_step(metrics)
        return self._judge(STEP_RULES)

    def evaluation(self, metrics: RawMetrics) -> tuple[Hint, ...]:
        """Take the metrics of an evaluation; return the hints that are new."""
        self._evidence.add_evaluation(metrics)
        return self._judge(EVALUATION_RULES)

    def _judge(self, rules: Sequence[Rule]) -> tuple[Hint, ...]:
        if self._evidence.seen <= WARMUP:
            return ()
        found = [hint for rule in rules if (hint := rule(self._evidence)) is not None]
        # `_absent` counts, for every hint already given, the steps since its condition was last true.
        new = tuple(hint for hint in found if hint.code not in self._absent)
        # What only evaluations can say is as true between them; two of them without it are enough to forget it.
        evaluating = rules is EVALUATION_RULES
        aged = {
            code: count + (COOLDOWN // 2 + 1 if evaluating else 1) if (code in EVALUATED) == evaluating else count
            for code, count in self._absent.items()
        }
        self._absent = {code: count for code, count in aged.items() if count <= COOLDOWN}
        self._absent |= {hint.code: 0 for hint in found}
        return new

    def state_dict(self) -> dict[str, Any]:
        return {"evidence": self._evidence.state_dict(), "absent": dict(self._absent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._evidence.load_state_dict(state["evidence"])
        self._absent = dict(state["absent"])


def no_spread(e: Evidence) -> Hint | None:
    """Most groups have no spread: every attempt scores the same, so nothing stands out to learn from."""
    share = e.mean("groups/zero_spread_share")
    if share is None or not e.spread_is_missing or e.solved or not e.rewards:
        return None
    if e.numeric("rollout.num_generations") == 1:
        return _hint("group_of_one", "A group of one attempt has nothing to compare it with, so nothing is learned.")
    seen = f"In {percent(share)} of the groups every attempt scores the same, for {RECENT} steps now"
    if (e.mean("groups/close_share") or 0.0) > share / 2:
        return _hint("rewards_too_close", f"{seen}, to a millionth ({number(e.reward)}): that counts as equal.")
    if e.span == 0:
        return _hint("reward_constant", f"{seen}: all attempts of the whole run scored {number(e.reward)}.")
    limit = e.clip_of_totals
    if limit is not None and min(abs(e.lowest), abs(e.reward)) > limit:
        return _hint("rewards_clipped", f"{seen}: they earn {number(e.reward)}, clipped to {number(limit)}.")
    where = f"mean {number(e.reward)}, best {number(e.highest)}, worst {number(e.lowest)}"
    if e.standing >= 0.75:
        return _hint("tasks_too_easy", f"{seen}, near the best score ({where}): the tasks are too easy.")
    if e.standing <= 0.25:
        return _hint("tasks_too_hard", f"{seen}, near the worst score ({where}): the tasks are too hard.")
    return _hint("attempts_alike", f"{seen}, whatever the score ({where}): attempts at one task are all alike.")


def attempts_failing(e: Evidence) -> Hint | None:
    share = e.mean("groups/failed_share", 3)
    # A few failures are normal: a tool times out, a judge is overloaded.
    if share is None or share < 0.3:
        return None
    what = "Every attempt" if share > 0.99 else f"{percent(share)} of the attempts"
    return _hint(
        "attempts_failing",
        f"{what} of the last 3 steps got no score: the environment or the reward failed.",
    )


def entropy_collapsed(e: Evidence) -> Hint | None:
    """Only for entropies that start above 0; a density's entropy may pass 0 and means nothing relatively."""
    values, start = e.last("policy/entropy", RECENT), e.first_entropies
    if not values or not start or min(start) <= 0 or min(values) < 0 or e.solved:
        return None
    if e.last("loss/supervised", 1):  # it imitates: to become certain is what it is for
        return None
    # A twentieth of the entropy at the start, and the reward is not rising: collapsed, not converging.
    if max(values) > 0.05 * fmean(start) or e.rising(2 * RECENT):
        return None
    return _hint(
        "entropy_collapsed",
        f"The policy's entropy fell from {number(fmean(start))} to {number(fmean(values))}: it hardly "
        f"explores any more, and the reward stands at {number(e.reward)}.",
    )


def stopped_by_kl(e: Evidence) -> Hint | None:
    """Steps without any epoch do not count: a step whose groups have no spread takes no optimiser step either."""
    planned, epochs = e.numeric("optim.num_epochs"), e.mean("optim/epochs", 2 * RECENT)
    if e.numeric("optim.kl_stop") is None or planned is None or epochs is None or e.learned:
        return None
    if epochs > planned / 4 or 0.0 in e.recent["optim/steps"][-2 * RECENT :] or e.rising(2 * RECENT):
        return None
    return _hint(
        "stopped_by_kl",
        f"Updates stop after {number(epochs)} of {number(planned)} epochs: the policy moves too far at "
        f"once{_seen_kl(e)}.",
    )


def clipped_too_much(e: Evidence) -> Hint | None:
    share = (e.mean("policy/clip_low") or 0.0) + (e.mean("policy/clip_high") or 0.0)
    if share <= 0.4:
        return None
    return _hint(
        "clipped_too_much",
        f"{percent(share)} of the samples are clipped, for {RECENT} steps now{_seen_kl(e)}: the policy "
        "moves too far in one update.",
    )


def gradient_vanished(e: Evidence) -> Hint | None:
    norms, share = e.last("optim/grad_norm", RECENT), e.mean("groups/zero_spread_share")
    if not norms or max(norms) >= 1e-6 or share is None or share > 0.9:
        return None
    return _hint(
        "gradient_vanished",
        f"{percent(1 - share)} of the groups have spread, yet the gradient's norm is {max(norms):.1g}: "
        "nothing is learned from them.",
    )


def gradient_clipped(e: Evidence) -> Hint | None:
    limit, norms = e.numeric("optim.max_grad_norm"), e.last("optim/grad_norm", 2 * RECENT)
    # Every recent step, not their mean: single spikes are what the limit is for.
    if not limit or not norms or min(norms) <= 10 * limit or e.learned:
        return None
    return _hint(
        "gradient_clipped",
        f"The gradient's norm ({number(fmean(norms))}) has been over 10 times its limit "
        f"({number(limit)}) for {2 * RECENT} steps: clipping removes almost all of every step.",
    )


def attempts_cut_off(e: Evidence) -> Hint | None:
    """Reaching the limit is success for a pole that stays up, so this only fires if nothing is learned."""
    share, length = e.mean("attempt/truncated_share", 3 * RECENT), e.mean("attempt/length_mean")
    if share is None or share <= 0.5 or e.learned or e.standing >= 0.8 or e.rising(3 * RECENT):
        return None
    long = "" if length is None else f" (mean length {number(length)})"
    return _hint(
        "attempts_cut_off",
        f"{percent(share)} of the attempts are cut off at the limit{long} and the reward does not rise: "
        "the reward at their end is never seen.",
    )


def reward_flat(e: Evidence) -> Hint | None:
    # A run that has learned may rest on a plateau three times as long.
    window = e.patience * (3 if e.learned else 1)
    rewards = e.rewards[-window:]
    failing = (e.mean("groups/failed_share", 3) or 0.0) >= 0.3
    if len(rewards) < window or e.solved or e.standing >= 0.95 or e.spread_is_missing or failing:
        return None
    slope, error = trend(rewards)
    if slope > 2 * error:
        return None
    return _hint(
        "reward_flat",
        f"The reward has not risen for {window} steps (mean {number(fmean(rewards))}, {slope:+.2g} "
        f"± {2 * error:.1g} a step).",
    )


def reward_fell(e: Evidence) -> Hint | None:
    gain, fall = e.best - e.start, e.best - e.reward
    # Most of a real gain is lost: more than 60% of it, and the gain was at least 15% of the range of attempts.
    if not e.rewards or gain <= 0 or gain < 0.15 * e.span or fall <= 0.6 * gain:
        return None
    return _hint(
        "reward_fell",
        f"The reward fell to {number(e.reward)} after {number(e.best)} at its best (it started at {number(e.start)}).",
    )


def evaluation_fell(e: Evidence) -> Hint | None:
    if len(e.evaluations) < 4:
        return None
    first, best, last = e.evaluations[0], max(e.evaluations), fmean(e.evaluations[-2:])
    gain = best - first
    if gain <= 0 or gain < 0.15 * e.span or best - last <= 0.6 * gain:
        return None
    return _hint(
        "evaluation_fell",
        f"The last two evaluations average {number(last)}, after {number(best)} at best (the first was "
        f"{number(first)}).",
    )


def reward_hacked(e: Evidence) -> Hint | None:
    """What the policy is paid for rises, and what the task is about falls."""
    fell = e.check_fell
    if fell is None or not e.reward > fell[2]:
        return None
    before, now, reward = fell
    return _hint(
        "reward_hacked",
        f"The task's own check on held-out tasks fell from {number(before)} to {number(now)} while the reward rose "
        f"from {number(reward)} to {number(e.reward)}: the policy exploits the reward.",
    )


def not_finite(e: Evidence) -> Hint | None:
    """Under fp16 a gradient may overflow now and then, and the step is dropped; but not three times in a row."""
    broken = [name for name, count in e.broken.items() if count >= (3 if name in GRADIENTS else 1)]
    if not broken:
        return None
    names = ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
    return _hint("not_finite", f"No longer finite: {names}.")


def answers_drift(e: Evidence) -> Hint | None:
    """Answers become alike, repeat themselves, parrot the question or grow, the reward rises, the checks do not."""
    if e.checks_rise or not e.reward > e.start:
        return None
    for name, (code, least, what) in DRIFTS.items():
        moved = e.moved(name)
        if moved is None:
            continue
        before, now = moved
        grown = now >= GROWN * max(before, 1.0) if name == "answers/words" else now - before >= least
        # Longer answers alone are suspicious only if somebody looked and found them no better.
        if grown and (name != "answers/words" or e.checks_rise is False):
            seen = "" if e.checks_rise is None else " and the held-out checks do not"
            change = f"from {number(before)} to {number(now)}"
            return _hint(
                code,
                f"{what} {change}, while the reward rose from {number(e.start)} to {number(e.reward)}{seen}.",
            )
    return None


GROWN = 2.0  # times as many words as at the start
# By metric: the hint, the least rise that counts, and what it is about.
DRIFTS: Mapping[str, tuple[str, float, str]] = {
    "answers/sameness": ("answers_converge", 0.25, "Answers to different tasks become alike: their overlap went"),
    "answers/repetition": ("answers_repeat", 0.15, "Answers repeat themselves: the share of repeated phrases went"),
    "answers/parroting": ("answers_parrot", 0.3, "Answers parrot the question: the share of its words in them went"),
    "answers/words": ("answers_grow", 0.0, "Answers grow: their mean length in words went"),
}

Rule: TypeAlias = Callable[[Evidence], Hint | None]
EVALUATED = ("evaluation_fell", "reward_hacked")
EVALUATION_RULES: tuple[Rule, ...] = (not_finite, evaluation_fell, reward_hacked)
STEP_RULES: tuple[Rule, ...] = (
    not_finite, attempts_failing, no_spread, reward_fell, entropy_collapsed, stopped_by_kl, clipped_too_much,
    gradient_vanished, gradient_clipped, attempts_cut_off, reward_flat, answers_drift,
)  # fmt: skip

REMEDIES: Mapping[str, str] = {
    "reward_constant": (
        "Check that the reward distinguishes good attempts from bad ones. If it only rewards full success, the "
        "tasks are too hard: start with easier ones, or reward partial success."
    ),
    "rewards_too_close": (
        "Differences below a millionth of the reward are taken for rounding errors. Subtract a constant from the "
        "reward, so that what remains differs more."
    ),
    "group_of_one": "Set rollout.num_generations to 2 or more; 8 is usual.",
    "rewards_clipped": "Scale the rewards down, raise advantage.reward_clip, or set it to null.",
    "tasks_too_easy": "Use harder tasks, or leave out those the policy already solves.",
    "tasks_too_hard": (
        "Raise rollout.num_generations so that a group has a lucky attempt, reward partial success, or start "
        "with easier tasks."
    ),
    "attempts_alike": (
        "Make attempts differ: raise rollout.num_generations or loss.entropy_coef, or choose tasks that are "
        "neither always nor never solved."
    ),
    "attempts_failing": (
        "Read the failure column of groups/<step>.parquet (the report shows one group), then fix the "
        "environment or the reward."
    ),
    "entropy_collapsed": (
        "Go back to an earlier checkpoint, as entropy seldom recovers on its own; raise loss.entropy_coef "
        "(0.01 is usual), lower optim.learning_rate, or keep the policy near its reference with loss.beta."
    ),
    "stopped_by_kl": (
        "Lower optim.learning_rate, or lower optim.num_epochs to what is really used; raise optim.kl_stop "
        "only if that does not help."
    ),
    "clipped_too_much": (
        "Lower optim.learning_rate (try a third) or optim.num_epochs. A wider loss.clip_ratio hides the problem "
        "but does not solve it."
    ),
    "gradient_vanished": (
        "Check that the policy's parameters are trainable (not frozen) and that the mask covers its actions."
    ),
    "gradient_clipped": (
        "Scale the rewards down, switch advantage.advantage_normalization on, or raise optim.max_grad_norm."
    ),
    "attempts_cut_off": (
        "Raise task.max_episode_steps (sampling.max_new_tokens for answers), or reward shorter "
        "attempts. If the task has no end of its own, this is normal."
    ),
    "reward_flat": (
        "If it is still where it started, try a higher optim.learning_rate and a larger "
        "rollout.num_generations; if it rose before, this may be as good as the set-up gets: stop, or try "
        "another run.seed."
    ),
    "reward_fell": (
        "Go back to a checkpoint from before the fall, then lower optim.learning_rate or hold the policy "
        "back with optim.kl_stop or loss.beta."
    ),
    "evaluation_fell": (
        "Keep the best checkpoint. If the training reward did not fall too, the policy exploits the reward "
        "or its training tasks; otherwise lower optim.learning_rate."
    ),
    "reward_hacked": (
        "Go back to the checkpoint where the check was best. Then try the reward with `groupwise reward check`, train "
        "on the check itself or combine the reward with it, or keep the policy near its reference with loss.beta."
    ),
    **dict.fromkeys(
        ("answers_converge", "answers_repeat", "answers_parrot", "answers_grow"),
        "Read a few attempts in groups/<step>.parquet. If they only please the reward, stop here, try it with "
        "`groupwise reward check`, and add a reference answer, a judge or a check that can be right or wrong; "
        "loss.beta keeps the policy near its reference.",
    ),
    "not_finite": (
        "Go back to the last checkpoint, lower optim.learning_rate, set optim.max_grad_norm, and check that "
        "the reward never returns NaN."
    ),
}


def _hint(code: str, message: str) -> Hint:
    return Hint(code, message, REMEDIES[code])


def _seen_kl(e: Evidence) -> str:
    kl = e.mean("policy/kl")
    return "" if kl is None else f" (KL {number(kl)})"
