"""A seccomp filter, assembled by hand: system calls that no kernel benchmark needs answer EPERM, nothing is killed.

It is the second wall behind dropped capabilities and Landlock: it also stops a rank from making a *new* user
namespace, in which it would be root again. The list is what container engines deny by default; what CUDA, NCCL,
Triton's compiler or a profiler may use (ioctl, perf_event_open, pidfd_getfd, memfd_create) is left alone. The kernel
remembers per number that a call is always allowed, so calls not listed cost nothing measurable.
"""

import ctypes
import errno
import struct

from pkb.rank.isolation import syscalls as kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# name: (x86_64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int, int | None]] = {
    # another process's memory
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    # files by handle, around every path rule
    "open_by_handle_at": (304, 265),
    # io_uring runs system calls that no filter sees
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # names of what others do in folders that may not even be listed: Landlock does not guard watching them, and who takes
    # all instances of a user leaves that user's programs none
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # the kernel itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "bpf": (321, 280), "userfaultfd": (323, 282),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "iopl": (172, None), "ioperm": (173, None),
    # the machine, among it the clock by which candidates are timed
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
}  # fmt: skip
_SOCKET = (41, 198)
_FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
"""Of sockets. No other is bounded by the network namespace as a matter of course: vsock leads to the machine's host."""
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_PRLIMIT64 = (302, 261)
_CLOSE_RANGE = (436, 436)
_NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW... bit that clone takes
_CLONE_THREAD, _CLONE_FILES, _UNSHARE = 0x10000, 0x400, 2

# Classic BPF: load a word of struct seccomp_data, jump if equal, jump if any bit set, return.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCH = 0, 4
_AT_ARGUMENT_0, _AT_ARGUMENT_2 = 16, 32  # their lower halves, since both architectures are little endian
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_SET_MODE_FILTER, _THREAD_SYNC, _SPEC_ALLOW = 1, 1, 4


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def assemble(machine: str, *, sockets: bool = True) -> bytes:
    """The filter for one architecture. Every test stands in front of its own answer, so that no jump is ever long."""
    if machine not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    column = 0 if machine == "x86_64" else 1
    deny = _step(_RETURN, _ERRNO | errno.EPERM)
    # A 32-bit call has other numbers, which would walk past every test below.
    program = _step(_LOAD, _AT_ARCH) + _step(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0) + deny + _step(_LOAD, _AT_NUMBER)
    if machine == "x86_64":
        program += _step(_JUMP_AT_LEAST, _X32_BIT, 0, 1) + deny
    for numbers in (*_DENIED.values(), *([] if sockets else [_SOCKET])):
        if (number := numbers[column]) is not None:
            program += _step(_JUMP_EQUAL, number, 0, 1) + deny
    # As from a kernel that lacks the family, which libraries expect.
    program += _step(_JUMP_EQUAL, _SOCKET[column], 0, 3 + len(_FAMILIES)) + _step(_LOAD, _AT_ARGUMENT_0)
    for position, family in enumerate(_FAMILIES.values()):
        program += _step(_JUMP_EQUAL, family, len(_FAMILIES) - position, 0)
    program += _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT) + _step(_RETURN, _ALLOW)
    # Its flags lie behind a pointer, which a filter cannot follow. ENOSYS makes the C library fall back to clone.
    program += _step(_JUMP_EQUAL, _CLONE3[column], 0, 1) + _step(_RETURN, _ERRNO | errno.ENOSYS)
    program += _step(_JUMP_EQUAL, _CLONE[column], 0, 7)
    program += _step(_LOAD, _AT_ARGUMENT_0) + _step(_JUMP_BITS, _NEW_NAMESPACE, 0, 1) + deny
    # A thread shares its process's descriptors: what it held in a table of its own, nobody would count.
    program += _step(_JUMP_BITS, _CLONE_THREAD, 0, 2) + _step(_JUMP_BITS, _CLONE_FILES, 1, 0) + deny
    program += _step(_RETURN, _ALLOW)
    program += _step(_JUMP_EQUAL, _CLOSE_RANGE[column], 0, 4)
    program += _step(_LOAD, _AT_ARGUMENT_2) + _step(_JUMP_BITS, _UNSHARE, 0, 1) + deny
    program += _step(_RETURN, _ALLOW)
    # prlimit of another process: a CPU limit of zero would kill the inner init and look like the harness's fault.
    program += _step(_JUMP_EQUAL, _PRLIMIT64[column], 0, 3)
    program += _step(_LOAD, _AT_ARGUMENT_0) + _step(_JUMP_EQUAL, 0, 1, 0) + deny
    return program + _step(_RETURN, _ALLOW)


def install(*, sockets: bool = True) -> str:
    """Installs the filter on every thread of this process (needs no_new_privs); returns the report's words."""
    program = assemble(kernel.machine(), sockets=sockets)
    attributes = _Program(len(program) // 8, program)
    number = kernel.numbers().seccomp
    # Without SPEC_ALLOW an older kernel slows a filtered process down, and the candidate's timing with it.
    for flags in (_THREAD_SYNC | _SPEC_ALLOW, _SPEC_ALLOW):
        # A positive answer names a thread that could not follow, and nothing was installed.
        if kernel.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(attributes), what="seccomp filter") == 0:
            return f"on: {len(_DENIED)} system calls answer EPERM" + ("" if flags & _THREAD_SYNC else ", on one thread")
    raise OSError(errno.EBUSY, "seccomp filter: a thread could not follow")
