"""The command line of the second tier's wall, and what it makes visible."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

from groupwise.sandbox import available
from groupwise.sandbox.bubblewrap_command import (
    Interpreter,
    _asked,
    _collect,
    _outermost,
    _tops,
    as_nobody,
    command,
    found_interpreter,
    mounts,
    wall,
)

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)


def pairs(words: list[str], option: str, count: int = 1) -> list[tuple[str, ...]]:
    return [tuple(words[n + 1 : n + 1 + count]) for n, word in enumerate(words) if word == option]


def test_the_wall_shuts_everything_out() -> None:
    words = wall(["/usr/lib", "/opt/python"], [("/site/numpy", "/packages/numpy")])
    for option in (
        "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv",
    ):  # fmt: skip
        assert option in words
    assert pairs(words, "--cap-drop") == [("ALL",)]
    assert (pairs(words, "--uid"), pairs(words, "--gid")) == ([("65534",)], [("65534",)])
    visible = pairs(words, "--ro-bind", 2)
    assert visible[1:] == [("/usr/lib",) * 2, ("/opt/python",) * 2, ("/site/numpy", "/packages/numpy")]
    assert visible[0][1] == "/lib64/ld-linux-x86-64.so.2"
    assert words[-4:] == ["--remount-ro", "/", "--chdir", "/"], "read-only only after everything is mounted"
    # Nothing is bound in a way that could be written to, and nothing of the machine is shared again.
    assert not {"--bind", "--dev-bind", "--share-net", "--proc", "--dev", "--tmpfs", "--setenv"} & set(words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_becomes_nobody_first() -> None:
    assert as_nobody()[1:] == ["--reuid=65534", "--regid=65534", "--clear-groups"]
    who = subprocess.run([*as_nobody(), "id", "-u"], capture_output=True, text=True, check=True)
    assert who.stdout.strip() == "65534"
    assert wall([])[: len(as_nobody())] == as_nobody()


def test_python_starts_behind_the_wall_with_nothing_of_its_own() -> None:
    python = Interpreter("/usr/bin/python3", ("/usr/lib/python3",), True)
    words = command(python, 7, "boot()", [("/site/numpy", "/packages/numpy")])
    assert words[-7:] == ["--", "/usr/bin/python3", "-I", "-S", "-B", "-c", "boot()"]
    assert pairs(words, "--seccomp") == [("7",)]
    assert set(pairs(words, "--setenv", 2)) == {("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")}
    visible = [inside for _, inside in pairs(words, "--ro-bind", 2)[1:]]
    assert visible == ["/usr/bin/python3", "/usr/lib/python3", "/packages/numpy"]
    assert "--setenv" not in command(python, 7, "boot()")


def test_the_interpreter_is_one_that_nobody_may_run_and_knows_its_folders() -> None:
    found = found_interpreter()
    assert os.path.realpath(found.program) == found.program
    assert all(Path(folder).is_dir() for folder in found.folders)
    assert _asked("/no/such/python") is None
    assert _asked("/bin/false") is None


@pytest.mark.parametrize(
    ("folders", "left"),
    [
        ([], ()), (["/a"], ("/a",)), (["/a/b", "/a"], ("/a",)), (["/a", "/ab"], ("/a", "/ab")),
        (["/b", "/a", "/b"], ("/a", "/b")), (["/a/b/c", "/a/b", "/d"], ("/a/b", "/d")), (["", "/a"], ("/a",)),
    ],
)  # fmt: skip
def test_a_folder_inside_another_is_not_mounted_twice(folders: list[str], left: tuple[str, ...]) -> None:
    assert _outermost(folders) == left


def test_a_package_comes_with_what_it_requires_and_not_with_its_extras() -> None:
    seen: dict[str, object] = {}
    _collect(distribution("pytest"), seen)  # type: ignore[arg-type]
    assert {"pytest", "pluggy", "iniconfig", "packaging"} <= set(seen)
    assert not {"hypothesis", "attrs", "xmlschema", "mock", "setuptools"} & set(seen)
    again = dict(seen)
    _collect(distribution("pytest"), seen)  # type: ignore[arg-type]
    assert seen == again


def test_what_is_mounted_exists_and_is_found_under_one_folder() -> None:
    for place, inside in mounts(("pytest", "numpy")):
        assert Path(place).exists()
        assert os.path.realpath(place) == place
        assert inside.startswith("/packages/")
        assert inside.count("/") == 2
    names = [inside for _, inside in mounts(("pytest", "numpy"))]
    assert len(names) == len(set(names))
    assert {"/packages/numpy", "/packages/pytest"} <= set(names)
    assert mounts(()) == ()
    assert not {"..", "__pycache__"} & _tops(distribution("pytest"))
