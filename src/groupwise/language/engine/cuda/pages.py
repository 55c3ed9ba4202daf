"""Which pages of the cache belong to which row, on the host; the keys and values themselves are in `PagedStore`.

A full page is known by all tokens up to its end. So whoever comes with the same beginning takes the page instead of
reading the tokens again: the members of a group, latecomers, the next turn of a conversation, another conversation with
the same instructions. Pages without a user stay known until their place is needed, least recently used first.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def page_keys(ids: NDArray[np.int64], size: int) -> list[bytes]:
    """A key for every full page of these tokens: a digest of all tokens up to its end."""
    digest, keys = hashlib.blake2b(digest_size=16), []
    for stop in range(size, len(ids) + 1, size):
        digest.update(ids[stop - size : stop].tobytes())
        keys.append(digest.digest())
    return keys


class Pages:
    """Hands out pages 0 … count − 1, and keeps the full ones that may be wanted again."""

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        self.users = np.zeros(count, np.int64)
        self.free = list(range(count - 1, -1, -1))
        self.known: dict[bytes, int] = {}
        self.key_of: dict[int, bytes] = {}
        # Known pages without a user, oldest first.
        self.idle: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.users)

    @property
    def available(self) -> int:
        return len(self.free) + len(self.idle)

    def grow(self, count: int) -> None:
        """Hand out pages up to `count`, which exist from now on."""
        self.free[:0] = range(count - 1, len(self.users) - 1, -1)
        self.users = np.concatenate((self.users, np.zeros(count - len(self.users), np.int64)))

    def beginning(self, keys: Sequence[bytes]) -> list[int]:
        """The known pages that hold the first of these keys, without a gap."""
        found = []
        for key in keys:
            if key not in self.known:
                break
            found.append(self.known[key])
        return found

    def take(self, shared: Sequence[int], new: int) -> list[int] | None:
        """Use these pages and as many new ones; None if there are not enough."""
        if new > self.available - sum(page in self.idle for page in shared):
            return None
        for page in shared:
            self.users[page] += 1
            self.idle.pop(page, None)
        return [*shared, *(self._fresh() for _ in range(new))]

    def publish(self, pages: Sequence[int], keys: Sequence[bytes]) -> None:
        """Make the first pages of a row known; one that is known already stays as it is."""
        for page, key in zip(pages, keys, strict=False):
            if key not in self.known and page not in self.key_of:
                self.known[key] = page
                self.key_of[page] = key

    def give_back(self, pages: Sequence[int]) -> None:
        # From the end: the beginning of a text is wanted most, so it is dropped last.
        for page in reversed(pages):
            self.users[page] -= 1
            if self.users[page]:
                continue
            if page in self.key_of:
                self.idle[page] = None
            else:
                self.free.append(page)

    def forget(self) -> None:
        """The contents of all pages are out of date; whoever uses one keeps it."""
        self.known.clear()
        self.key_of.clear()
        self.free += self.idle
        self.idle.clear()

    def _fresh(self) -> int:
        if self.free:
            page = self.free.pop()
        else:
            page, _ = self.idle.popitem(last=False)
            del self.known[self.key_of.pop(page)]
        self.users[page] = 1
        return page
