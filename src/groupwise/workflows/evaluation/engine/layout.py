"""Where everything lies in the two arrays of the engine."""

from __future__ import annotations

from groupwise.workflows.evaluation.encoding import DISTRIBUTIONS, ROW

# The head of the memory: counters and where things are (m), the clock and what is added up (x).
EVENTS, AGENDA, FREE_FRAME, FREE_CASE, SERIAL, ARRIVED, FINISHED, TRACED, FULL = range(9)
EVENT_BASE, EVENT_ROOM, AGENDA_BASE, AGENDA_ROOM, CASE_BASE, CASE_ROOM, TRACE_BASE, TRACE_ROOM, ROOT = range(9, 18)
CLOCK, WINDOW_START, WINDOW_END, CPU_NOW, MEMORY_NOW, CPU_PEAK, MEMORY_PEAK, CPU_TIME, MEMORY_TIME = range(9)
HEAD = 18

# A block: its children's addresses follow the fields, their weights in x. Behind the children of an order are the
# number of edges and their ends.
KIND, DETAIL, COUNT, STREAM, INDEX, LEAST, MOST, ENOUGH = range(8)
NOMINAL_TIME = 0
CHILDREN = 8

# An activity's row: these fields in m, the columns of encoding.ROW in x.
ROW_POOL, ROW_NUMBER, ROW_RETRIES, ROW_DISTRIBUTION = range(4)
MEAN, COST, CPU, MEMORY = (ROW.index(name) for name in ("mean", "cost", "cpu", "memory"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
NOMINAL, STD, FAILURE, TIMEOUT = (ROW.index(name) for name in ("nominal", "std", "failure", "timeout"))
PRIORITY, DUE = ROW.index("priority"), ROW.index("due")
FIXED, EXPONENTIAL, NORMAL, LOGNORMAL, UNIFORM, GAMMA = range(len(DISTRIBUTIONS))

# A pool: its shifts (start and end in x) and its servers (1: busy) follow the fields; its queue lies elsewhere.
FREE, WAITING, DISCIPLINE, OPENING, SHIFTS, QUEUE_BASE, QUEUE_ROOM, SERVER_BASE, POOL_NUMBER = range(9)
BUSY_TIME = 0
POOL_FIELDS = 9

# A frame. LEFT counts children or predecessors to wait for, TALLY tries or successes; MARK remembers that something
# inside ended the case, that a body is to be broken off, or that a try fails.
NODE, PARENT, CASE, CHILD, BEFORE, AFTER, SLOT, STATE, LEFT, TALLY, MARK, SERVER, STAMP = range(13)
READY, START, WORK = range(3)
FRAME_FIELDS = 13
QUEUED, SERVED = 1, 2

# A case while it runs (how often each block drew follows), and what is kept of it.
NUMBER, NEXT, KEY = range(3)
CASE_START = 0
CASE_FIELDS = 3
OUTCOME = 0
CYCLE, WAITED, SPENT = range(3)
KEPT = 3

ARRIVE, ENQUEUE, END, BREAK, OPEN = range(5)
"""What an event is; EVENT_FIELDS: kind, record, stamp, serial number."""
EVENT_FIELDS = 4
BEGIN, DONE, LOST = range(3)
"""What the agenda holds: a frame begins, ends well, or ends the case."""
AGENDA_FIELDS = 3
TRACE_FIELDS = 8
