"""`GRPOConfig` with the fields and defaults of TRL 1.16, and what each of them is here.

    GRPOConfig(output_dir="runs", learning_rate=1e-5, max_steps=100).settings(rows=1000) → TrainingConfig

A field is carried over to our settings, has no effect on what is learned, or may only have the values in `ONLY`; any
other value is refused with what to use instead. Nothing is silently ignored. `python -m groupwise.compat.trl_config`
prints docs/trl_arguments.md.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Self

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError

CARRIED: Mapping[str, Any] = {
    "output_dir": None, "run_name": None, "seed": 42, "report_to": "none", "disable_tqdm": None, "use_cpu": False,
    "resume_from_checkpoint": None, "logging_steps": 10,
    "max_steps": -1, "num_train_epochs": 3.0, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
    "generation_batch_size": None, "steps_per_generation": None, "num_iterations": 1, "num_generations": 8,
    "num_generations_eval": None, "shuffle_dataset": True,
    "learning_rate": 1e-06, "lr_scheduler_type": "linear", "warmup_steps": 0, "weight_decay": 0.0, "adam_beta1": 0.9,
    "adam_beta2": 0.999, "adam_epsilon": 1e-08, "max_grad_norm": 1.0, "bf16": None, "fp16": False,
    "gradient_checkpointing": True,
    "eval_strategy": "no", "eval_steps": None, "save_strategy": "steps", "save_steps": 500, "save_total_limit": None,
    "model_init_kwargs": None, "chat_template_kwargs": None, "max_tool_calling_iterations": None,
    "max_completion_length": 512, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None,
    "repetition_penalty": 1.0, "generation_kwargs": None,
    "beta": 0.0, "epsilon": 0.2, "epsilon_high": None, "delta": None, "loss_type": "dapo",
    "importance_sampling_level": "token", "scale_rewards": "group", "mask_truncated_completions": False,
    "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "use_bias_correction_kl": True,
    "entropy_coef": 0.0, "sapo_temperature_neg": 1.05, "sapo_temperature_pos": 1.0, "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0, "reward_weights": None,
    "multi_objective_aggregation": "sum_then_normalize",
}  # fmt: skip
"""Field → TRL's default. These decide how a run goes."""

ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "trust_remote_code": ((False,), "code from a model's repository is never run"),
    "router_aux_loss_coef": ((None, 0.0), "a router's auxiliary loss is not added; leave it out"),
    "use_vllm": ((False,), "our engine samples here; a settings file can name vLLM servers (docs/cluster.md)"),
    "sync_ref_model": ((False,), "start a new run from this one instead: its policy becomes the reference"),
    "use_adaptive_entropy": ((False,), "use entropy_coef, which stays fixed"),
    "log_completions_hub_repo": ((None,), "completions are saved in the run's folder; see trainer.path"),
    "optim": (("adamw_torch_fused", "adamw_torch"), "the optimiser is AdamW"),
    "optim_args": ((None, ""), "use weight_decay and adam_beta1, adam_beta2, adam_epsilon"),
    "optim_target_modules": ((None,), "use peft_config to train a part of the weights"),
    "lr_scheduler_kwargs": ((None, {}), "use warmup_steps and a constant, linear or cosine schedule"),
    "label_smoothing_factor": ((0.0, 0), "it has no meaning for a policy; leave it out"),
    "tf32": ((None, False), "call torch.set_float32_matmul_precision('high') before training"),
    "torch_compile": ((False,), "compile the model yourself before you pass it"),
    "use_liger_kernel": ((False,), "leave it out; the loss is computed in micro-batches"),
    "neftune_noise_alpha": ((None,), "it would make the first ratios differ from 1; leave it out"),
    "eval_delay": ((0,), "evaluate from the start, or set eval_strategy to 'no' and call evaluate()"),
    "save_only_model": ((False,), "checkpoints can always be resumed; use save_model() for the weights alone"),
    "push_to_hub": ((False,), "nothing is uploaded; use save_model() and upload the folder"),
    "load_best_model_at_end": ((False,), "pass a checkpoint's folder as the model of a new trainer"),
    "ignore_data_skip": ((False,), "a resumed run continues with the rows it had not seen"),
    "data_seed": ((None,), "use seed"),
    "accelerator_config": ((None,), "this call trains in one process; see docs/cluster.md for several"),
    "parallelism_config": ((None,), "this call trains in one process; see docs/cluster.md for several"),
    "train_sampling_strategy": (("random",), "use shuffle_dataset=False for the order of the data"),
    "fsdp": ((None, "", [], False), "this call trains in one process; see docs/cluster.md for several"),
    "deepspeed": ((None,), "this call trains in one process; see docs/cluster.md for several"),
    "debug": (("", []), "leave it out"),
}
"""Field → the values it may have, the first of them TRL's default, and what to do instead of others."""

