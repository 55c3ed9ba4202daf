"""What is known of an activity, a block, a pool and a design: columns of flat arrays."""

from __future__ import annotations

from groupwise.workflows.evaluation.encoding import ROW
from groupwise.workflows.evaluation.encoding import SCHEDULING as DISCIPLINES

POOL, SERVICE, SCV, FAILED, RETRIES = (ROW.index(name) for name in ("pool", "mean", "scv", "failed", "retries"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
COST, CPU, MEMORY = (ROW.index(name) for name in ("cost", "cpu", "memory"))
SCHEDULING, PRIORITY = (ROW.index(name) for name in ("scheduling", "priority"))
BY_PRIORITY, BY_MEAN, BY_DUE = (DISCIPLINES.index(name) for name in ("priority", "shortest", "due"))

# The columns of what is known of a block.
MEAN, SECOND, GOES_ON, MEAN_ON, VISITS, BEGINS, SPREAD, WAIT, WAIT_VAR = range(9)
SHARED, PARENT, LOWEST, TRIES, KEPT, AHEAD, ALIKE, AMONG, ROOM, AT_ONCE, AGAIN, SINCE, BURDEN = range(9, 22)
"""BEGINS and SPREAD are mean and variance of the time at which it begins, SHARED the covariance of its branches, KEPT
the part of its work that is not broken off, AHEAD how many of its own case are in front of it, ALIKE how many of them
are copies of it, AMONG the wait for those, ROOM how many servers are free for a case on average; AT_ONCE is the work of
copies that all have room. AGAIN is how often it directly follows an activity of its own pool, SINCE how long that took,
BURDEN how much its wait is of what it would be if it came at any time."""
FIELDS = 22
COLUMNS = len(ROW)
CYCLE, COMPLETED, WAITING, SPENT, CORES, BYTES = range(6)
RESULTS = 6
DISCIPLINE, ALL_BUSY = 6, 7
"""Columns of a pool: how it takes those waiting, and the probability that one who comes finds no server free."""
