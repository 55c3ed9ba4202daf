"""Every family of models: are the recorded log-probabilities right, and how fast is it beside Transformers' `generate`?

    python benchmarks/families.py --json

Random tiny models. `worst_gap` is the largest difference between a recorded log-probability and Transformers' full
forward pass of the sampled sequence, while the model's `generation_config` asks for penalties, suppressed tokens, beams
and more. `vs_generate` is processor time per token over that of Transformers' own batched `generate` for the same
prompts and lengths; the two take turns on one thread, and each ratio is the median over rounds. With git at hand,
Qwen3-MoE is also measured against the engine of the commit that served such models one request at a time.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from record import print_result

from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.engine.request import GenerationRequest

VOCABULARY, PROMPTS, SAMPLES, TOKENS = 256, 4, 8, 32
BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 0,
    "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "head_dim": 16, "shared_expert_intermediate_size": 32,
}  # fmt: skip
LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
MAMBA = {"mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}
JAMBA = {
    "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
    "num_experts": 4, "num_experts_per_tok": 2, "use_mamba_kernels": False, "mamba_d_state": 8, "mamba_dt_rank": 8,
}  # fmt: skip
GLM = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "head_dim": 16,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16}),
    "phi3": ("Phi3Config", {}),
    "gpt2": ("GPT2Config", {}),
    "qwen3-moe": ("Qwen3MoeConfig", EXPERTS),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, "head_dim": 16, "sliding_window": 24}),
    "deepseek-v3": ("DeepseekV3Config", LATENT),
    "glm4-moe": ("Glm4MoeConfig", GLM),
    "smollm3": ("SmolLM3Config", {}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", {"embedding_multiplier": 2.0, "logits_scaling": 2.0}),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 24}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 24}),
    "falcon": ("FalconConfig", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "bloom": ("BloomConfig", {"n_layer": 4, "n_head": 4}),
    "mamba": ("MambaConfig", {"state_size": 8}),
    "mamba2": ("Mamba2Config", {"state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 16}),
    "qwen3-next": ("Qwen3NextConfig", {**EXPERTS, **LINEAR}),
    "qwen3.5": ("Qwen3_5TextConfig", LINEAR),
    "lfm2": ("Lfm2Config", {"full_attn_idxs": [1, 3]}),
    "bamba": ("BambaConfig", {**MAMBA, "attn_layer_indices": [1, 3]}),
    "falcon-h1": ("FalconH1Config", {**MAMBA, "mamba_d_ssm": 128, "head_dim": 16}),
    "jamba": ("JambaConfig", JAMBA),
}
HOSTILE = {
    "repetition_penalty": 1.7, "suppress_tokens": list(range(0, 200, 2)), "min_new_tokens": 9, "temperature": 0.3,
    "top_k": 3, "top_p": 0.2, "forced_eos_token_id": 5, "eos_token_id": 7, "no_repeat_ngram_size": 1,
    "num_beams": 3, "sequence_bias": [[[9], 5.0]], "use_cache": False,
}  # fmt: skip
BEFORE = "0911d3c"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per family")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), help="which of the families to measure")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    say: Callable[[str], None] = (lambda _: None) if options.json else print
    gaps, ratios = dict[str, float](), dict[str, float]()
    for name in options.families:
        model = make_model(name)
        gaps[name], ratios[name] = worst_gap(model), against_generate(model, options.rounds)
        say(f"{name:12} gap {gaps[name]:.1e}   processor time per token {ratios[name]:.2f} × generate's")
    before = None if "qwen3-moe" not in options.families else against_before(make_model("qwen3-moe"), options.rounds)
    if before is not None:
        say(f"qwen3-moe: {before:.1f} × the tokens per processor second of the engine before")
    claims = {
        "families": len(gaps),
        "worst_gap": float(f"{max(gaps.values()):.2g}"),
        "vs_generate": round(max(ratios.values()), 3),
        "qwen3_moe_vs_before": None if before is None else round(before, 2),
    }
    peers = {"transformers": transformers.__version__, "torch": torch.__version__}
    print_result("families", claims, seeds=[0], raw={"gap": gaps, "vs_generate": ratios}, peers=peers)


def make_model(name: str) -> Any:
    kind, extra = FAMILIES[name]
    config = getattr(transformers, kind)(**{**BASE, **extra})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        # Norms, biases and gates away from 1 and 0, so that every parameter matters.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def prompts() -> list[list[int]]:
    """Of different lengths."""
    return [np.random.default_rng(i).integers(3, VOCABULARY, 18 + 4 * i).tolist() for i in range(PROMPTS)]


def requests() -> list[tuple[list[int], int]]:
    return [(prompt, seed) for prompt in prompts() for seed in range(SAMPLES)]


@torch.no_grad()
def worst_gap(model: Any) -> float:
    """Recorded log-probabilities against a full forward pass, while `generation_config` asks for other things."""
    plain = model.generation_config
    model.generation_config = transformers.GenerationConfig.from_dict(HOSTILE)
    # Fewer slots than requests: rows of different lengths join and leave.
    results = Engine(model, eos=(), slots=12).generate(requests(), SamplingParams(max_new_tokens=TOKENS))
    model.generation_config = plain
    gaps = []
    for (prompt, _), result in zip(requests(), results, strict=True):
        assert len(result) == TOKENS, f"{len(result)} tokens instead of {TOKENS}"
        logits = model(torch.tensor([prompt + result.ids.tolist()]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        expected = logits.float().log_softmax(-1).gather(1, torch.from_numpy(result.ids)[:, None])[:, 0]
        gaps.append(float((expected - torch.from_numpy(result.logp)).abs().max()))
    return max(gaps)


def against_generate(model: Any, rounds: int) -> float:
    engine = Engine(model, eos=(), slots=PROMPTS * SAMPLES)
    width = max(len(prompt) for prompt in prompts())
    ids = torch.tensor([[2] * (width - len(p)) + p for p in prompts()]).repeat_interleave(SAMPLES, 0)
    plain = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        pad_token_id=2,
    )
    return ratio(
        lambda: engine.generate(requests(), SamplingParams(max_new_tokens=TOKENS)),
        lambda: model.generate(ids, attention_mask=(ids != 2).long(), generation_config=plain),
        rounds,
    )


def against_before(model: Any, rounds: int) -> float | None:
    """How many times the tokens per processor second of the engine before; None without that commit."""
    old = engine_before()
    if old is None:
        return None
    engine = Engine(model, eos=(), slots=PROMPTS * SAMPLES)
    served = old.Fallback(model, eos=frozenset(), vocabulary=VOCABULARY)
    params = SamplingParams(max_new_tokens=TOKENS)

    def one_by_one() -> None:
        for prompt, seed in requests():
            served.add(GenerationRequest(np.array(prompt), params, seed, None, None, None, TOKENS))
            served.step()

    model.generation_config = transformers.GenerationConfig()
    return 1 / ratio(lambda: engine.generate(requests(), params), one_by_one, max(1, rounds // 2))


def engine_before() -> Any:
    path = f"{BEFORE}:src/groupwise/language/engine/fallback.py"
    shown = subprocess.run(["git", "show", path], cwd=Path(__file__).parent, capture_output=True, check=False)
    if shown.returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "engine_before.py"
        file.write_bytes(shown.stdout)
        spec = importlib.util.spec_from_file_location("engine_before", file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["engine_before"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> float:
    """Processor time of ours over theirs: the median over rounds, the first of which is not counted."""
    found = []
    for _ in range(rounds + 1):
        seconds = []
        for way in (ours, theirs):
            start = time.process_time()
            way()
            seconds.append(time.process_time() - start)
        found.append(seconds[0] / seconds[1])
    return float(np.median(found[1:]))


if __name__ == "__main__":
    main()
