"""Each rule between settings over all combinations that matter, against the same rule written another way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest

from groupwise.config import rules
from groupwise.config.fields import Finding, settings_of
from groupwise.config.rules import RULES, Rule, broken_rules, settings_of_rule
from groupwise.config.sections import SECTIONS, AdvantageSettings, GroupingSettings, LossSettings
from groupwise.core.losses import clip_range

LOSSES = get_args(LossSettings.model_fields["loss_type"].annotation)
ESTIMATORS = get_args(AdvantageSettings.model_fields["estimator"].annotation)
BASELINES = get_args(AdvantageSettings.model_fields["baseline_type"].annotation)
GROUPS = get_args(GroupingSettings.model_fields["baseline_group"].annotation)
BOTH = (False, True)


def combinations(**options: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    return (dict(zip(options, values, strict=True)) for values in itertools.product(*options.values()))


def clip_of(one: Mapping[str, Any]) -> float:
    """The upper clip as the losses have it."""
    return clip_range(one["loss_type"], one["clip_ratio"], one["clip_ratio_high"])[1]


CASES: list[tuple[Rule, str, dict[str, tuple[Any, ...]], Any]] = [
    (rules.one_precision, "optim.fp16", {"bf16": BOTH, "fp16": BOTH}, lambda o: o["bf16"] and o["fp16"]),
    (
        rules.kl_needs_a_reference, "policy.use_reference_model",
        {"beta": (0.0, 1e-9, 0.1), "use_reference_model": BOTH},
        lambda o: o["beta"] != 0 and not o["use_reference_model"],
    ),
    (
        rules.kl_target_needs_a_start, "loss.kl_target", {"kl_target": (None, 0.1), "beta": (0.0, 1e-9, 0.1)},
        lambda o: o["kl_target"] is not None and o["beta"] == 0,
    ),
    (
        rules.dr_grpo_needs_a_length, "loss.max_completion_length",
        {"loss_type": LOSSES, "max_completion_length": (None, 1)},
        lambda o: o["loss_type"] == "dr_grpo" and o["max_completion_length"] is None,
    ),
    (
        rules.dual_clip_completes_a_clip, "loss.dual_clip", {"dual_clip": (None, 3.0), "loss_type": LOSSES},
        lambda o: o["dual_clip"] == 3.0 and o["loss_type"] in {"cispo", "sapo", "vespo"},
    ),
    (
        rules.cispo_caps_the_ratio, "loss.clip_ratio_high",
        {"loss_type": LOSSES, "clip_ratio_high": (None, 0.99, 1.0, 5.0)},
        lambda o: o["loss_type"] == "cispo" and o["clip_ratio_high"] == 0.99,
    ),
    (
        rules.gspo_is_per_sequence, "loss.importance_level",
        {"loss_type": LOSSES, "importance_level": (None, "token", "sequence")},
        lambda o: (o["loss_type"], o["importance_level"]) == ("gspo", "token"),
    ),
    (
        rules.dynamic_sampling_looks_inside_groups, "rollout.dynamic_sampling",
        {"dynamic_sampling": BOTH, "estimator": ESTIMATORS, "baseline_type": BASELINES},
        lambda o: o["dynamic_sampling"] and (
            "gae" in o["estimator"] or (o["estimator"] != "group_rtg" and o["baseline_type"] in {"global_mean", "none"})
        ),
    ),
    (
        rules.baseline_is_fixed_before_acting, "grouping.baseline_group",
        {"baseline_group": GROUPS, "allow_outcome_baseline": BOTH},
        lambda o: not o["allow_outcome_baseline"] and o["baseline_group"] not in {"start", "task"},
    ),
    (
        rules.baseline_groups_compare, "grouping.baseline_group",
        {"baseline_group": GROUPS, "estimator": ESTIMATORS, "dynamic_sampling": BOTH},
        lambda o: o["baseline_group"] != "start" and ("gae" in o["estimator"] or o["dynamic_sampling"]),
    ),
    (
        rules.replay_compares_inside_groups, "rollout.replay_groups",
        {"replay_groups": (0, 1, 5), "estimator": ESTIMATORS, "baseline_type": BASELINES},
        lambda o: o["replay_groups"] > 0 and (o["estimator"], o["baseline_type"]) == ("outcome", "global_mean"),
    ),
    (
        rules.stopping_needs_evaluations, "run.eval_steps",
        {"early_stopping": BOTH, "target_reward": (None, 0.0, -1.0), "eval_steps": (0, 1)},
        lambda o: o["eval_steps"] == 0 and (o["early_stopping"] or o["target_reward"] is not None),
    ),
    (
        rules.surgery_needs_all_weights, "optim.gradient_surgery",
        {"gradient_surgery": ("none", "pcgrad"), "sharding": ("ddp", "fsdp")},
        lambda o: (o["gradient_surgery"], o["sharding"]) == ("pcgrad", "fsdp"),
    ),
    (
        rules.surgery_is_for_small_networks, "optim.gradient_surgery",
        {"gradient_surgery": ("none", "pcgrad"), "product": ("language", "agent", "code", "control", "ppo")},
        lambda o: o["gradient_surgery"] == "pcgrad" and o["product"] not in {"control", "ppo"},
    ),
    (
        rules.jax_computes_gae, "advantage.backend", {"gae_backend": ("torch", "jax"), "estimator": ESTIMATORS},
        lambda o: o["gae_backend"] == "jax" and "gae" not in o["estimator"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "field", "options", "broken"), CASES, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_rule_is_broken_by_exactly_these_combinations(
    rule: Rule, field: str, options: dict[str, tuple[Any, ...]], broken: Any
) -> None:
    assert set(options) == set(settings_of_rule(rule))
    found = [bool(broken(one)) for one in combinations(**options)]
    assert len(set(found)) == 2
    for one, is_broken in zip(combinations(**options), found, strict=True):
        finding = rule(**one)
        assert (finding is not None) is is_broken, one
        if finding is not None:
            assert finding.field == field
            assert finding.message
            assert finding.hint


@pytest.mark.parametrize("one", list(combinations(
    loss_type=LOSSES, clip_ratio=(None, 0.1, 0.3), clip_ratio_high=(None, 0.2, 0.5)
)), ids=str)  # fmt: skip
def test_a_dual_clip_lies_beyond_the_clip_of_its_loss(one: dict[str, Any]) -> None:
    limit = 1 + clip_of(one)
    for dual_clip, is_broken in ((None, False), (limit, True), (limit - 1e-9, True), (limit + 1e-9, False)):
        assert (rules.dual_clip_is_beyond_the_clip(dual_clip=dual_clip, **one) is not None) is is_broken


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("groups", range(4))
def test_replay_draws_no_more_than_it_keeps_and_keeps_nothing_in_vain(size: int, groups: int) -> None:
    finding = rules.replay_draws_from_what_is_kept(size, groups)
    sound = (size == groups == 0) or 0 < groups <= size
    assert (finding is None) is sound
    if finding is not None:
        assert finding.field == ("rollout.replay_groups" if groups == 0 else "rollout.replay_size")


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(("off", "is_broken"), [
    (0.0, False), (9e-7, False), (-9e-7, False), (2e-6, True), (-2e-6, True), (0.1, True), (-0.1, True),
])  # fmt: skip
def test_the_weights_of_a_score_sum_to_one_but_for_rounding(at: int, off: float, is_broken: bool) -> None:
    weights = [0.4, 0.3, 0.2, 0.1]
    weights[at] += off
    assert (rules.weights_sum_to_one(*weights) is not None) is is_broken


@pytest.mark.parametrize("name", [
    "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize",
])  # fmt: skip
def test_a_template_is_not_given_what_every_conversation_gives_it(name: str) -> None:
    finding = rules.template_options_are_free({"enable_thinking": True, name: 1})
    assert finding is not None
    assert f"cannot set {name!r}" in finding.message
    assert rules.template_options_are_free({"enable_thinking": True}) is None


@pytest.mark.parametrize("servers", [(), ("http://127.0.0.1:8000",)])
@pytest.mark.parametrize("sampler", ["own", "vllm"])
def test_servers_are_named_for_a_sampler_of_a_language_model(sampler: str, servers: tuple[str, ...]) -> None:
    finding = rules.a_sampler_needs_servers(sampler, servers)
    assert (finding is not None) is (sampler == "vllm" and not servers)
    for product, has_model in (("language", True), ("agent", True), ("code", True), ("control", False), ("ppo", False)):
        finding = rules.a_sampler_samples_text(sampler, product)
        assert (finding is not None) is (sampler == "vllm" and not has_model)


def test_every_rule_of_this_file_is_applied_and_every_setting_of_one_exists() -> None:
    public = [value for name, value in vars(rules).items() if callable(value) and _returns_finding(value)]
    assert set(RULES) == set(public)
    assert len(RULES) == len(public) == 23
    known = {setting.flat for section in SECTIONS.values() for setting in settings_of(section).values()}
    assert all(set(settings_of_rule(rule)) <= known for rule in RULES)


def _returns_finding(value: Any) -> bool:
    return getattr(value, "__annotations__", {}).get("return") == Finding | None


def test_all_broken_rules_are_told_and_those_about_missing_settings_are_not() -> None:
    values = {"bf16": True, "fp16": True, "kl_target": 0.1, "beta": 0.0, "use_reference_model": False}
    assert [finding.field for finding in broken_rules(values)] == ["optim.fp16", "loss.kl_target"]
    del values["fp16"]
    assert [finding.field for finding in broken_rules(values)] == ["loss.kl_target"]
    assert broken_rules({}) == []


@pytest.mark.parametrize(
    ("finding", "message", "hint"),
    [
        (
            rules.dual_clip_is_beyond_the_clip(1.1, 0.2, 0.5, "grpo"),
            "loss.dual_clip = 1.1 must be above 1.5, where the ratio is already clipped",
            "3.0 is usual; or leave it out",
        ),
        (
            rules.dual_clip_is_beyond_the_clip(1.1, 0.25, None, "grpo"),
            "loss.dual_clip = 1.1 must be above 1.25, where the ratio is already clipped",
            "3.0 is usual; or leave it out",
        ),
        (
            rules.replay_draws_from_what_is_kept(3, 5),
            "rollout.replay_groups = 5 cannot be drawn from rollout.replay_size = 3 groups",
            "set rollout.replay_size to 5 or more; 20 leaves a choice",
        ),
        (
            rules.replay_draws_from_what_is_kept(3, 0),
            "rollout.replay_size = 3 keeps groups that rollout.replay_groups = 0 never draws",
            "set rollout.replay_groups to 1 or more, or rollout.replay_size = 0",
        ),
        (
            rules.weights_sum_to_one(0.4, 0.3, 0.2, 0.15),
            "the four weights of scoring sum to 1.05 and must sum to 1",
            "performance 0.4, structural 0.3, maintainability 0.2, resource 0.15",
        ),
        (
            rules.stopping_needs_evaluations(False, 0.5, 0),
            "training.target_reward looks at evaluations, but run.eval_steps = 0 never evaluates",
            "set run.eval_steps to 1 or more, or leave training.target_reward out",
        ),
        (
            rules.stopping_needs_evaluations(True, 0.5, 0),
            "training.early_stopping looks at evaluations, but run.eval_steps = 0 never evaluates",
            "set run.eval_steps to 1 or more, or leave training.early_stopping out",
        ),
        (
            rules.dynamic_sampling_looks_inside_groups(True, "gae", "none"),
            "rollout.dynamic_sampling = true would discard groups that advantage.estimator = 'gae' still learns from",
            "leave it out, or set advantage.estimator = 'outcome' and advantage.baseline_type = 'group_mean'",
        ),
        (
            rules.dynamic_sampling_looks_inside_groups(True, "outcome", "none"),
            (
                "rollout.dynamic_sampling = true would discard groups that advantage.baseline_type = 'none' still "
                "learns from"
            ),
            "leave it out, or set advantage.estimator = 'outcome' and advantage.baseline_type = 'group_mean'",
        ),
        (
            rules.baseline_groups_compare("task", "gae", True),
            (
                "grouping.baseline_group = 'task' has no effect: advantage.estimator = 'gae' compares with a critic "
                "and not with a group"
            ),
            "leave it at 'start', or set advantage.estimator = 'group_rtg' without dynamic sampling",
        ),
    ],
)
def test_a_broken_rule_quotes_the_values_that_break_it(finding: Finding | None, message: str, hint: str) -> None:
    assert finding is not None
    assert (finding.message, finding.hint) == (message, hint)
