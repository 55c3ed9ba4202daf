"""Every setting that does not belong to one product alone, declared once: type, default, limits and meaning.

All runs have the common sections. A product adds shared ones by listing them in its declaration, and its own, which it
declares itself. Flat names are unique over all sections.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from groupwise.config.fields import Options, Section, Setting, section_name, setting, settings_of

# NumPy's and torch's generators both take 32-bit seeds.
SEED_LIMIT = 2**32 - 1


class RunSettings(Section):
    """The run itself: its name and folder, and how often it saves, evaluates and reports."""

    run_name: str | None = setting(
        None,
        "name of the run's folder in output_dir; null chooses one",
        pattern=r"[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,99}",
        shape="1 to 100 letters, digits and . _ + = @ -, starting with a letter, a digit or _",
    )
    seed: int = setting(0, "seed of all randomness in training", ge=0, le=SEED_LIMIT)
    output_dir: str = setting("runs", "folder of the runs")
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...] = setting(
        (), "trackers that receive metrics and answers as well"
    )
    save_steps: int = setting(10, "iterations between checkpoints", ge=1)
    # Resuming falls back to an older checkpoint if the newest is damaged.
    save_total_limit: int = setting(3, "checkpoints to keep; at least two, in case the newest is damaged", ge=2)
    eval_steps: int = setting(10, "iterations between evaluations; 0 never evaluates", ge=0)
    eval_episodes: int = setting(20, "attempts per evaluation", ge=1)
    # Training never draws tasks of these seeds, so none is both learned from and evaluated on.
    eval_seed: int = setting(
        1_000_000, "first seed of the evaluation tasks, which training never uses", ge=0, le=SEED_LIMIT
    )
    eval_samples: int = setting(
        1, "sampled answers per held-out problem, for pass@k of a language model; 1 answers greedily only", ge=1
    )
    eval_by: Literal["greedy", "drawn"] = setting(
        "greedy", "which answers of a language model are scored: the greedy one, or the eval_samples sampled ones"
    )
    threads: int | None = setting(
        None, "CPU threads; null leaves it to torch. 1 is fastest for small networks", ge=1, le=1024
    )
    group_log_steps: int = setting(1, "iterations between saved groups; 0 never saves them", ge=0)
    group_log_limit: int = setting(
        2000, "saved groups to keep, in steps: beyond it every second of the older ones is deleted; 0 keeps all", ge=0
    )


class TaskSettings(Section):
    """What is attempted."""

    product: str = setting("control", "which product runs")
    environment: str = setting("CartPole-v1", "environment, verifiable task, data file or folder; see docs/data.md")
    max_episode_steps: int | None = setting(None, "steps after which an attempt is cut off", ge=1)
    options: Options = setting(Options(), "more options of the product: plain values and lists")


class TrainingSettings(Section):
    """How long training lasts."""

    num_episodes: int = setting(1000, "training iterations; each samples groups and learns from them", ge=1)
    total_samples: int | None = setting(
        None, "environment steps (or tokens) after which training ends, and which schedules count; null is off", ge=1
    )
    early_stopping: bool = setting(False, "stop when evaluations stop improving")
    early_stopping_patience: int = setting(10, "evaluations without improvement before stopping", ge=1)
    early_stopping_threshold: float = setting(0.01, "smallest gain that counts as an improvement", ge=0)
    target_reward: float | None = setting(None, "stop when an evaluation reaches this mean reward")


class RolloutSettings(Section):
    """How groups of attempts are sampled."""

    num_generations: int = setting(16, "attempts per task: the group size", ge=1)
    tasks_per_step: int = setting(1, "tasks per iteration, each with one group", ge=1)
    # Only PPO steps several copies; the other control runs use num_generations × tasks_per_step episodes.
    num_envs: int = setting(8, "PPO: environments stepped in parallel", ge=1)
    num_steps: int = setting(128, "PPO: steps of each environment per iteration", ge=1)
    reward_timeout: float | None = setting(
        None, "seconds a reward may take for one group before its attempts count as failed; null waits", gt=0
    )
    dynamic_sampling: bool = setting(
        False, "replace groups whose attempts all score the same with groups of new tasks (DAPO)"
    )
    max_resamples: int = setting(3, "rounds of replacement per iteration with dynamic_sampling", ge=1)
    replay_size: int = setting(0, "past groups kept for replay; 0 keeps none", ge=0)
    replay_groups: int = setting(0, "past groups added to each iteration", ge=0)
    replay_max_age: int = setting(8, "age, in policy versions, at which a past group is dropped", ge=1)
    max_conversation_turns: int = setting(20, "turns of the model after which a conversation is cut off", ge=1)
    conversations_in_flight: int = setting(
        64, "conversations in progress at once; those beyond the engine's slots wait for tools", ge=1
    )
    turn_timeout: float | None = setting(
        60.0, "seconds an environment may take for one turn before the attempt counts as failed; null waits", gt=0
    )
    backend: Literal["local", "processes", "ray"] = setting(
        "local", "where attempts are made: in this process, in worker processes, or by actors of Ray"
    )
    num_workers: int = setting(2, "worker processes or actors; with max_workers, the fewest", ge=1, le=100_000)
    max_workers: int | None = setting(
        None, "the most workers of a run that follows its load; null keeps their number", ge=1, le=100_000
    )
    attempts_per_worker: int = setting(
        8, "conversations that a worker has in progress at once; 1 for code that blocks", ge=1, le=1000
    )
    when_worker_lost: Literal["shrink", "wait", "stop"] = setting(
        "shrink", "while lost workers do not come back: go on with the others, wait even for the last, or end the run"
    )
    worker_timeout: float = setting(60.0, "seconds a lost worker may take to come back", gt=0)
    ray_address: str | None = setting(
        None, "a Ray cluster, host:port or auto; null is RAY_ADDRESS, or a Ray of the run's own on this machine"
    )
    ray_cpus: float = setting(1.0, "CPUs that a cluster reserves for a worker; less for work that waits", gt=0)
    sampler: Literal["own", "vllm"] = setting(
        "own", "who generates for a language model: the engine of this process, or the vLLM servers of section vllm"
    )


class PolicySettings(Section):
    """The policy and where it runs."""

    model_name: str | None = setting(None, "language model: tiny, a folder, a run or a hub name")
    hidden_sizes: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (64, 64), "hidden layers of a control policy; [] makes it linear"
    )
    architecture: Literal["layers", "soft_modules"] = setting(
        "layers", "network of a control policy; soft_modules: modules that the tasks of a suite share, routed by task"
    )
    module_count: int = setting(4, "soft modules in each of their two layers", ge=1, le=64)
    module_width: int = setting(16, "units of a soft module", ge=1, le=1024)
    normalize_observations: bool | None = setting(
        None, "normalise the observations of a control policy by their running mean and deviation; null: if its "
        "actions are continuous"
    )  # fmt: skip
    use_reference_model: bool = setting(False, "keep a frozen copy of the initial policy for the KL term")
    gradient_checkpointing: bool = setting(False, "recompute activations in the backward pass to save memory")
    device: str = setting(
        "cpu",
        "where the policy runs",
        pattern=r"(cpu|cuda|mps|xpu)(:\d+)?",
        shape="cpu, cuda, mps or xpu, with :number for one of several",
    )


class SamplingSettings(Section):
    """How a language model's tokens are sampled."""

    # Sampled and learned at one temperature: otherwise the ratio of an unchanged policy would not be 1.
    temperature: float = setting(1.0, "divides the logits; the policy learns at this temperature too", gt=0)
    top_k: int = setting(0, "sample from this many most likely tokens; 0 is off", ge=0)
    top_p: float = setting(
        1.0, "sample from the most likely tokens that make up this probability; 1 is off", gt=0, le=1
    )
    min_p: float = setting(
        0.0, "sample from tokens at least this likely relative to the most likely; 0 is off", ge=0, lt=1
    )
    repetition_penalty: float = setting(1.0, "above 1, tokens seen before become less likely; 1 is off", gt=0)
    max_new_tokens: int = setting(64, "tokens after which an answer is cut off", ge=1)


