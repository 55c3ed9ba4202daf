"""The format of an encoded design: kinds of blocks and columns of rows. Compiled code takes its constants from here."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

# Kinds of blocks, in column 0 of `Encoded.nodes`.
ACTIVITY, SKIP, SEQUENCE, PARALLEL, CHOICE, LOOP, ORDER, CANCELLABLE, INSTANCES, CASE_END = range(10)
# Columns of an activity's row. `number` is that of the activity in the requirements, `pool` that of its pool (−1: it
# needs nobody). Times are in seconds: mean and scv are of one try with its timeout, nominal and std without.
# `failed` is the probability that a try fails, by itself (`failure`) or by the timeout. `pause` comes before the first
# retry; each further one is `growth` times as long. `due` counts from the case's arrival. `distribution` and
# `scheduling` are indices of the two tuples below.
ROW = (
    "number", "pool", "mean", "scv", "failed", "retries", "pause", "growth", "delay", "knock_out", "cost", "cpu",
    "memory", "distribution", "nominal", "std", "failure", "timeout", "scheduling", "priority", "due",
)  # fmt: skip
DISTRIBUTIONS = ("fixed", "exponential", "normal", "lognormal", "uniform", "gamma")
DISCIPLINES = ("fifo", "priority", "shortest", "due")
WEEK = 168 * 3600.0
