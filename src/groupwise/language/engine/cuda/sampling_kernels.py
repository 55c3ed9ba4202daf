"""Logits → token and log-probability, one row by its own rules, as `sampling.sample` does it.

A row is sampled by inverting its distribution function in the order of the vocabulary, at the same number from the same
random stream as on a CPU. The vocabulary is cut into stretches: `sum_stretches` makes one pass over the logits, and
`choose` looks inside one stretch only. Truncation (top-k, top-p, min-p) first finds the smallest logit that may be
sampled, by a search over the bits of the logits (`find_threshold`). Logits stay in the model's precision.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

import triton
import triton.language as tl

# Tokens of a stretch of the vocabulary.
STRETCH = 4096
# Tokens that a search for a threshold looks at together.
SEARCH_BLOCK = 4096


@triton.jit
def sum_stretches(
    logits, order, sharpness, threshold, most, total, kept, vocabulary, stretches, TRUNCATED: tl.constexpr,
    STRETCH: tl.constexpr,
):  # fmt: skip
    """One (row, stretch): the largest scaled logit, and the sums of exp(scaled − largest), of all and of those kept."""
    row, stretch = tl.program_id(0), tl.program_id(1)
    slot = tl.load(order + row)
    column = stretch * STRETCH + tl.arange(0, STRETCH)
    inside = column < vocabulary
    raw = tl.load(logits + row.to(tl.int64) * vocabulary + column, mask=inside, other=float("-inf")).to(tl.float32)
    scaled = raw * tl.load(sharpness + slot)
    largest = tl.max(scaled, 0)
    # All −inf would make −inf − −inf.
    weights = tl.exp(scaled - tl.where(largest == float("-inf"), 0.0, largest))
    place = row * stretches + stretch
    tl.store(most + place, largest)
    tl.store(total + place, tl.sum(weights, 0))
    if TRUNCATED:
        tl.store(kept + place, tl.sum(tl.where(raw >= tl.load(threshold + row), weights, 0.0), 0))


@triton.jit
def _mixed(z):
    """The finaliser of SplitMix64, as in `sampling._mix`."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def choose(
    logits, order, sharpness, threshold, most, total, kept, stream, greedy, token, position, made, limit, stop_set,
    stop_table, alive, ring_token, ring_logp, vocabulary, stretches, slots, RING: tl.constexpr,
    TRUNCATED: tl.constexpr, STRETCH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: sample a token, record it, and advance the row, or end it."""
    row = tl.program_id(0)
    slot = tl.load(order + row)
    if tl.load(alive + slot) == 0:
        return
    number = tl.load(made + slot)
    sharp = tl.load(sharpness + slot)
    part = tl.arange(0, BLOCK)
    exists = part < stretches
    peaks = tl.load(most + row * stretches + part, mask=exists, other=float("-inf"))
    peak = tl.max(peaks, 0)
    share = tl.exp(peaks - peak)
    sums = tl.load(total + row * stretches + part, mask=exists, other=0.0) * share
    logsum = peak + tl.log(tl.sum(sums, 0))
    masses = sums
    if TRUNCATED:
        masses = tl.load(kept + row * stretches + part, mask=exists, other=0.0) * share
    is_greedy = tl.load(greedy + slot) != 0
    # Greedy: the first stretch, and in it the first token, with the largest logit.
    masses = tl.where(is_greedy, tl.where(exists & (peaks == peak), 1.0, 0.0), masses)
    key = tl.load(stream + slot).to(tl.uint64)
    mixed = _mixed(key + (number.to(tl.uint64) + 1) * 0x9E3779B97F4A7C15)
    uniform = (mixed >> 40).to(tl.int32).to(tl.float32) * (1.0 / (1 << 24))
    uniform = tl.where(is_greedy, 0.0, uniform)
    reached = tl.cumsum(masses, 0)
    target = uniform * tl.max(reached, 0)
    found = tl.min(tl.where((reached > target) & (masses > 0), part, BLOCK), 0)
    found = tl.minimum(found, tl.max(tl.where(masses > 0, part, 0), 0))
    before = tl.sum(tl.where(part == found, reached - masses, 0.0), 0)
    base = tl.sum(tl.where(part == found, peaks, 0.0), 0)

    inner = tl.arange(0, STRETCH)
    column = found * STRETCH + inner
    start = logits + row.to(tl.int64) * vocabulary
    raw = tl.load(start + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
    scaled = raw * sharp
    weights = tl.exp(scaled - base)
    if TRUNCATED:
        weights = tl.where(raw >= tl.load(threshold + row), weights, 0.0)
    weights = tl.where(is_greedy, tl.where(scaled == peak, 1.0, 0.0), weights)
    rest = tl.where(is_greedy, 0.0, tl.maximum(target - before, 0.0) * tl.exp(peak - base))
    inside = tl.min(tl.where((tl.cumsum(weights, 0) > rest) & (weights > 0), inner, STRETCH), 0)
    inside = tl.minimum(inside, tl.max(tl.where(weights > 0, inner, 0), 0))
    chosen = tl.minimum(found * STRETCH + inside, vocabulary - 1)
    logp = tl.sum(tl.where(inner == inside, scaled, 0.0), 0) - logsum

    place = (number % RING) * slots + slot
    tl.store(ring_token + place, chosen)
    tl.store(ring_logp + place, logp)
    tl.store(token + slot, chosen)
    tl.store(position + slot, tl.load(position + slot) + 1)
    tl.store(made + slot, number + 1)
    stopped = tl.load(stop_table + tl.load(stop_set + slot).to(tl.int64) * vocabulary + chosen) != 0
    ended = stopped | (number + 1 >= tl.load(limit + slot)) | (logp != logp)
    tl.store(alive + slot, tl.where(ended, 0, 1))


@triton.jit
def _ordered(raw, COARSE: tl.constexpr):
    """Integers in the order of these numbers: 16 bits for bfloat16 logits, 32 otherwise."""
    bits = raw.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return key >> 16 if COARSE else key


@triton.jit
def _largest_reaching(
    start, vocabulary, wanted, at_least, peak, sharp, COUNTING: tl.constexpr, COARSE: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest key at or above which there are `wanted` tokens (COUNTING), or exp(scaled − peak) of that sum.

    Two bits of the answer per pass, from the highest. Keys below `at_least` are left out.
    """
    rounds: tl.constexpr = 8 if COARSE else 16
    found = -32768 if COARSE else -2147483648
    found = tl.cast(found, tl.int32)
    for number in range(rounds):
        step = tl.cast(1, tl.int32) << (2 * (rounds - 1 - number))
        one, two, three = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        for at in range(0, vocabulary, BLOCK):
            column = at + tl.arange(0, BLOCK)
            inside = column < vocabulary
            raw = tl.load(start + column, mask=inside, other=float("-inf")).to(tl.float32)
            key = _ordered(raw, COARSE)
            weight = tl.where(inside, 1.0, 0.0) if COUNTING else tl.exp(raw * sharp - peak)
            weight = tl.where(inside & (key >= at_least), weight, 0.0)
            one += tl.where(key >= found + step, weight, 0.0)
            two += tl.where(key >= found + 2 * step, weight, 0.0)
            three += tl.where(key >= found + 3 * step, weight, 0.0)
        digit = (tl.sum(one, 0) >= wanted).to(tl.int32)
        digit += (tl.sum(two, 0) >= wanted).to(tl.int32)
        digit += (tl.sum(three, 0) >= wanted).to(tl.int32)
        found += digit * step
    return found


