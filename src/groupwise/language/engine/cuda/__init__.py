"""Decoding on a GPU: a paged cache, Triton kernels and captured graphs behind the same interface as on a CPU.

support            whether this model and machine can; if not, a sentence that says why (open this first)
cuda_batcher       the row batcher: launches bursts of steps and reads their tokens while the next burst runs
  row_state        what a row needs on the device: its newest token, position, rules, random stream
  pages            which pages of the cache belong to which row; beginnings that several share
  captured_steps   one CUDA graph per number of rows, or the same step without a graph
paged_network      the forward pass on pages: prompts packed by tokens, then one token per row
  live_weights     the model's own weights, side by side in one matrix without a copy
  attention_kernels, layer_kernels, sampling_kernels   in Triton
"""
