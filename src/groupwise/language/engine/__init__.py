"""The generation engine: continuous batching for Hugging Face causal language models.

In the order a request passes through:

    request          parameters, stop strings, progress and result of one request
    engine           threads, futures and cancellation around everything below (open this first)
    row_batcher      admits requests, makes one token per row and step, removes finished rows
      running_rows     the state of the running requests, as arrays
      sampling         logits → tokens, each row by its own rules and seed
      steering         what one request changes about that: a JSON schema, penalties; and its likeliest alternatives
    batcher          the row batcher of the families the engine knows, on what follows
      prefill          reads new prompts into the cache, each distinct one once
    cache            keys and values of all rows, and of sessions between their turns
    shared_prompts   prompts of several running rows, read once per step
    network          the forward pass in PyTorch; made of families, weights and rotary
      families         which modules of a model do what
      weights          live weights, joined into larger matrices
      rotary           rotary position tables
    cuda             another row batcher for these families, on a GPU: pages, Triton kernels, captured graphs
    numpy_decoder    the same decoding step in NumPy, faster on one CPU thread
    model_batcher    the row batcher of all other models, through their own forward pass
      model_forward    calls the model; finds out which ways of batching it can do
      model_cache      rows of its cache, picked, repeated and joined
"""

from groupwise.language.engine.engine import Engine
from groupwise.language.engine.request import EndOfText, Sampled, SamplingParams

__all__ = ["EndOfText", "Engine", "Sampled", "SamplingParams"]