class LanguageSettings(Section):
    """How a language model is loaded and trained."""

    lora_rank: int = setting(0, "rank of a LoRA adapter; 0 trains all weights", ge=0)
    lora_alpha: float | None = setting(None, "scale of the adapter; null is twice the rank", gt=0)
    lora_options: Options = setting(
        Options(),
        "more arguments of PEFT's LoraConfig, such as target_modules or use_dora; its tables are lists of name=value",
    )
    quantization: Literal["8bit", "4bit"] | None = setting(None, "load the frozen weights in 8 or 4 bits")
    dtype: Literal["float32", "bfloat16"] = setting("float32", "precision of the loaded weights")
    chat_template_kwargs: Options = setting(
        Options(), "options of the model's chat template, such as enable_thinking; a row's or a request's come first"
    )
    tool_format: str | None = setting(
        None, "how the model writes tool calls; null finds out from its chat template, docs/tools.md lists the names"
    )


class VllmSettings(Section):
    """vLLM servers that sample for a language model (rollout.sampler = "vllm"). See docs/cluster.md."""

    servers: tuple[str, ...] = setting(
        (), "addresses of the servers, such as http://127.0.0.1:8000", flat="vllm_servers"
    )
    weights: Literal["adapter", "folder", "transfer"] | None = setting(
        None, "how new weights reach the servers: a LoRA adapter, a folder of full weights, or from GPU to GPU; null: "
        "an adapter if one is trained, otherwise a folder", flat="vllm_weights"
    )  # fmt: skip
    folder: str | None = setting(
        None, "folder that this machine and the servers share, for the weights; null: a temporary one on this machine",
        flat="vllm_folder"
    )  # fmt: skip
    in_flight: int = setting(64, "requests that one server works on at a time", flat="vllm_in_flight", ge=1, le=4096)
    timeout: float = setting(
        600.0, "seconds one request may take before its server counts as lost", flat="vllm_timeout", gt=0
    )
    on_lost: Literal["wait", "shrink", "stop"] = setting(
        "wait", "when a server is lost: wait for one if none is left, go on with those that are left and stop when "
        "none is, or stop at once", flat="vllm_on_lost"
    )  # fmt: skip
    patience: float = setting(600.0, "seconds to wait for a server when none is left", flat="vllm_patience", gt=0)


