"""Files that are written completely or not at all, the one file lock, and one translation of disk errors.

write_atomic, whole_folder    replace a file or a folder in one step
write_output                  the same for a file that the user named, which may be a pipe
open_regular, read_small      read without hanging on a pipe or swallowing a huge file
lock_file, is_locked          one process owns a file, and says so inside it
disk                          any error of the disk becomes a `StorageError` with a remedy
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LARGEST_SMALL = 16 << 20
# Bytes of what a lock's holder wrote about itself.
LONGEST_NOTE = 4096
# Seconds between two attempts to take a lock.
PAUSE = 0.02

UNKNOWN = 0  # the disk failed, and nobody said how
REMEDY = {
    UNKNOWN: "Is the disk full? Free some space and try again: everything saved before is safe.",
    errno.ENOSPC: "Free some disk space and try again: everything saved before is safe.",
    errno.EDQUOT: "Your disk quota is used up. Free some space and try again.",
    errno.EFBIG: "A file size limit is set (`ulimit -f`). Raise it and try again.",
    errno.EROFS: "The file system is read-only. Choose another folder.",
    errno.EACCES: "You do not have permission to write there. Choose another folder.",
}


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn an error of the disk on `path` into a `StorageError` that says what to do."""
    try:
        yield
    except GroupwiseError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            number, reason = error.errno or -1, error.strerror or str(error)
        elif (said := _told_by_serialiser(error)) is None:
            raise
        else:
            number, reason = said, os.strerror(said) if said else "it was not written to its end"
        hint = REMEDY.get(number, "Check the path and its permissions.")
        raise StorageError(f"cannot write {path}: {reason}", hint=hint, field=str(path)) from error


def _told_by_serialiser(error: Exception) -> int | None:
    """The number of the disk error behind an exception of safetensors or torch; None if it is something else."""
    text = str(error)
    # safetensors' Rust layer gives the number, torch the words, or only that it could not go on with a file.
    if known := re.search(r"os error (\d+)", text):
        return int(known[1])
    said = [number for number in (*REMEDY, errno.EIO) if number and os.strerror(number) in text]
    stuck = "unexpected pos" in text or "iostream error" in text
    return said[0] if said else UNKNOWN if stuck else None


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading. A folder, or a pipe that nobody may ever write to, raises `OSError` at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_small(path: Path, most: int = LARGEST_SMALL) -> bytes:
    """The content of a file that should be small. A larger one raises `OSError` and is not read."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(most)


def write_atomic(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace `path` in one step: a reader, or a crash, sees the old content or the new, never a part."""
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
            # The rename itself is only on disk once the folder is.
            sync_folder(path.parent)


def write_output(path: Path, content: bytes | str) -> None:
    """Write a file where the user wants it: an existing one is replaced in one step, links are followed.

    A pipe or a device, which nothing can replace, is written to.
    """
    data = content.encode() if isinstance(content, str) else content
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_atomic(path.resolve(), data, durable=False)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write files to; it then replaces `folder` in one step, or not at all if that fails."""
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
            # rename() replaces an empty folder but not a full one.
            if folder.is_dir() and any(folder.iterdir()):
                folder.rename(old)
            temporary.rename(folder)
            sync_folder(folder.parent)
        finally:
            for left_over in (temporary, old):
                shutil.rmtree(left_over, ignore_errors=True)


def sync_file(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file


class FileLock:
    """An exclusive lock on a file. It ends with `release`, or with the process, however that ends.

    The lock belongs to the open descriptor: a child process that inherits `descriptor` keeps it locked after this
    process has released its own.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        _held.add(self)

    def read(self) -> bytes:
        """What the last holder wrote about itself."""
        return os.pread(self.descriptor, LONGEST_NOTE, 0)

    def write(self, note: bytes) -> None:
        """Say who holds the lock, for whoever is refused."""
        with disk(self.path):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, note, 0)

    def release(self) -> None:
        _held.discard(self)
        with suppress(OSError):
            os.close(self.descriptor)


def lock_file(path: Path, *, patience: float = 0.0, mode: int = 0o644) -> FileLock | None:
    """Lock the file, which is created with `mode` if it does not exist; None if it stays locked for `patience` seconds.

    A second lock on the same file in this process is refused like one of another process.
    """
    flock = _flock()
    with disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        end = time.monotonic() + patience
        try:
            while True:
                try:
                    flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return FileLock(path, descriptor)
                except BlockingIOError:
                    if time.monotonic() >= end:
                        break
                    time.sleep(PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def lock_note(path: Path) -> str:
    """What the holder of a lock wrote about itself, or "unknown"."""
    try:
        with open_regular(path) as file:
            return file.read(LONGEST_NOTE).decode("utf8", "replace").strip() or "unknown"
    except OSError:
        return "unknown"


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock. To find out, this takes a shared lock for an instant."""
    flock = _flock()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _flock() -> Any:
    if fcntl is None:
        raise StorageError(
            "this system has no file locks (fcntl.flock)", hint="Use Linux or macOS; on Windows, use WSL."
        )
    return fcntl.flock


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _release_all() -> None:
    """A forked worker must not keep a lock alive whose own process is gone."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)
