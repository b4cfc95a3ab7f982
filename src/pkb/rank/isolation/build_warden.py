"""One source built in the sandbox: `python -m pkb.rank.isolation.build_warden SETTINGS_FD PARENT_PID`.

    prebuild -> warden -> middle (enters the namespaces) -> init (process 1 of a PID namespace) -> build -> compilers

A compiler is a large program that reads a stranger's text, so what runs it is trusted with nothing: one folder of its own in
memory, the toolchain to read, no network, no capabilities. The init copies the one file that was asked for into a
descriptor of the caller's, and with its end everything that was started is gone. Where a machine gives no PID namespace, the
init hunts its descendants down instead.

The settings are JSON: kind and given (see `pkb.kit.recipes`), work (an empty folder), result (the descriptor), readable (files
beside the toolchain), limits. One
JSON document goes to standard output: {"error": null | {"type", "text"}, "walls": {...}}. What the build itself says is a claim
and is only ever shown to its own candidate.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import sys
from pathlib import Path
from typing import Any

from pkb.kit.emulated import recipe as emulated
from pkb.kit.errors import CompileError
from pkb.kit.recipes import recipe
from pkb.rank.isolation import reach
from pkb.rank.isolation import syscalls as kernel
from pkb.rank.isolation.lockdown import lock_down
from pkb.rank.isolation.namespaces import Layers, enter_namespaces, finish_namespaces, fork_bound
from pkb.rank.isolation.read_only import make_read_only
from pkb.types.processes import die_with_parent

_RESULT = "artifact"
_REPLY_LIMIT = 256 * 1024
_DEVICES = ("null", "zero", "full", "random", "urandom")


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    descriptor = int(sys.argv[1])
    settings = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    os.close(descriptor)
    # A child of its own enters the namespaces: what is entered cannot be left.
    middle = fork_bound(lambda: _middle(settings))
    sys.exit(_exit_status(middle))


def _exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


def _middle(settings: dict[str, Any]) -> None:
    layers = enter_namespaces(private_shm_bytes=1 << 20, private_tmp_bytes=settings["folder_bytes"])
    die_with_parent()  # entering a user namespace clears it
    init = fork_bound(lambda: _init(settings, layers))
    os._exit(_exit_status(init))


def _init(settings: dict[str, Any], layers: Layers) -> None:
    """Not in the sandbox itself, and runs nothing of the candidate's."""
    work = Path(settings["work"])
    walls = finish_namespaces(layers, tmp_dir=work, hidden=[Path("/run")], max_processes=settings["processes"])
    walls["file modes"] = make_read_only([work], private_mounts=walls.get("private mounts") == "on")
    if not layers.pid:
        os.setsid()  # out of the group that a caller kills at once: this process has to end the others first
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, what="subreaper")
        signal.signal(signal.SIGTERM, _end_all_and_leave)
        die_with_parent(signal=signal.SIGTERM)
    folder = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    said = os.memfd_create("pkb-build-reply")
    walls_read, walls_write = os.pipe()
    build = fork_bound(lambda: _build(settings, work, said, walls_write, own_proc=walls.get("proc") == "on"))
    os.close(walls_write)
    with os.fdopen(walls_read, "rb") as pipe:
        walls |= json.loads(pipe.readline(_REPLY_LIMIT) or b"{}")  # said before anything of the candidate's was read
    status = 0
    while True:
        pid, raw = os.wait()
        if pid == build:
            status = os.waitstatus_to_exitcode(raw)
            break
    _end_all(alone=layers.pid)
    error = _claimed(said, status)
    if error is None:
        error = _take(folder, settings["result"], settings["artifact_bytes"])
    print(json.dumps({"error": error, "walls": walls}), flush=True)
    os._exit(0)


def _claimed(said: int, status: int) -> dict[str, str] | None:
    """What the build process says of itself, in a form that can be trusted to be a dictionary of two texts."""
    if status != 0:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return {"type": "stopped", "text": f"the build process ended with {how}"}
    try:
        claim = json.loads(os.pread(said, _REPLY_LIMIT, 0))
        return None if claim is None else {"type": str(claim["type"]), "text": str(claim["text"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"type": "stopped", "text": "the build process left no report"}


def _take(folder: int, result: int, limit: int) -> dict[str, str] | None:
    """Copies the artifact out: a plain file of a bearable size, whatever else may lie there under its name."""
    try:
        source = os.open(_RESULT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        return {"type": "stopped", "text": f"the build left no result ({error.strerror})"}
    facts = os.fstat(source)
    if not stat.S_ISREG(facts.st_mode):
        return {"type": "stopped", "text": "what the build left is no plain file"}
    if facts.st_size > limit:
        size, most = facts.st_size / 2**20, limit / 2**20
        return {"type": "limit", "text": f"the result has {size:.0f} MiB, {most:.0f} MiB are allowed"}
    while chunk := os.read(source, 1 << 20):
        view = memoryview(chunk)
        while view:
            view = view[os.write(result, view) :]
    return None


def _build(settings: dict[str, Any], work: Path, said: int, walls_write: int, *, own_proc: bool) -> None:
    """From here on nothing is trusted: everything below runs in the sandbox."""
    os.setsid()
    os.close(settings["result"])
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.chdir(work)
    os.environ |= {"HOME": str(work), "TMPDIR": str(work), "LOGNAME": "build"}
    _limit(resource.RLIMIT_DATA, settings["memory_bytes"])
    walls = lock_down(
        readable=[*reach.build_readable(own_proc=own_proc), *map(Path, settings["readable"])],
        writable=[work, *(Path("/dev", name) for name in _DEVICES)],
        forbidden=[reach.own_package(), *reach.SECRETS],
        max_file_bytes=settings["file_bytes"],
        devices=False,
        sockets=False,
    )
    os.write(walls_write, json.dumps(walls).encode() + b"\n")
    os.close(walls_write)
    claim = _carry_out(settings, work)
    os.pwrite(said, json.dumps(claim).encode()[:_REPLY_LIMIT], 0)
    os._exit(0)


def _carry_out(settings: dict[str, Any], work: Path) -> dict[str, str] | None:
    scratch = work / "scratch"
    scratch.mkdir()
    output = scratch / _RESULT
    try:
        find = emulated.recipe if settings["kind"] in emulated.KINDS else recipe
        find(settings["kind"], settings["given"]).build(scratch, output)
        output.replace(work / _RESULT)
    except CompileError as error:
        return {"type": "compile", "text": error.log}
    except emulated.NotEmulated as what:
        return {"type": "not emulated", "text": str(what)[:2000]}
    except MemoryError:
        return {"type": "limit", "text": "the build needs more memory than it may have"}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EFBIG)
        return {"type": "limit" if full else "stopped", "text": str(error)[:2000]}
    except Exception as error:  # the process boundary: the caller is told
        return {"type": "stopped", "text": f"{type(error).__name__}: {error}"[:8000]}
    return None


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bounded, bounded))


def _end_all(*, alone: bool) -> None:
    """Kills whatever the build has started. `alone`: this is process 1, and everybody else is the build's."""
    while True:
        victims = [] if alone else _descendants(os.getpid())
        with contextlib.suppress(ProcessLookupError):
            if alone:
                os.kill(-1, signal.SIGKILL)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break


def _end_all_and_leave(number: int, frame: object) -> None:
    _end_all(alone=False)
    os._exit(1)


def _descendants(root: int) -> list[int]:
    """All processes below `root`, orphans included since it is their reaper."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


if __name__ == "__main__":
    main()