class ToolsSettings(Section):
    """Tools that the model may call in conversations, beside the environment's own turns. See docs/tools.md."""

    sources: tuple[str, ...] = setting(
        (), "where tools come from: FILE.py, module:name, servers.json, https://…, or mcp:COMMAND", flat="tool_sources"
    )
    timeout: float = setting(30.0, "seconds one call may take", flat="tool_timeout", gt=0)
    longest_result: int = setting(4000, "characters of a result that the model sees", flat="longest_tool_result", ge=1)
    most_calls: int = setting(16, "calls of one turn that are run", flat="most_tool_calls", ge=1, le=1000)
    max_failures: int | None = setting(
        None, "turns in a row in which every call failed, after which a conversation ends; null: no limit",
        flat="max_tool_failures", ge=1
    )  # fmt: skip


class RewardSettings(Section):
    """The reward of a language model, if not the task's or environment's own. See docs/rewards.md."""

    name: str | None = setting(
        None, "a built-in reward, or your own as FILE.py:NAME; null is the task's own", flat="reward_name"
    )
    options: Options = setting(Options(), "arguments of that reward: numbers, strings, lists", flat="reward_options")


class AdvantageSettings(Section):
    """How rewards become advantages."""

    estimator: Literal["outcome", "group_rtg", "turns", "gae", "group_gae"] = setting(
        "outcome",
        "credit per attempt, by return-to-go against the group, by turns of a conversation (gamma per turn), by GAE "
        "with a critic, or by GAE with a critic in the units of each task (PopArt)",
    )
    baseline_type: Literal["group_mean", "group_median", "leave_one_out", "global_mean", "none"] = setting(
        "group_mean", "what an attempt is compared with"
    )
    normalize_returns: bool | None = setting(
        None, "divide the rewards of control steps by the running deviation of returns; null: if actions are "
        "continuous"
    )  # fmt: skip
    advantage_normalization: bool = setting(True, "divide by advantage_scale; false only subtracts the baseline")
    advantage_scale: Literal["group_std", "batch_std", "task_rms", "none"] = setting(
        "group_std", "what advantages are divided by: the spread of the group, of the batch or of grouping.scale_group"
    )
    # [1, 0] has the advantages ±1 with the population deviation, ±0.707 with the sample deviation.
    std_type: Literal["population", "sample"] = setting(
        "population", "standard deviation over n (population) or n - 1 (sample)"
    )
    # Per step of an environment, or per turn where the estimator is "turns".
    gamma: float = setting(0.99, "discount per step", ge=0, le=1)
    gae_lambda: float = setting(0.95, "GAE: 0 relies on the critic, 1 on the returns", ge=0, le=1)
    backend: Literal["torch", "jax"] = setting(
        "torch", "what computes GAE; jax needs groupwise[jax] and gives the same numbers", flat="gae_backend"
    )
    reward_clip: float | None = setting(
        None, "limit of an attempt's score (outcome) or of each step's reward (otherwise); null is off", gt=0
    )


