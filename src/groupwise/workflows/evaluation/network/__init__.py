"""The compiled part of the analytic tier: how long blocks take, and how long activities wait at their pools.

    network_fields       the columns of all arrays. Read these first
    solver               `solve`: rounds of times, visits and waits until the results; waits at pools
    block_times          times of blocks, bottom up; visits and start times, top down
    sibling_contention   how activities of one case compete for the servers of their pool
    gamma_tables         maxima, order statistics and cut-offs of gamma distributions

A block is described by the mean and second moment of its time, the probability that its case continues after it, and
its mean time if it does. Times are combined bottom up; the maximum of several is E[max] = ∫ 1 − Π F_i over gamma
distributions with the same mean and variance, exact for exponential ones. Visits and start times follow top down, and
from them the loads.

At a pool of c servers with load ρ, an activity waits for the work of other cases and for that of its own case:

    W_i = V + own_i,    V = C(c, ρ) / (1 − ρ) · ( s (1 + scv) / 2c + mean of own )

C is Erlang's delay probability; s and scv are those of all the pool's work (Allen and Cunneen 1990, Poisson arrivals).
`own_i` is the wait for what the same case wants of the pool at the same time: with c = 1 it is the work in front, which
makes W exact for batches at an M/G/1 queue. Waiting decides who meets whom, so there are two rounds.

A pool that serves by `priority` or `shortest` goes by ranks k = 1, 2, …, and does not interrupt work:

    V_k = T_k / (1 − ρ_1 − … − ρ_(k−1)),    T_k = T_(k−1) + ρ_k W_k,    T_0 = C(c, ρ) s (1 + scv) / 2c

T_k is the work of ranks up to k that an arrival finds; the divisor accounts for better ranks that arrive meanwhile.
With one server this is Cobham's formula (1954), with more that of Bondi and Buzen (1984): the fifo wait times one
server's ratio, exact for equal means.
"""
