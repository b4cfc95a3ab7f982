"""What of the isolation this machine gives, found by doing it: for `pkb doctor`.

A child goes through the very steps of a judged run: namespaces, inner init, a locked rank. So a container's own
filter, a distribution's restriction or an old kernel shows here as it would in a run.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from pkb.rank.isolation import lockdown, namespaces, reach

_REMEDIES = {
    "pid": "a candidate's daemons could outlive the run: run as root, or allow unprivileged user namespaces",
    "network": "a candidate could reach the network: run as root, or allow unprivileged user namespaces",
    "mount": "run as root, in a container with --cap-add SYS_ADMIN, or allow unprivileged user namespaces",
    "proc": "a container that masks parts of /proc forbids a fresh one: --security-opt systempaths=unconfined",
    "process limit": "a fork bomb is bounded by the machine only: Linux 6.14, or run inside a cgroup with pids.max",
    "files": "a candidate could read the judge's files: enable Landlock (lsm=landlock,... at boot)",
    "signals": "a rank could signal its peers: Linux 6.12",
    "system calls": "the kernel needs CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
}


def probe_isolation() -> dict[str, str]:
    """Each layer of isolation with `on...` or `off: why (what it costs and how to get it)`; changes nothing here."""
    with tempfile.TemporaryDirectory(prefix="pkb-isolation-") as folder:
        found = _in_child(lambda: _go_through(Path(folder)))
    return {
        layer: f"{answer} ({_REMEDIES[layer]})" if answer.startswith("off") and layer in _REMEDIES else answer
        for layer, answer in found.items()
    }


def _go_through(folder: Path) -> dict[str, str]:
    layers = namespaces.enter_namespaces(private_network=True, private_shm_bytes=1 << 20, private_tmp_bytes=1 << 20)

    def rank() -> dict[str, str]:
        return lockdown.lock_down(readable=reach.default_readable(), writable=[folder], forbidden=[reach.own_package()])

    def init() -> dict[str, str]:
        return namespaces.finish_namespaces(layers, tmp_dir=folder) | _in_child(rank)

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
