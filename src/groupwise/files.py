"""Files that are written completely or not at all, the one file lock, and one translation of disk errors."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from groupwise.errors import RunLocked, StorageError

LARGEST_SMALL = 16 << 20

REMEDY = {
    errno.ENOSPC: "Free some space and run `groupwise resume`: everything up to the last checkpoint is safe.",
    errno.EDQUOT: "Your quota is used up; free some space and run `groupwise resume`.",
    errno.EFBIG: "A file size limit is set (`ulimit -f`); raise it and run `groupwise resume`.",
    errno.EROFS: "The file system is read-only; choose another folder with `--set run.output_dir=…`.",
    errno.EACCES: "This user may not write there; choose another folder with `--set run.output_dir=…`.",
}


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn an `OSError` on `path` into a `StorageError` that says what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        hint = REMEDY.get(error.errno or 0, "Check the path and who may write there.")
        raise StorageError(f"cannot write {path}: {reason}", hint=hint, field=str(path)) from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read. A folder, or a pipe that nobody would ever write to, is an `OSError` at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_small(path: Path, most: int = LARGEST_SMALL) -> bytes:
    """The content of a file that has no reason to be large; one that is, is an `OSError` and not read."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read(most)


def write_atomic(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace `path` as a whole: a reader, or a crash, sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        if durable:
            sync_folder(path.parent)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A place to write files to; it then takes the place of `folder`, synced, all at once. Nothing if that fails."""
    temporary, old = folder.with_name(f".{folder.name}.tmp"), folder.with_name(f".{folder.name}.old")
    with disk(folder):
        for left_over in (temporary, old):
            shutil.rmtree(left_over, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.iterdir():
                sync_file(file)
            sync_folder(temporary)
            if folder.is_dir() and any(folder.iterdir()):
                folder.rename(old)
            temporary.rename(folder)
            sync_folder(folder.parent)
        finally:
            for left_over in (temporary, old):
                shutil.rmtree(left_over, ignore_errors=True)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file


LOCK_TRIES = 5


def acquire(path: Path) -> int:
    """Take the lock, trying for a moment: whoever asks for a run's state holds it for an instant too."""
    with disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            _held.add(descriptor)
            return descriptor
    holder = os.pread(descriptor, 4096, 0).decode("utf8", "replace").strip()
    os.close(descriptor)
    raise RunLocked(
        f"run {path.parent.name} is being written by another process ({holder or 'unknown'})",
        hint="Wait for it, or stop it (Ctrl-C there) and resume here.",
    )


_held: set[int] = set()


def _close_held() -> None:
    """A forked worker must not keep the lock of a run whose own process is gone."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_held)


def is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_attempt(descriptor: int) -> int:
    try:
        return int(json.loads(os.pread(descriptor, 4096, 0))["attempt"])
    except (ValueError, KeyError, TypeError):
        return 0


def write_attempt(descriptor: int, attempt: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "attempt": attempt}).encode(), 0)


def release(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)
