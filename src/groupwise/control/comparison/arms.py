"""The arms of a comparison: PPO and two GRPO variants by default, or the arms of an ablation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.config.files import parse_text
from groupwise.control.model import tuned_settings

BUDGET = 100_000
# Environment steps between evaluations: the same for all arms, so that none seems to reach a threshold sooner.
EVALUATION = 2_000


def default_algorithms(environment: str = "CartPole-v1", total_samples: int = BUDGET) -> dict[str, TrainingConfig]:
    """PPO, GRPO-auto and GRPO-task at their tuned settings for an environment, with the same number of steps.

    Evaluations come about every `EVALUATION` steps, so that none is seen to reach a threshold sooner than another.
    """
    ppo, grpo = (tuned_settings(environment, name).replace(**budget(total_samples)) for name in ("ppo", "grpo"))
    grouped: dict[str, Any] = {"advantage_scale": "task_rms", "group_weight_method": "balanced"}
    iteration = ppo.rollout.num_envs * ppo.rollout.num_steps
    return {
        "PPO": ppo.replace(eval_steps=max(1, EVALUATION // iteration)),
        "GRPO-auto": grpo.replace(group_strategy="auto", eval_steps=1, **grouped),
        "GRPO-task": grpo.replace(group_strategy="task", eval_steps=1, **grouped),
    }


def budget(total_samples: int) -> dict[str, Any]:
    """Settings that end a run by its environment steps alone."""
    return {"total_samples": total_samples, "num_episodes": total_samples, "save_steps": 20}


@dataclass(frozen=True, slots=True)
class Ablation:
    """Arms that differ in one thing, and the words that say why it matters (HTML)."""

    title: str
    arms: Mapping[str, TrainingConfig]
    preface: str


WHY = """<h2>Why groups formed from the outcome fail</h2>
<p>GRPO makes likelier what scored above its group's mean. That is only a gradient of the expected score if the group
was fixed <strong>before</strong> acting: then the mean does not depend on what an attempt did, and subtracting it takes
away noise and nothing else.</p>
<p>Groups by return, by length or by clusters of finished trajectories are fixed <strong>after</strong> acting. An
attempt that fell early is put beside others that fell early; the least bad of them is above their mean and is made
likelier. An attempt that nearly stood to the end is put beside others that nearly did; half of them are made less
likely. What was good or bad about all attempts of a group at once (which is nearly everything there is to learn)
cancels out, and what is left teaches the best of the worst and unlearns the worst of the best.</p>
<p>So such groups may <em>divide</em> (scale) and <em>weigh</em>, which changes the size of a step but not its sign, and
never subtract. The arms below have the same settings, seeds and budget; only the group whose mean is subtracted
differs. Placing the same attempts in other groups is all it takes.</p>"""


def outcome_grouping() -> Ablation:
    """CartPole by outcome scores, against the mean of one start, and against groups formed from how attempts ended."""
    text = files("groupwise.control").joinpath("cartpole.toml").read_text("utf8")
    base = TrainingConfig.from_dict(parse_text(text, ".toml")).replace(
        estimator="outcome", advantage_scale="batch_std", total_samples=BUDGET, num_episodes=BUDGET, eval_episodes=40
    )
    arms = {"same start": base}
    # Grouping by length would be the same again: in CartPole the return is the length.
    outcome: dict[str, Any] = {"by return": "difficulty", "by clusters": "auto"}
    for name, strategy in outcome.items():
        arms[name] = base.replace(baseline_group=strategy, allow_outcome_baseline=True)
    return Ablation("Groups formed from the outcome", arms, WHY)


ABLATIONS: Mapping[str, Callable[[], Ablation]] = {"outcome-grouping": outcome_grouping}
