"""The arms of a comparison: PPO and two GRPO variants by default, or the arms of an ablation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.config.files import parse_text
from groupwise.control.model import tuned_settings

BUDGET = 100_000
# By environment, the score of uniformly random actions (measured over 10 to 300 episodes) and the score that counts as
# solved (Gymnasium's `reward_threshold`, or the usual one if it has none).
KNOWN_SCALES: Mapping[str, tuple[float, float]] = {
    "CartPole-v1": (22.4, 475.0),
    "Acrobot-v1": (-493.0, -100.0),
    "MountainCar-v0": (-200.0, -110.0),
    "MountainCarContinuous-v0": (-33.0, 90.0),
    "Pendulum-v1": (-1228.0, -200.0),
}


def known_threshold(environment: str) -> float | None:
    """The score that counts as solved: from the table above, or as the environment is registered with Gymnasium."""
    if environment in KNOWN_SCALES:
        return KNOWN_SCALES[environment][1]
    if ":" in environment:  # a function or a module, which only training imports
        return None
    import gymnasium

    try:
        return gymnasium.spec(environment).reward_threshold
    except gymnasium.error.Error:
        return None


# Environment steps between evaluations: the same for all arms, so that none seems to reach a threshold sooner.
EVALUATION = 2_000


def default_algorithms(environment: str = "CartPole-v1", total_samples: int = BUDGET) -> dict[str, TrainingConfig]:
    """PPO, GRPO-auto and GRPO-task at their tuned settings for an environment, with the same number of steps."""
    ppo, grpo = (tuned_settings(environment, name).replace(**budget(total_samples)) for name in ("ppo", "grpo"))
    grouped: dict[str, Any] = {"advantage_scale": "task_rms", "group_weight_method": "balanced"}
    iteration = ppo.rollout.num_envs * ppo.rollout.num_steps
    return {
        "PPO": ppo.replace(eval_steps=max(1, EVALUATION // iteration)),
        "GRPO-auto": grpo.replace(group_strategy="auto", eval_steps=1, **grouped),
        "GRPO-task": grpo.replace(group_strategy="task", eval_steps=1, **grouped),
    }


def budget(total_samples: int) -> dict[str, Any]:
    """Settings that end a run after this many environment steps."""
    return {"total_samples": total_samples, "num_episodes": total_samples, "save_steps": 20}


@dataclass(frozen=True, slots=True)
class Ablation:
    """Arms that differ in one setting, and a preface (HTML) that says why it matters."""

    title: str
    arms: Mapping[str, TrainingConfig]
    preface: str


WHY = """<h2>Why groups formed from the outcome fail</h2>
<p>GRPO makes attempts that scored above their group's mean more likely. That is a gradient of the expected score only
if the group was fixed <strong>before</strong> acting: then the mean does not depend on what an attempt did, and
subtracting it removes noise and nothing else.</p>
<p>Groups by return, by length or by clusters of finished trajectories are fixed <strong>after</strong> acting. An
attempt that fell early is compared with others that fell early; the least bad of them is above their mean and becomes
more likely. An attempt that almost lasted to the end is compared with others that almost did, and half of them become
less likely. Whatever all attempts of a group did well or badly (nearly everything there is to learn) cancels out, and
what remains teaches the best of the worst and unlearns the worst of the best.</p>
<p>So such groups may <em>divide</em> (scale) and <em>weight</em>, which changes the size of a step but not its sign,
but must never subtract. The arms below have the same settings, seeds and budget; only the group whose mean is
subtracted differs.</p>"""


def outcome_grouping() -> Ablation:
    """CartPole: the mean of attempts from one start as the baseline, against groups formed from how attempts ended."""
    text = files("groupwise.control").joinpath("cartpole.toml").read_text("utf8")
    base = TrainingConfig.from_dict(parse_text(text, ".toml")).replace(
        estimator="outcome", advantage_scale="batch_std", total_samples=BUDGET, num_episodes=BUDGET, eval_episodes=40
    )
    arms = {"same start": base}
    # In CartPole the return is the length, so grouping by length would repeat grouping by return.
    outcome: dict[str, Any] = {"by return": "difficulty", "by clusters": "auto"}
    for name, strategy in outcome.items():
        arms[name] = base.replace(baseline_group=strategy, allow_outcome_baseline=True)
    return Ablation("Groups formed from the outcome", arms, WHY)


ABLATIONS: Mapping[str, Callable[[], Ablation]] = {"outcome-grouping": outcome_grouping}
