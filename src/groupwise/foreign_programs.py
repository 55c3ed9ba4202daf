"""Small programs that come in files: a setting's regular expression, a model's chat template.

    last_matches(r"#### (.+)", texts)      what a pattern finds in each text
    render(template, variables)            what a template makes of a conversation

Both can run for ever or fill the memory, and neither Python's `re` nor Jinja can be interrupted. So they run in one
child process with limits; a program that exceeds them costs the child, and the next one starts a new child.
docs/decisions/0011-foreign-programs-in-a-child.md says what else was considered.
"""

import atexit
import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, TypeAlias

from groupwise.errors import ConfigError
from groupwise.workers import RequestFailed, WorkerLost, Workers, WorkerTimeout

# Processor time of one request, so that a busy machine refuses nothing; the clock on the wall only ends what sleeps.
SECONDS = 2
PATIENCE = 120.0
# Bytes of address space beyond what the child has when it starts.
MEMORY = 512 << 20
LONGEST_PATTERN = 10_000
# Characters that a template may write: so many of its own, besides what it was given, several times over.
LONGEST_RENDERED, REPEATED = 1 << 20, 4
# Texts and characters that go to the child at once.
TEXTS, CHARACTERS = 1000, 1 << 20

Groups: TypeAlias = "list[str | None] | None"


class ProgramFailed(ConfigError):
    """A regular expression that is not one, or a template that refuses a conversation."""


class OverLimit(ProgramFailed):
    """A program that takes too long or needs too much memory."""

    code = "over_limit"


@lru_cache(maxsize=1024)
def check_pattern(pattern: str, flags: int = 0) -> None:
    """Refuse what is not a regular expression."""
    last_matches(pattern, [""], flags)


def last_match(pattern: str, text: str, flags: int = 0) -> Groups:
    """The last match of a regular expression in a text: all of it, then its groups; None if there is none."""
    return last_matches(pattern, [text], flags)[0]


def last_matches(pattern: str, texts: Sequence[str], flags: int = 0) -> list[Groups]:
    """`last_match` for each of the texts."""
    if len(pattern) > LONGEST_PATTERN:
        raise ProgramFailed(f"it is longer than {LONGEST_PATTERN:,} characters")
    found: list[Groups] = []
    for part in _parts(texts):
        found += _ask("match", {"pattern": pattern, "texts": part, "flags": int(flags)})
    return found


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text that a chat template makes of `variables`, in Jinja's sandbox; they must be plain data."""
    return str(_ask("render", {"template": template, "variables": dict(variables)}))


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for text in texts:
        if part and (len(part) >= TEXTS or size + len(text) > CHARACTERS):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    yield part


@cache
def _child() -> Workers:
    workers = Workers("groupwise.foreign_programs:_handler", json=True)
    atexit.register(workers.kill)
    return workers


def _ask(operation: str, request: dict[str, Any]) -> Any:
    try:
        return _child().submit([operation, request], seconds=PATIENCE).result()
    except RequestFailed as error:
        kind = OverLimit if error.code == OverLimit.code else ProgramFailed
        raise kind(error.message) from None
    except WorkerTimeout:
        raise OverLimit(f"it takes longer than {PATIENCE:g} seconds") from None
    except WorkerLost as error:
        if error.status == -signal.SIGPROF:
            raise OverLimit(f"it takes longer than {SECONDS} seconds of processor time") from None
        raise OverLimit(f"it ended its process: {error.message}") from None


# In the child


def _handler() -> Callable[[Any], Any]:
    with suppress(OSError):  # only Linux says how much a process has, and only there does the limit hold
        _limit_memory()
    # The default of SIGPROF ends the process at once, even inside C code.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    return _answer


def _limit_memory() -> None:
    import resource  # not on Windows

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _answer(request: Any) -> Any:
    operation, given = request
    work = OPERATIONS[operation]()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return work(**given)
    except MemoryError:
        raise OverLimit(f"it needs more than {MEMORY >> 20} MiB of memory") from None
    except (RecursionError, OverflowError) as error:
        raise OverLimit(f"it cannot run: {error}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _match(pattern: str, texts: Sequence[str], flags: int) -> list[Groups]:
    try:
        compiled = re.compile(pattern, flags)
    except re.error as error:
        raise ProgramFailed(f"it is not a valid regular expression: {error}") from None
    return [_last(compiled, text) for text in texts]


def _last(pattern: re.Pattern[str], text: str) -> Groups:
    last = None
    for last in pattern.finditer(text):  # noqa: B007
        pass
    return None if last is None else [last[0], *last.groups()]


def _renderer() -> Callable[..., str]:
    from transformers.utils.chat_template_utils import render_jinja_template  # slow to import, and without torch

    def rendered(template: str, variables: Mapping[str, Any]) -> str:
        options = dict(variables)
        try:
            texts, _ = render_jinja_template([options.pop("messages")], chat_template=template, **options)
        except (MemoryError, RecursionError, OverflowError):
            raise
        except Exception as error:  # a template is a program and raises what it likes
            raise ProgramFailed(" ".join(str(error).split()) or type(error).__name__) from None
        longest = LONGEST_RENDERED + REPEATED * len(json.dumps(variables))
        if len(texts[0]) > longest:
            raise OverLimit(f"it writes {len(texts[0]):,} characters; at most {longest:,} are allowed here")
        return str(texts[0])

    return rendered


# Each returns the function that does the work; what it imports first does not count against the limits.
OPERATIONS: Mapping[str, Callable[[], Callable[..., Any]]] = {"match": lambda: _match, "render": cache(_renderer)}
