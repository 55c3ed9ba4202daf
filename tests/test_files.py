"""Files that are whole or absent, and the one lock."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import groupwise.files as files
from groupwise.errors import ConfigError, StorageError
from groupwise.files import (
    REMEDY,
    UNKNOWN,
    disk,
    is_locked,
    lock_file,
    lock_note,
    open_regular,
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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is brought to the disk, in order."""
    found: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_a_durable_file_is_on_disk_before_and_after_it_gets_its_name(tmp_path: Path, synced: list[str]) -> None:
    write_atomic(tmp_path / "a.json", b"1", durable=False)
    assert synced == []
    write_atomic(tmp_path / "a.json", b"2")
    assert synced == [f".a.json.{os.getpid()}.tmp", tmp_path.name]
    assert (tmp_path / "a.json").read_bytes() == b"2"


def test_a_folder_is_on_disk_with_all_its_files_before_it_gets_its_name(tmp_path: Path, synced: list[str]) -> None:
    with whole_folder(tmp_path / "made") as folder:
        for name in "ab":
            (folder / name).write_text(name)
    assert sorted(synced[:2]) == ["a", "b"]
    assert synced[2:] == [".made.tmp", tmp_path.name]


@pytest.mark.parametrize("before", [None, (), ("old", "kept")])
def test_a_folder_is_replaced_as_a_whole_whatever_a_crash_left_behind(
    tmp_path: Path, before: tuple[str, ...] | None
) -> None:
    folder = tmp_path / "deep" / "made"
    for left in (".made.tmp", ".made.old"):
        (folder.parent / left).mkdir(parents=True)
        (folder.parent / left / "half").touch()
    if before is not None:
        folder.mkdir()
        for name in before:
            (folder / name).touch()
    with whole_folder(folder) as new:
        assert list(new.iterdir()) == []
        (new / "kept").write_text("new")
        assert sorted(path.name for path in folder.iterdir()) == sorted(before) if before else True
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert (folder / "kept").read_text() == "new"
    assert list(folder.parent.iterdir()) == [folder]


def test_a_file_that_cannot_get_its_name_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="cannot write .*taken: Is a directory") as refused:
        write_atomic(tmp_path / "taken", b"x")
    assert refused.value.hint == "Check the path and its permissions."
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.parametrize("number", [number for number in REMEDY if number != UNKNOWN])
def test_every_disk_error_has_its_own_remedy_however_it_is_reported(number: int) -> None:
    said = os.strerror(number)
    for error in (OSError(number, said), RuntimeError(f"write failed: {said}"), ValueError(f"x (os error {number})")):
        with pytest.raises(StorageError, match=f"^cannot write here: {said}\n") as refused, disk(Path("here")):
            raise error
        assert refused.value.hint == REMEDY[number]
        assert refused.value.__cause__ is error


def test_an_error_without_a_number_has_the_general_remedy_and_ours_stay_as_they_are() -> None:
    with pytest.raises(StorageError, match="^cannot write here: odd\n") as refused, disk(Path("here")):
        raise OSError("odd")
    assert refused.value.hint == "Check the path and its permissions."
    for stuck in ("unexpected pos 64 vs 0", "basic_ios::clear: iostream error"):
        with pytest.raises(StorageError, match="it was not written to its end") as refused, disk(Path("here")):
            raise RuntimeError(stuck)
        assert refused.value.hint == REMEDY[UNKNOWN]
    with pytest.raises(ConfigError, match="^No space left on device$"), disk(Path("here")):
        raise ConfigError("No space left on device")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_refused_leaves_no_descriptor_open(tmp_path: Path) -> None:
    lock = lock_file(tmp_path / "lock")
    assert lock is not None
    before = descriptors()
    assert lock_file(tmp_path / "lock") is None
    assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "none")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        (tmp_path / "note").write_text("four")
        read_small(tmp_path / "note", most=3)
    assert descriptors() == before
    lock.release()
    assert descriptors() == before - 1


def test_a_lock_is_waited_for_as_long_as_patience_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = lock_file(tmp_path / "lock", mode=0o600)
    assert holder is not None
    assert os.stat(tmp_path / "lock").st_mode & 0o777 == 0o600
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            holder.release()

    monkeypatch.setattr("groupwise.files.time.sleep", pause)
    assert lock_file(tmp_path / "lock") is None
    assert pauses == []
    next_holder = lock_file(tmp_path / "lock", patience=600)
    assert next_holder is not None
    assert len(pauses) == 3
    next_holder.release()


def test_the_note_in_a_lock_is_the_last_one_alone(tmp_path: Path) -> None:
    lock = lock_file(tmp_path / "lock")
    assert lock is not None
    assert lock.read() == b""
    assert lock_note(tmp_path / "lock") == "unknown"
    for note in (b"a long note about the holder\n", b"me\n"):
        lock.write(note)
        assert lock.read() == note
        assert lock_note(tmp_path / "lock") == note.decode().strip()
    lock.write(b"x" * 5000)
    assert len(lock.read()) == len(lock_note(tmp_path / "lock")) == 4096
    lock.release()
    assert lock_note(tmp_path) == lock_note(tmp_path / "none") == "unknown"


def test_many_may_look_at_once_whether_a_file_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as another:
        fcntl.flock(another, fcntl.LOCK_SH)  # as `is_locked` of another process has it for an instant
        assert not is_locked(path)
        assert lock_file(path) is None
    assert not is_locked(path)


def test_a_fork_after_a_release_closes_nothing_of_others(tmp_path: Path) -> None:
    lock = lock_file(tmp_path / "lock")
    assert lock is not None
    lock.release()
    with (tmp_path / "other").open("wb") as other:
        assert other.fileno() == lock.descriptor  # the number is free again
        forked = os.fork()
        if forked == 0:
            try:
                os.write(other.fileno(), b"still open")
            finally:
                os._exit(0)
        os.waitpid(forked, 0)
    assert (tmp_path / "other").read_bytes() == b"still open"
