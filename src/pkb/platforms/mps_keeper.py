"""Keeps an MPS daemon for as long as the judge lives: `python -m pkb.platforms.mps_keeper JUDGE_PID`.

The daemon would outlive a judge that is killed, and hold the GPU. This process dies last: it is told by the kernel when the
judge ends, however it ends, asks the daemon to quit, and kills what is left of its family.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTROL = "nvidia-cuda-mps-control"


def main() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphans of the daemon, its server above all, become children of this process and not of the machine's first one.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    ending = False

    def end(number: int, frame: object) -> None:
        nonlocal ending
        ending = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    if os.getppid() != int(sys.argv[1]):
        return 0
    daemon = subprocess.Popen([CONTROL, "-f"], stdin=subprocess.DEVNULL)
    while not ending and daemon.poll() is None:
        time.sleep(0.1)
    if daemon.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([CONTROL], input=b"quit -t 1\n", timeout=10, check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(timeout=5)
    _kill_children()
    return 0


def _kill_children() -> None:
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        children = _children()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.05)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as listing:
        return [int(word) for word in listing.read().split()]


if __name__ == "__main__":
    sys.exit(main())
