"""The compiled event loop of the simulation.

    engine_fields     where every field lies in the two arrays; read it first
    memory            random numbers, heaps, frames
    pools             queues and servers: a try waits, is served, leaves
    simulation_loop   blocks begin and end; the loops over arrivals and over batches, which `simulation.py` calls

All state lies in two arrays of the same length, `m` of integers and `x` of floats, so that compiled functions pass two
arguments instead of thirty. A record (a block, an activity's row, a pool, a frame, a case) is known by its address; its
fields are `m[record + FIELD]` and `x[record + FIELD]`.

A case is a tree of frames, one for each block in progress, with its parent, its children and what it waits for.
Whatever begins or ends is pushed onto a stack, the agenda, which is emptied before the clock moves. Cancelling a block
frees its frames; every frame has a stamp, by which events and queue entries for a freed frame are recognised and
skipped.

Random numbers are hashes of (seed, case, what the number is for, how many came before). Two designs that do the same
activity in the same case therefore see the same duration, whatever else they do (common random numbers).
"""
