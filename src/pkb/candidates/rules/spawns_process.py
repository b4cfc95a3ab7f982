"""Starts other processes.

What it finds: `subprocess`, `os.system`, `os.popen`, `os.fork`, `os.exec*`, `os.spawn*`, `multiprocessing` and
`torch.multiprocessing` (not `multiprocessing.shared_memory`).

Why: a kernel runs inside its rank; processes beside it compute outside the measured call or outlive it. Some
candidates call a compiler this way, so it is a warning. At run time, children are within the same walls and end with
their rank.

Example:

    subprocess.run(["nvcc", "-shared", "kernel.cu", "-o", "kernel.so"])

Use instead: `pkb.kit.compile` or `pkb.kit.build_cpp`, which build once for all ranks and cache.
"""

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_MODULES = ("subprocess", "multiprocessing", "torch.multiprocessing", "pty", "asyncio.create_subprocess_exec")
_HARMLESS = ("multiprocessing.shared_memory", "multiprocessing.resource_tracker", "multiprocessing.cpu_count")
_CALLS = ("os.system", "os.popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp")
_FAMILIES = ("os.exec", "os.spawn")


def check(source: Source, report: Reporter) -> None:
    for name, _, line in source.names.references:
        if under(name, *_HARMLESS) or name in _MODULES:
            continue
        if under(name, *_MODULES, *_CALLS) or name.startswith(_FAMILIES):
            report.warn(line, f"{name} starts a process")
