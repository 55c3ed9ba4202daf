"""The host's side of a run in Monty: functions that the code may call, plain or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import wraps
from typing import Any, TypeAlias

Submit: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]
"""Starts a coroutine on some event loop."""


class HostCalls:
    """Host functions for one run. What they raise is the code's to catch, but for a wish to stop the program."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], submit: Submit) -> None:
        self._functions = {name: self._guarded(function) for name, function in functions.items()}
        self._async = {name for name, function in functions.items() if inspect.iscoroutinefunction(function)}
        self._submit = submit
        self._stop: BaseException | None = None

    def drive(self, session: Any, text: str, inputs: dict[str, Any], printed: Any) -> Any:
        """Feed the text to a session of Monty and answer its calls; the value of its last expression."""
        given: dict[str, Any] = {"inputs": inputs, "print_callback": printed, "external_lookup": self._functions}
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

    def _answered(self, snapshot: Any, waiting: dict[int, Future[Any]]) -> Any:
        """The next snapshot, after answering this one; calls that must be awaited wait side by side."""
        if hasattr(snapshot, "pending_call_ids"):
            done = wait(waiting.values(), return_when=FIRST_COMPLETED).done
            ids = [number for number, future in waiting.items() if future in done]
            return snapshot.resume({number: _settled(waiting.pop(number)) for number in ids})
        name = getattr(snapshot, "function_name", "")
        if name not in self._async or snapshot.is_os_function:
            return snapshot.resume_auto()
        try:
            work = self._functions[name](*snapshot.args, **snapshot.kwargs)
        except TypeError as error:
            return snapshot.resume({"exception": error})
        waiting[snapshot.call_id] = self._submit(work)
        return snapshot.resume({"future": ...})

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return function

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (KeyboardInterrupt, SystemExit) as stop:
                self._stop = stop
                raise

        return guarded


def _settled(future: Future[Any]) -> dict[str, Any]:
    error = future.exception()
    return {"return_value": future.result()} if error is None else {"exception": error}
