"""The running requests as arrays: row i of every array belongs to row i of the cache."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.language.engine.request import EndOfText, GenerationRequest, Sampled
from groupwise.language.engine.sampling import stream_key

FIRST_TOKENS = 64
# Beyond this many, the table of stop tokens is cleared once no request is running.
MOST_STOP_SETS = 64


class RunningRows:
    """State of up to `most` running requests in rows 0 … count - 1, without gaps."""

    def __init__(self, most: int, vocabulary: int) -> None:
        self.count = 0
        self.requests: list[GenerationRequest] = []
        self.vocabulary = vocabulary
        # Positions of each row in the cache.
        self.length = np.zeros(most, np.int64)
        # Tokens sampled so far in each row.
        self.made = np.zeros(most, np.int64)
        self.limit = np.zeros(most, np.int64)
        # The last sampled token, not in the cache yet.
        self.token = np.zeros(most, np.int64)
        self.last_logp = np.zeros(most, np.float32)
        self.stream = np.zeros(most, np.uint64)
        self.stop_set = np.zeros(most, np.int64)
        # Sampled tokens, [most, capacity]; the capacity doubles on demand.
        self.ids = np.zeros((most, FIRST_TOKENS), np.int64)
        self.logp = np.zeros((most, FIRST_TOKENS), np.float32)
        self.versions = np.zeros((most, FIRST_TOKENS), np.int64)
        # [stop sets, vocabulary]: whether a token ends a request; `stop_set` says which row applies.
        self.stop_table = np.zeros((0, vocabulary), np.bool_)
        # Counts the changes of the table.
        self.stop_version = 0
        self._stop_sets: dict[frozenset[int], int] = {}
        self._watched: list[int] = []
        self._arrays = (
            "length", "made", "limit", "token", "last_logp", "stream", "stop_set", "ids", "logp", "versions",
        )  # fmt: skip

    def add(self, request: GenerationRequest, stop_ids: frozenset[int]) -> None:
        row = self.count
        if row == 0 and len(self._stop_sets) > MOST_STOP_SETS:
            self._stop_sets.clear()
            self.stop_table = self.stop_table[:0]
        self.requests.append(request)
        self.length[row], self.made[row], self.limit[row] = len(request.ids), 0, request.limit
        self.stream[row] = stream_key(request.seed)
        self.stop_set[row] = self._stop_set(stop_ids)
        if request.watched:
            self._watched.append(row)
        self.count += 1

    def accept(self, rows: slice, tokens: NDArray[np.int64], logp: NDArray[np.float32], version: int) -> None:
        """One more token for each of these rows."""
        made = self.made[rows]
        self._make_room(int(made.max()) + 1)
        index = np.arange(rows.start, rows.stop)
        self.ids[index, made] = tokens
        self.logp[index, made] = logp
        self.versions[index, made] = version
        self.token[rows] = tokens
        self.last_logp[rows] = logp
        self.made[rows] += 1

    def accept_block(
        self, rows: NDArray[np.int64], tokens: NDArray[np.int64], logp: NDArray[np.float32],
        counts: NDArray[np.int64], version: int,
    ) -> None:  # fmt: skip
        """The first `counts[i]` of the tokens [steps, rows] for each of these rows, one step after the other."""
        made = self.made[rows]
        self._make_room(int((made + counts).max()))
        step, column = np.nonzero(np.arange(len(tokens))[:, None] < counts)
        place = rows[column], made[column] + step
        self.ids[place], self.logp[place], self.versions[place] = tokens[step, column], logp[step, column], version
        self.length[rows] += counts - ((made == 0) & (counts > 0))
        self.made[rows] += counts
        some = rows[counts > 0]
        self.token[some], self.last_logp[some] = (a[some, self.made[some] - 1] for a in (self.ids, self.logp))

    def go_back(self, row: int, made: int) -> None:
        """Let the row have only its first `made` tokens."""
        self.length[row] += made - self.made[row]
        self.made[row], self.token[row] = made, self.ids[row, made - 1]
        self.last_logp[row] = self.logp[row, made - 1]

    def _make_room(self, most: int) -> None:
        while most > self.ids.shape[1]:
            for name in ("ids", "logp", "versions"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.zeros_like(old)), axis=1))

    def stopped(self, rows: slice) -> NDArray[np.bool_]:
        """Which of these rows have just sampled a stop token."""
        hit: NDArray[np.bool_] = self.stop_table[self.stop_set[rows], self.token[rows]]
        return hit

    def full(self, rows: slice) -> NDArray[np.bool_]:
        """Which of these rows have as many tokens as they may have."""
        done: NDArray[np.bool_] = self.made[rows] >= self.limit[rows]
        return done

    def not_finite(self, rows: slice) -> NDArray[np.bool_]:
        """Which of these rows have just sampled from logits that are not finite."""
        wrong: NDArray[np.bool_] = np.isnan(self.last_logp[rows])
        return wrong

    def watched(self, rows: slice) -> list[int]:
        """Which of these rows must be examined in Python."""
        return [row for row in self._watched if rows.start <= row < rows.stop]

    def newest(self, row: int) -> tuple[int, float]:
        return int(self.token[row]), float(self.last_logp[row])

    def sampled(self, row: int) -> NDArray[np.int64]:
        return self.ids[row, : self.made[row]]

    def result(self, row: int, end: EndOfText) -> Sampled:
        made = int(self.made[row])
        versions = self.versions[row, :made].copy()
        oldest = int(versions.min()) if made else -1
        return Sampled(self.ids[row, :made].copy(), self.logp[row, :made].copy(), versions, oldest, end)

    def cached_ids(self, row: int) -> NDArray[np.int64]:
        """The tokens whose keys and values are in the cache: all but the newest."""
        both = np.concatenate((self.requests[row].ids, self.ids[row, : self.made[row]]))
        return both[: self.length[row]]

    def close_gaps(self, holes: Sequence[int], movers: Sequence[int], count: int) -> None:
        """Move the rows `movers` into the `holes`; `count` rows remain."""
        if holes:
            for name in self._arrays:
                array = getattr(self, name)
                array[list(holes)] = array[list(movers)]
        for hole, mover in zip(holes, movers, strict=True):
            self.requests[hole] = self.requests[mover]
        del self.requests[count:]
        self.count = count
        self._watched = [row for row, request in enumerate(self.requests) if request.watched]

    def _stop_set(self, stop_ids: frozenset[int]) -> int:
        """The row of `stop_table` that marks these ids; requests with the same ids share it."""
        if stop_ids not in self._stop_sets:
            marks = np.zeros((1, self.vocabulary), np.bool_)
            marks[0, [i for i in stop_ids if i < self.vocabulary]] = True
            self._stop_sets[stop_ids] = len(self.stop_table)
            self.stop_table = np.concatenate((self.stop_table, marks))
            self.stop_version += 1
        return self._stop_sets[stop_ids]
