"""`groupwise plan`: how much memory and time a step of a run will take."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from groupwise.language.capacity.estimate import Machines, Plan, plan
from groupwise.language.capacity.model_shape import shape_of
from groupwise.language.capacity.workload import Workload
from groupwise.reporting.command_options import Common, answer, say

Count = Parameter(validator=Number(gte=1))


def estimate(
    model: Annotated[
        str, Parameter(help="A model's folder, a known name such as qwen3-8b, or layers=28,width=1024,….")
    ],
    *,
    gpu: Annotated[str, Parameter(help="Kind of GPU: h200 (measured), h100, a100, l40s, l4.")] = "h200",
    gpus: Annotated[int, Count, Parameter(help="How many GPUs learn and sample.")] = 1,
    network: Annotated[
        str, Parameter(help="What connects them: nvlink, pcie, infiniband, ethernet100, ethernet10.")
    ] = "nvlink",
    sharded: Annotated[
        bool, Parameter(help="Share the weights between the GPUs (FSDP2), instead of a copy each.")
    ] = False,
    tasks: Annotated[int, Count, Parameter(help="Tasks per step (rollout.tasks_per_step).")] = 8,
    group: Annotated[int, Count, Parameter(help="Attempts per task (rollout.num_generations).")] = 8,
    prompt: Annotated[int, Count, Parameter(help="Tokens of a prompt.")] = 128,
    length: Annotated[int, Count, Parameter(help="Tokens of an answer (sampling.max_new_tokens).")] = 256,
    micro_batch: Annotated[int, Count, Parameter(help="Rows of a micro-batch (per_device_train_batch_size).")] = 16,
    lora_rank: Annotated[int, Parameter(validator=Number(gte=0), help="Rank of an adapter; 0 trains all weights.")] = 0,
    checkpointing: Annotated[bool, Parameter(help="Recompute activations (policy.gradient_checkpointing).")] = False,
    common: Common = Common(),
) -> int:
    """Estimate memory, seconds and tokens a second of a step in bfloat16, from measured rates."""
    shape = shape_of(model)
    work = Workload(shape, tasks, group, prompt, length, micro_batch, lora_rank, checkpointing)
    found = plan(work, Machines(gpus, gpu, network, sharded))
    if common.json:
        answer({"model": model, "shape": asdict(shape), "gpu": gpu, "gpus": gpus, **asdict(found)})
    else:
        say(*_lines(found, work, gpus, gpu))
    return 0 if found.fits else 1


def _lines(found: Plan, work: Workload, gpus: int, gpu: str) -> list[str]:
    each = " on each GPU" if gpus > 1 else ""
    parts = (found.generation_seconds, found.update_seconds, found.communication_seconds)
    spent = "generation {:.2f}, update {:.2f}, traffic {:.2f}".format(*parts)
    lines = [
        f"{found.parameters / 1e9:.2f} billion parameters, {gpus} × {gpu}, {work.rows} × {work.answer} tokens a step",
        "",
        f"memory      {found.memory_gib:.1f} of {found.available_gib:.0f} GiB{each}"
        + ("" if found.fits else ": does not fit"),
        *(f"            {size:.1f} {name}" for name, size in found.memory.items()),
        f"step        {found.step_seconds:.2f} s: {spent}",
        f"speed       {found.tokens_per_second:,.0f} sampled tokens a second; a token waits for {found.bound_by}",
        f"saturates   at {found.saturates_at} tasks a step: more hardly raise the speed",
    ]
    if found.largest_micro_batch:
        lines.append(f"micro-batch up to {found.largest_micro_batch} rows fit")
    elif work.checkpointing or work.lora_rank:
        lines.append("micro-batch not even one row fits: use more GPUs with --sharded, or a smaller model")
    else:
        lines.append(
            "micro-batch not even one row fits: try --checkpointing, --lora-rank 16, or more GPUs with --sharded"
        )
    lines += ["", *(f"extrapolated: {reason}" for reason in found.extrapolated)]
    return lines if found.extrapolated else lines[:-1]
