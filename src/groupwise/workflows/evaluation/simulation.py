"""Discrete-event simulation of a design: what really happens, within a confidence interval.

What a design means, beyond what its blocks say:

- A knock-out, or a task that fails in its last try, ends the case. In a parallel block, an order or instances,
  whatever is in progress beside it or does not depend on it is still done; then the case is over.
- An end ends the case well. Choices of one outcome are unfolded (`unfolding`), so they decide alike.
- A body that is to be cancelled is cancelled at a time drawn uniformly between 0 and the time it would take at mean
  durations without waiting, or when it ends, if that is sooner. Then the handler begins, whatever the body did.
- Instances: their number is drawn uniformly. Once enough ended well, the others are cancelled; if too few do, the case
  ends.
- A pool serves its queue by the `scheduling` of its first activity that asks for another than fifo. Work in progress is
  never interrupted for other work.
- Work is given to somebody who leaves others for what duties demand later in the case, or waits for such a person; only
  if everybody would leave nobody, the first one free takes it.
- Outside its hours a pool rests: work in progress continues in the next shift. A week begins at time 0.
- Every try costs what the activity costs. Durations below 0 (of a normal distribution) are 0.
"""

import math
from dataclasses import dataclass

import numpy as np

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import DesignError
from groupwise.workflows.evaluation.array_format import ACTIVITY, INSTANCES, LOOP, ORDER, ROW, Floats, Ints
from groupwise.workflows.evaluation.encoding import Encoded
from groupwise.workflows.evaluation.engine import engine_fields as fields
from groupwise.workflows.evaluation.engine.simulation_loop import run_arrivals, run_batches
from groupwise.workflows.evaluation.network.solver import plain_times
from groupwise.workflows.evaluation.performance import Performance, SimulatedTry

PERCENTILES = (50, 90, 95, 99)
# Cases simulated first and not measured, as a share of those that are.
WARM_UP = 0.2
BATCHES = 20
# How many times as many cases may arrive as are measured, while the last measured ones are still running.
PATIENCE = 2
NORMAL = 1.959964  # 97.5% quantile of the normal distribution
# A simulation is repeated with four times as many cases until its interval is this narrow, as a share of the mean, or
# until that many cases or tries were simulated.
PRECISE = 0.04
MOST_CASES = 40_000
MOST_TRIES = 4_000_000
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Simulated:
    """Measurements after the warm-up: arrays have one entry per case, in the order of arrival.

    `makespans` has one entry per batch of runs. `span` is the time measured, which begins at `start` (for batches: each
    with a week), `pool_time` each pool's busy time in it, `unfinished` the number of cases that did not end.
    """

    cycle: Floats
    waiting: Floats
    cost: Floats
    completed: Ints
    makespans: Floats
    span: float
    pool_time: Floats
    cpu: float
    memory: float
    cpu_peak: float
    memory_peak: float
    trace: tuple[SimulatedTry, ...] = ()
    unfinished: int = 0
    start: float = 0.0


def simulate_precisely(encoded: Encoded, cases: int, seed: int = 0) -> Simulated:
    """At least `cases` cases, and as many more as the mean cycle time needs to be known well."""
    while True:
        found = simulate(encoded, cases, seed)
        low, high = interval_of(encoded, found)
        tries = 4 * cases * sum(kind == ACTIVITY for kind in encoded.nodes[:, 0].tolist())
        if high - low <= 2 * PRECISE * found.cycle.mean() or 4 * cases > MOST_CASES or tries > MOST_TRIES:
            return found
        cases *= 4


def simulate_runs(encoded: Encoded, cases: int, seed: int = 0) -> Simulated:
    """Runs that start together: at least `cases` of them, and batches enough for an interval unless that takes long."""
    enough = BATCHES * encoded.catalogue.runs
    tries = enough * sum(kind == ACTIVITY for kind in encoded.nodes[:, 0].tolist())
    return simulate(encoded, cases if tries > MOST_TRIES else max(cases, enough), seed)


