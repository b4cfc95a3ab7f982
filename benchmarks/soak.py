"""Many evaluations in one judge process: is every verdict the expected one, and does the judge stay as it was?

    python benchmarks/soak.py --count 200

Right, wrong, reusing, hanging, crashing, raising and flooding candidates take turns on two CPU ranks. Every ten evaluations
the judge's own memory, descriptors, threads and children are read, with what lies in /dev/shm and in its temporary
directory. The first twenty evaluations warm the process up; after them nothing may grow beyond the bounds printed below
the table. Exit status: 0 all as expected, 1 not.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Evaluation

WARM_UP = 20
EVERY = 10

HEAD = """
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_kept = {}

def all_reduce(tensor):
    key = tuple(tensor.shape)
    if key not in _kept:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _kept[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD), torch.empty_like(tensor)
    buffer, handle, _ = _kept[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)

def solution(tensor):
"""

KINDS: dict[str, tuple[str, str]] = {
    "right": ("correct", "return all_reduce(tensor)"),
    "wrong": ("wrong", "return all_reduce(tensor) * (1 + dist.get_rank())"),
    # The result lives in a buffer that the next call overwrites: right one call at a time.
    "reusing": ("reused_output", "total = all_reduce(tensor); return _kept[tuple(tensor.shape)][2].copy_(total)"),
    "hanging": ("deadlock", "return all_reduce(tensor) if dist.get_rank() else tensor"),
    "crashing": ("crash", "import ctypes; ctypes.string_at(0)"),
    "raising": ("runtime_error", "raise ArithmeticError('as planned')"),
    "flooding": ("correct", "print('x' * 1_000_000, flush=True); return all_reduce(tensor)"),
}


@dataclass(frozen=True)
class Reading:
    """The judge's state after some evaluations."""

    evaluations: int
    rss_mib: float
    descriptors: int
    threads: int
    children: int
    shm_entries: int
    tmp_entries: int


BOUNDS = {"rss_mib": 16.0, "descriptors": 0, "threads": 0, "children": 0, "shm_entries": 0, "tmp_entries": 0}
"""By how much a later reading may exceed the first after the warm-up."""


def read_state(evaluations: int, tmp: Path) -> Reading:
    me = psutil.Process()
    return Reading(
        evaluations=evaluations,
        rss_mib=round(me.memory_info().rss / 2**20, 1),
        descriptors=me.num_fds(),
        threads=me.num_threads(),
        children=len(me.children(recursive=True)),
        shm_entries=len(list(Path("/dev/shm").iterdir())),
        tmp_entries=len(list(tmp.glob("pkb-*"))),
    )


def write_candidates(folder: Path) -> dict[str, Path]:
    paths = {}
    for kind, (_, body) in KINDS.items():
        paths[kind] = folder / f"1_allreduce_{kind}.py"
        paths[kind].write_text(HEAD + f"    {body}\n")
    return paths


def judge(candidate: Path, call_limit_s: float) -> Evaluation:
    job = Job(candidate, Case("1", "cpu", 2, "tiny", "bf16", "quick"), call_limit_s=call_limit_s)
    return evaluate(job)


def growth(readings: list[Reading]) -> list[str]:
    """Which resources have grown beyond their bound since the warm-up, in words."""
    counted = [reading for reading in readings if reading.evaluations >= WARM_UP]
    if len(counted) < 2:
        return []
    first, found = counted[0], []
    for name, bound in BOUNDS.items():
        grown = max(getattr(reading, name) for reading in counted[1:]) - getattr(first, name)
        if grown > bound:
            found.append(f"{name} grew by {grown:g} after evaluation {first.evaluations}, {bound:g} allowed")
    for name in ("children", "tmp_entries"):  # these have no business being there at all
        if getattr(first, name):
            found.append(f"{name}: {getattr(first, name)} left after the warm-up")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="evaluations (default 200)")
    parser.add_argument("--call-limit", type=float, default=3.0, help="seconds until a hang is called one (default 3)")
    arguments = parser.parse_args()
    unexpected: list[str] = []
    verdicts: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    columns = [field.name for field in fields(Reading)]
    print(" ".join(f"{name:>12}" for name in columns))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        candidates = write_candidates(Path(folder))
        tmp = Path(folder, "tmp")
        tmp.mkdir()
        tempfile.tempdir = str(tmp)  # so that only this judge's folders are counted
        readings: list[Reading] = []
        for number in range(1, arguments.count + 1):
            kind = list(KINDS)[(number - 1) % len(KINDS)]
            start = time.monotonic()
            result = judge(candidates[kind], arguments.call_limit)
            seconds[kind].append(time.monotonic() - start)
            verdicts[f"{kind}: {result.verdict}"] += 1
            if result.verdict != KINDS[kind][0]:
                unexpected.append(f"evaluation {number}: {kind} was {result.verdict}: {result.detail}")
                print(unexpected[-1], file=sys.stderr, flush=True)
            if number % EVERY == 0 or number == arguments.count:
                readings.append(read_state(number, tmp))
                print(" ".join(f"{value:>12}" for value in astuple(readings[-1])), flush=True)
        tempfile.tempdir = None
    return report(readings, unexpected, verdicts, seconds)


def report(
    readings: list[Reading], unexpected: list[str], verdicts: Counter[str], seconds: dict[str, list[float]]
) -> int:
    print(f"\nbounds after evaluation {WARM_UP}: " + ", ".join(f"{name} +{bound:g}" for name, bound in BOUNDS.items()))
    for line, count in sorted(verdicts.items()):
        mean = sum(seconds[line.partition(":")[0]]) / len(seconds[line.partition(":")[0]])
        print(f"{count:5} x {line} ({mean:.1f} s each)")
    problems = unexpected + growth(readings)
    if readings[-1].evaluations < WARM_UP + EVERY:
        print(f"growth not judged: it takes more than {WARM_UP + EVERY} evaluations")
    for problem in problems:
        print(f"FAILED {problem}")
    print("failed" if problems else "as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