class LossSettings(Section):
    """What is minimised."""

    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "luspo", "vespo"] = setting(
        "dapo", "form of the policy loss"
    )
    importance_level: Literal["token", "sequence"] | None = setting(
        None, "ratio per token or per sequence; null: as loss_type implies"
    )
    # The clipped surrogate is min(r·A, clip(r, 1 − clip_ratio, 1 + clip_ratio_high)·A).
    clip_ratio: float | None = setting(
        None, "the probability ratio is clipped below 1 minus this; null: 0.2, and for gspo and luspo, whose ratios "
        "are of sequences, their papers' 3e-4 and 2e-3", gt=0, le=1
    )  # fmt: skip
    clip_ratio_high: float | None = setting(
        None, "the probability ratio is clipped above 1 plus this; null: the same as clip_ratio, and if that is null "
        "too, 4e-4 for gspo and 2.5e-3 for luspo", gt=0
    )  # fmt: skip
    clip_scheduler_type: Literal["constant", "linear"] = setting(
        "constant", "schedule of the clip; linear shrinks it to 0"
    )
    dual_clip: float | None = setting(None, "cap of the ratio where the advantage is negative; null is off", gt=1)
    top_entropy_quantile: float = setting(
        1.0, "share of tokens to train on, those with the highest entropy; 1 is all", ge=0, le=1
    )
    off_policy_threshold: float | None = setting(
        None,
        "leave out attempts with negative advantage if the policy has moved further than this from them; null is off",
        gt=0,
    )
    # Only for samples of the present version: older ones, replayed ones and a search's keep the recorded ratio.
    sampler_weight_cap: float | None = setting(
        2.0, "cap of the importance weights that correct for the sampler rounding differently from the learner (per "
        "token, outside the clipped ratio); null: no correction", ge=1
    )  # fmt: skip
    mask_truncated: bool = setting(False, "leave attempts that were cut off out of the loss")
    max_completion_length: int | None = setting(None, "longest attempt: the constant dr_grpo divides by", ge=1)
    beta: float = setting(0.0, "weight of the KL term towards the reference policy; 0 is off", ge=0)
    # k1 = −log r, k2 = (log r)²/2, k3 = r − 1 − log r, with r = reference / policy.
    kl_estimator: Literal["k1", "k2", "k3"] = setting("k3", "estimator of the KL divergence")
    kl_importance_correction: bool = setting(
        True, "weight the KL term by the ratio, so that its gradient is that of the reverse KL (with ratios per token)"
    )
    kl_target: float | None = setting(None, "target of the KL; beta adapts to reach it. null keeps beta fixed", gt=0)
    kl_horizon: int = setting(10_000, "samples over which beta adapts to kl_target", ge=1)
    entropy_coef: float = setting(0.0, "weight of the entropy bonus", ge=0)
    # The value loss carries its own ½.
    value_coef: float = setting(0.5, "weight of the critic's loss", ge=0)
    value_clip: float | None = setting(0.2, "limit on the change of a value; null is off", gt=0)
    # Sigmoid gates, sharper where the advantage is negative (arXiv 2511.20347).
    sapo_temperature_pos: float = setting(1.0, "sapo: temperature where the advantage is positive", gt=0)
    sapo_temperature_neg: float = setting(1.05, "sapo: temperature where the advantage is negative", gt=0)
    vespo_k_pos: float = setting(2.0, "vespo: power where the advantage is positive", gt=0)
    vespo_lambda_pos: float = setting(3.0, "vespo: decay where the advantage is positive", gt=0)
    vespo_k_neg: float = setting(3.0, "vespo: power where the advantage is negative", gt=0)
    vespo_lambda_neg: float = setting(2.0, "vespo: decay where the advantage is negative", gt=0)