# What matters with vLLM, DeepSpeed, several processes, the hub or a dataloader, none of which is used.
UNUSED = """
vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url vllm_server_host
vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length
vllm_tensor_parallel_size vllm_importance_sampling_correction vllm_importance_sampling_mode
vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min vllm_importance_sampling_cap
ds3_gather_for_generation average_tokens_across_devices log_on_each_node log_level_replica save_on_each_node
ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout
fsdp_config local_rank hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
dataloader_drop_last dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers
dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order project trackio_space_id
trackio_bucket_id trackio_static_space_id
"""
# What cannot change a result: dropout is off, padding is removed, too little memory is handled, all is recorded.
HARMLESS = """
disable_dropout cast_lm_head_to_fp32 pad_to_multiple_of cache_implementation use_cache remove_unused_columns
label_names length_column_name use_transformers_continuous_batching transformers_continuous_batching_config
use_transformers_paged ref_model_mixup_alpha ref_model_sync_steps entropy_coef_min entropy_coef_max
entropy_coef_delta entropy_target log_completions log_multimodal num_completions_to_print log_unique_prompts
bf16_full_eval fp16_full_eval gradient_checkpointing_kwargs torch_compile_backend torch_compile_mode
liger_kernel_config torch_empty_cache_steps auto_find_batch_size logging_strategy logging_first_step
logging_nan_inf_filter include_num_input_tokens_seen log_level per_device_eval_batch_size prediction_loss_only
eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
batch_eval_metrics enable_jit_checkpoint metric_for_best_model greater_is_better
restore_callback_states_from_checkpoint full_determinism skip_memory_metrics do_train do_eval do_predict
"""
NO_EFFECT = frozenset((UNUSED + HARMLESS).split())
SAME = (
    "num_generations", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "fp16", "gradient_checkpointing", "temperature", "top_p", "top_k", "repetition_penalty", "beta", "loss_type",
    "top_entropy_quantile", "entropy_coef", "seed", "sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos",
    "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg", "per_device_train_batch_size",
    "gradient_accumulation_steps",
)  # fmt: skip
RENAMED = {
    "num_iterations": "num_epochs", "max_completion_length": "max_new_tokens", "epsilon": "clip_ratio",
    "epsilon_high": "clip_ratio_high", "delta": "dual_clip", "mask_truncated_completions": "mask_truncated",
    "off_policy_mask_threshold": "off_policy_threshold", "use_bias_correction_kl": "kl_importance_correction",
}  # fmt: skip
SCALES = {"group": "group_std", "batch": "batch_std", "none": "none", "True": "group_std", "False": "none"}
SCHEDULES = {"constant_with_warmup": "constant", "constant": "constant", "linear": "linear", "cosine": "cosine"}
SAMPLED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
NEVER = 1 << 30


def is_trls_own(given: Any) -> bool:
    return any(kind.__name__ == "GRPOConfig" and kind.__module__.startswith("trl.") for kind in type(given).__mro__)