def simulate(encoded: Encoded, cases: int, seed: int = 0, trace: int = 0) -> Simulated:
    """Simulate `cases` cases after the warm-up; keep the first `trace` tries."""
    if cases < 1:
        raise ConfigError(f"cases is {cases} but must be at least 1")
    # Most simulations fit into the first size; one that does not starts over with four times the room.
    room = 1 << 10
    while room <= LARGEST:
        found = _attempt(encoded, cases, seed, trace, room)
        if found is not None:
            return found
        room *= 4
    raise ConfigError(
        f"more than {LARGEST:,} things are in progress at once: the design is overloaded or has too many copies",
        hint="Simulate fewer cases, or add servers.",
    )


def _attempt(encoded: Encoded, cases: int, seed: int, trace: int, room: int) -> Simulated | None:
    """The simulation with room for that many frames, events and cases; None if it was not enough."""
    catalogue = encoded.catalogue
    runs, rate = catalogue.runs, catalogue.arrivals
    word = np.uint64(seed & (2**64 - 1))
    if rate is None:
        made = np.zeros(math.ceil(cases / runs))
        memory = Memory(encoded, len(made) * runs, room, trace)
        run_batches(memory.m, memory.x, word, runs, catalogue.with_shifts, made)
        return None if _is_full(memory) else _simulated(memory, 0, len(made) * runs, made)
    first = math.ceil(cases * WARM_UP)
    memory = Memory(encoded, (first + cases) * PATIENCE, room, trace)
    run_arrivals(memory.m, memory.x, word, rate, first, first + cases - 1)
    return None if _is_full(memory) else _simulated(memory, first, first + cases, np.zeros(0))


