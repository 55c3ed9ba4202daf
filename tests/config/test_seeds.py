"""The configurations the founding documents print, word for word."""

import runpy
import textwrap
from pathlib import Path

import pytest

from groupwise.config import TrainingConfig, load_config

PARAMETERS = """\
from stateset_agents.training.config import TrainingConfig

config = TrainingConfig(
    # Basic training
    num_episodes=1000,
    learning_rate=5e-6,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,

    # GRPO-specific
    num_generations=16,          # Trajectories per scenario
    beta=0.1,                    # KL penalty coefficient
    use_reference_model=True,    # Enable KL regularization
    clip_ratio=0.2,              # PPO-style clipping
    advantage_normalization=True,
    baseline_type="group_mean",  # "group_mean", "group_median", "global_mean"

    # Optimization
    bf16=True,                   # Use bfloat16
    max_grad_norm=1.0,          # Gradient clipping
    warmup_ratio=0.1,
    lr_scheduler_type="cosine",

    # Stability
    reward_clip=10.0,           # Clip rewards
    value_clip=0.2,             # Clip value updates
    entropy_coef=0.01,          # Entropy bonus
)
"""

MINIMAL = """\
    config = TrainingConfig(
        num_episodes=100,
        num_generations=8,
        beta=0.1,
        use_reference_model=True,
        clip_ratio=0.2,
    )
"""

MEMORY = """\
config = TrainingConfig(
    bf16=True,                      # Use bfloat16
    gradient_checkpointing=True,    # Reduce memory
    per_device_train_batch_size=1,  # Small batch
    gradient_accumulation_steps=8,  # Accumulate gradients
)
"""

PROFILES = """\
from stateset_agents.training.config import TrainingProfile

# Conservative: Maximum stability
config = TrainingConfig.from_profile(TrainingProfile.CONSERVATIVE)

# Balanced: Good default
config = TrainingConfig.from_profile(TrainingProfile.BALANCED)

# Aggressive: Maximum performance
config = TrainingConfig.from_profile(TrainingProfile.AGGRESSIVE)
"""

XML = """\
<grpo-config>
    <generation>
        <batch-size>32</batch-size>
        <epsilon-greedy>0.1</epsilon-greedy>
        <elite-percentage>0.1</elite-percentage>
        <tournament-size>4</tournament-size>
    </generation>

    <learning>
        <learning-rate>0.001</learning-rate>
        <clip-range>0.2</clip-range>
        <epochs>1000</epochs>
        <early-stopping-threshold>0.01</early-stopping-threshold>
    </learning>

    <memory>
        <pattern-memory-size>1000</pattern-memory-size>
        <experience-memory-size>10000</experience-memory-size>
        <decay-factor>0.999</decay-factor>
        <recall-threshold>0.3</recall-threshold>
    </memory>

    <scoring>
        <performance-weight>0.4</performance-weight>
        <structural-weight>0.25</structural-weight>
        <maintainability-weight>0.2</maintainability-weight>
        <resource-weight>0.15</resource-weight>
    </scoring>
</grpo-config>
"""


IMPORT = "from groupwise.config import TrainingConfig, TrainingProfile\n"


def run(block: str, folder: Path) -> TrainingConfig:
    """The configuration a printed block defines, with only the import path changed to ours."""
    script = folder / "block.py"
    ours = textwrap.dedent(block).replace("stateset_agents.training.config", "groupwise.config")
    script.write_text(IMPORT + ours)
    return runpy.run_path(str(script))["config"]