class OptimSettings(Section):
    """How a batch changes the weights."""

    learning_rate: float = setting(5e-6, "step size of the optimiser (AdamW)", gt=0, le=1)
    critic_learning_rate: float | None = setting(
        None, "step size of the critic; null: the same as learning_rate", gt=0, le=1
    )
    weight_decay: float = setting(0.0, "decay of the weights towards 0", ge=0)
    adam_beta1: float = setting(0.9, "decay rate of Adam's first moment", ge=0, lt=1)
    adam_beta2: float = setting(0.999, "decay rate of Adam's second moment", ge=0, lt=1)
    adam_epsilon: float = setting(1e-8, "added to Adam's denominator", gt=0)
    max_grad_norm: float = setting(1.0, "gradients with a larger norm are scaled down to it", gt=0)
    critic_max_grad_norm: float | None = setting(None, "the same for the critic; null: max_grad_norm", gt=0)
    warmup_ratio: float = setting(0.1, "share of training during which the learning rate rises", ge=0, le=1)
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = setting(
        "cosine", "schedule of the learning rate after the warm-up"
    )
    per_device_train_batch_size: int = setting(1, "rows of a micro-batch", ge=1)
    gradient_accumulation_steps: int = setting(4, "micro-batches per optimiser step", ge=1)
    # Padding counts: a micro-batch costs rows × the longest row.
    micro_batch_tokens: int | None = setting(
        None, "size of a micro-batch in padded tokens instead of rows; null is off", ge=1
    )
    num_epochs: int = setting(1, "passes over each batch", ge=1)
    kl_stop: float | None = setting(
        None, "end the passes once the policy has moved this far (KL) from the one that sampled; null is off", gt=0
    )
    gradient_surgery: Literal["none", "pcgrad"] = setting(
        "none", "pcgrad: remove from each task's gradient what points against another task's; see docs/environments.md"
    )
    bf16: bool = setting(False, "train in bfloat16")
    fp16: bool = setting(False, "train in float16 with a gradient scaler")


