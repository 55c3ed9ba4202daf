"""The compiled event loop of the simulation.

Everything lies in two arrays of the same length, `m` with whole numbers and `x` with real ones, so that compiled
functions pass two arguments around and not thirty. A record (a block, an activity's row, a pool, a frame, a case) is
known by its address; its fields are `m[record + FIELD]` and `x[record + FIELD]`.

A case is a tree of frames: one for every block that is under way, with its parent, its children and what it waits for.
Whatever begins or ends is put on a stack, the agenda, and worked off before the clock moves on. Breaking a block off
takes its frames away; every frame has a stamp, by which events and places in queues that were meant for a frame that
is gone are known and passed over.

Random numbers are hashes of (seed, case, what is drawn for, how often before): two designs that do the same activity in
the same case see the same duration, whatever else they do.
"""
