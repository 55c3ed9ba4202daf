"""Hugging Face causal language models as policies: find, load, generate, and learn from what was generated.

In the order data flows:

    model_lookup   a name → where the model is; a fingerprint to recognise its weights later
    model_files    what is checked in a folder before any library reads it
    tiny           the built-in model and tokenizers, made from scratch
    adapters       LoRA through PEFT
    loading        a name → model and tokenizer, ready to use (open this first)
    engine/        prompts → sampled tokens with their log-probabilities
    samplers/      the same on vLLM servers
    chat_templates messages → text in the model's chat format
    thought_formats which thoughts the model writes before its answers
    capacity/      how much memory and time a run will take
    batch_layout   padded rows → rows without padding, shared prompts once
    cpu_layers     a faster pass through the layers when training on a CPU
    fused/         the same on a GPU, by Triton's kernels; triton_support says where these run
    logprobs       hidden states → log-probabilities and entropies, chunk by chunk
    policy         all of that as a `Policy`: what the learner evaluates and improves
"""
