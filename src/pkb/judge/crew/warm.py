"""Wardens forked from a process that has torch imported already, which this process starts once and keeps.

One template per role: oracle and candidate share no address space layout. A side is started this way only if an executed warden
would find the same: the same Python, the same variables that anything reads while it is imported, the same limits, signals and
rights. Otherwise, and if a template cannot be had, the warden is executed as ever. What a service's server has started, the
judges that it forks use.
"""

import atexit
import contextlib
import os
import resource
import select
import signal
import site
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from pkb.platforms.base import Platform
from pkb.types.processes import inherited
from pkb.types.protocol.codec import encode
from pkb.types.protocol.settings import ForkedWarden

KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH")
"""Of the user's environment: what finding programs and libraries takes."""
AT_WILL = frozenset(
    {
        "HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR",
        "CUTE_DSL_CACHE_DIR", "CUDA_CACHE_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "PKB_BUILD_DIR", "PKB_BUILD_CACHE",
        "PKB_CASE_BYTES", "PKB_CUDA_ARCH", "PKB_EMULATE_CUDA", "PKB_EMULATOR_SEED", "PKB_GPU_MEMORY_SHARE", "PKB_KITTENS",
        "PKB_KIT_DEBUG", "PKB_NVLS", "PKB_REAL_TORCH_HEADERS", "TORCHINDUCTOR_COMPILE_THREADS",
    }
)  # fmt: skip
"""Variables that may differ from side to side: nothing reads them before a rank runs (a test imports everything and looks)."""
INHERITED = ("Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "SigBlk", "Cap")
"""Lines of /proc/self/status that an executed process has from its parent, by their first letters; and what it ignores."""
ANSWER_LIMIT_S = 60.0
LAST = {"HOME": "/nonexistent", "PKB_ROOM": "-" * (16 << 10)}
"""Of a template's variables: what its children write theirs over."""
MOST_OF_A_ROLE = 2
MOST_LOST = 3
"""Then there is something about this machine, and wardens are executed."""


class Kind(NamedTuple):
    """What a template must have been started with to be usable."""

    role: str
    environment: tuple[tuple[str, str], ...]
    inherited: str
    thread: int
    """0 for the main one: a template ends with the thread that started it."""


class ForkedProcess:
    """The part of `Popen` that a crew uses, for a process that is the child of another process."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid, self._link = pid, link
        self._has_ended = False
        self._end = os.pidfd_open(pid)  # it waits for us: this number is still its own

    def release(self) -> None:
        """Lets the warden begin."""
        with contextlib.suppress(OSError):
            self._link.send(b".")
        self._link.close()

    def wait(self, timeout: float | None = None) -> int:
        if not self._has_ended:
            waiting = select.poll()
            waiting.register(self._end, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("a forked warden", timeout or 0.0)
            self._has_ended = True
            os.close(self._end)
            self._link.close()
        return 0

    def kill(self) -> None:
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, signal.SIGKILL)


class Template:
    def __init__(self, kind: Kind) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pkb.rank.template", str(theirs.fileno()), str(os.getpid()), kind.role],
                env=dict(kind.environment) | LAST,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        """As far as a process can tell about its own child."""
        return self._owner == os.getpid() and self._process.poll() is not None

    def fork(self, start: ForkedWarden, output: int) -> ForkedProcess | None:
        """A warden that waits to be released; None if this template can no longer fork one."""
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened = [os.memfd_create("pkb-start", os.MFD_CLOEXEC), os.pidfd_open(os.getpid())]
        try:
            with theirs:
                os.write(opened[0], encode(start))
                sent = [opened[0], theirs.fileno(), opened[1], output, *start.descriptors]
                socket.send_fds(self._control, [b"."], sent)
            link.settimeout(ANSWER_LIMIT_S)
            if said := link.recv(32):
                return ForkedProcess(int(said), link)
        except OSError:  # also of a wait that was too long
            pass
        finally:
            for descriptor in opened:
                os.close(descriptor)
        link.close()
        return None

    def is_in_use(self) -> bool:
        """If it ended, the wardens that it has forked would end too."""
        try:
            return bool(psutil.Process(self.pid).children())
        except psutil.Error:
            return False

    def close(self) -> None:
        self._control.close()
        if self._owner == os.getpid():  # else it is there for others as well
            self._process.kill()
            self._process.wait()


_templates: dict[Kind, Template] = {}
_guard = threading.RLock()
"""Of the two tables: several threads may have candidates judged at the same time."""
_lost: Counter[Kind] = Counter()
"""How many have ended by themselves, or were ended by somebody else."""


def import_environment(platform: Platform) -> dict[str, str]:
    """What of a side's environment may be read during imports: of the user's variables, only those that find libraries."""
    clean = inherited(KEPT)
    if site.ENABLE_USER_SITE:  # it follows from HOME, which is another there
        clean["PYTHONUSERBASE"] = site.getuserbase()
    known = clean | {"PYTHONUNBUFFERED": "1"} | platform.import_environment()
    return {name: value for name, value in known.items() if name not in AT_WILL}


def import_ahead(platform: Platform, roles: Sequence[str] = ("oracle", "candidate")) -> None:
    """Lets templates begin to import, if there are none yet, without waiting for them."""
    for role in roles:
        _template(_kind(role, import_environment(platform)))


class Start(NamedTuple):
    """What a warden is started with."""

    role: str
    platform: Platform
    environment: dict[str, str]
    folder: Path
    settings: int
    output: int
    descriptors: tuple[int, ...]


Warden = subprocess.Popen[bytes] | ForkedProcess


def start_warden(start: Start) -> Warden:
    """A forked warden waits until it is released; an executed one needs seconds before it forks anything."""
    if forked := _fork_warden(start):
        return forked
    return subprocess.Popen(
        [sys.executable, "-m", "pkb.rank.warden", str(start.settings), str(os.getpid())],
        env=start.environment,
        stdin=subprocess.DEVNULL,
        stdout=start.output,
        stderr=start.output,
        pass_fds=[*start.descriptors, start.settings],
        start_new_session=True,
        cwd=start.folder,
    )


def release(warden: Warden) -> None:
    if isinstance(warden, ForkedProcess):
        warden.release()


def _fork_warden(start: Start) -> ForkedProcess | None:
    fixed = import_environment(start.platform)
    own = {name: value for name, value in start.environment.items() if fixed.get(name) != value}
    if not AT_WILL.issuperset(own) or not start.environment.keys() >= fixed.keys():
        return None
    kind = _kind(start.role, fixed)
    passed = (*start.descriptors, start.settings)
    cores = tuple(sorted(os.sched_getaffinity(0)))
    request = ForkedWarden(own, str(start.folder), cores, passed, start.settings)
    for _ in range(2):  # one that has been killed is replaced
        template = _template(kind)
        if template is None:
            return None
        if process := template.fork(request, start.output):
            return process
        _lose(kind)
    return None


def _kind(role: str, environment: dict[str, str]) -> Kind:
    thread = 0 if threading.current_thread() is threading.main_thread() else threading.get_ident()
    return Kind(role, tuple(sorted(environment.items())), _inherited(), thread)


def _inherited() -> str:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    # Whoever waits for an interrupt here, and for how long, is no matter of a warden's: it has a session of its own.
    ignored = int(status["SigIgn"], 16) & ~(1 << signal.SIGINT - 1)
    told = [value for name, value in status.items() if name.startswith(INHERITED)]
    told += [Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "oom_score_adj")]
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    return "\n".join([*told, str(ignored), str(limits), str(os.nice(0))])


def _template(kind: Kind) -> Template | None:
    with _guard:
        if kind in _templates and _templates[kind].has_ended():
            _lose(kind)
        if _lost[kind] >= MOST_LOST:
            return None
        if kind not in _templates:
            rivals = [other for other in _templates if _is_rival(other, kind) and not _templates[other].is_in_use()]
            for old in rivals[: len(rivals) + 1 - MOST_OF_A_ROLE]:
                _templates.pop(old).close()
            _templates[kind] = Template(kind)
        return _templates[kind]


def _is_rival(other: Kind, kind: Kind) -> bool:
    """Not that of another thread, which may be about to use it: closed by then, its descriptor could be somebody else's."""
    others = {0, *(thread.ident for thread in threading.enumerate())} - {kind.thread}
    return other.role == kind.role and other.thread not in others


def _lose(kind: Kind) -> None:
    with _guard:
        _lost[kind] += 1
        _templates.pop(kind).close()


@atexit.register
def close_all() -> None:
    """Ends all templates; they would end with this process in any case."""
    with _guard:
        while _templates:
            _templates.popitem()[1].close()
