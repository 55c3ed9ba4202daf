"""The system call filters, run by a small interpreter of the kernel's BPF: what is allowed, and nothing else."""

from __future__ import annotations

import struct

import pytest

from groupwise.sandbox.seccomp import code_filter, dispatcher_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050001, 0x00050026
X86_64, I386 = 0xC000003E, 0x40000003
IOCTL, FCNTL, CLONE, PRLIMIT, CLONE3 = 16, 72, 56, 302, 435
FILTERS = {"one process": code_filter(1), "two processes": code_filter(2), "dispatcher": dispatcher_filter()}
# By the kernel's table for x86-64, written down independently of the filters.
DANGEROUS = {
    "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "bind": 49, "listen": 50, "socketpair": 53, "ptrace": 101,
    "setuid": 105, "setgid": 106, "mount": 165, "umount2": 166, "chroot": 161, "pivot_root": 155, "unshare": 272,
    "setns": 308, "bpf": 321, "keyctl": 250, "add_key": 248, "io_uring_setup": 425, "io_uring_enter": 426,
    "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_open": 434, "userfaultfd": 323, "perf_event_open": 298,
    "unlink": 87, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "symlink": 88, "chmod": 90, "chown": 92,
    "truncate": 76, "creat": 85, "unlinkat": 263, "renameat2": 316, "execveat": 322, "tkill": 200, "tgkill": 234,
    "init_module": 175, "kexec_load": 246, "open_by_handle_at": 304, "personality": 135, "reboot": 169,
    "shmget": 29, "msgget": 68, "setsid": 112, "setpgid": 109, "sendmsg": 46, "pidfd_send_signal": 424,
}  # fmt: skip
ONLY_THE_DISPATCHERS = {"execve": 59, "kill": 62, "prctl": 157, "setrlimit": 160, "seccomp": 317, "memfd_create": 319}


# What code may call, by number: a list of its own, so that a call joins the filter only on purpose.
NUMBERS = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23, 24, 25, 28, 32, 33, 35, 36, 37, 38,
    39, 60, 63, 79, 89, 96, 97, 98, 100, 102, 104, 107, 108, 110, 131, 158, 186, 201, 202, 204, 217, 218, 219, 228,
    229, 230, 231, 257, 262, 267, 269, 270, 271, 273, 292, 293, 318, 332, 334, 439,
}  # fmt: skip
FORKS, STARTS = {57, 58, 61, 247}, {57, 58, 59, 61, 62, 77, 128, 157, 160, 247, 317, 319}


def verdict(program: bytes, number: int, *arguments: int, arch: int = X86_64) -> int:
    """What the kernel does with a call: `struct seccomp_data` is number, architecture, address, and six arguments."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number if number < 2**31 else number - 2**32, arch, 0, *padded)
    steps = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    loaded, at = 0, 0
    while True:
        code, true, false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        else:
            held = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += true if held else false


@pytest.mark.parametrize("name", FILTERS)
def test_calls_of_another_interface_end_the_process(name: str) -> None:
    for number in (0, 1, 60, 400):
        assert verdict(FILTERS[name], number, arch=I386) == KILL
        assert verdict(FILTERS[name], number | 0x40000000) == KILL
    assert verdict(FILTERS[name], 0x3FFFFFFF) == EPERM


def test_every_call_is_allowed_or_refused_as_listed() -> None:
    special = {IOCTL, FCNTL, CLONE, PRLIMIT, CLONE3}
    more = {"one process": set(), "two processes": FORKS, "dispatcher": STARTS}
    for name, program in FILTERS.items():
        allowed = NUMBERS | more[name]
        for number in set(range(500)) - special:
            assert verdict(program, number) == (ALLOW if number in allowed else EPERM), (name, number)
        for call, number in DANGEROUS.items():
            assert verdict(program, number) == EPERM, (name, call)
        assert verdict(program, CLONE3) == ENOSYS


@pytest.mark.parametrize(("processes", "answer"), [(1, EPERM), (2, ALLOW), (9, ALLOW)])
def test_code_may_fork_and_wait_only_where_it_may_have_several_processes(processes: int, answer: int) -> None:
    for number in FORKS:
        assert verdict(code_filter(processes), number) == answer
    assert verdict(code_filter(processes), CLONE, 0x00010F00) == answer
    for number in ONLY_THE_DISPATCHERS.values():
        assert verdict(code_filter(processes), number) == EPERM
        assert verdict(dispatcher_filter(), number) == ALLOW


@pytest.mark.parametrize(
    "flag",
    [0x00000080, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000],
    ids=["time", "mount", "cgroup", "uts", "ipc", "user", "pid", "network"],
)
def test_no_process_may_be_started_in_a_new_namespace(flag: int) -> None:
    for name in ("two processes", "dispatcher"):
        assert verdict(FILTERS[name], CLONE, flag) == EPERM
        assert verdict(FILTERS[name], CLONE, flag | 0x00010F00) == EPERM
        assert verdict(FILTERS[name], CLONE, 0x00010F00) == ALLOW


@pytest.mark.parametrize("name", FILTERS)
def test_files_and_terminals_may_be_asked_and_not_driven(name: str) -> None:
    program = FILTERS[name]
    asked = {0x5401, 0x5413, 0x5421, 0x5450, 0x5451, 0x541B}
    # TIOCSTI and TIOCLINUX put words into a terminal's input.
    for request in (*asked, 0, 1, 2, 0x5402, 0x5412, 0x541C, 0x5410, 0x5414, 0x541D, 0x5422):
        assert verdict(program, IOCTL, request, request) == (ALLOW if request in asked else EPERM), hex(request)
    flags = {0, 1, 2, 3, 4, 1030}
    for request in (*range(20), *range(1024, 1040)):
        assert verdict(program, FCNTL, 0, request) == (ALLOW if request in flags else EPERM), request
    # The descriptor is free to be any; only the second argument decides.
    assert verdict(program, FCNTL, 5, 0) == verdict(program, FCNTL, 1030, 3) == ALLOW
    assert verdict(program, FCNTL, 0, 5) == EPERM


@pytest.mark.parametrize("address", [1, 0x7FFF00000000, 1 << 32, 0xFFFFFFFF00000000])
def test_code_may_read_its_limits_and_not_set_them(address: int) -> None:
    for processes in (1, 2):
        assert verdict(code_filter(processes), PRLIMIT, 0, 9, 0) == ALLOW
        assert verdict(code_filter(processes), PRLIMIT, 0, 9, address) == EPERM
    assert verdict(dispatcher_filter(), PRLIMIT, 0, 9, address) == ALLOW