class Memory:
    """The two arrays of the engine: the head, pools, rows and blocks, then the areas for everything that changes."""

    def __init__(self, encoded: Encoded, cases: int, room: int, trace: int) -> None:
        self.encoded = encoded
        self.whole = [0] * fields.HEAD
        self.real = [0.0] * fields.HEAD
        self.workers: list[int] = []
        self.pools = self._lay_pools()
        self.duties = self._lay_duties() if encoded.workers else []
        staff = self._lay([len(self.workers), *self.workers], []) + 1 if self.workers else 0
        nodes = self._lay_nodes(self._lay_rows())
        self.parts: list[tuple[int, int]] = []
        self.length = len(self.whole)
        frames = self._part(room, fields.FRAME_FIELDS)
        # A counter of draws for every block, and who did every activity.
        counters = encoded.size + len(self.duties)
        at_once = min(room, cases + 2)  # the last free record is never taken
        running = self._part(at_once, fields.CASE_FIELDS + counters)
        aside = self._part(room if encoded.workers else 0, fields.EVENT_FIELDS)
        events = self._part(2 * room, fields.EVENT_FIELDS)
        agenda = self._part(room, fields.AGENDA_FIELDS)
        queues = [self._part(room, fields.EVENT_FIELDS) for _ in self.pools]
        self.kept = self._part(cases, fields.KEPT)
        self.trace = self._part(trace, fields.TRACE_FIELDS)
        self.m, self.x = np.zeros(self.length, np.int64), np.zeros(self.length)
        self.m[: len(self.whole)], self.x[: len(self.real)] = self.whole, self.real
        self._chain(frames, room, fields.FRAME_FIELDS, fields.AFTER)
        self._chain(running, at_once, fields.CASE_FIELDS + counters, fields.NEXT)
        self.m[self.kept : self.trace : fields.KEPT] = -1
        for pool, queue in zip(self.pools, queues, strict=True):
            self.m[pool + fields.QUEUE_BASE], self.m[pool + fields.QUEUE_ROOM] = queue, room
        self.x[fields.WINDOW_START] = self.x[fields.WINDOW_END] = math.inf
        head = {
            fields.FREE_FRAME: frames, fields.FREE_CASE: running, fields.ROOT: nodes[-1], fields.EVENT_BASE: events,
            fields.EVENT_ROOM: 2 * room, fields.AGENDA_BASE: agenda, fields.AGENDA_ROOM: room,
            fields.CASE_BASE: self.kept, fields.CASE_ROOM: cases,
            fields.TRACE_BASE: self.trace, fields.TRACE_ROOM: trace, fields.BY_NAME: int(bool(encoded.workers)),
            fields.ASIDE_BASE: aside, fields.COUNTERS: counters, fields.DONE_BY: fields.CASE_FIELDS + encoded.size,
            fields.WORKERS: staff, fields.STAFF: len(self.workers),
        }  # fmt: skip
        for place, value in head.items():
            self.m[place] = value

    def _part(self, count: int, width: int) -> int:
        """Reserve an area for `count` records; returns its address."""
        start = self.length
        self.length += count * width
        return start

    def _chain(self, start: int, count: int, width: int, link: int) -> None:
        """Link free records: the field `link` of each is the address of the next, and −1 in the last."""
        places = start + width * np.arange(count)
        self.m[places[:-1] + link] = places[1:]
        self.m[places[-1] + link] = -1

    def _lay(self, whole: list[int], real: list[float]) -> int:
        """Append one record to both arrays, padded to the same length; returns its address."""
        start, size = len(self.whole), max(len(whole), len(real))
        self.whole += whole + [0] * (size - len(whole))
        self.real += real + [0.0] * (size - len(real))
        return start

    def _lay_pools(self) -> list[int]:
        found = []
        disciplines = self.encoded.disciplines()
        workers = self.encoded.workers
        for pool, servers in enumerate(self.encoded.servers.tolist()):
            shifts = self.encoded.catalogue.shifts[pool]
            count = sum(pool in worker.pools for worker in workers) if workers else servers
            found.append(self._lay_servers(count, int(disciplines[pool]), shifts, pool, [0] * count))
        for number, worker in enumerate(workers):
            place = self._lay_servers(1, 0, worker.shifts, number, [found[pool] for pool in worker.pools])
            self.workers.append(place)
            for pool in worker.pools:
                first = self.whole[found[pool] + fields.SERVER_BASE]
                self.whole[self.whole.index(0, first)] = place
        return found

    def _lay_servers(self, count: int, discipline: int, shifts: Floats, number: int, after: list[int]) -> int:
        """Append a pool, or a worker, with its shifts and what comes after them; returns its address."""
        base = len(self.whole) + fields.POOL_FIELDS + shifts.size
        whole = [count, 0, discipline, 0, len(shifts), 0, 0, base, number, len(after)]
        real = [0.0] * fields.POOL_FIELDS + shifts.ravel().tolist()
        return self._lay(whole + [0] * shifts.size + after, real)

    def _lay_duties(self) -> list[int]:
        """Append the duties of every activity, if it matters who does them."""
        workers, roster = self.encoded.workers, self.encoded.catalogue.roster
        found = []
        for number, (apart, bound) in enumerate(zip(roster.apart, roster.bound, strict=True)):
            who = self.encoded.able.get(number, frozenset())
            able = [int(worker in who) for worker in range(len(workers))]
            linked = roster.linked(number, self.encoded.able)
            head = [len(apart), len(bound), len(linked), number]
            found.append(self._lay([*head, *apart, *bound, *able, *linked], []))
        for duty in found:
            end = duty + fields.DUTY_FIELDS + self.whole[duty + fields.APART] + self.whole[duty + fields.BOUND]
            first = end + len(workers)
            for place in range(first, first + self.whole[duty + fields.LINKED]):
                self.whole[place] = found[self.whole[place]]
        return found

    def _lay_rows(self) -> dict[int, int]:
        found: dict[int, int] = {}
        retries, distribution = ROW.index("retries"), ROW.index("distribution")
        for kind, row in self.encoded.nodes[:, :2].tolist():
            if kind == ACTIVITY:
                values = self.encoded.rows[row].tolist()
                pool = int(values[1])
                whole = [self.pools[pool] if pool >= 0 else -1, int(values[0])]
                duty = self.duties[whole[1]] if self.duties else -1
                found[row] = self._lay([*whole, int(values[retries]), int(values[distribution]), duty], values)
        return found

    def _lay_nodes(self, rows: dict[int, int]) -> list[int]:
        encoded, found = self.encoded, list[int]()
        links, weights = encoded.links.tolist(), encoded.weights.tolist()
        nominal = plain_times(encoded.nodes, encoded.links, encoded.weights, encoded.rows).tolist()
        streams = _streams(encoded)
        counters: dict[int, int] = {}  # by row: an activity that occurs several times has one series of draws
        for number, (kind, detail, first, count) in enumerate(encoded.nodes.tolist()):
            index = counters.setdefault(detail, number) if kind == ACTIVITY else number
            copies = links[detail : detail + 3] if kind == INSTANCES else [0, detail if kind == LOOP else 0, 0]
            more = links[detail : detail + 1 + 2 * links[detail]] if kind == ORDER else []
            inside = [found[child] for child in links[first : first + count]]
            whole = [kind, rows[detail] if kind == ACTIVITY else 0, count, streams[number], index, *copies]
            real = [nominal[number]] + [0.0] * (fields.CHILDREN - 1) + weights[first : first + count]
            found.append(self._lay(whole + inside + more, real if count else real[:1]))
        return found


