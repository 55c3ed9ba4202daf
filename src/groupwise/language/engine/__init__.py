"""The generation engine: continuous batching for Hugging Face causal language models.

In the order a request passes through:

    request          parameters, stop strings, progress and result of one request
    engine           threads, futures and cancellation around everything below (open this first)
    batcher          admits requests, makes one token per row and step, removes finished rows
      prefill          reads new prompts into the cache, each distinct one once
      running_rows     the state of the running requests, as arrays
      sampling         logits → tokens, each row by its own rules and seed
    cache            keys and values of all rows, and of sessions between their turns
    shared_prompts   prompts of several running rows, read once per step
    network          the forward pass in PyTorch; made of families, weights and rotary
      families         which modules of a model do what
      weights          live weights, joined into larger matrices
      rotary           rotary position tables
    numpy_decoder    the same decoding step in NumPy, faster on one CPU thread
    fallback         models without a description here, through `model.generate`
"""

from groupwise.language.engine.engine import Engine
from groupwise.language.engine.request import EndOfText, Sampled, SamplingParams

__all__ = ["EndOfText", "Engine", "Sampled", "SamplingParams"]
