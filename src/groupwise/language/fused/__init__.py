"""The learner's pass over a language model on a GPU: packed rows, fused layers, fused head.

`packing` makes one line of tokens out of rows; `layers` reads it, with `projection` for the products, `attention` for
attention and `row_kernels` for everything between them; `head_kernels` turn logits into log-probabilities for
`logprobs`. `choice` says whether a model is read this
way. Open `layers` first. The files with kernels need Triton to be imported: `triton_support` says if it is there.
"""
