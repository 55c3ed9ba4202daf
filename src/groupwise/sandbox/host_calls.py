"""The host's side of a run in Monty: functions that the code may call, plain or async."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeAlias

from groupwise.sandbox.literal import read
from groupwise.sandbox.plain import PIECES

Submit: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]
"""Starts a coroutine on some event loop."""


CHARACTERS = 20_000_000
"""Of all arguments of a run together: reading them is our time, not the code's."""


class HostCalls:
    """Host functions for one run. What they raise is the code's to catch, but for a wish to stop the program.

    The code sees functions that write their arguments down and hand the text to one of ours, whose name it cannot know:
    arguments of hostile code are built here by `literal.read` only.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], submit: Submit) -> None:
        self._functions = functions
        self._async = {name for name, function in functions.items() if inspect.iscoroutinefunction(function)}
        self._submit = submit
        self._stop: BaseException | None = None
        self._key = f"_{secrets.token_hex(16)}"
        self._pieces, self._characters = PIECES, CHARACTERS

    def drive(self, session: Any, text: str, inputs: dict[str, Any], printed: Any) -> Any:
        """Feed the text to a session of Monty and answer its calls; the value of its last expression."""
        if self._functions:
            session.feed_run(self._faces())
        given: dict[str, Any] = {
            "inputs": inputs,
            "print_callback": printed,
            "external_lookup": {self._key: self._call},
        }
        if not self._async:
            return session.feed_run(text, **given)
        waiting: dict[int, Future[Any]] = {}
        try:
            snapshot = session.feed_start(text, **given)
            while not hasattr(snapshot, "output"):
                snapshot = self._answered(snapshot, waiting)
            return snapshot.output
        finally:
            for future in waiting.values():
                future.cancel()

    def reraise(self) -> None:
        """Pass on the wish to stop the program, if a function had one: the code could have caught it."""
        if self._stop is not None:
            raise self._stop

    def _faces(self) -> str:
        """What the code knows the functions as."""
        faces = []
        for name in self._functions:
            define, wait = ("async def", "await ") if name in self._async else ("def", "")
            body = f'return {wait}{self._key}({name!r}, f"{{(given, named)!r}}")'
            faces.append(f"{define} {name}(*given, **named):\n    {body}\n")
        return "".join(faces)

    def _answered(self, snapshot: Any, waiting: dict[int, Future[Any]]) -> Any:
        """The next snapshot, after answering this one; calls that must be awaited wait side by side."""
        if hasattr(snapshot, "pending_call_ids"):
            done = wait(waiting.values(), return_when=FIRST_COMPLETED).done
            ids = [number for number, future in waiting.items() if future in done]
            return snapshot.resume({number: _settled(waiting.pop(number)) for number in ids})
        if getattr(snapshot, "function_name", "") != self._key or snapshot.args[0] not in self._async:
            return snapshot.resume_auto()
        try:
            work = self._call(*snapshot.args)
        except TypeError as error:
            return snapshot.resume({"exception": error})
        waiting[snapshot.call_id] = self._submit(self._awaited(work))
        return snapshot.resume({"future": ...})

    async def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The work; a wish to stop the program waits until the run is over, and does not tear down an event loop."""
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as stop:
            self._stop = stop
            raise RuntimeError("the program is about to stop") from None

    def _call(self, name: str, written: str) -> Any:
        """Call a function with what the code wrote down."""
        self._characters -= len(written)
        try:
            if self._characters < 0:
                raise ValueError(f"makes more than {CHARACTERS:,} characters, with all calls before")
            (given, named), pieces = read(written, self._pieces)
            self._pieces -= pieces
        except ValueError as error:
            self._pieces = max(0, self._pieces - len(written) // 2)  # it may have been read to its end
            raise TypeError(f"{name} takes plain data, and what it was given {error}") from None
        try:
            return self._functions[name](*given, **named)
        except (KeyboardInterrupt, SystemExit) as stop:
            self._stop = stop
            raise


def _settled(future: Future[Any]) -> dict[str, Any]:
    error = future.exception()
    return {"return_value": future.result()} if error is None else {"exception": error}