@triton.jit
def find_threshold(
    logits, order, sharpness, top_k, top_p, log_min_p, threshold, vocabulary, COARSE: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: the smallest logit it may sample by top-k, top-p on what top-k left, and min-p; ties stay."""
    row = tl.program_id(0)
    slot = tl.load(order + row)
    start = logits + row.to(tl.int64) * vocabulary
    sharp = tl.load(sharpness + slot)
    column = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for at in range(0, vocabulary, BLOCK):
        largest = tl.maximum(
            largest, tl.load(start + at + column, mask=at + column < vocabulary, other=float("-inf")).to(tl.float32)
        )
    peak = tl.max(largest, 0) * sharp
    lowest = tl.cast(-32768 if COARSE else -2147483648, tl.int32)
    by_count, by_mass = lowest, lowest
    count, share = tl.load(top_k + slot), tl.load(top_p + slot)
    if count < vocabulary:
        by_count = _largest_reaching(start, vocabulary, count.to(tl.float32), lowest, peak, sharp, True, COARSE, BLOCK)
    if share < 1:
        # The mass of what top-k keeps: of the ties at its threshold, only as many as make `count`.
        above, tied, ties = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.int32)
        over = tl.zeros((BLOCK,), tl.int32)
        for at in range(0, vocabulary, BLOCK):
            inside = at + column < vocabulary
            raw = tl.load(start + at + column, mask=inside, other=float("-inf")).to(tl.float32)
            key = _ordered(raw, COARSE)
            weight = tl.where(inside, tl.exp(raw * sharp - peak), 0.0)
            above += tl.where(key > by_count, weight, 0.0)
            tied += tl.where(key == by_count, weight, 0.0)
            over += (inside & (key > by_count)).to(tl.int32)
            ties += (inside & (key == by_count)).to(tl.int32)
        left = (count - tl.sum(over, 0)).to(tl.float32)
        same = tl.sum(ties, 0).to(tl.float32)
        mass = tl.sum(above, 0) + tl.sum(tied, 0) * tl.minimum(left / tl.maximum(same, 1.0), 1.0)
        by_mass = _largest_reaching(start, vocabulary, share * mass, by_count, peak, sharp, False, COARSE, BLOCK)
    key = tl.maximum(by_count, by_mass)
    key = key << 16 if COARSE else key
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    least = bits.to(tl.float32, bitcast=True)
    # The lowest key of all is not a number.
    least = tl.where(least == least, least, float("-inf"))
    smallest = (peak + tl.load(log_min_p + slot)) / sharp
    tl.store(threshold + row, tl.maximum(least, smallest))
