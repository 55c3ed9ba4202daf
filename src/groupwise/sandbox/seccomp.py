"""Which system calls a sandbox may make: two seccomp filters in the kernel's BPF, assembled here.

Whatever is not listed is refused with EPERM, so that Python raises `PermissionError`. `clone3` is refused with ENOSYS,
because a filter cannot read its flags, and the C library then falls back to `clone`. Numbers are those of
x86-64; a call through any other interface of the kernel kills the process.
"""

import struct
from collections.abc import Iterable

ARCHITECTURE = "x86_64"
AUDIT_X86_64 = 0xC000003E
X32 = 0x40000000  # this bit marks calls of the x32 interface
# SECCOMP_RET_…, errno values, BPF opcodes (load a word; jump if ==, >=, any bit; return), offsets in seccomp_data.
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, ARGUMENTS = 0, 4, 16

# Every CLONE_NEW… flag: no process may create a namespace, least of all a user namespace.
NEW_NAMESPACES = 0x7E020080

# What model-written code may call: no sockets, signals, programs, processes, mounts, tracing, keys or io_uring.
CODE = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "pread64": 17, "readv": 19, "writev": 20, "access": 21, "pipe": 22, "select": 23, "sched_yield": 24, "mremap": 25,
    "madvise": 28, "dup": 32, "dup2": 33, "nanosleep": 35, "getitimer": 36, "alarm": 37, "setitimer": 38, "getpid": 39,
    "exit": 60, "uname": 63, "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98,
    "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "sigaltstack": 131,
    "arch_prctl": 158, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204, "getdents64": 217,
    "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230,
    "exit_group": 231, "openat": 257, "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "pselect6": 270,
    "ppoll": 271, "set_robust_list": 273, "dup3": 292, "pipe2": 293, "getrandom": 318, "statx": 332, "rseq": 334,
    "faccessat2": 439,
}  # fmt: skip

IOCTL, FCNTL, CLONE, PRLIMIT, CLONE3 = 16, 72, 56, 302, 435
# ioctl: TCGETS, TIOCGWINSZ, FIONBIO, FIONCLEX, FIOCLEX, FIONREAD.
TERMINAL_OR_CLOSE = (0x5401, 0x5413, 0x5421, 0x5450, 0x5451, 0x541B)
# fcntl: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC.
FILE_FLAGS = (0, 1, 2, 3, 4, 1030)

PROCESSES = {"fork": 57, "vfork": 58, "wait4": 61, "waitid": 247}
# What the dispatcher and the judge, which start, judge and end the code, need in addition.
DISPATCHER = {
    **PROCESSES, "execve": 59, "kill": 62, "prctl": 157, "setrlimit": 160, "rt_sigtimedwait": 128, "seccomp": 317,
    "memfd_create": 319, "ftruncate": 77,
}  # fmt: skip


def dispatcher_filter() -> bytes:
    """For everything in a sandbox, in force before Python starts."""
    return _assembled({**CODE, **DISPATCHER}.values(), clone=True, limits=True)


def code_filter(processes: int) -> bytes:
    """For the code itself, on top of the dispatcher's: a filter can only take away. With one process it cannot fork."""
    more = PROCESSES.values() if processes > 1 else ()
    return _assembled([*CODE.values(), *more], clone=processes > 1, limits=False)


def _assembled(allowed: Iterable[int], *, clone: bool, limits: bool) -> bytes:
    program = [
        _step(LOAD, ARCH),
        _step(EQUAL, AUDIT_X86_64, 1, 0),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
        _step(AT_LEAST, X32, 0, 1),
        _step(RETURN, KILL),
    ]
    for number in sorted(allowed):
        program += [_step(EQUAL, number, 0, 1), _step(RETURN, ALLOW)]
    program += _only(IOCTL, 1, TERMINAL_OR_CLOSE) + _only(FCNTL, 1, FILE_FLAGS)
    # prlimit sets limits if its third argument is an address, and only reads them if it is null.
    program += [_step(EQUAL, PRLIMIT, 0, 1), _step(RETURN, ALLOW)] if limits else _only(PRLIMIT, 2, (0,), whole=True)
    if clone:
        program += [
            _step(EQUAL, CLONE, 0, 4),
            _step(LOAD, ARGUMENTS),
            _step(ANY_BIT, NEW_NAMESPACES, 0, 1),
            _step(RETURN, ERRNO | EPERM),
            _step(RETURN, ALLOW),
        ]
    program += [_step(EQUAL, CLONE3, 0, 1), _step(RETURN, ERRNO | ENOSYS), _step(RETURN, ERRNO | EPERM)]
    return b"".join(program)


def _only(number: int, argument: int, values: Iterable[int], *, whole: bool = False) -> list[bytes]:
    """Allow a call only if one of its arguments has one of these values; `whole` checks its upper 32 bits too."""
    checks: list[bytes] = []
    for value in values:
        checks += [_step(EQUAL, value, 0, 1), _step(RETURN, ALLOW)]
    load = [_step(LOAD, ARGUMENTS + 8 * argument)]
    if whole:
        load = [_step(LOAD, ARGUMENTS + 8 * argument + 4), _step(EQUAL, 0, 1, 0), _step(RETURN, ERRNO | EPERM), *load]
    body = [*load, *checks, _step(RETURN, ERRNO | EPERM)]
    return [_step(EQUAL, number, 0, len(body)), *body]


def _step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    """One BPF instruction (struct sock_filter); `true` and `false` are how many instructions a jump skips."""
    return struct.pack("=HBBI", code, true, false, value)