class RanksSettings(Section):
    """Training by several processes, one per GPU; torchrun or --ranks says how many. See docs/cluster.md."""

    sharding: Literal["ddp", "fsdp"] = setting(
        "ddp", "every rank has all weights, or fsdp: a part of weights, gradients and optimiser"
    )
    join_timeout: float = setting(300.0, "seconds a rank waits for the others to be started", gt=0)
    # A rank waits while rank 0 evaluates.
    timeout: float = setting(
        3600.0, "seconds a rank waits for another in the middle of a run", gt=0, flat="ranks_timeout"
    )


class GroupingSettings(Section):
    """Which attempts are compared, scaled and weighed together. See docs/grouping.md."""

    group_strategy: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"] = setting(
        "task", "what attempts are grouped by for scale and weight"
    )
    scale_group: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"] | None = (
        setting(
            None, "groups whose RMS advantages are divided by if advantage_scale = 'task_rms'; null: group_strategy"
        )
    )
    weight_group: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"] | None = (
        setting(None, "groups that group_weight_method weights and reports list separately; null: group_strategy")
    )
    baseline_group: Literal[
        "start", "task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"
    ] = setting("start", "groups whose mean is subtracted: attempts from one start, or for ablations a strategy")
    allow_outcome_baseline: bool = setting(
        False, "allow a baseline_group formed from the outcome; only for ablations, because it biases learning"
    )
    n_groups: int | None = setting(4, "number of groups; null chooses it by silhouette", ge=1)
    group_weight_method: Literal["none", "balanced", "inv_sqrt_steps", "performance", "adaptive"] = setting(
        "none", "how groups are weighted in the loss"
    )
    group_weight_temperature: float = setting(1.0, "performance and adaptive: above 1 is gentler", gt=0)
    group_weight_floor: float = setting(
        0.1, "performance and adaptive: minimum weight of a group, relative to equal weights", ge=0, le=1
    )
    history_window: int = setting(1000, "trajectories that adaptive and dirichlet groupings remember", ge=1)


class MemorySettings(Section):
    """What is remembered between generations."""

    pattern_memory_size: int = setting(1000, "patterns kept", ge=0)
    experience_memory_size: int = setting(10_000, "experiences kept", ge=0)
    # Weight after n generations without use: decay_factor ** (n / decay_unit).
    decay_factor: float = setting(0.999, "weight that remains after decay_unit generations without use", gt=0, le=1)
    decay_unit: int = setting(1, "generations without use after which decay_factor applies once", ge=1)
    recall_threshold: float = setting(0.3, "minimum similarity for a pattern to be recalled", ge=0, le=1)


class ScoringSettings(Section):
    """How a workflow's score is put together. The four weights sum to 1."""

    performance_weight: float = setting(0.4, "weight of time, memory, CPU and throughput", ge=0, le=1)
    structural_weight: float = setting(0.25, "weight of complexity, connectivity and coverage", ge=0, le=1)
    maintainability_weight: float = setting(0.2, "weight of readability, modularity and testability", ge=0, le=1)
    resource_weight: float = setting(0.15, "weight of utilisation, cost and contention", ge=0, le=1)
    normalization: Literal["reference", "zscore"] = setting(
        "reference", "scores on fixed reference scales, or z-scores inside a batch"
    )


# In the order in which files list them.
SECTIONS: Mapping[str, type[Section]] = {
    section_name(section): section
    for section in (
        RunSettings,
        TaskSettings,
        TrainingSettings,
        RolloutSettings,
        PolicySettings,
        SamplingSettings,
        LanguageSettings,
        VllmSettings,
        ToolsSettings,
        RewardSettings,
        AdvantageSettings,
        LossSettings,
        OptimSettings,
        RanksSettings,
        GroupingSettings,
        MemorySettings,
        ScoringSettings,
    )
}
"""The common and the shared sections by name."""
SHARED = ("sampling", "language", "vllm", "tools", "reward", "memory", "scoring")
"""The sections that only some products have."""
SETTINGS: Mapping[str, Setting] = {
    declared.flat: declared for section in SECTIONS.values() for declared in settings_of(section).values()
}
"""Their settings by flat name."""
