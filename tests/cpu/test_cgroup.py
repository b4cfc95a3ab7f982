"""A side's memory group: made, obeyed by the kernel and removed where this machine lends one; else the reason why not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pkb.judge.crew.cgroup import NAME, MemoryGroup, _place

GREEDY = (
    "import sys, time; sys.stdin.read(1); kept = bytearray(256 << 20); kept[::4096] = b'x' * (1 << 16); time.sleep(30)"
)


def make(memory_bytes: int) -> MemoryGroup:
    try:
        return MemoryGroup.make(memory_bytes)
    except OSError as error:
        pytest.skip(f"no group on this machine: {error}")


@pytest.mark.parametrize("room", [64 << 20, 1 << 30], ids=["too little", "enough"])
def test_the_kernel_ends_who_takes_more(room: int) -> None:
    group = make(room)
    process = subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE)
    try:
        group.adopt(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
        if room < 256 << 20:
            assert process.wait(timeout=20) == -signal.SIGKILL
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=2)
        assert group.exceeded() is (room < 256 << 20)
    finally:
        process.kill()
        process.wait()
        group.remove()
    assert not list(_place(Path("/sys/fs/cgroup")).glob(f"{NAME}{os.getpid()}-*"))


def test_a_machine_without_version_2_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="version 2"):
        MemoryGroup.make(1 << 30, mount=tmp_path)


def test_a_group_without_memory_control_is_left_alone(tmp_path: Path) -> None:
    """As in a container: the group is ours, but its children's memory is not controlled."""
    own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), "/")
    for place in (tmp_path, tmp_path / own.lstrip("/"), (tmp_path / own.lstrip("/")).parent):
        if place.is_relative_to(tmp_path):
            place.mkdir(parents=True, exist_ok=True)
            (place / "cgroup.controllers").write_text("cpu memory")
            (place / "cgroup.subtree_control").write_text("cpu")
    with pytest.raises(OSError, match="memory control"):
        MemoryGroup.make(1 << 30, mount=tmp_path)
    assert not list(tmp_path.rglob(f"{NAME}*"))
