"""How much memory and time a run will take: `groupwise plan`. Nothing here imports torch.

model_shape     a folder, a name or numbers → layers, width, parameters (open estimate.py first)
measurements    what was measured where, and the rates that follow from it
measured.toml   those measurements, with their sources
estimate        shape, GPUs and lengths → memory, seconds, tokens a second, and what of it is extrapolated
"""
