"""Attempts to get out of a sandbox. Each defines `attempt(canary, folder, port, pid)`, which returns True if it did.

`canary` is a file that holds a secret, `folder` the writable folder it is in, `port` a listening port of this machine,
and `pid` a process that sleeps. What would harm the machine is bounded: it takes more than the limits of a sandbox and
less than anybody would notice. Limits of the sandboxed runs are in `test_escapes.py`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """Code that tries to get out; `free` says that it does where there is no sandbox."""

    name: str
    body: str
    free: bool = True

    @property
    def code(self) -> str:
        return f"def attempt(canary, folder, port, pid):\n{self.body}\n"


def bodies(text: str, free: bool = True) -> list[Attempt]:
    """Attempts from paragraphs `name:` and the indented body of the function."""
    made: list[Attempt] = []
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        name, _, body = paragraph.partition(":\n")
        made.append(Attempt(name, body, free))
    return made


FILES = bodies("""
read a file:
    return "secret" in open(canary).read()

read with system calls:
    import os
    return b"secret" in os.read(os.open(canary, os.O_RDONLY), 100)

read a path:
    import pathlib
    return "secret" in pathlib.Path(canary).read_text()

read as code:
    import io
    return b"secret" in io.open_code(canary).read()

read lines:
    import linecache
    return any("secret" in line for line in linecache.getlines(canary))

read as a loader:
    from importlib.machinery import SourceFileLoader
    return b"secret" in SourceFileLoader("canary", canary).get_data(canary)

read from a map of memory:
    import mmap, os
    return b"secret" in mmap.mmap(os.open(canary, os.O_RDONLY), 0, prot=mmap.PROT_READ)[:]

read from C:
    import ctypes
    libc = ctypes.CDLL(None)
    room = ctypes.create_string_buffer(100)
    libc.read(libc.open(canary.encode(), 0), room, 100)
    return b"secret" in room.value

run a file:
    import runpy
    return runpy.run_path(canary)["word"] == "secret"

import a file:
    import sys
    sys.path.insert(0, folder)
    import canary as module
    return module.word == "secret"

step out of a folder:
    return "secret" in open("/usr/lib/../.." + canary).read()

through proc's root:
    return "secret" in open("/proc/self/root" + canary).read()

open again by descriptor:
    import os
    for fd in range(3, 256):
        try:
            if b"secret" in os.pread(fd, 100, 0):
                return True
        except OSError:
            pass
    return False

list a folder:
    import os
    return "canary.py" in os.listdir(folder)

read the users of the machine:
    return "root:" in open("/etc/passwd").read()

write a file:
    return open(folder + "/written", "w").write("x") == 1

write beside the program:
    import os, tempfile
    return tempfile.NamedTemporaryFile(dir="/tmp").write(b"x") == 1

append to a file:
    return open(canary, "a").write("x") == 1

cut a file:
    import os
    os.truncate(canary, 0)
    return True

remove a file:
    import os
    os.remove(canary)
    return True

rename a file:
    import os
    os.rename(canary, folder + "/moved")
    return True

change rights:
    import os
    os.chmod(canary, 0o777)
    return True

link to a file:
    import os
    os.symlink(canary, folder + "/link")
    return "secret" in open(folder + "/link").read()

second name for a file:
    import os
    os.link(canary, folder + "/second")
    return True

make a folder:
    import os
    os.mkdir(folder + "/made")
    return True

make a pipe with a name:
    import os
    os.mkfifo(folder + "/pipe")
    return True

make a database:
    import sqlite3
    sqlite3.connect(folder + "/made.db").execute("create table t (x)")
    return True

shared memory:
    from multiprocessing import shared_memory
    made = shared_memory.SharedMemory(create=True, size=100)
    made.unlink()
    return True

a file in memory:
    import os
    return os.memfd_create("x") > 0

devices:
    return len(open("/dev/urandom", "rb").read(8)) == 8
""")

MACHINE = bodies("""
the environment:
    import os
    return os.environ.get("GROUPWISE_CANARY") == "secret"

the environment by proc:
    return b"GROUPWISE_CANARY=secret" in open("/proc/self/environ", "rb").read()

another process:
    import os
    return os.path.exists(f"/proc/{pid}")

the command of another process:
    return b"sleep" in open(f"/proc/{pid}/cmdline", "rb").read()

the settings of the kernel:
    return int(open("/proc/sys/kernel/pid_max").read()) > 0

the frames of the caller:
    import sys
    word, frame = " ".join(["hidden", "word"]), sys._getframe(1)
    while frame is not None:
        if any(word in str(value) for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False

everything in memory:
    import gc
    word = " ".join(["hidden", "word"])
    held = [value for found in gc.get_objects() if type(found) in (list, tuple) for value in found]
    return any(type(value) is str and word in value for value in held)
""")

NETWORK = bodies("""
connect:
    import socket
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True

send a datagram:
    import socket
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)) == 1

listen:
    import socket
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return True

a pair of sockets:
    import socket
    return len(socket.socketpair()) == 2

look up a name:
    import socket
    return socket.gethostbyname("localhost") == "127.0.0.1"

fetch a page:
    import urllib.request
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/", timeout=1)
    return True

an event loop:
    import asyncio
    async def main():
        await asyncio.open_connection("127.0.0.1", port)
    asyncio.run(main())
    return True

a socket from C:
    import ctypes
    return ctypes.CDLL(None).socket(2, 1, 0) >= 0
""")

PROCESSES = bodies("""
fork:
    import os
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

many forks:
    import os
    for _ in range(30):
        if os.fork() == 0:
            os._exit(0)
    return True