class GRPOConfig:
    """The arguments of a run as TRL names them; docs/trl_arguments.md lists them all."""

    def __init__(self, output_dir: str | None = None, **given: Any) -> None:
        values = {**CARRIED, **{name: allowed[0] for name, (allowed, _) in ONLY.items()}, "output_dir": output_dir}
        self.__dict__.update(values)
        for name, value in given.items():
            setattr(self, name, value)
        self._check()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in CARRIED and name not in ONLY and name not in NO_EFFECT:
            near = difflib.get_close_matches(name, [*CARRIED, *ONLY, *NO_EFFECT], 1)
            hint = f"Did you mean {near[0]!r}?" if near else "docs/trl_arguments.md lists the arguments."
            raise ConfigError(f"{name!r} is not an argument of TRL 1.16's GRPOConfig", hint=hint, field=name)
        value = value.value if isinstance(value, Enum) else value
        allowed, instead = ONLY.get(name, ((value,), ""))
        if value not in allowed:
            message = f"GRPOConfig({name}={value!r}) is not supported here"
            raise ConfigError(message, hint=f"{instead[0].upper()}{instead[1:]}.", field=name)
        self.__dict__[name] = value

    @classmethod
    def from_trl(cls, theirs: Any) -> Self:
        """The same arguments from TRL's own object, such as its command line's parser makes."""
        # What TRL fills in by itself differs from the declared defaults, so compare with an object it has filled in.
        usual = type(theirs)(output_dir=theirs.output_dir, use_cpu=theirs.use_cpu)
        given = {one.name: getattr(theirs, one.name) for one in dataclasses.fields(theirs) if one.init}
        changed = {name: value for name, value in given.items() if value != getattr(usual, name)}
        changed.pop("output_dir", None)
        if changed.pop("steps_per_generation", None) is not None:  # TRL sets both, each from the other
            changed["generation_batch_size"] = theirs.generation_batch_size
        return cls(theirs.output_dir, use_cpu=theirs.use_cpu, **{k: v for k, v in changed.items() if k != "use_cpu"})

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.__dict__.items() if CARRIED.get(name, value) != value}
        return f"GRPOConfig({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __getattr__(self, name: str) -> Any:
        # Fields without effect that were not given: code that reads them goes on.
        if name in NO_EFFECT:
            return None
        raise AttributeError(f"GRPOConfig has no argument {name!r}")

    @property
    def rows(self) -> int:
        """Completions that are sampled at once."""
        size = self.per_device_train_batch_size
        return int(self.generation_batch_size or size * (self.steps_per_generation or self.gradient_accumulation_steps))

    @property
    def updates(self) -> float:
        """Optimiser steps for each time that completions are sampled."""
        step = self.per_device_train_batch_size * self.gradient_accumulation_steps
        return float(self.rows / step * self.num_iterations)

    def _check(self) -> None:
        if self.generation_batch_size and self.steps_per_generation:
            message = "generation_batch_size and steps_per_generation are both set"
            raise ConfigError(message, hint="Each follows from the other; give one.", field="generation_batch_size")
        if self.num_generations < 2:
            message = f"num_generations is {self.num_generations}, and a group of one has nothing to compare with"
            raise ConfigError(message, hint="Use at least 2.", field="num_generations")
        if self.rows % self.num_generations:
            raise ConfigError(
                f"{self.rows} completions are sampled at once, which is not a multiple of num_generations = "
                f"{self.num_generations}",
                hint="Change per_device_train_batch_size, gradient_accumulation_steps or generation_batch_size.",
                field="num_generations",
            )
        for name, known in (("scale_rewards", SCALES), ("lr_scheduler_type", SCHEDULES)):
            if str(getattr(self, name)) not in known:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r} is not supported here", hint=f"Use one of {', '.join(known)}.",
                    field=name,
                )  # fmt: skip

    def settings(self, rows: int, *, device: str, evaluates: bool) -> TrainingConfig:
        """Our settings for a run over a data set of so many rows."""
        tasks = self.rows // self.num_generations
        a_pass = max(1, rows // tasks)
        counted = math.ceil(self.max_steps / self.updates) if self.max_steps > 0 else 0
        iterations = counted or math.ceil(self.num_train_epochs * a_pass)
        total = max(1.0, iterations * self.updates)
        warmup = self.warmup_steps / total if self.warmup_steps >= 1 else self.warmup_steps
        minimal = {} if self.min_p is None else {"min_p": self.min_p}
        options = dict(self.generation_kwargs or {})
        if unknown := [name for name in options if name not in SAMPLED]:
            message = f"generation_kwargs has {unknown[0]!r}, which the engine does not know"
            raise ConfigError(message, hint=f"It knows {', '.join(SAMPLED)}.", field="generation_kwargs")
        trackers = [self.report_to] if isinstance(self.report_to, str) else list(self.report_to or ())
        sequence = {"importance_level": "sequence"} if self.importance_sampling_level == "sequence" else {}
        settings: dict[str, Any] = dict(
            product="language", environment="dataset", num_episodes=iterations, tasks_per_step=tasks,
            **{name: getattr(self, name) for name in SAME},
            **{ours: getattr(self, theirs) for theirs, ours in RENAMED.items()},
            **{**minimal, **options}, **sequence, **self._often(a_pass, evaluates),
            output_dir=str(self.output_dir or "runs"), run_name=self.run_name, warmup_ratio=min(1.0, warmup),
            report_to=tuple(name for name in trackers if name not in ("none", "all")),
            lr_scheduler_type=SCHEDULES[str(getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type))],
            advantage_scale=SCALES[str(self.scale_rewards)], std_type="sample", sampler_weight_cap=None,
            use_reference_model=self.beta > 0, device=device, bf16=self._in_bfloat16(device),
            chat_template_kwargs=dict(self.chat_template_kwargs or {}),
            max_conversation_turns=(self.max_tool_calling_iterations or 20) + 1,
            **({"max_completion_length": self.max_completion_length} if self.loss_type == "dr_grpo" else {}),
        )  # fmt: skip
        return TrainingConfig(**settings)

    def _in_bfloat16(self, device: str) -> bool:
        return (device != "cpu" and not self.fp16) if self.bf16 is None else bool(self.bf16)

    def _often(self, a_pass: int, evaluates: bool) -> dict[str, Any]:
        """How often to evaluate and save, in our iterations."""

        def every(strategy: Any, steps: float | None) -> int:
            kind = str(getattr(strategy, "value", strategy))
            if kind == "epoch":
                return a_pass
            return NEVER if kind in ("no", "best") else max(1, round((steps or self.logging_steps) / self.updates))

        evaluation = every(self.eval_strategy, self.eval_steps)
        return {
            "eval_steps": 0 if evaluation == NEVER or not evaluates else evaluation,
            "eval_by": "drawn", "eval_samples": self.num_generations_eval or self.num_generations,
            "save_steps": every(self.save_strategy, self.save_steps),
            "save_total_limit": max(2, self.save_total_limit or NEVER),
        }  # fmt: skip


