"""Where everything lies in the engine's two arrays: offsets of the fields of every kind of record.

`m` holds int64 and `x` float64 values at the same addresses: the field F of the record at address a is `m[a + F]` or
`x[a + F]`. Times are seconds since the start of the simulation. The modules beside this one import every name.
"""

from groupwise.workflows.evaluation.array_format import DISTRIBUTIONS, ROW

# Head, integers: how many events and agenda entries there are, the first free frame and case, the last serial number,
# cases arrived and finished, tries traced, and FULL, which ends the simulation: TOO_SMALL when an area is (the caller
# tries again with a larger one), NOBODY_ABLE when too many tries wait that nobody may ever do. Then where each area
# begins (…_BASE) and how many records fit (…_ROOM).
EVENTS, AGENDA, FREE_FRAME, FREE_CASE, SERIAL, ARRIVED, FINISHED, TRACED, FULL = range(9)
TOO_SMALL, NOBODY_ABLE = 1, 2
EVENT_BASE, EVENT_ROOM, AGENDA_BASE, AGENDA_ROOM, CASE_BASE, CASE_ROOM, TRACE_BASE, TRACE_ROOM, ROOT = range(9, 18)
# BY_NAME is 1 if it matters who of a pool does something. ASIDE_BASE is an area for queue entries that nobody present
# may serve, COUNTERS the length of a case's record after its fields, DONE_BY where in it the last worker of each
# activity is kept (its address, 0: nobody yet), WORKERS the addresses of all workers, of which there are STAFF.
BY_NAME, ASIDE_BASE, COUNTERS, DONE_BY, WORKERS, STAFF = range(18, 24)
# Head, floats: the clock, the window in which usage is measured, cores and bytes in use now and at most, and their
# integrals over the window (core-seconds and byte-seconds).
CLOCK, WINDOW_START, WINDOW_END, CPU_NOW, MEMORY_NOW, CPU_PEAK, MEMORY_PEAK, CPU_TIME, MEMORY_TIME = range(9)
HEAD = 24

# A block. After the fields come the addresses of its children (m) and their probabilities (x); for a partial order,
# then the number of edges and the two ends of each. STREAM selects random numbers, INDEX counts draws (see `chance`).
# MOST is the number of copies, or how often a loop may repeat (0: any number of times).
KIND, DETAIL, COUNT, STREAM, INDEX, LEAST, MOST, ENOUGH = range(8)
NOMINAL_TIME = 0
CHILDREN = 8

# An activity's row: these fields in m, the columns of array_format.ROW in x.
ROW_POOL, ROW_NUMBER, ROW_RETRIES, ROW_DISTRIBUTION, ROW_DUTY = range(5)
MEAN, COST, CPU, MEMORY = (ROW.index(name) for name in ("mean", "cost", "cpu", "memory"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
NOMINAL, STD, FAILURE, TIMEOUT = (ROW.index(name) for name in ("nominal", "std", "failure", "timeout"))
PRIORITY, DUE = ROW.index("priority"), ROW.index("due")
FIXED, EXPONENTIAL, NORMAL, LOGNORMAL, UNIFORM, GAMMA = range(len(DISTRIBUTIONS))

# A pool. After the fields come its shifts (start and end, in x) and its servers (1: busy); its queue is a separate
# area. OPENING is 1 while an event for the start of the next shift is pending.
FREE, WAITING, DISCIPLINE, OPENING, SHIFTS, QUEUE_BASE, QUEUE_ROOM, SERVER_BASE, POOL_NUMBER, SERVERS = range(10)
BUSY_TIME, WAKE = range(2)
POOL_FIELDS = 10
# By name, a pool's servers are the addresses of workers, and WAKE is the time of its pending event. A worker begins
# like a pool (FREE is 1 or 0, POOL_NUMBER its own number); after its shifts come the addresses of its pools, from
# SERVER_BASE on. A duty says who may do an activity: how many activities other people must do, how many the same
# person, how many others duties link with it, directly or through others, and its own number. Then come the numbers of
# the first two kinds, for every worker whether the skills are there, and the addresses of the linked duties.
APART, BOUND, LINKED, OF = range(4)
DUTY_FIELDS = 4

# A frame. CHILD is its newest child; BEFORE and AFTER link siblings (AFTER also links free frames). LEFT counts the
# children or predecessors still to wait for, TALLY tries or successes. MARK depends on the block: a child ended the
# case (parallel, order), the body will be cancelled (cancellable), or the current try fails (activity).
# STAMP grows when the frame is freed, so that events and queue entries of its former owner can be recognised.
NODE, PARENT, CASE, CHILD, BEFORE, AFTER, SLOT, STATE, LEFT, TALLY, MARK, SERVER, STAMP = range(13)
READY, START, WORK = range(3)
FRAME_FIELDS = 13
QUEUED, SERVED = 1, 2

# A running case, followed by one counter of random draws per block; and what is kept of each case after it ends
# (OUTCOME: −1 still running, 0 knocked out or failed, 1 completed).
NUMBER, NEXT, KEY = range(3)
CASE_START = 0
CASE_FIELDS = 3
OUTCOME = 0
CYCLE, WAITED, SPENT = range(3)
KEPT = 3

# Kinds of events: a case arrives, a try joins its queue, a try ends, a body is cancelled, a pool serves its queue.
ARRIVE, ENQUEUE, END, BREAK, OPEN = range(5)
EVENT_FIELDS = 4  # kind, record, stamp, serial number; the key (its time, or its rank in a queue) is in x
# What the agenda asks for: a frame begins, ends well, or ends its case.
BEGIN, DONE, LOST = range(3)
AGENDA_FIELDS = 3  # what, frame, stamp
TRACE_FIELDS = 8  # case, activity, ready, start, end, pool, server, outcome
