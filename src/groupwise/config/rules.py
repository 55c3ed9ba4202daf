"""Rules between settings. A rule's parameters are the settings it looks at, its docstring is in the docs."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.config.fields import Finding, section_name
from groupwise.products import find

# Groupings that look at how an attempt went; `core.grouping` says the same of each, and a test compares the two.
OUTCOME_STRATEGIES = ("difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet")


# The upper clip where the settings name none; `core.losses` says the same, and a test compares the two.
CLIP_HIGH = {"gspo": 4e-4, "luspo": 2.5e-3}


def one_precision(bf16: bool, fp16: bool) -> Finding | None:
    """`bf16` and `fp16` exclude each other."""
    # bfloat16 has the exponent range of float32, so only float16 needs a gradient scaler.
    if not (bf16 and fp16):
        return None
    return Finding(
        "optim.fp16",
        "optim.bf16 and optim.fp16 cannot both be true",
        "keep one of them; bf16 needs no gradient scaler",
    )


def shards_need_no_scaler(sharding: str, fp16: bool) -> Finding | None:
    """`sharding = "fsdp"` excludes `fp16`."""
    # Each rank sees its own shards of the gradients, so one could skip a step that the others take.
    if sharding != "fsdp" or not fp16:
        return None
    return Finding(
        "optim.fp16", "optim.fp16 = true does not work with ranks.sharding = 'fsdp'", "set optim.bf16 = true instead"
    )


def kl_needs_a_reference(beta: float, use_reference_model: bool) -> Finding | None:
    """`beta` above 0 needs `use_reference_model`."""
    # The KL term compares with the reference policy, which is kept only on request: it is a second copy of the weights.
    if beta == 0 or use_reference_model:
        return None
    return Finding(
        "policy.use_reference_model",
        f"loss.beta = {beta} needs a reference policy, but policy.use_reference_model is false",
        "set policy.use_reference_model = true to keep one, or loss.beta = 0 for no KL term",
    )


def kl_target_needs_a_start(kl_target: float | None, beta: float) -> Finding | None:
    """`kl_target` needs a `beta` above 0 (and so `use_reference_model`): 0 could not adapt."""
    # The controller multiplies beta by a factor near 1, so it can never leave 0.
    if kl_target is None or beta > 0:
        return None
    return Finding(
        "loss.kl_target",
        f"loss.kl_target = {kl_target} adapts loss.beta, but loss.beta = 0 can never grow",
        "set loss.beta = 0.1 to start from and policy.use_reference_model = true, or loss.kl_target = null",
    )


def dr_grpo_needs_a_length(loss_type: str, max_completion_length: int | None) -> Finding | None:
    """`loss_type = "dr_grpo"` needs `max_completion_length`."""
    # Dr. GRPO (arXiv 2503.20783) replaces the length of each attempt by one constant, to remove the length bias.
    if loss_type != "dr_grpo" or max_completion_length is not None:
        return None
    return Finding(
        "loss.max_completion_length",
        "loss.loss_type = 'dr_grpo' divides by a constant length, but loss.max_completion_length is not set",
        "set loss.max_completion_length to the longest attempt, or choose loss.loss_type = 'dapo'",
    )


def dual_clip_is_beyond_the_clip(
    dual_clip: float | None, clip_ratio: float | None, clip_ratio_high: float | None, loss_type: str
) -> Finding | None:
    """`dual_clip` must be above 1 + `clip_ratio_high` (or 1 + `clip_ratio`)."""
    # A dual clip below the upper clip would cut off what the ratio clip still lets through.
    limit = 1 + (clip_ratio_high or clip_ratio or CLIP_HIGH.get(loss_type, 0.2))
    if dual_clip is None or dual_clip > limit:
        return None
    return Finding(
        "loss.dual_clip",
        f"loss.dual_clip = {dual_clip} must be above {limit}, where the ratio is already clipped",
        "3.0 is usual; or leave it out",
    )


def dual_clip_completes_a_clip(dual_clip: float | None, loss_type: str) -> Finding | None:
    """`dual_clip` does not go with `loss_type` cispo, sapo or vespo, which clip differently."""
    # These three weigh the gradient by a bounded function of the ratio instead of clipping it.
    if dual_clip is None or loss_type not in ("cispo", "sapo", "vespo"):
        return None
    return Finding(
        "loss.dual_clip",
        f"loss.dual_clip = {dual_clip} has no effect: loss.loss_type = {loss_type!r} does not clip the ratio",
        "leave it out, or choose another loss.loss_type",
    )


def cispo_caps_the_ratio(loss_type: str, clip_ratio_high: float | None) -> Finding | None:
    """For `loss_type = "cispo"`, `clip_ratio_high` caps the ratio itself and must be at least 1."""
    # CISPO (arXiv 2506.13585) clips the importance weight, not the surrogate: below 1 every weight would shrink.
    if loss_type != "cispo" or clip_ratio_high is None or clip_ratio_high >= 1:
        return None
    return Finding(
        "loss.clip_ratio_high",
        f"loss.clip_ratio_high = {clip_ratio_high} would shrink every step: for cispo it caps the ratio itself",
        "5.0 is usual, and the default",
    )


def gspo_is_per_sequence(loss_type: str, importance_level: str | None) -> Finding | None:
    """`loss_type = "gspo"` contradicts `importance_level = "token"`."""
    # GSPO (arXiv 2507.18071) defines its ratio for whole sequences.
    if loss_type != "gspo" or importance_level != "token":
        return None
    return Finding(
        "loss.importance_level",
        "loss.loss_type = 'gspo' uses ratios per sequence, not loss.importance_level = 'token'",
        "leave loss.importance_level out, or choose loss.loss_type = 'grpo' for ratios per token",
    )


def dynamic_sampling_looks_inside_groups(dynamic_sampling: bool, estimator: str, baseline_type: str) -> Finding | None:
    """`dynamic_sampling` needs attempts compared inside their group: no critic, no baseline global_mean or none."""
    # A group without spread teaches nothing only if its attempts are compared with each other.
    if not dynamic_sampling or compares_inside_groups(estimator, baseline_type):
        return None
    what = f"estimator = {estimator!r}" if needs_critic(estimator) else f"baseline_type = {baseline_type!r}"
    return Finding(
        "rollout.dynamic_sampling",
        f"rollout.dynamic_sampling = true would discard groups that advantage.{what} still learns from",
        "leave it out, or set advantage.estimator = 'outcome' and advantage.baseline_type = 'group_mean'",
    )


def compares_inside_groups(estimator: str, baseline_type: str) -> bool:
    """Whether a group whose attempts all score the same teaches nothing."""
    if estimator == "group_rtg":
        return True
    return estimator in ("outcome", "turns") and baseline_type not in ("global_mean", "none")


def needs_critic(estimator: str) -> bool:
    """Whether an estimator asks a critic for values."""
    return estimator in ("gae", "group_gae")


def baseline_is_fixed_before_acting(baseline_group: str, allow_outcome_baseline: bool) -> Finding | None:
    """`baseline_group` may be formed from the outcome only with `allow_outcome_baseline`, for ablations."""
    # Grouping by the outcome puts bad attempts beside worse ones, whose best then gets a positive advantage.
    if allow_outcome_baseline or baseline_group not in OUTCOME_STRATEGIES:
        return None
    return Finding(
        "grouping.baseline_group",
        f"grouping.baseline_group = {baseline_group!r} is formed from how attempts ended; subtracting its mean teaches "
        "the best of the worst",
        f"leave it at 'start' and set grouping.group_strategy = {baseline_group!r}, which only scales and weighs; "
        "grouping.allow_outcome_baseline = true permits it for an ablation",
    )


def baseline_groups_compare(baseline_group: str, estimator: str, dynamic_sampling: bool) -> Finding | None:
    """`baseline_group` other than "start" needs an `estimator` that compares, and no `dynamic_sampling`."""
    # A critic replaces the group as baseline; dynamic sampling judges the groups of one start.
    if baseline_group == "start" or not (needs_critic(estimator) or dynamic_sampling):
        return None
    what = "rollout.dynamic_sampling = true compares attempts from the same start"
    if needs_critic(estimator):
        what = f"advantage.estimator = {estimator!r} compares with a critic and not with a group"
    return Finding(
        "grouping.baseline_group",
        f"grouping.baseline_group = {baseline_group!r} has no effect: {what}",
        "leave it at 'start', or set advantage.estimator = 'group_rtg' without dynamic sampling",
    )


def replay_draws_from_what_is_kept(replay_size: int, replay_groups: int) -> Finding | None:
    """`replay_size` must be at least `replay_groups`, and 0 where that is 0."""
    # Both 0, or a memory at least as large as what is drawn from it.
    if replay_size >= replay_groups and bool(replay_size) == bool(replay_groups):
        return None
    if not replay_groups:
        return Finding(
            "rollout.replay_groups",
            f"rollout.replay_size = {replay_size} keeps groups that rollout.replay_groups = 0 never draws",
            "set rollout.replay_groups to 1 or more, or rollout.replay_size = 0",
        )
    return Finding(
        "rollout.replay_size",
        f"rollout.replay_groups = {replay_groups} cannot be drawn from rollout.replay_size = {replay_size} groups",
        f"set rollout.replay_size to {replay_groups} or more; {4 * replay_groups} leaves a choice",
    )


def replay_compares_inside_groups(replay_groups: int, estimator: str, baseline_type: str) -> Finding | None:
    """`replay_groups` does not go with `baseline_type = "global_mean"`: it would compare past and present attempts."""
    # A mean over past and present attempts would move with the age of the replayed ones.
    if not replay_groups or estimator != "outcome" or baseline_type != "global_mean":
        return None
    return Finding(
        "rollout.replay_groups",
        f"rollout.replay_groups = {replay_groups} would mix attempts of past policies into "
        "advantage.baseline_type = 'global_mean'",
        "choose advantage.baseline_type = 'group_mean', or rollout.replay_groups = 0",
    )


def stopping_needs_evaluations(early_stopping: bool, target_reward: float | None, eval_steps: int) -> Finding | None:
    """`early_stopping` and `target_reward` need evaluations: `eval_steps` above 0."""
    if eval_steps > 0 or not (early_stopping or target_reward is not None):
        return None
    name = "training.early_stopping" if early_stopping else "training.target_reward"
    return Finding(
        "run.eval_steps",
        f"{name} looks at evaluations, but run.eval_steps = 0 never evaluates",
        f"set run.eval_steps to 1 or more, or leave {name} out",
    )


def weights_sum_to_one(
    performance_weight: float, structural_weight: float, maintainability_weight: float, resource_weight: float
) -> Finding | None:
    """`performance_weight`, `structural_weight`, `maintainability_weight` and `resource_weight` sum to 1."""
    # Weights are typed by hand, so a sum off by rounding is accepted.
    total = performance_weight + structural_weight + maintainability_weight + resource_weight
    if abs(total - 1) <= 1e-6:
        return None
    return Finding(
        "scoring.performance_weight",
        f"the four weights of scoring sum to {total:.6g} and must sum to 1",
        f"performance {performance_weight:g}, structural {structural_weight:g}, "
        f"maintainability {maintainability_weight:g}, resource {resource_weight:g}",
    )


# What a conversation itself passes to a chat template.
TEMPLATE_ARGUMENTS = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
)


def template_options_are_free(chat_template_kwargs: Mapping[str, Any]) -> Finding | None:
    """`chat_template_kwargs` does not set what every conversation sets itself, such as `messages`."""
    taken = next((name for name in chat_template_kwargs if name in TEMPLATE_ARGUMENTS), None)
    if taken is None:
        return None
    return Finding(
        "language.chat_template_kwargs",
        f"language.chat_template_kwargs cannot set {taken!r}: every conversation sets it itself",
        "options of the template itself, such as enable_thinking",
    )


def workers_have_limits(num_workers: int, max_workers: int | None, backend: str) -> Finding | None:
    """`max_workers` is at least `num_workers`, and needs a `backend` with workers."""
    if max_workers is None or (max_workers >= num_workers and backend != "local"):
        return None
    if backend == "local":
        message = "there are no workers with rollout.backend = 'local'"
        remedy = "leave it out, or set rollout.backend = 'processes'"
    else:
        message = f"it is below rollout.num_workers = {num_workers}, the fewest"
        remedy = f"set it to at least {num_workers}, or leave it out for a fixed number"
    return Finding("rollout.max_workers", f"rollout.max_workers = {max_workers} cannot be: {message}", remedy)


def a_sampler_needs_servers(sampler: str, vllm_servers: tuple[str, ...]) -> Finding | None:
    """`sampler = "vllm"` needs `vllm_servers`."""
    if sampler == "own" or vllm_servers:
        return None
    return Finding(
        "vllm.servers",
        "rollout.sampler = 'vllm' needs the address of a server, but vllm.servers is empty",
        "start one with `groupwise sampler start MODEL`, and set vllm.servers = ['http://127.0.0.1:8000']",
    )


def a_sampler_samples_text(sampler: str, product: str) -> Finding | None:
    """`sampler = "vllm"` needs a `product` with a language model."""
    if sampler == "own" or any(section_name(section) == "vllm" for section in find(product).sections):
        return None
    return Finding(
        "rollout.sampler",
        f"rollout.sampler = {sampler!r} has no effect: task.product = {product!r} has no language model",
        "leave it out",
    )


def surgery_needs_all_weights(gradient_surgery: str, sharding: str) -> Finding | None:
    """`gradient_surgery` excludes `sharding = "fsdp"`."""
    # A rank that has a part of the weights sees a part of each product of two gradients.
    if gradient_surgery == "none" or sharding != "fsdp":
        return None
    return Finding(
        "optim.gradient_surgery",
        f"optim.gradient_surgery = {gradient_surgery!r} does not work with ranks.sharding = 'fsdp'",
        "set ranks.sharding = 'ddp'",
    )


def surgery_is_for_small_networks(gradient_surgery: str, product: str) -> Finding | None:
    """`gradient_surgery` needs a `product` without a language model."""
    # It keeps one gradient per task: as many copies of all weights.
    if gradient_surgery == "none" or not any(section_name(s) == "language" for s in find(product).sections):
        return None
    return Finding(
        "optim.gradient_surgery",
        f"optim.gradient_surgery = {gradient_surgery!r} keeps one gradient per task, for which a language model is too "
        "large",
        "leave it out; advantage.advantage_scale = 'task_rms' gives every task the same scale",
    )


def jax_computes_gae(gae_backend: str, estimator: str) -> Finding | None:
    """`gae_backend = "jax"` needs an `estimator` with GAE."""
    if gae_backend == "torch" or needs_critic(estimator):
        return None
    return Finding(
        "advantage.backend",
        f"advantage.backend = {gae_backend!r} has no effect: advantage.estimator = {estimator!r} computes no GAE",
        "leave it out, or set advantage.estimator = 'group_gae'",
    )


Rule = Callable[..., Finding | None]
RULES: tuple[Rule, ...] = (
    one_precision,
    shards_need_no_scaler,
    kl_needs_a_reference,
    kl_target_needs_a_start,
    dr_grpo_needs_a_length,
    dual_clip_is_beyond_the_clip,
    dual_clip_completes_a_clip,
    cispo_caps_the_ratio,
    gspo_is_per_sequence,
    dynamic_sampling_looks_inside_groups,
    baseline_is_fixed_before_acting,
    baseline_groups_compare,
    replay_draws_from_what_is_kept,
    replay_compares_inside_groups,
    stopping_needs_evaluations,
    weights_sum_to_one,
    template_options_are_free,
    workers_have_limits,
    a_sampler_needs_servers,
    a_sampler_samples_text,
    surgery_needs_all_weights,
    surgery_is_for_small_networks,
    jax_computes_gae,
)


def settings_of_rule(rule: Rule) -> tuple[str, ...]:
    """The names of the settings a rule looks at."""
    return tuple(inspect.signature(rule).parameters)


def broken_rules(values: Mapping[str, Any]) -> list[Finding]:
    """What the values break. A rule about a setting that has no valid value is left aside."""
    findings = []
    for rule in RULES:
        names = settings_of_rule(rule)
        # Sections of other products are absent, and so are settings whose value was refused.
        if all(name in values for name in names):
            findings.append(rule(**{name: values[name] for name in names}))
    return [finding for finding in findings if finding]