def page() -> Iterator[str]:
    """The lines of docs/trl_arguments.md."""
    yield "# TRL's arguments, one by one"
    yield ""
    yield "<!-- Written by `python -m groupwise.compat.trl_config > docs/trl_arguments.md`. -->"
    yield ""
    yield "`from groupwise import GRPOConfig, GRPOTrainer` takes every field of TRL 1.16's `GRPOConfig`. A field is"
    yield "carried over, has no effect on what is learned, or is refused unless it keeps the value that changes nothing"
    yield "here."
    yield ""
    yield "## Carried over"
    yield ""
    yield "With TRL's default, and the setting of ours where it is one:"
    yield ""
    renamed = {**{name: name for name in SAME}, **RENAMED}
    for name, default in CARRIED.items():
        ours = f" → `{renamed[name]}`" if renamed.get(name, name) != name else ""
        yield f"- `{name}` = `{default!r}`{ours}"
    yield ""
    yield "`bf16=None` means bfloat16 on a GPU and float32 on a CPU, where TRL computes in bfloat16 as well."
    yield ""
    yield "## Only with these values"
    yield ""
    for name, (allowed, instead) in ONLY.items():
        yield f"- `{name}` = {' or '.join(f'`{value!r}`' for value in allowed)}: {instead}"
    yield ""
    yield "## Without effect"
    yield ""
    yield ", ".join(f"`{name}`" for name in sorted(NO_EFFECT)) + "."


if __name__ == "__main__":
    print("\n".join(page()))
