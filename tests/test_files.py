"""Files that are whole or absent, and the one lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import groupwise.files as files
from groupwise.errors import StorageError
from groupwise.files import (
    disk,
    is_locked,
    lock_file,
    lock_note,
    read_small,
    whole_folder,
    write_atomic,
    write_output,
)


def test_a_lock_is_refused_to_a_second_holder_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    lock = lock_file(path)
    assert lock is not None
    lock.write(b"the first")
    assert is_locked(path)
    assert lock_file(path) is None
    assert lock_note(path) == "the first"
    lock.release()
    assert not is_locked(path)
    assert lock_file(path) is not None


def test_a_child_that_inherits_a_lock_keeps_it_after_its_parent_let_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = lock_file(path)
    assert lock is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock.descriptor])
    lock.release()
    assert is_locked(path)
    child.communicate(b"\n")
    assert not is_locked(path)


def test_a_forked_worker_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = lock_file(path)
    assert lock is not None
    ready, done = os.pipe(), os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(ready[1], b"!")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    lock.release()
    assert not is_locked(path)
    os.write(done[1], b"!")
    os.waitpid(worker, 0)


def test_a_system_without_file_locks_is_told_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.raises(StorageError, match="this system has no file locks"):
        lock_file(tmp_path / "lock")
    with pytest.raises(StorageError, match="use WSL"):
        is_locked(tmp_path / "lock")


def test_a_file_that_is_too_large_is_refused_and_not_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(b"0123456789")
    assert read_small(path, most=10) == b"0123456789"
    with pytest.raises(OSError, match="larger than 9 bytes"):
        read_small(path, most=9)


def test_a_disk_error_names_the_file_and_what_to_do() -> None:
    with pytest.raises(StorageError, match="cannot write here: No space left on device") as refused, disk(Path("here")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "Free some disk space" in refused.value.hint
    assert refused.value.field == "here"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("I/O error: No space left on device (os error 28)", "No space left on device"),
        ("open file failed with strerror: Input/output error", "Input/output error"),
        ("basic_ios::clear: iostream error", "it was not written to its end"),
    ],
)
def test_a_disk_error_that_a_serialiser_reports_is_recognised(said: str, reason: str) -> None:
    with pytest.raises(StorageError, match=f"cannot write here: {reason}"), disk(Path("here")):
        raise RuntimeError(said)
    with pytest.raises(RuntimeError, match="expected a tensor"), disk(Path("here")):
        raise RuntimeError("expected a tensor")


def test_a_lock_that_cannot_be_written_to_is_a_disk_error(tmp_path: Path) -> None:
    lock = lock_file(tmp_path / "lock")
    assert lock is not None
    os.close(lock.descriptor)
    with pytest.raises(StorageError, match="lock: Bad file descriptor"):
        lock.write(b"me")


def test_a_file_or_folder_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    write_atomic(file, b"old")
    with whole_folder(folder) as new:
        (new / "a").write_text("old")
    with pytest.raises(RuntimeError, match="stop"), whole_folder(folder) as new:
        (new / "a").write_text("new")
        raise RuntimeError("stop")
    assert (folder / "a").read_text() == "old"
    file.parent.joinpath(f".file.{os.getpid()}.tmp").mkdir()
    with pytest.raises(StorageError):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"


def test_output_replaces_a_file_in_one_step_and_follows_links(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "out.txt"
    write_output(file, "old")
    link = tmp_path / "link.txt"
    link.symlink_to(file)
    before = file.stat().st_ino
    write_output(link, b"new")
    assert file.read_text() == "new"
    assert file.stat().st_ino != before, "it was written in place"
    assert link.is_symlink()


def test_output_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text("old")
    code = (
        "import resource, signal, sys; from pathlib import Path; from groupwise.files import write_output;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "write_output(Path(sys.argv[1]), b'x' * 5000)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert "StorageError" in done.stderr
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_output_goes_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, "said")
    assert os.read(reader, 100) == b"said"
    os.close(reader)
