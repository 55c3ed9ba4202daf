"""A scripted judge on a real port: an OpenAI-compatible server that answers honestly, or with the fault it is told."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from groupwise.types import End, Group, Task, Trajectory

Answer = Callable[["Handler", dict[str, Any]], None]
Rows = list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    """One request: the next fault of the script, or the honest answer."""

    protocol_version = "HTTP/1.1"
    server: JudgeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.keys.append(self.headers.get("Authorization", ""))
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
            answer = server.script.pop(0) if server.script else server.always
        try:
            answer(self, body)
        finally:
            with server.lock:
                server.in_flight -= 1

    def give(self, status: int, body: Any, **headers: str) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def say(self, text: Any, finish: str = "stop") -> None:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        self.give(200, {"choices": [{"message": message, "finish_reason": finish}], "usage": usage})

    def log_message(self, *_: Any) -> None:
        pass


class JudgeServer(ThreadingHTTPServer):
    """Answers like `always`, after everything in `script`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.lock = threading.Lock()
        self.script: list[Answer] = []
        self.always: Answer = honest
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self.ending = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """A client that has gone."""


def shown(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The attempts of a question, in the order they are shown: name and text."""
    return re.findall(r'<attempt id="(\w+)">\n(.*?)\n</attempt>', body["messages"][-1]["content"], re.DOTALL)


def criteria(body: dict[str, Any]) -> list[str]:
    rubric = body["messages"][-1]["content"].split("</rubric>")[0]
    return re.findall(r"^- (\w+)", rubric, re.MULTILINE)


def worth(text: str) -> float:
    """What an attempt is worth, which it says: `worth 0.7`."""
    return float(re.findall(r"worth (\d+(?:\.\d+)?)", text)[-1])


def rows(body: dict[str, Any]) -> Rows:
    """Honest marks: each criterion a little apart from the others."""
    return [
        {"id": name, "reason": "so", **{c: worth(text) - 0.01 * n for n, c in enumerate(criteria(body))}}
        for name, text in shown(body)
    ]


def honest(handler: Handler, body: dict[str, Any]) -> None:
    handler.say(json.dumps({"scores": rows(body)}))


def tampered(change: Callable[[Rows], Rows]) -> Answer:
    return lambda handler, body: handler.say(json.dumps({"scores": change(rows(body))}))


def first_mark(value: Any) -> Answer:
    """The honest answer with one mark replaced."""

    def change(found: Rows) -> Rows:
        found[0][list(found[0])[-1]] = value
        return found

    return tampered(change)


def refuse(status: int, message: str = "no", **headers: str) -> Answer:
    return lambda handler, _: handler.give(status, {"error": {"message": message}}, **headers)


def slow(handler: Handler, _: dict[str, Any]) -> None:
    """No answer as long as the test lasts."""
    handler.server.ending.wait()


def dripping(handler: Handler, _: dict[str, Any]) -> None:
    """A blank now and then, as long as the test lasts: no pause is long, but the answer never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.server.ending.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def cut_off(handler: Handler, _: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hang_up(handler: Handler, _: dict[str, Any]) -> None:
    handler.connection.close()
    handler.close_connection = True


def say(text: Any, finish: str = "stop") -> Answer:
    return lambda handler, _: handler.say(text, finish)


def give(status: int, text: str) -> Answer:
    return lambda handler, _: handler.give(status, text)


def without_schema(handler: Handler, body: dict[str, Any]) -> None:
    """A server that does not know JSON schemas."""
    if body.get("response_format", {}).get("type") == "json_schema":
        handler.give(400, {"error": {"message": "response_format json_schema is not supported"}})
    else:
        honest(handler, body)


FAULTS: dict[str, Answer] = {
    "429": refuse(429, "slow down", Retry_After="0.01"),
    "500": refuse(500, "oh"),
    "503 without a word": give(503, ""),
    "slow": slow,
    "dripping": dripping,
    "no JSON": say("the first is the best"),
    "half of JSON": say('{"scores": [{"id": "'),
    "no text": say(None),
    "no scores": say('{"verdict": "good"}'),
    "cut by length": lambda handler, body: handler.say(json.dumps({"scores": rows(body)}), "length"),
    "a page": give(200, "<html>welcome</html>"),
    "nested": say("[" * 100_000),
    "too few": tampered(lambda found: found[:-1]),
    "too many": tampered(lambda found: [*found, found[0]]),
    "none": tampered(lambda found: []),
    "the same twice": tampered(lambda found: [found[0], *found[:-1]]),
    "wrong ids": tampered(lambda found: [{**row, "id": f"x{n}"} for n, row in enumerate(found)]),
    "numbered ids": tampered(lambda found: [{**row, "id": n} for n, row in enumerate(found)]),
    "no object": tampered(lambda found: [0.5 for _ in found]),  # type: ignore[misc]
    "a criterion missing": tampered(lambda found: [{"id": row["id"]} for row in found]),
    "above 1": first_mark(7),
    "below 0": first_mark(-0.1),
    "NaN": first_mark(float("nan")),
    "infinite": lambda handler, body: handler.say(json.dumps({"scores": rows(body)}).replace("0.", "1e999", 1)),
    "a word": first_mark("0.9"),
    "true": first_mark(True),
    "null": first_mark(None),
    "a mark twice": lambda handler, body: handler.say(
        json.dumps({"scores": rows(body)}).replace('"reason": "so"', f'"{criteria(body)[0]}": 0.5')
    ),
    "connection cut": cut_off,
    "hung up": hang_up,
}


def time_for(fault: Answer) -> float:
    """Seconds to wait: short for an answer that never comes, and longer than any other takes on a busy machine."""
    return 0.4 if fault in (slow, dripping) else 10.0


def attempt(said: str, number: int = 0, asked: str = "What is it worth?", **meta: Any) -> Trajectory:
    one = np.ones(1)
    return Trajectory(
        f"g/m{number}", "t/0", "g", one, one, one.astype(bool), one, one.astype(int), one, End.FINISHED, True,
        meta={"prompt": asked, "text": said, **meta},
    )  # fmt: skip


def group_of(*said: str, name: str = "g", asked: str = "What is it worth?") -> Group:
    members = tuple(attempt(text, n, asked) for n, text in enumerate(said))
    return Group(name, Task(f"t/{name}"), members)


def group_worth(worths: Sequence[float], name: str = "g") -> Group:
    return group_of(*(f"I am worth {value:g}" for value in worths), name=name, asked=f"What are you worth, {name}?")


@contextmanager
def serving() -> Iterator[JudgeServer]:
    server = JudgeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
