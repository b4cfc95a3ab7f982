"""An honest run asks for nothing that the sandbox denies it, but for a few calls that nobody misses: those are listed here.

A denied call that is not in the list either belongs there, once it is known to do no harm, or is one that some machine needs:
then the sandbox is wrong. A failure prints what is new.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
HARMLESS = {
    # (system call, what is asked for: a path with numbers and random names taken out)
    ("openat to write", "/proc/*/oom_score_adj"),
    ("openat to write", "/dev/tty"),
    ("mkdir", "*/__pycache__"),
    ("openat to write", "*/__pycache__"),
    ("mknodat", ""),
    ("setpriority", ""),
    ("sched_setscheduler", ""),
    ("ioctl", ""),
    ("perf_event_open", ""),
    ("capset", ""),
    ("userfaultfd", ""),
    ("io_uring_setup", ""),
    ("ptrace", ""),
    ("mbind", ""),
    ("set_mempolicy", ""),
    ("get_mempolicy", ""),
}


def denied(log: str) -> set[tuple[str, str]]:
    found = set()
    for line in log.splitlines():
        if " EPERM " in line or " EACCES " in line or line.endswith(("EPERM", "EACCES")):
            name = re.search(r"(?:^|\s)(\w+)\(|<\.\.\. (\w+) resumed>", line)
            path = re.search(r'"(/[^"]*)"', line)
            writes = " to write" if "O_WRONLY" in line or "O_RDWR" in line else ""
            if name:
                found.add(((name[1] or name[2]) + writes, _normal(path[1]) if path else ""))
    return found


def _normal(path: str) -> str:
    path = re.sub(r"^.*/__pycache__(/.*)?$", "*/__pycache__", path)
    path = re.sub(r"^(/tmp)/pkb-[^/]+", r"\1/pkb-*", path)
    path = re.sub(r"(?<=/)(\d+)(?=/|$)", "*", path)
    return re.sub(r"[0-9a-f]{8,}", "*", path)


def traced(platform: str, folder: Path, *, ranks: int) -> set[tuple[str, str]]:
    log = folder / "strace"
    command = [
        "strace", "-f", "-qq", "-Z", "-o", str(log), sys.executable, "-m", "pkb.cli.main", "eval", str(DEMO), "--platform",
        platform, "--ranks", str(ranks), "--size", "tiny", "--plan", "quick", "--no-timing", "--call-limit", "120",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return denied(log.read_text(errors="replace"))


@pytest.mark.gpu
def test_an_honest_run_misses_nothing_that_is_denied(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed here")
    new = traced("virtual", tmp_path, ranks=2) - HARMLESS
    assert not new, "\n".join(map(str, sorted(new)))


def test_denied_calls_are_read_from_a_trace() -> None:
    log = (
        '12 openat(AT_FDCWD, "/proc/77/oom_score_adj", O_RDWR) = -1 EACCES (Permission denied)\n'
        "12 perf_event_open(NULL, 0, -1, -1, 0) = -1 EPERM (Operation not permitted)\n"
        '12 openat(AT_FDCWD, "/nowhere", O_RDONLY) = -1 ENOENT (No such file or directory)\n'
        "13 <... ioctl resumed>, 0x7f) = -1 EPERM (Operation not permitted)\n"
    )
    assert denied(log) == {("openat to write", "/proc/*/oom_score_adj"), ("perf_event_open", ""), ("ioctl", "")}
