"""The flat names of all settings with their types, so that an editor completes `TrainingConfig(…)`.

Written by `python -m groupwise.config.reference keywords > src/groupwise/config/flat_names.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class SettingNames(TypedDict, total=False):
    """What `TrainingConfig(…)`, `from_profile` and `replace` take."""

    # run
    run_name: str | None
    seed: int
    output_dir: str
    report_to: Sequence[Literal["tensorboard", "wandb", "mlflow", "trackio"]]
    save_steps: int
    save_total_limit: int
    eval_steps: int
    eval_episodes: int
    eval_seed: int
    eval_samples: int
    eval_by: Literal["greedy", "drawn"]
    threads: int | None
    group_log_steps: int
    group_log_limit: int
    # task
    product: str
    environment: str
    max_episode_steps: int | None
    options: Mapping[str, Any]
    # training
    num_episodes: int
    total_samples: int | None
    early_stopping: bool
    early_stopping_patience: int
    early_stopping_threshold: float
    target_reward: float | None
    # rollout
    num_generations: int
    tasks_per_step: int
    num_envs: int
    num_steps: int
    reward_timeout: float | None
    dynamic_sampling: bool
    max_resamples: int
    replay_size: int
    replay_groups: int
    replay_max_age: int
    max_conversation_turns: int
    conversations_in_flight: int
    turn_timeout: float | None
    backend: Literal["local", "processes", "ray"]
    num_workers: int
    max_workers: int | None
    attempts_per_worker: int
    when_worker_lost: Literal["shrink", "wait", "stop"]
    worker_timeout: float
    ray_address: str | None
    ray_cpus: float
    sampler: Literal["own", "vllm"]
    # policy
    model_name: str | None
    hidden_sizes: Sequence[int]
    architecture: Literal["layers", "soft_modules"]
    module_count: int
    module_width: int
    normalize_observations: bool | None
    use_reference_model: bool
    gradient_checkpointing: bool
    device: str
    # advantage
    estimator: Literal["outcome", "group_rtg", "turns", "gae", "group_gae"]
    baseline_type: Literal["group_mean", "group_median", "leave_one_out", "global_mean", "none"]
    normalize_returns: bool | None
    advantage_normalization: bool
    advantage_scale: Literal["group_std", "batch_std", "task_rms", "none"]
    std_type: Literal["population", "sample"]
    gamma: float
    gae_lambda: float
    gae_backend: Literal["torch", "jax"]
    reward_clip: float | None
    # loss
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "luspo", "vespo"]
    importance_level: Literal["token", "sequence"] | None
    clip_ratio: float | None
    clip_ratio_high: float | None
    clip_scheduler_type: Literal["constant", "linear"]
    dual_clip: float | None
    top_entropy_quantile: float
    off_policy_threshold: float | None
    sampler_weight_cap: float | None
    mask_truncated: bool
    max_completion_length: int | None
    beta: float
    kl_estimator: Literal["k1", "k2", "k3"]
    kl_importance_correction: bool
    kl_target: float | None
    kl_horizon: int
    entropy_coef: float
    value_coef: float
    value_clip: float | None
    sapo_temperature_pos: float
    sapo_temperature_neg: float
    vespo_k_pos: float
    vespo_lambda_pos: float
    vespo_k_neg: float
    vespo_lambda_neg: float
    # optim
    learning_rate: float
    critic_learning_rate: float | None
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    max_grad_norm: float
    critic_max_grad_norm: float | None
    warmup_ratio: float
    lr_scheduler_type: Literal["constant", "linear", "cosine"]
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    micro_batch_tokens: int | None
    num_epochs: int
    kl_stop: float | None
    gradient_surgery: Literal["none", "pcgrad"]
    bf16: bool
    fp16: bool
    # ranks
    sharding: Literal["ddp", "fsdp"]
    join_timeout: float
    ranks_timeout: float
    # grouping
    group_strategy: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"]
    scale_group: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"] | None
    weight_group: Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"] | None
    baseline_group: Literal["start", "task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"]
    allow_outcome_baseline: bool
    n_groups: int | None
    group_weight_method: Literal["none", "balanced", "inv_sqrt_steps", "performance", "adaptive"]
    group_weight_temperature: float
    group_weight_floor: float
    history_window: int
    # sampling
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    max_new_tokens: int
    # language
    lora_rank: int
    lora_alpha: float | None
    lora_options: Mapping[str, Any]
    quantization: Literal["8bit", "4bit"] | None
    dtype: Literal["float32", "bfloat16"]
    chat_template_kwargs: Mapping[str, Any]
    tool_format: str | None
    # vllm
    vllm_servers: Sequence[str]
    vllm_weights: Literal["adapter", "folder", "transfer"] | None
    vllm_folder: str | None
    vllm_in_flight: int
    vllm_timeout: float
    vllm_on_lost: Literal["wait", "shrink", "stop"]
    vllm_patience: float
    # reward
    reward_name: str | None
    reward_options: Mapping[str, Any]
    # tools
    tool_sources: Sequence[str]
    tool_timeout: float
    longest_tool_result: int
    most_tool_calls: int
    max_tool_failures: int | None
    # memory
    pattern_memory_size: int
    experience_memory_size: int
    decay_factor: float
    decay_unit: int
    recall_threshold: float
    # scoring
    performance_weight: float
    structural_weight: float
    maintainability_weight: float
    resource_weight: float
    normalization: Literal["reference", "zscore"]
    # generation
    batch_size: int
    epsilon_greedy: float
    exploration_epsilon: float
    exploration_share: float
    elite_percentage: float
    tournament_size: int
    sampled_share: float
    learning_share: float
    action_sampler: Literal["learned", "rates"]
    branch_rate: float
    synchronization_rate: float
    timing_rate: float
    resource_rate: float
    structural_diversity: float
    temporal_diversity: float
    resource_diversity: float
    novelty: float
    workers: int
    # correction
    performance_loss_coef: float
    structural_loss_coef: float
