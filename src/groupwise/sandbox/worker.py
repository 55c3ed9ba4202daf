"""Monty's workers inside bubblewrap, where there is one: a second wall around a young interpreter."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from groupwise.errors import ResourceError
from groupwise.sandbox.machine import wall
from groupwise.sandbox.seccomp import keeper_filter


@cache
def walled_worker() -> str | None:
    """A script that starts a worker behind a wall; None where none can be built here."""
    program = os.environ.get("MONTY_BIN") or shutil.which("monty", path=_places())
    if program is None:
        return None
    folder = tempfile.mkdtemp(prefix="groupwise-monty-")
    atexit.register(_removed, folder, os.getpid())
    script, rules = Path(folder) / "worker", Path(folder) / "filter"
    rules.write_bytes(keeper_filter())
    try:
        script.write_text(_script(os.path.realpath(program), str(rules)))
        os.chmod(folder, 0o755)
        script.chmod(0o755)
        tried = subprocess.run([str(script), "--version"], capture_output=True, timeout=20)
    except (ResourceError, OSError, subprocess.TimeoutExpired):
        return None
    return str(script) if tried.returncode == 0 and b"monty" in tried.stdout else None


def _removed(folder: str, owner: int) -> None:
    # A forked child that ends must not take the script from its parent.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _places() -> str:
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def _libraries() -> list[str]:
    """Where the C library is: Debian's place, or everybody's."""
    debian = "/usr/lib/x86_64-linux-gnu"
    places = (debian,) if os.path.isdir(debian) else ("/usr/lib", "/usr/lib64")
    return [place for place in places if os.path.isdir(place)]


def _script(program: str, rules: str) -> str:
    """The shell stays: bubblewrap dies with its parent, which must not be a thread of ours that ends."""
    words = ["env", "-i", *wall([program, *_libraries()]), "--seccomp", "3", "--", program]
    return f'#!/bin/sh\n{shlex.join(words)} "$@" 3<{shlex.quote(rules)} 2>/dev/null\n'
