"""What a user is told: the value, the limit and the remedy, all problems at once."""

import math

import pytest

from groupwise.config import Finding, LossSettings, OptimSettings, TrainingConfig, check_settings
from groupwise.errors import ConfigError


def error_of(settings) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.from_dict(settings)
    return caught.value


@pytest.mark.parametrize(
    ("settings", "field", "message", "hint"),
    [
        (
            {"clip_ration": 0.1},
            "clip_ration",
            "unknown setting 'clip_ration'",
            "did you mean loss.clip_ratio?",
        ),
        (
            {"loss": {"clip_ration": 1}},
            "loss.clip_ration",
            "in section loss",
            "did you mean loss.clip_ratio?",
        ),
        ({"Learning-Rate": 1}, "Learning-Rate", "unknown setting", "did you mean optim.learning_rate?"),
        ({"lr": 1}, "lr", "unknown setting 'lr'", "did you mean optim.learning_rate?"),
        ({"group_size": 8}, "group_size", "unknown setting", "did you mean rollout.num_generations?"),
        (
            {"loss": {"learning_rate": 1}},
            "loss.learning_rate",
            "unknown setting 'loss.learning_rate': learning_rate is in section optim",
            "write optim.learning_rate",
        ),
        ({"los": {"beta": 1}}, "los", "unknown section 'los'", "did you mean loss?"),
        ({"zzz": {"beta": 1}}, "zzz", "unknown section 'zzz'", "sections are run, task, training"),
        (
            {"zzz.lerning_rate": 1},
            "zzz.lerning_rate",
            "unknown section 'zzz'",
            "did you mean optim.learning_rate?",
        ),
        (
            {"memory": {"qqqqq": 1}},
            "memory.qqqqq",
            "'qqqqq' in section memory",
            "decay_factor, decay_unit, recall_threshold",
        ),
        ({"qqqqq": 1}, "qqqqq", "unknown setting 'qqqqq'", "docs/reference/config.md"),
        ({3: 1}, "3", "unknown setting 3", ""),
        ({"loss": {3: 1}}, "loss.3", "unknown setting 3 in section loss", ""),
        ({"loss": 3}, "loss", "section loss must contain settings, not 3", "for example loss.loss_type"),
        ({"loss": OptimSettings()}, "loss", "section loss must contain settings, not OptimSettings", ""),
        (
            {"gamma": 1, "advantage": {"gamma": 0.5}},
            "advantage.gamma",
            "given twice, as 1 and as 0.5",
            "keep one",
        ),
        (
            {"profile": "fast"},
            "profile",
            "profile = 'fast' must be one of conservative, balanced, aggressive",
            "",
        ),
        ([1, 2], "", "a configuration is a table of settings, not [1, 2]", ""),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(settings, field, message, hint):
    error = error_of(settings)
    assert error.field == field
    assert message in error.message
    assert hint in error.hint
    assert hint in str(error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": -1}, "optim.learning_rate = -1 must be > 0 and <= 1"),
        ({"learning_rate": 0}, "optim.learning_rate = 0 must be > 0"),
        ({"learning_rate": "fast"}, "optim.learning_rate = 'fast' must be a number > 0 and <= 1"),
        ({"learning_rate": True}, "optim.learning_rate = True must be a number"),
        ({"learning_rate": None}, "optim.learning_rate = None must be a number"),
        ({"learning_rate": [1]}, "optim.learning_rate = [1] must be a number"),
        ({"learning_rate": math.nan}, "optim.learning_rate = nan must be a finite number"),
        ({"learning_rate": "inf"}, "optim.learning_rate = 'inf' must be a finite number"),
        ({"learning_rate": 10**400}, "must be a finite number"),
        ({"target_reward": math.inf}, "training.target_reward = inf must be a finite number, or null"),
        ({"adam_beta1": 1}, "optim.adam_beta1 = 1 must be >= 0 and < 1"),
        ({"dual_clip": 1}, "loss.dual_clip = 1 must be > 1, or null"),
        ({"save_total_limit": 1}, "run.save_total_limit = 1 must be >= 2"),
        ({"save_steps": 0}, "run.save_steps = 0 must be >= 1"),
        ({"num_episodes": 3.5}, "training.num_episodes = 3.5 must be a whole number >= 1"),
        ({"num_episodes": True}, "training.num_episodes = True must be a whole number"),
        ({"num_episodes": "many"}, "training.num_episodes = 'many' must be a whole number"),
        ({"num_episodes": 1e300}, "at most 64 bits"),
        ({"seed": 10**5000}, "at most 64 bits"),
        ({"seed": 2**32}, "run.seed = 4294967296 must be >= 0 and <= 4294967295"),
        ({"bf16": 1}, "optim.bf16 = 1 must be true or false"),
        ({"bf16": "yes"}, "optim.bf16 = 'yes' must be true or false"),
        ({"hidden_sizes": [64, 0]}, "hidden_sizes = [64, 0] must be a list of whole numbers, each >= 1"),
        ({"hidden_sizes": 64}, "policy.hidden_sizes = 64 must be a list of whole numbers, each >= 1"),
        ({"hidden_sizes": {"a": 1}}, "must be a list of whole numbers"),
        ({"report_to": ["wand"]}, "run.report_to = ['wand'] must be a list from tensorboard, wandb, mlflow, trackio"),
        ({"loss_type": "ppo"}, "loss.loss_type = 'ppo' must be one of grpo, bnpo, dr_grpo, dapo"),
        ({"loss_type": 3}, "loss.loss_type = 3 must be one of grpo"),
        ({"importance_level": "word"}, "must be one of token, sequence, or null"),
        ({"run_name": "../up"}, "run.run_name = '../up' must be 1 to 100 letters, digits"),
        ({"run_name": 12}, "run.run_name = 12 must be text"),
        ({"device": "gpu"}, "policy.device = 'gpu' must be cpu, cuda, mps or xpu"),
        ({"environment": ""}, "task.environment = '' must be text of at least one character"),
        ({"environment": "\ud800"}, "must be text of valid Unicode characters"),
        ({"options": 3}, "task.options = 3 must be a table of plain values"),
        ({"options": {"a": [[1]]}}, "a table of plain values and lists of them, but 'a' has [1]"),
        ({"options": {"a": None}}, "a table of plain values and lists of them, but 'a' has None"),
        ({"options": {"a": math.nan}}, "a table of finite values, but 'a' is nan"),
        ({"options": {1: 1}}, "a table whose names are strings"),
    ],
)
def test_a_wrong_value_is_quoted_with_its_limit(settings, message):
    error = error_of(settings)
    assert message in error.message
    assert error.field.rpartition(".")[2] in settings


def test_the_hint_of_a_wrong_value_says_what_the_setting_means_or_what_was_meant():
    assert error_of({"learning_rate": -1}).hint.startswith("learning_rate: step size")
    assert error_of({"loss_type": "drgrpo"}).hint == "did you mean 'dr_grpo'?"


def test_a_name_that_is_longer_outside_its_section_is_known_in_both_forms():
    assert error_of({"reward": {"nam": "sales"}}).hint == "did you mean reward.name?"
    assert error_of({"reward_nam": "sales"}).hint == "did you mean reward.name?"
    assert "reward.name is given twice" in error_of({"reward": {"name": "a"}, "reward_name": "b"}).message


def test_a_long_value_is_cut_short():
    assert len(error_of({"learning_rate": "x" * 10_000}).message) < 250
    assert len(error_of({"hidden_sizes": [0] * 10_000}).message) < 250


def test_all_problems_are_told_together():
    error = error_of({"clip_ration": 0.1, "learning_rate": -1, "loss": {"beta": "x"}, "bf16": True, "fp16": True})
    assert error.message.startswith("4 problems in the configuration:")
    for words in ("clip_ratio?", "learning_rate = -1", "beta = 'x'", "bf16 and optim.fp16"):
        assert words in error.message
    assert error.as_dict()["error"]["field"] == "clip_ration"


def test_findings_can_be_had_without_an_exception():
    findings = check_settings({"learning_rate": -1, "seed": "x"})
    assert [finding.field for finding in findings] == ["optim.learning_rate", "run.seed"]
    assert check_settings({}) == []
    assert str(Finding("a", "b", "c", 3)) == "line 3: b; c"


def test_a_section_checks_itself():
    with pytest.raises(ConfigError, match=r"loss.beta = -1 must be >= 0"):
        LossSettings(beta=-1)


def test_the_constructor_and_from_profile_raise_the_same_errors():
    for make in (
        TrainingConfig,
        lambda **s: TrainingConfig.from_profile("balanced", **s),
        TrainingConfig().replace,
    ):
        with pytest.raises(ConfigError, match=r"did you mean loss\.clip_ratio"):
            make(clip_ration=0.1)


RULES = [
    ({"bf16": True, "fp16": True}, ["bf16 and optim.fp16 cannot both be true"], {"bf16": True}),
    (
        {"beta": 0.1},
        ["loss.beta = 0.1", "policy.use_reference_model = true", "loss.beta = 0"],
        {"beta": 0.1, "use_reference_model": True},
    ),
    (
        {"kl_target": 0.05},
        ["loss.kl_target = 0.05", "loss.beta = 0.1", "policy.use_reference_model = true"],
        {"kl_target": 0.05, "beta": 0.1, "use_reference_model": True},
    ),
    (
        {"loss_type": "dr_grpo"},
        ["dr_grpo", "loss.max_completion_length"],
        {"loss_type": "dr_grpo", "max_completion_length": 64},
    ),
    (
        {"dual_clip": 1.25, "clip_ratio_high": 0.28},
        ["loss.dual_clip = 1.25", "above 1.28"],
        {"dual_clip": 1.3, "clip_ratio_high": 0.28},
    ),
    ({"dual_clip": 1.15}, ["loss.dual_clip = 1.15", "above 1.2"], {"dual_clip": 1.15, "loss_type": "gspo"}),
    (
        {"dual_clip": 1.2, "clip_ratio": 0.2},
        ["loss.dual_clip = 1.2 must be above 1.2"],
        {"dual_clip": 1.21, "clip_ratio": 0.2},
    ),
    (
        {"dual_clip": 3.0, "loss_type": "sapo"},
        ["loss.dual_clip = 3.0 has no effect", "'sapo'"],
        {"dual_clip": 3.0, "loss_type": "luspo"},
    ),
    (
        {"clip_ratio_high": 0.28, "loss_type": "cispo"},
        ["loss.clip_ratio_high = 0.28", "caps the ratio itself", "5.0"],
        {"clip_ratio_high": 5.0, "loss_type": "cispo"},
    ),
    (
        {"loss_type": "gspo", "importance_level": "token"},
        ["gspo", "importance_level = 'token'", "per sequence"],
        {"loss_type": "gspo", "importance_level": "sequence"},
    ),
    (
        {"dynamic_sampling": True, "estimator": "gae"},
        ["rollout.dynamic_sampling = true", "advantage.estimator = 'gae'", "'group_mean'"],
        {"dynamic_sampling": True, "estimator": "group_rtg", "baseline_type": "none"},
    ),
    (
        {"dynamic_sampling": True, "baseline_type": "global_mean"},
        ["rollout.dynamic_sampling = true", "advantage.baseline_type = 'global_mean'"],
        {"dynamic_sampling": True, "baseline_type": "leave_one_out"},
    ),
    (
        {"baseline_group": "difficulty"},
        ["grouping.baseline_group = 'difficulty'", "best of the worst", "group_strategy = 'difficulty'", "ablation"],
        {"baseline_group": "difficulty", "allow_outcome_baseline": True},
    ),
    (
        {"baseline_group": "task", "estimator": "group_gae"},
        ["grouping.baseline_group = 'task' has no effect", "advantage.estimator = 'group_gae'"],
        {"baseline_group": "task", "estimator": "group_rtg"},
    ),
    (
        {"baseline_group": "task", "dynamic_sampling": True},
        ["grouping.baseline_group = 'task' has no effect", "rollout.dynamic_sampling = true"],
        {"baseline_group": "start", "dynamic_sampling": True},
    ),
    (
        {"replay_groups": 4, "replay_size": 3},
        ["rollout.replay_groups = 4", "rollout.replay_size = 3", "16 leaves a choice"],
        {"replay_groups": 4, "replay_size": 4},
    ),
    (
        {"replay_size": 3},
        ["rollout.replay_size = 3 keeps groups", "rollout.replay_groups = 0 never draws"],
        {"replay_groups": 1, "replay_size": 3},
    ),
    (
        {"replay_groups": 1, "replay_size": 3, "baseline_type": "global_mean"},
        ["rollout.replay_groups = 1", "'global_mean'", "'group_mean'"],
        {"replay_groups": 1, "replay_size": 3, "baseline_type": "none"},
    ),
    (
        {"early_stopping": True, "eval_steps": 0},
        ["training.early_stopping", "run.eval_steps = 0 never evaluates"],
        {"early_stopping": True},
    ),
    (
        {"target_reward": 475, "eval_steps": 0},
        ["training.target_reward", "run.eval_steps"],
        {"target_reward": 475},
    ),
    (
        {"performance_weight": 0.5},
        ["sum to 1.1 and must sum to 1", "performance 0.5"],
        {"performance_weight": 0.3, "resource_weight": 0.25},
    ),
]


@pytest.mark.parametrize(("broken", "words", "kept"), RULES)
def test_settings_that_contradict_each_other_are_refused_with_a_remedy(broken, words, kept):
    error = error_of(broken)
    assert all(word in str(error) for word in words), str(error)
    assert error.field
    TrainingConfig(**kept)


def test_no_rule_is_stricter_than_it_should_be():
    TrainingConfig(loss_type="vespo", importance_level="token")
    TrainingConfig(use_reference_model=True)
    TrainingConfig(eval_steps=0)
    TrainingConfig(performance_weight=0.1, structural_weight=0.2, maintainability_weight=0.3, resource_weight=0.4)


def test_a_rule_about_a_setting_that_is_wrong_itself_stays_quiet():
    assert [f.field for f in check_settings({"beta": 0.1, "use_reference_model": 7})] == ["policy.use_reference_model"]
