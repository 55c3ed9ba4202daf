"""Problems of a large data file, kept on disk once they were read and checked: the next start maps them into memory.

    problems → keep → FOLDER/{problems.jsonl, ends.npy, about.json} → find → KeptProblems, a sequence of problems

A folder belongs to one state of the files (their sizes and times) and one set of options. Nothing in it is trusted to
be code: a problem is a line of JSON.
"""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, overload

import numpy as np

from groupwise.agents.data.problems import Problem
from groupwise.errors import GroupwiseError
from groupwise.files import whole_folder

FORM = 1  # raise it when what is kept changes
LARGE = 16 << 20  # bytes of files that are worth it
MOST_KEPT = 8  # data files; the oldest is dropped


class KeptProblems(Sequence[Problem]):
    """The problems from `first` to `last` of a folder; each is read when it is asked for."""

    def __init__(self, folder: Path, first: int, last: int) -> None:
        self.folder, self.first, self.last = folder, first, last
        with (folder / "problems.jsonl").open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")

    def __len__(self) -> int:
        return self.last - self.first

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> list[Problem]: ...
    def __getitem__(self, place: int | slice) -> Problem | list[Problem]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        number = self.first + range(len(self))[place]
        begin = int(self._ends[number - 1]) if number else 0
        return _problem(json.loads(self._lines[begin : int(self._ends[number])]))

    def __iter__(self) -> Iterator[Problem]:
        return (self[n] for n in range(len(self)))

    def __reduce__(self) -> Any:
        return KeptProblems, (self.folder, self.first, self.last)


def kept_folder(paths: Sequence[Path], options: Mapping[str, Any]) -> Path | None:
    """Where the problems of these files are kept, or would be; None for files that are read fast enough."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    try:
        states = [(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]
    except OSError:
        return None
    if sum(size for _, size, _ in states) < LARGE:
        return None
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the user has no home
        return None
    key = hashlib.sha256(json.dumps([FORM, states, dict(options)], sort_keys=True, default=repr).encode()).hexdigest()
    return home / "groupwise" / "data" / key[:32]


def keep(folder: Path, train: Sequence[Problem], test: Sequence[Problem], about: Mapping[str, Any]) -> bool:
    """Keep problems for the next start, if there is room for them and JSON gives back the same."""
    ends, size = np.zeros(len(train) + len(test), np.uint64), 0
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _drop_oldest(folder.parent)
        with whole_folder(folder) as passing:
            with (passing / "problems.jsonl").open("wb") as file:
                for number, problem in enumerate((*train, *test)):
                    line = json.dumps(_plain(problem), ensure_ascii=True).encode()
                    # Rows of Parquet and Arrow may have more than JSON can say, such as tuples.
                    if not about["json"] and _problem(json.loads(line)) != problem:
                        raise TypeError("not what was read")
                    size += file.write(line)
                    ends[number] = size
            np.save(passing / "ends.npy", ends)
            sides = {"train": len(train), "test": len(test), "bytes": size}
            (passing / "about.json").write_text(json.dumps({**about, **sides}))
    except (OSError, TypeError, ValueError, GroupwiseError):
        return False
    return True


def find(folder: Path) -> tuple[KeptProblems, KeptProblems, dict[str, Any]] | None:
    """The kept training and held-out problems, and what was noted about them; None if there are none that are sound."""
    try:
        about = json.loads((folder / "about.json").read_text())
        middle, all_ = about["train"], about["train"] + about["test"]
        train, test = KeptProblems(folder, 0, middle), KeptProblems(folder, middle, all_)
        if (folder / "problems.jsonl").stat().st_size != about["bytes"] or train._ends.shape != (all_,):
            return None
        os.utime(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return train, test, about


def is_noted(folder: Path, key: str) -> bool:
    """Whether a check that this key describes has passed before."""
    return (folder / f"passed-{key}").is_file()


def note(folder: Path, key: str) -> None:
    with suppress(OSError):
        (folder / f"passed-{key}").touch()


def _drop_oldest(parent: Path) -> None:
    found = sorted((child for child in parent.iterdir() if child.is_dir()), key=lambda child: child.stat().st_mtime)
    for child in found[: max(0, len(found) - MOST_KEPT + 1)]:
        shutil.rmtree(child, ignore_errors=True)


def _plain(problem: Problem) -> list[Any]:
    return [problem.prompt, problem.answer, problem.columns, problem.demonstration, problem.place]


def _problem(plain: list[Any]) -> Problem:
    prompt, answer, columns, demonstration, place = plain
    return Problem(prompt if isinstance(prompt, str) else tuple(prompt), answer, columns, demonstration, place)
