"""What the second tier needs from this machine: Linux, bubblewrap, and a Python that an unprivileged user may read.

`wall` is the command line; `mounts` are the installed packages that tests import, and what these require.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from groupwise.errors import ConfigError, ResourceError
from groupwise.sandbox.seccomp import ARCHITECTURE

NOBODY = 65534  # the user and group "nobody"
OLDEST = (0, 8)  # the first bubblewrap with --disable-userns
INSTALL = "Install it: apt-get install bubblewrap (Debian), dnf install bubblewrap (Fedora)."
# Where packages that tests import are visible inside a sandbox.
PACKAGES = "/packages"
REQUIRED_NAME = re.compile(r"[A-Za-z0-9._-]+")
LOADER = "/lib64/ld-linux-x86-64.so.2"
# Asks a Python for its bytecode format, its library folders, and the folders of all shared libraries it has loaded.
QUERY = """
import ctypes, resource, select, math, sys, sysconfig
from importlib.util import MAGIC_NUMBER
print(MAGIC_NUMBER.hex())
print(sysconfig.get_path("stdlib"))
print(sysconfig.get_path("platstdlib"))
for line in open("/proc/self/maps"):
    place = line.split()[-1]
    if ".so" in place and place.startswith("/"):
        print(place.rpartition("/")[0])
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python to run code with: its program, the folders it needs, and whether it can run our bytecode."""

    program: str
    folders: tuple[str, ...]
    same_magic: bool


def as_nobody() -> list[str]:
    """The prefix of a command that root must not run itself: the kernel does not enforce process limits for root.

    `setpriv` does it instead of `subprocess(user=...)`, which would copy the page tables of a large trainer each time.
    """
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        message = "root must become nobody before it runs a sandbox, which needs setpriv; it is not installed"
        raise ResourceError(message, hint="Install util-linux, or run as another user.")
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def wall(visible: Sequence[str], mounted: Sequence[tuple[str, str]] = ()) -> list[str]:
    """A bubblewrap command line in which only the given files and folders are visible, read-only.

    `mounted` are others, each with the place where it is visible inside.
    """
    words = [
        *as_nobody(), _bubblewrap(), "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--new-session", "--clearenv", "--cap-drop", "ALL", "--uid", str(NOBODY), "--gid", str(NOBODY),
        "--hostname", "sandbox", "--ro-bind", os.path.realpath(LOADER), LOADER,
    ]  # fmt: skip
    for place in visible:
        words += ["--ro-bind", place, place]
    for place, inside in mounted:
        words += ["--ro-bind", place, inside]
    return [*words, "--remount-ro", "/", "--chdir", "/"]


def command(interpreter: Interpreter, filter_fd: int, boot: str, mounted: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The command line of a Python behind that wall, with a system call filter and the code it starts with."""
    seen = wall([interpreter.program, *interpreter.folders], mounted)
    if mounted:  # NumPy would start a thread for every core, which a sandbox does not allow
        seen += ["--setenv", "OPENBLAS_NUM_THREADS", "1", "--setenv", "OMP_NUM_THREADS", "1"]
    return [*seen, "--seccomp", str(filter_fd), "--", interpreter.program, "-I", "-S", "-B", "-c", boot]


@cache
def found_interpreter() -> Interpreter:
    """The first usable Python; raises if there is none, or no bubblewrap."""
    _bubblewrap()
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    tried = ["/usr/bin/python3", "/usr/local/bin/python3", str(own)]
    for place in tried:
        if (found := _asked(place)) is not None:
            return found
    hint = "Install the system's Python: apt-get install python3."
    raise ResourceError(f"there is no Python that an unprivileged user may run (tried {', '.join(tried)})", hint=hint)


@cache
def _bubblewrap() -> str:
    """The path of bubblewrap; raises if there is none, it is too old, or our filters do not fit this machine."""
    if sys.platform != "linux" or platform.machine() != ARCHITECTURE:
        here = f"{sys.platform} on {platform.machine()}"
        hint = "Use the first tier, or a Linux machine."
        raise ResourceError(f"the second tier of the sandbox needs Linux on {ARCHITECTURE}; this is {here}", hint=hint)
    program = shutil.which("bwrap")
    if program is None:
        raise ResourceError("the second tier of the sandbox needs bubblewrap; bwrap was not found", hint=INSTALL)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    if version < OLDEST:
        raise ResourceError(f"{said.strip() or program} is too old; at least 0.8 is needed", hint=INSTALL)
    return program


def _asked(place: str) -> Interpreter | None:
    """What a Python says about itself, when asked by the user that will run it; None if that user cannot."""
    program = os.path.realpath(place)
    try:
        asked = subprocess.run(
            [*as_nobody(), program, "-I", "-S", "-c", QUERY], capture_output=True, text=True, timeout=20
        )
    except OSError:
        return None
    if asked.returncode:
        return None
    magic, *folders = asked.stdout.split("\n")[:-1]
    return Interpreter(program, _outermost(folders), magic == MAGIC_NUMBER.hex())


def _outermost(folders: list[str]) -> tuple[str, ...]:
    real = sorted({os.path.realpath(folder) for folder in folders if folder})
    return tuple(f for f in real if not any(f.startswith(f"{other}/") for other in real))


@cache
def mounts(packages: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The files and folders of these packages and of what they require, each with its place inside a sandbox."""
    seen: dict[str, Distribution] = {}
    for package in packages:
        names = _providers().get(package)
        if not names:
            raise ConfigError(
                f"the tests import {package!r}, which is not installed here",
                hint=f"Install it (pip install {package}), or remove the tasks whose tests need it.",
            )
        for name in names:
            _collect(distribution(name), seen)
    tops = {top: found for found in seen.values() for top in _tops(found)}
    return tuple((str(Path(str(found.locate_file(top))).resolve()), f"{PACKAGES}/{top}") for top, found in tops.items())


@cache
def _providers() -> dict[str, list[str]]:
    """Which distributions provide a module: reading them all takes a while."""
    return dict(packages_distributions())


def _collect(found: Distribution, seen: dict[str, Distribution]) -> None:
    """Add a distribution and, recursively, what it requires; extras and other systems' requirements are left out."""
    name = found.metadata["Name"].lower()
    if name in seen:
        return
    seen[name] = found
    for line in found.requires or ():
        required = REQUIRED_NAME.match(line)
        if required is None or "extra ==" in line:
            continue
        try:
            _collect(distribution(required[0]), seen)
        except PackageNotFoundError:
            continue


def _tops(found: Distribution) -> set[str]:
    """The top-level files and folders of a distribution in site-packages."""
    tops = {file.parts[0] for file in found.files or ()}
    return {top for top in tops if top not in ("..", "__pycache__") and Path(str(found.locate_file(top))).exists()}
