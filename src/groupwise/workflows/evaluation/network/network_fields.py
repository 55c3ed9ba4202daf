"""The columns of the network's flat arrays: what is known about an activity, a block, a pool and a whole design.

    r       rows of activities, `r[row * COLUMNS + …]`: the columns of `array_format.ROW`
    b       blocks in post-order, `b[number * FIELDS + …]`
    pools   one row per pool: 0 work per case (s), 1 tries per case, 2 second moment of work per case (s²), 3 its
            relaxation time (s), 4 and 5 see `follow_on`, then DISCIPLINE and ALL_BUSY
    others  per block: first the work of its own case in front of it, then the wait for that work (s)

The modules beside this one import every name.
"""

from groupwise.workflows.evaluation.array_format import DISCIPLINES, ROW

POOL, SERVICE, SCV, FAILED, RETRIES = (ROW.index(name) for name in ("pool", "mean", "scv", "failed", "retries"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
COST, CPU, MEMORY = (ROW.index(name) for name in ("cost", "cpu", "memory"))
SCHEDULING, PRIORITY = (ROW.index(name) for name in ("scheduling", "priority"))
BY_PRIORITY, BY_MEAN, BY_DUE = (DISCIPLINES.index(name) for name in ("priority", "shortest", "due"))
COLUMNS = len(ROW)

# A block's own time, bottom up. MEAN and SECOND are E[T] and E[T²] over all cases that reach it; GOES_ON is the
# probability that the case continues after it; MEAN_ON is E[T; continues], the mean restricted to those cases (so
# MEAN_ON / GOES_ON is their conditional mean).
MEAN, SECOND, GOES_ON, MEAN_ON = range(4)
# Where it lies in a case, top down: visits per case, and mean and variance of the time at which it begins.
VISITS, BEGINS, SPREAD = range(4, 7)
# Per try: mean and variance of its wait. Of a parallel block or order: SHARED, the covariance of its branches' times.
WAIT, WAIT_VAR, SHARED = range(7, 10)
# Structure: the block around it (−1: none) and the lowest block number inside it. As blocks are in post-order, block i
# lies inside block n exactly if LOWEST[n] <= i <= n.
PARENT, LOWEST = range(10, 12)
# TRIES per visit; KEPT, the share of its work that no cancellation cuts off.
TRIES, KEPT = range(12, 14)
# Its own case in its pool: how many are in front of it (AHEAD), how many of those are copies of itself (ALIKE), the
# wait for those copies (AMONG), how many servers a case finds free on average (ROOM), and the work of all copies, in
# works of one, if none has to wait (AT_ONCE).
AHEAD, ALIKE, AMONG, ROOM, AT_ONCE = range(14, 19)
# How often per case it directly follows an activity of its pool (AGAIN), the time that one took, times AGAIN (SINCE),
# and its wait relative to that of an arrival at a random time (BURDEN).
AGAIN, SINCE, BURDEN = range(19, 22)
FIELDS = 22

# Results of a design: mean cycle time, share of cases completed, waiting and cost per case, cores and bytes in use.
CYCLE, COMPLETED, WAITING, SPENT, CORES, BYTES = range(6)
RESULTS = 6
# Columns of a pool: its queueing discipline, and the probability that an arrival finds every server busy.
DISCIPLINE, ALL_BUSY = 6, 7