def _streams(encoded: Encoded) -> list[int]:
    # A stream of random numbers for each block, the same in every design that has this block.
    # An activity's stream is its number; another block's is its kind, its lowest activity, and how many blocks of that
    # kind and activity it contains, packed into one integer.
    lowest: list[int] = []
    taken: dict[tuple[int, int], int] = {}
    streams: list[int] = []
    for kind, detail, first, count in encoded.nodes.tolist():
        if kind == ACTIVITY:
            lowest.append(int(encoded.rows[detail, 0]))
            streams.append(lowest[-1])
            continue
        inside = encoded.links[first : first + count]
        lowest.append(min((lowest[child] for child in inside), default=-1))
        # Blocks of one kind around the same lowest activity are nested; `level` counts them from the inside.
        key = (kind, lowest[-1])
        taken[key] = level = taken.get(key, 0) + 1
        streams.append((kind << 52) + (level << 32) + lowest[-1] + 1)
    return streams


def _is_full(memory: Memory) -> bool:
    """Whether an area was too small; if cases can never go on, more room does not help either."""
    if memory.m[fields.FULL] == fields.NOBODY_ABLE:
        raise _endless("cases")
    return bool(memory.m[fields.FULL])


def _endless(cases: str) -> DesignError:
    words = f"{cases} never end, because nobody there may do what comes next"
    return DesignError(words, hint="Add people, or change the rules about who does what.")


def _simulated(memory: Memory, first: int, last: int, made: Floats) -> Simulated:
    x = memory.x
    whole = memory.m[memory.kept : memory.trace].reshape(-1, fields.KEPT)[first:last]
    real = x[memory.kept : memory.trace].reshape(-1, fields.KEPT)[first:last]
    # A case still running when the simulation ends (outcome −1) is not measured.
    done = whole[:, fields.OUTCOME] >= 0
    span = float(made.sum()) if len(made) else float(x[fields.WINDOW_END] - x[fields.WINDOW_START])
    per_second = 1 / span if 0 < span < math.inf else 0.0
    return Simulated(
        real[done, fields.CYCLE],
        real[done, fields.WAITED],
        real[done, fields.SPENT],
        whole[done, fields.OUTCOME],
        made,
        span,
        np.array([x[pool + fields.BUSY_TIME] for pool in memory.pools]),
        float(x[fields.CPU_TIME] * per_second),
        float(x[fields.MEMORY_TIME] * per_second),
        float(x[fields.CPU_PEAK]),
        float(x[fields.MEMORY_PEAK]),
        _tries(memory),
        int((~done).sum()),
        float(x[fields.WINDOW_START]),
    )


def _tries(memory: Memory) -> tuple[SimulatedTry, ...]:
    catalogue = memory.encoded.catalogue
    names, pools = list(catalogue.activities), catalogue.pool_names
    words = {1: "done", 0: "failed", -1: "cancelled"}
    count = int(memory.m[fields.TRACED])
    stop = memory.trace + count * fields.TRACE_FIELDS
    whole = memory.m[memory.trace : stop].reshape(count, fields.TRACE_FIELDS).tolist()
    real = memory.x[memory.trace : stop].reshape(count, fields.TRACE_FIELDS).tolist()
    return tuple(
        SimulatedTry(
            case, names[activity], ready, start, end, pools[pool] if pool >= 0 else None, server, words[outcome]
        )
        for (case, activity, *_, pool, server, outcome), (_, _, ready, start, end, *_) in zip(whole, real, strict=True)
    )


