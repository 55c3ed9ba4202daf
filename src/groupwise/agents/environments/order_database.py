"""A small shop in a real SQLite database: who bought what, and what became of it.

The rules are the database's, not the caller's: only an open order can be cancelled, and only a sent one refunded, with
exactly what it cost.
"""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.agents.tasks import is_held_out

STATUSES = ("open", "paid", "sent")
ENDED = ("cancelled", "refunded")
CITIES = ("Rome", "Oslo", "Lima", "Kyiv")
SYLLABLES = tuple(consonant + vowel for consonant in "bdklmnrst" for vowel in "aeio")
PRODUCTS = ("lamp", "chair", "desk", "shelf", "clock")
SCHEMA = """
CREATE TABLE customers (name TEXT PRIMARY KEY, city TEXT NOT NULL);
CREATE TABLE orders (id TEXT PRIMARY KEY, buyer TEXT NOT NULL REFERENCES customers(name), status TEXT NOT NULL,
                     refunded INTEGER NOT NULL DEFAULT 0);
CREATE TABLE items (order_id TEXT NOT NULL REFERENCES orders(id), product TEXT NOT NULL, price INTEGER NOT NULL,
                    quantity INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """The rows a database begins with."""

    customers: tuple[tuple[str, str], ...]
    orders: tuple[tuple[str, str, str], ...]
    items: tuple[tuple[str, str, int, int], ...]

    def with_status(self, order: str, status: str) -> Shop:
        """The same shop, one of its orders in another status."""
        return replace(self, orders=tuple((n, who, status if n == order else s) for n, who, s in self.orders))


def make_shop(rng: random.Random, *, held_out: bool, customers: int = 3, orders: int = 4) -> Shop:
    """A shop whose customers and order numbers are all of one side: one in five of each is kept for judging."""
    names = _distinct(rng, customers, held_out, lambda: (rng.choice(SYLLABLES) + rng.choice(SYLLABLES)).capitalize())
    numbers = _distinct(rng, orders, held_out, lambda: str(rng.randrange(1000, 10_000)))
    items = [
        (number, product, rng.randrange(2, 25), rng.randrange(1, 3))
        for number in numbers
        for product in rng.sample(PRODUCTS, rng.randrange(1, 3))
    ]
    return Shop(
        tuple((name, rng.choice(CITIES)) for name in names),
        tuple((number, rng.choice(names), rng.choice(STATUSES)) for number in numbers),
        tuple(items),
    )


def _distinct(rng: random.Random, count: int, held_out: bool, draw: object) -> list[str]:
    assert callable(draw)
    found: dict[str, None] = {}
    while len(found) < count:
        value = str(draw())
        if is_held_out(value) == held_out:
            found[value] = None
    return list(found)


class NotPossible(Exception):
    """What the shop does not do, in the few words a caller is told."""


class OrderDatabase:
    """An SQLite database with a shop in it, in memory unless given a file."""

    def __init__(self, shop: Shop, path: Path | str = ":memory:") -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.executescript(SCHEMA)
        with self.connection:
            self.connection.executemany("INSERT INTO customers VALUES (?, ?)", shop.customers)
            self.connection.executemany("INSERT INTO orders (id, buyer, status) VALUES (?, ?, ?)", shop.orders)
            self.connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", shop.items)

    def status(self, order: str) -> str:
        """What has become of an order."""
        return str(self._one("SELECT status FROM orders WHERE id = ?", order, "order"))

    def total(self, order: str) -> str:
        """What an order costs."""
        self.status(order)
        return str(self._one("SELECT SUM(price * quantity) FROM items WHERE order_id = ?", order, "order"))

    def buyer(self, order: str) -> str:
        """Who bought an order."""
        return str(self._one("SELECT buyer FROM orders WHERE id = ?", order, "order"))

    def city(self, buyer: str) -> str:
        """Where a buyer lives."""
        return str(self._one("SELECT city FROM customers WHERE name = ?", buyer, "buyer"))

    def cancel(self, order: str) -> str:
        """Cancel an open order; its new status."""
        status = self.status(order)
        if status != "open":
            raise NotPossible(f"is {status}")
        return self._end(order, "cancelled", 0)

    def refund(self, order: str, sum: int) -> str:
        """Refund a sent order with exactly what it cost; its new status."""
        status, total = self.status(order), int(self.total(order))
        if status != "sent":
            raise NotPossible(f"is {status}")
        if str(sum) != str(total):
            raise NotPossible("wrong sum")
        return self._end(order, "refunded", total)

    def state(self) -> tuple[tuple[str, str, str, int], ...]:
        """All that tools can change."""
        return tuple(self.connection.execute("SELECT id, buyer, status, refunded FROM orders ORDER BY id"))

    def close(self) -> None:
        self.connection.close()

    def _one(self, query: str, key: str, kind: str) -> object:
        row = self.connection.execute(query, (str(key),)).fetchone()
        if row is None:
            raise NotPossible(f"no such {kind}")
        return row[0]

    def _end(self, order: str, status: str, refunded: int) -> str:
        self.connection.execute("UPDATE orders SET status = ?, refunded = ? WHERE id = ?", (status, refunded, order))
        return status
