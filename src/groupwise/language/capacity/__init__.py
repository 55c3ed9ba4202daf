"""How much memory and time a run will take: `groupwise plan`. Nothing here imports torch.

model_shape     a folder, a name or numbers → layers, width, parameters (open estimate.py first)
workload        a step's tasks, lengths and micro-batches, and what can be counted of it
rates           what was measured, and the rates that follow from it
measured.toml   the measurements, with their sources
devices.toml    what data sheets say of GPUs and networks
estimate        shape, GPUs and lengths → memory, seconds, tokens a second, and what of it is extrapolated
"""
