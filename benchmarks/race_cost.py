"""What the race detector costs: `python benchmarks/race_cost.py [--ranks N] [--calls N] [--write] [PROBLEM ...]`.

Runs our solutions at size tiny three ways, in one process after another: built without the calls that announce accesses, built
with them and not recorded (what every evaluation on platform cpu does), and recorded. Prints CPU seconds of all ranks as
ratios to the first way, what the logs hold, and what their analysis takes. CPU seconds count and not the clock's, but polling
is in them: a rank that waits longer polls more. The last two columns are all of a row (both builds, three runs, the analysis),
in CPU seconds of all processes and by the clock. With --write, rows replace those of docs/races.md.
"""

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import types
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from pkb.kit.emulated import recipe
from pkb.kit.emulated.analyse import analyse, analyser_recipe, make_files
from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.emulate import recorder

SOLUTIONS = Path(__file__).parents[1] / "solutions"
PAGE = Path(__file__).parents[1] / "docs" / "races.md"
NAMES = (
    "CPU s", "announced", "recorded", "events", "log MiB", "analysis CPU s", "its MiB", "findings", "all CPU s", "all clock s",
)  # fmt: skip
HEAD = f"| problem | {' | '.join(NAMES)} |"
LIMIT_S = 120.0
MIB = 1 << 20
WEAK = False


def rank_main(path: Path, problem: Any, rank: int, world: int, calls: int, folder: Path, files: list[int]) -> None:
    """Writes the CPU seconds of its calls. The first call builds, allocates and is not counted."""
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "PKB_EMULATOR_SEED": "1"}
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    store = dist.FileStore(str(folder / "store"), world)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=LIMIT_S))
    from pkb.rank.devices import CpuDevice
    from pkb.rank.emulate import aliases
    from pkb.rank.emulate.cuda import wanted
    from pkb.rank.symmetric import memory as symmetric
    from pkb.rank.symmetric.region import file_bytes, owned

    symmetric.install(folder)
    text = path.read_text()
    aliases.install("cpu", shares_device=True, rank=rank, source=text)
    wanted.install(CpuDevice(), text)
    candidate = types.ModuleType("candidate")
    exec(compile(text, str(path), "exec"), candidate.__dict__)
    seconds = 0.0
    for call in range(calls + 1):
        draw = Draw(
            b"0" * 16, call, rank, world, problem.sizes["tiny"], DTYPES[problem.default_dtype], torch.device("cpu"),
            problem.layout,
        )  # fmt: skip
        values = [dist.group.WORLD if isinstance(v, GroupRef) else v for v in problem.inputs(draw).values()]
        if call == 1 and files:
            weak_seed = rank if WEAK else None
            recorder.begin(files[0], files[1 + rank], rank=rank, world=world, weak_seed=weak_seed)
            for number, region in enumerate(owned()):  # ranks allocate in the same order
                for handle in region.handles.values():
                    for owner, part in enumerate(handle._regions):
                        size = file_bytes(part.data_bytes, part.pad_bytes)
                        recorder.memory(part.address, size, allocation=number, owner=owner)
        began = time.process_time()
        candidate.solution(*values)
        if call:
            seconds += time.process_time() - began
    if files:
        recorder.end()
    (folder / f"seconds-{rank}").write_text(str(seconds))


def run(path: Path, problem: Any, world: int, calls: int, files: list[int]) -> float:
    """CPU seconds of all ranks together."""
    with tempfile.TemporaryDirectory(prefix="pkb-cost-", dir="/dev/shm") as name:
        folder, children = Path(name), []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    rank_main(path, problem, rank, world, calls, folder, files)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            raise RuntimeError(f"a rank of {path.name} failed")
        return sum(float((folder / f"seconds-{rank}").read_text()) for rank in range(world))


SMALL = """
import os, sys
child = os.fork()
if not child: os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
os.write(2, f"{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}".encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a program from a small process: the memory of whoever forks counts as the program's own."""


class Measured:
    """`subprocess.run` that keeps what its process took."""

    seconds = megabytes = 0.0

    def __call__(self, command: list[str], **options: Any) -> Any:
        options["stderr"] = subprocess.PIPE
        done = subprocess.run([sys.executable, "-S", "-E", "-c", SMALL, *command], **options)
        self.seconds, self.megabytes = map(float, done.stderr.split()[-2:])
        return done


def row(number: int, world: int, calls: int) -> str:
    path, problem = next(SOLUTIONS.glob(f"{number:02d}_*_cuda.py")), get(number)
    clock, cpu = time.monotonic(), _cpu_s()
    with mock.patch.object(recipe, "_SEEN", ()):
        without = run(path, problem, world, calls, [])
    announced = run(path, problem, world, calls, [])
    shared, logs = make_files(world)
    recorded = run(path, problem, world, calls, [shared, *logs])
    used = sum(int.from_bytes(os.pread(log, 8, 16), "little") for log in logs)
    measured = Measured()
    report = analyse(logs, run=measured)
    with contextlib.suppress(OSError):
        for descriptor in (shared, *logs):
            os.close(descriptor)
    found = "broken" if report["broken"] else len(report["findings"])
    return (
        f"| {number} | {without:.2f} | {announced / without:.2f} | {recorded / without:.2f} | {report['events']:,} | "
        f"{used / MIB:.1f} | {measured.seconds:.2f} | {measured.megabytes:.0f} | {found} | "
        f"{_cpu_s() - cpu:.0f} | {time.monotonic() - clock:.0f} |"
    )


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def write(rows: list[str]) -> None:
    """Rows of other problems stay."""
    before, _, rest = PAGE.read_text().partition("| problem | CPU s |")
    old = [line for line in ("| problem" + rest).splitlines() if line.startswith("|")][2:]
    _, _, after = rest.rpartition(old[-1] + "\n")
    by_problem = {int(line.split("|")[1]): line for line in (*old, *rows)}
    table = [HEAD, "|---" * (len(NAMES) + 1) + "|", *(by_problem[number] for number in sorted(by_problem))]
    PAGE.write_text(before + "\n".join(table) + "\n" + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("problems", nargs="*", type=int, help="all with a CUDA solution, if none is named")
    parser.add_argument("--write", action="store_true", help=f"rows go into {PAGE.name} as well")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--weak", action="store_true", help="what is recorded is run in weak execution")
    options = parser.parse_args()
    globals()["WEAK"] = options.weak
    recipe.runtime_recipe().obtain()
    analyser_recipe().obtain()
    print(HEAD + "\n" + "|---" * (len(NAMES) + 1) + "|")
    for number in options.problems or [int(path.name[:2]) for path in sorted(SOLUTIONS.glob("*_cuda.py"))]:
        line = row(number, options.ranks, options.calls)
        print(line, flush=True)
        if options.write:
            write([line])


if __name__ == "__main__":
    main()