def test_the_full_parameter_block_is_accepted(tmp_path):
    config = run(PARAMETERS, tmp_path)
    assert (config.training.num_episodes, config.rollout.num_generations) == (1000, 16)
    assert (config.optim.learning_rate, config.optim.per_device_train_batch_size) == (5e-6, 1)
    assert (config.optim.gradient_accumulation_steps, config.optim.max_grad_norm) == (4, 1.0)
    assert (config.loss.beta, config.loss.clip_ratio, config.policy.use_reference_model) == (0.1, 0.2, True)
    assert (config.advantage.advantage_normalization, config.advantage.baseline_type) == (True, "group_mean")
    assert (config.optim.bf16, config.optim.warmup_ratio, config.optim.lr_scheduler_type) == (
        True,
        0.1,
        "cosine",
    )
    assert (config.advantage.reward_clip, config.loss.value_clip, config.loss.entropy_coef) == (
        10.0,
        0.2,
        0.01,
    )


@pytest.mark.parametrize("baseline", ["group_mean", "group_median", "global_mean"])
def test_every_baseline_the_document_lists_is_a_choice(baseline):
    assert TrainingConfig(baseline_type=baseline).advantage.baseline_type == baseline


def test_the_minimal_block_is_accepted(tmp_path):
    config = run(MINIMAL, tmp_path)
    expected = {"num_episodes": 100, "num_generations": 8, "beta": 0.1, "use_reference_model": True}
    assert {name: config.flat()[name] for name in expected} == expected


def test_the_memory_block_is_accepted(tmp_path):
    config = run(MEMORY, tmp_path)
    assert (config.optim.bf16, config.policy.gradient_checkpointing) == (True, True)
    assert config.optim.gradient_accumulation_steps == 8


def test_the_three_profiles_have_the_published_values(tmp_path):
    made = [run(call, tmp_path) for call in PROFILES.split("\n\n")[1:]]
    names = (
        "learning_rate",
        "num_generations",
        "gradient_accumulation_steps",
        "max_grad_norm",
        "warmup_ratio",
    )
    names += ("eval_steps", "early_stopping", "early_stopping_patience")
    assert [tuple(config.flat()[name] for name in names) for config in made] == [
        (1e-6, 32, 8, 0.5, 0.2, 25, True, 30),
        (5e-6, 16, 4, 1.0, 0.1, 50, False, 50),
        (1e-5, 8, 2, 2.0, 0.05, 100, False, 100),
    ]


def test_the_xml_is_read_into_our_sections(tmp_path):
    path = tmp_path / "seed.xml"
    path.write_text(XML)
    config = load_config(path)
    assert config == TrainingConfig(
        product="designer",
        batch_size=32,
        epsilon_greedy=0.1,
        elite_percentage=0.1,
        tournament_size=4,
        learning_rate=0.001,
        clip_ratio=0.2,
        num_episodes=1000,
        early_stopping_threshold=0.01,
        early_stopping=True,
        pattern_memory_size=1000,
        experience_memory_size=10_000,
        decay_factor=0.999,
        recall_threshold=0.3,
        performance_weight=0.4,
        structural_weight=0.25,
        maintainability_weight=0.2,
        resource_weight=0.15,
    )


def test_the_xml_describes_a_run_of_the_designer(tmp_path):
    path = tmp_path / "seed.xml"
    path.write_text(XML)
    assert load_config(path).task.product == "designer"


def test_the_xml_values_are_read_and_not_left_at_their_defaults(tmp_path):
    path = tmp_path / "seed.xml"
    changed = XML.replace("<clip-range>0.2", "<clip-range>0.3").replace("<epochs>1000", "<epochs>77")
    changed = changed.replace("<decay-factor>0.999", "<decay-factor>0.5").replace("<batch-size>32", "<batch-size>8")
    path.write_text(changed)
    config = load_config(path)
    assert (config.loss.clip_ratio, config.training.num_episodes) == (0.3, 77)
    assert (config.memory.decay_factor, config.generation.batch_size) == (0.5, 8)


def test_early_stopping_in_the_xml_can_be_switched_off(tmp_path):
    path = tmp_path / "seed.xml"
    off = "<training><early-stopping>false</early-stopping></training></grpo-config>"
    path.write_text(XML.replace("</grpo-config>", off))
    assert load_config(path).training.early_stopping is False
