"""CUDA C++ to cubin by nvcc: the fallback where NVRTC is missing. About 1 s for a small kernel."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit.errors import CompileError
from pkb.kit.messages import own_words
from pkb.kit.options import compiler_environment
from pkb.kit.toolkit import cuda_home, file_identity, nvcc_path, toolkit_version

_STEP_KILLED = 128 + signal.SIGKILL
"""nvcc's own status where the machine ran out of memory and took its cicc: it starts its steps by a shell."""


@lru_cache
def find() -> tuple[Path, str] | None:
    """nvcc and a name for the cache key, or None."""
    path = nvcc_path()
    if path is None:
        return None
    home = cuda_home()
    version = toolkit_version(home / "include") if home else "unknown"
    return path, f"nvcc {version} {file_identity(path)}"


def compile_cubin(
    source: str,
    *,
    name: str,
    arch: str,
    scratch: Path,
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Compile to machine code for `arch`, in the folder `scratch`."""
    found = find()
    if found is None:
        raise RuntimeError("nvcc is not on this machine")
    for header, text in (headers or {}).items():
        (scratch / header).write_text(text)
    (scratch / f"{name}.cu").write_text(source)
    standard = [] if any(option.startswith(("-std", "--std")) for option in options) else ["-std=c++17"]
    run_compiler(
        [str(found[0]), "-cubin", f"-arch={arch}", *standard, *options, "-I.", "-o", "out.cubin", f"{name}.cu"],
        scratch=scratch,
        name=name,
    )
    return (scratch / "out.cubin").read_bytes()


def run_compiler(command: Sequence[str], *, scratch: Path, name: str) -> str:
    """Run a compiler inside `scratch`, so that messages carry bare file names, and return what it said.

    Its temporary files go there too: a sandbox may leave /tmp closed. A compiler killed by a signal (memory, a time
    limit), or a step of nvcc's that was, is not the candidate's compile error and raises `RuntimeError`.
    """
    environment = {**compiler_environment(), "TMPDIR": str(scratch)}
    done = subprocess.run(
        command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    log = done.stdout.replace(f"{scratch}/", "").strip("\n")
    if done.returncode < 0 or done.returncode == _STEP_KILLED:
        killed_by = -done.returncode if done.returncode < 0 else signal.SIGKILL.value
        raise RuntimeError(f"{command[0]} was killed by signal {killed_by} while building {name!r}\n{log}")
    if done.returncode != 0:
        own = (f"{name}.cu", f"{name}.cpp")
        raise CompileError(own_words(log, own), name=name, own_files=own)
    return log
