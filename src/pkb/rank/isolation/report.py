"""What of the isolation this machine gives, found by doing it: for `pkb doctor`.

A child goes through the very steps of a judged run: namespaces, inner init, a locked rank. So a container's own
filter, a distribution's restriction or an old kernel shows here as it would in a run.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pkb.rank.isolation import lockdown, namespaces, reach
from pkb.rank.isolation.read_only import make_read_only
from pkb.types.errors import UserError

_NAMESPACES = "run as root, in a container with --cap-add SYS_ADMIN, or allow unprivileged user namespaces"
_REMEDIES = {
    "user": "sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
    "pid": "a candidate's daemons could outlive the run: run as root, or allow unprivileged user namespaces",
    "network": "a candidate could reach the network: run as root, or allow unprivileged user namespaces",
    "mount": _NAMESPACES,
    "ipc": f"a candidate could reach other programs' shared memory: {_NAMESPACES}",
    "private mounts": _NAMESPACES,
    "shm": f"a candidate could reach files in /dev/shm: {_NAMESPACES}",
    "tmp": f"what a candidate writes is bounded by the disk only: {_NAMESPACES}",
    "sockets": f"a candidate could reach the user's programs by their sockets: {_NAMESPACES}",
    "hidden": f"a candidate could reach services in /run: {_NAMESPACES}",
    "services": f"a candidate could end other ranks' MPS server: {_NAMESPACES}",
    "loopback": f"ranks could not meet: {_NAMESPACES}",
    "proc": "a container that masks parts of /proc forbids a fresh one: --security-opt systempaths=unconfined",
    "process limit": "a fork bomb is bounded by the machine only: Linux 6.14, or run inside a cgroup with pids.max",
    "segments": "memory in detached segments of System V is bounded by the machine only: Linux 6.9, or run as root",
    "files": "a candidate could read the judge's files: enable Landlock (lsm=landlock,... at boot)",
    "file modes": f"a candidate could change modes and times of the user's files: Linux 5.12, or {_NAMESPACES}",
    "signals": "a rank could signal its peers: Linux 6.12",
    "peers' memory": "a rank could read its peers: enable Landlock (lsm=landlock,... at boot)",
    "capabilities": "a candidate would keep root's rights: run as an ordinary user",
    "no_new_privs": "programs with the set-user-id bit would gain rights: Linux 3.5",
    "threads": "code on these threads is not isolated: see what starts them when Python starts (sitecustomize, .pth files)",
    "system calls": "the kernel needs CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
}
BUILD = "build: "
"""Before the name of a layer that the build lacks."""
INSIDE = ("process limit", "segments", "signals", "capabilities stay away", "imports")
"""Without these a candidate reaches nothing but its own side: the judge counts its processes as well, a signal gets to its own
ranks, and who has no capabilities need not keep them away. Nor is a folder that it may not read a missing layer."""


def missing_walls(report: Mapping[str, str]) -> dict[str, str]:
    """What an evaluation's or a probe's report lacks, each with why and how to get it."""
    found = {}
    for layer, words in report.items():
        name = layer.removeprefix(BUILD)
        if layer != "build" and _is_lacking(words) and name not in INSIDE:  # `build` sums up those that follow
            found[layer] = _with_remedy(name, words)
    return found


def _is_lacking(words: str) -> bool:
    return words.startswith("off") and words != "off: not asked for"


def _with_remedy(layer: str, words: str) -> str:
    remedy = _REMEDIES.get(layer, "")
    return f"{words} ({remedy})" if remedy and remedy not in words else words


def require_isolation(report: Mapping[str, str]) -> None:
    """Refuses where a candidate could reach what is not its own."""
    if missing := missing_walls(report):
        how = "; ".join(f"{layer}: {words}" for layer, words in missing.items())
        raise UserError(f"isolation layers are missing on this machine: {', '.join(missing)}", how)


def probe_isolation() -> dict[str, str]:
    """Each layer of isolation with `on...` or `off: why (what it costs and how to get it)`; changes nothing here."""
    with tempfile.TemporaryDirectory(prefix="pkb-isolation-") as folder:
        found = _in_child(lambda: _go_through(Path(folder)))
    return {layer: _with_remedy(layer, answer) if _is_lacking(answer) else answer for layer, answer in found.items()}


def _go_through(folder: Path) -> dict[str, str]:
    layers = namespaces.enter_namespaces(private_shm_bytes=1 << 20, private_tmp_bytes=1 << 20)

    def rank() -> dict[str, str]:
        return lockdown.lock_down(readable=reach.default_readable(), writable=[folder], forbidden=[reach.own_package()])

    def init() -> dict[str, str]:
        report = namespaces.finish_namespaces(layers, tmp_dir=folder)
        report["file modes"] = make_read_only([folder], private_mounts=report.get("private mounts") == "on")
        return report | _in_child(rank)

    return _in_child(init)


def _in_child(work: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Runs `work` in a forked child and brings its answer back; whatever `work` gave up is gone with the child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            try:
                answer = work()
            except Exception as error:  # the process boundary: the parent reports it
                answer = {"probe": f"off: {type(error).__name__}: {error}"}
            with os.fdopen(write_end, "w") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return {"probe": f"off: the probe ended without an answer, status {os.waitstatus_to_exitcode(status)}"}
    found: dict[str, str] = json.loads(text)
    return found