def performance_of(encoded: Encoded, found: Simulated, capacity: float, reason: str = "") -> Performance:
    """The measurements as a `Performance`."""
    catalogue = encoded.catalogue
    if encoded.workers and found.unfinished and not (reason and len(found.cycle)):
        raise _endless(f"{found.unfinished} of {found.unfinished + len(found.cycle)} cases")
    mean = float(found.cycle.mean())
    throughput = min(catalogue.arrivals or len(found.cycle) / max(float(found.makespans.sum()), 1e-300), capacity)
    wages = encoded.wages
    ends = found.makespans if len(found.makespans) else np.array([found.start + found.span])
    staffed = encoded.staffed_until(ends) - encoded.staffed_until(np.array([found.start]))
    shares = found.pool_time[: len(staffed)] / np.maximum(staffed, 1e-300)
    return Performance(
        "simulation",
        mean,
        interval_of(encoded, found),
        float(found.waiting.mean()),
        throughput,
        (wages / throughput if wages else 0.0) + float(found.cost.mean()),
        {name: float(share) for name, share in zip(catalogue.pool_names, shares, strict=True)},
        found.cpu,
        found.memory,
        float(found.completed.mean()),
        capacity,
        found.cpu_peak,
        found.memory_peak,
        dict(zip(PERCENTILES, map(float, np.percentile(found.cycle, PERCENTILES)), strict=True)),
        not reason,
        reason,
    )


def interval_of(encoded: Encoded, found: Simulated) -> tuple[float, float]:
    """The 95% interval of the mean cycle time.

    Of runs that start together, later ones wait longer: only whole batches of them are independent of each other.
    """
    if encoded.catalogue.arrivals is not None:
        return confidence(found.cycle)
    batches = np.array([batch.mean() for batch in np.array_split(found.cycle, len(found.makespans))])
    return confidence(batches, len(batches))


def confidence(values: Floats, batches: int | None = None) -> tuple[float, float]:
    """The 95% interval of the mean, by batch means: neighbouring cases are correlated, long batches hardly are.

    What correlation is left between neighbouring batches widens the interval, as if there were fewer of them. Skewed
    batches widen it on the side where rare long cases are missing. Both follow Tafazzoli, Wilson, Lada and Steiger,
    "Performance of Skart" (2011).
    """
    mean = float(values.mean())
    count = min(batches or BATCHES, BATCHES, len(values))
    if count < BATCHES:
        # Too few values for twenty batches: no interval can be given, except for a single value.
        return (mean, mean) if count < 2 else (-math.inf, math.inf)
    means = np.array([batch.mean() for batch in np.array_split(values, count)])
    apart = means - means.mean()
    squares = float(apart @ apart)
    if squares == 0:
        return mean, mean
    # The lag-1 correlation, corrected for its bias (Kendall 1954); n batches then count as n (1 − r) / (1 + r).
    found = float(apart[1:] @ apart[:-1]) / squares
    correlation = min(max(found + (1 + 3 * found) / count, 0.0), 0.8)
    alone = max(count * (1 - correlation) / (1 + correlation), 4.0)
    deviation = math.sqrt(squares / (count - 1))
    skewness = count / ((count - 1) * (count - 2)) * float((apart**3).sum()) / deviation**3
    bias, reach = skewness / (6 * math.sqrt(alone)), student(alone - 1)
    half = deviation / math.sqrt(alone)
    return mean - _unskewed(reach, bias) * half, mean - _unskewed(-reach, bias) * half


def _unskewed(reach: float, bias: float) -> float:
    """Where a quantile of Student's t lies for a mean with this skewness / 6 (Willink 2005, after Johnson 1978)."""
    if abs(bias) < 1e-3:
        return reach
    return float(np.cbrt(1 + 6 * bias * (reach - bias)) - 1) / (2 * bias)


def student(freedom: float) -> float:
    """The 97.5% quantile of Student's t, by its expansion around the normal distribution (Fisher and Cornish 1960)."""
    z = NORMAL
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))
