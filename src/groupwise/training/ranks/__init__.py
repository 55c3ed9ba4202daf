"""Many ranks: one run trained by several processes, on one machine or on many. torchrun starts and restarts them.

communication      who the ranks are, and everything they say to each other (open this first)
first_rank_source  batches of a source that works in one process, for all ranks
weights            full copies of the weights, whose gradients are summed (DDP), or
shards             weights, gradients and optimiser in shards (FSDP2)
optimizer_shards   the state of a sharded optimiser in a checkpoint, read by any number of ranks
launcher           start ranks on this machine, and start them again when one dies

Each rank samples whole groups, its share of a step's tasks. What was sampled and scored then goes to all, so every rank
has the complete step, and with it the same advantages, denominators and state; the rows of an optimiser step are dealt
out, and sums over them are added up over ranks. So a run is the same on any number of ranks, up to rounding, and the
checkpoint of any number is that of one.
"""