fork from C:
    import ctypes, os
    child = ctypes.CDLL(None).fork()
    if child == 0:
        os._exit(0)
    return child > 0

clone by number:
    import ctypes, os
    child = ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0

run a program:
    import subprocess
    return subprocess.run(["/bin/true"]).returncode == 0

run a shell:
    import os
    return os.system("true") == 0

run a shell from C:
    import ctypes
    return ctypes.CDLL(None).system(b"true") == 0

spawn:
    import os
    return os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0

a worker process:
    import multiprocessing
    made = multiprocessing.get_context("fork").Process(target=int)
    made.start()
    made.join()
    return made.exitcode == 0

threads:
    import threading
    made = [threading.Thread(target=int) for _ in range(20)]
    for thread in made:
        thread.start()
    return True

import by another name:
    return __import__("o" + "s").system("true") == 0

a class nobody named:
    import subprocess
    kinds = [kind for kind in ().__class__.__base__.__subclasses__() if kind.__name__ == "Popen"]
    return kinds[0](["/bin/true"]).wait() == 0

a program in a pickle:
    import pickle
    return pickle.loads(b"cposix\\nsystem\\n(S'true'\\ntR.") == 0

a program in a string:
    return eval(compile("__import__('os').popen('echo out').read()", "x", "eval")) == "out\\n"

end another process:
    import os
    os.kill(pid, 15)
    return True

stop another process from C:
    import ctypes
    return ctypes.CDLL(None).kill(pid, 19) == 0

trace another process:
    import ctypes
    return ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0

give way to others:
    import os
    return os.nice(1) >= 1

raise a limit:
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    return True

change oneself:
    import ctypes
    return ctypes.CDLL(None).prctl(15, b"other", 0, 0, 0) == 0
""")

SIZE = bodies("""
much memory:
    return len(bytearray(120_000_000)) > 0

many objects:
    held = [str(number) * 10 for number in range(1_000_000)]
    return len(held) > 0

a map of memory:
    import mmap
    room = mmap.mmap(-1, 200_000_000)
    room[::4096] = b"x" * len(range(0, 200_000_000, 4096))
    return True

a large number:
    return (1 << 1_000_000_000).bit_length() > 0

a long text:
    return len("ab" * 60_000_000) > 0

a bomb:
    import zlib
    packed = zlib.compress(bytes(1_000_000)) * 1
    room = [zlib.decompress(packed) for _ in range(120)]
    return len(room) > 0

recursion:
    import sys
    sys.setrecursionlimit(10**9)
    def down(depth):
        return depth and down(depth - 1)
    return down(1_500_000) == 0

print much:
    for _ in range(2000):
        print("x" * 100)
    return True

write much to the descriptor:
    import os
    for _ in range(2000):
        os.write(1, b"x" * 100)
    return True

complain much:
    import sys
    for _ in range(2000):
        sys.stderr.write("x" * 100)
    return True
""")

TIME = bodies("""
loop:
    import time
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass
    return True

loop and catch:
    import time
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            pass
    return True

sleep:
    import time
    time.sleep(0.5)
    return True

sleep in the kernel:
    import select
    select.select([], [], [], 0.5)
    return True

ignore signals:
    import signal, time
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(0.5)
    return True

a slow pattern:
    import re, time
    start = time.monotonic()
    for length in range(10, 40):
        re.match("(a|a)*b", "a" * length)
        if time.monotonic() - start > 0.5:
            return True
""")

DANGEROUS = bodies(
    """
end everybody:
    import os
    os.kill(-1, 9)
    return True

end the parent:
    import os
    os.kill(os.getppid(), 9)
    return True

end the first process:
    import os
    os.kill(1, 9)
    return True

become root:
    import os
    os.setuid(0)
    return True

a user namespace:
    import ctypes
    return ctypes.CDLL(None).unshare(0x10000000) == 0

a user namespace by clone:
    import ctypes, os
    child = ctypes.CDLL(None).syscall(56, 0x10000011, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0

the newer clone:
    import ctypes, os
    words = (ctypes.c_ulonglong * 11)(0x10000000, 0, 0, 0, 17)
    child = ctypes.CDLL(None).syscall(435, words, 88)
    if child == 0:
        os._exit(0)
    return child > 0

mount:
    import ctypes
    return ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0

another root:
    import os
    os.chroot("/")
    return True

read the memory of others:
    import ctypes, os
    room = ctypes.create_string_buffer(16)
    return ctypes.CDLL(None).syscall(310, os.getppid(), room, 1, room, 1, 0) > 0

borrow a descriptor:
    import ctypes, os
    libc = ctypes.CDLL(None)
    return libc.syscall(438, libc.syscall(434, os.getppid(), 0), 0, 0) >= 0

a ring of system calls:
    import ctypes
    return ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(200)) >= 0

a program for the kernel:
    import ctypes
    return ctypes.CDLL(None).syscall(321, 0, ctypes.create_string_buffer(100), 72) >= 0

a key of the kernel:
    import ctypes
    return ctypes.CDLL(None).syscall(248, b"user", b"x", b"y", 1, -2) > 0

system calls of another machine:
    import ctypes, mmap
    room = mmap.mmap(-1, 4096, prot=7)
    room.write(bytes.fromhex("b814000000cd80c3"))
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(room)))
    return call() > 0

system calls with a bit too many:
    import ctypes
    return ctypes.CDLL(None).syscall(0x40000000 + 39) > 0

live longer than the parent:
    import ctypes
    return ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0

break the process:
    import ctypes
    ctypes.string_at(0)
    return True
""",
    free=False,
)

ATTEMPTS = [*FILES, *MACHINE, *NETWORK, *PROCESSES, *SIZE, *TIME, *DANGEROUS]
