"""The servers of a run: which are in service, how busy each is, and what happens when one is lost.

A server is in service once it has been admitted: checked, and given the present weights. One that is lost is tried
again every second and admitted again when it answers; its requests meanwhile go to the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.errors import GroupwiseError
from groupwise.language.samplers.vllm_server import Lost, ServerLost, VllmServer
from groupwise.types import Hint

logger = logging.getLogger(__name__)

OnLost = Literal["wait", "shrink", "stop"]
PAUSE = 1.0  # seconds between two attempts to reach a lost server


@dataclass(eq=False)
class Member:
    """A server of the fleet, how many requests it is working on, and whether it is in service."""

    server: VllmServer
    in_flight: int = 0
    ready: bool = False
    reason: str = "it has not been asked yet"


class ServerFleet:
    """Shares requests out over servers.

    Args:
      servers: their connections.
      in_flight: requests that one server works on at a time.
      on_lost: "wait" for a server when none is left, up to `patience` seconds; "shrink": go on with those that are
        left, and stop when none is; "stop" as soon as one is lost.
      admit: checks servers and brings them up to date; returns those that cannot be reached.
    """

    def __init__(
        self, servers: Sequence[VllmServer], *, in_flight: int, on_lost: OnLost, patience: float,
        admit: Callable[[Sequence[VllmServer]], Lost],
    ) -> None:  # fmt: skip
        self.members = [Member(server) for server in servers]
        self.limit, self.on_lost, self.patience, self.admit = in_flight, on_lost, patience, admit
        self._changed = threading.Condition()
        self._keeper: threading.Thread | None = None
        self._fatal: GroupwiseError | None = None
        self._closed = False
        self._hints: list[Hint] = []

    @property
    def in_service(self) -> list[VllmServer]:
        with self._changed:
            return [member.server for member in self.members if member.ready]

    def open(self) -> None:
        """Admit the servers; return when at least one is in service and the settings are content with that."""
        self._try([member for member in self.members if not member.ready])
        missing = [member for member in self.members if not member.ready]
        if self._fatal is not None:
            raise self._fatal
        if missing and self.on_lost == "stop":
            raise self._gone(missing[0])
        if missing:
            logger.warning("%s; going on without it until it does", missing[0].reason)
            self._keep_trying()
        self.give(self.take(None))

    def take(self, prefer: int | None) -> Member:
        """A server with room, which now has one more request: the preferred one, or the least busy. Waits for one."""
        with self._changed:
            since = time.monotonic()
            while True:
                if self._fatal is not None:
                    raise self._fatal
                ready = [member for member in self.members if member.ready]
                free = [member for member in ready if member.in_flight < self.limit]
                if free:
                    wanted = None if prefer is None else self.members[prefer % len(self.members)]
                    chosen = wanted if wanted in free else min(free, key=lambda member: member.in_flight)
                    assert chosen is not None
                    chosen.in_flight += 1
                    return chosen
                if ready:
                    since = time.monotonic()
                elif self._closed or self.on_lost != "wait" or time.monotonic() - since > self.patience:
                    raise self._gone(self.members[0])
                self._changed.wait(PAUSE)

    def give(self, member: Member) -> None:
        with self._changed:
            member.in_flight -= 1
            self._changed.notify_all()

    def lose(self, server: VllmServer, error: ServerLost) -> None:
        """Take a server out of service."""
        with self._changed:
            member = next(member for member in self.members if member.server is server)
            member.reason = error.message
            if not member.ready or self._closed:
                return
            member.ready = False
            left = sum(member.ready for member in self.members)
            if self.on_lost == "stop":
                self._fatal = self._gone(member)
            self._hints.append(self._hint(member, left))
            self._changed.notify_all()
        logger.warning("%s", member.reason)
        self._keep_trying()

    def take_hints(self) -> list[Hint]:
        with self._changed:
            hints, self._hints = self._hints, []
        return hints

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._keeper is not None:
            self._keeper.join()

    def _keep_trying(self) -> None:
        with self._changed:
            if self._closed or (self._keeper is not None and self._keeper.is_alive()):
                return
            self._keeper = threading.Thread(target=self._keep, name="groupwise-servers", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        """Try lost servers until none is lost."""
        while True:
            with self._changed:
                lost = [member for member in self.members if not member.ready]
                if self._closed or self._fatal is not None or not lost:
                    # Told while the lock is held, so that a server lost from now on gets a new thread.
                    self._keeper = None
                    return
            # One by one: a server that answers need not wait for another that does not.
            for member in lost:
                self._try([member])
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PAUSE)

    def _try(self, members: Sequence[Member]) -> None:
        try:
            lost = dict(self.admit([member.server for member in members]))
        except GroupwiseError as error:
            # Such as another model than before: no later attempt would help.
            with self._changed:
                self._fatal = error
                self._changed.notify_all()
            return
        with self._changed:
            for member in members:
                member.ready = member.server not in lost
                member.reason = "" if member.ready else lost[member.server].message
            self._changed.notify_all()

    def _gone(self, member: Member) -> ServerLost:
        if self.on_lost == "wait":
            message = f"no vLLM server has answered for {self.patience:g} s (vllm.patience): {member.reason}"
        elif self.on_lost == "shrink":
            message = f"no vLLM server is left: {member.reason}"
        else:
            message = f"a vLLM server is lost, and vllm.on_lost = 'stop': {member.reason}"
        return ServerLost(
            message,
            hint="Start a server (`groupwise sampler start`) and continue with `groupwise resume`, or set "
            "rollout.sampler = 'own'.",
            field="vllm.servers",
        )

    def _hint(self, member: Member, left: int) -> Hint:
        rest = f"{left} of {len(self.members)} servers go on" if left else "the run waits for it"
        return Hint(
            "server_lost", f"{member.reason}; its requests are sent again, and {rest}",
            "It is used again as soon as it answers. If it was stopped on purpose, take it out of vllm.servers.",
        )  # fmt: skip
