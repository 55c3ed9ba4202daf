"""The compiled part of the analytic tier: how long blocks take, and how long activities wait for their pools.

Every block is known by the mean and the second moment of its time, the probability that its case goes on after it, and
its mean time where it does. Times are put together bottom up; the last of several at once is E[max] = ∫ 1 − Π F_i over
gamma distributions of the same mean and variance, exact for exponential ones. Then, top down, come visits and the time
at which each activity wants to start, and from them the loads.

A pool of c servers at load ρ keeps an activity waiting for the work of other cases and for that of its own case:

    W_i = V + own_i,    V = C(c, ρ) / (1 − ρ) · ( s (1 + scv) / 2c + mean of own )

C is Erlang's delay probability, s and scv are those of all that the pool does (Allen and Cunneen 1990, Poisson
arrivals). `own_i` is the wait for what the same case wants of the pool at the same time: with c = 1 it is the work in
front, which makes W exact for batches at an M/G/1 queue. As waiting decides who meets whom, this goes round twice.

A pool that takes those waiting by `priority` or `shortest` goes by turns, k = 1 first, and does not put work aside:

    V_k = T_k / (1 − ρ_1 − … − ρ_(k−1)),    T_k = T_(k−1) + ρ_k W_k,    T_0 = C(c, ρ) s (1 + scv) / 2c

T_k is the work of these turns that one finds; the divisor, what comes meanwhile and goes first. With one server it is
Cobham's formula (1954), with more that of Bondi and Buzen (1984): fifo times one server's ratio, exact for equal means.
"""
