"""Stage 2: compiles what a candidate compiles, once, in the sandbox, before any rank starts.

The prebuild process reads the candidate's text and runs none of it; compilers run in a sandbox of their own. What it cannot see
(sources put together at run time) is built by the first rank that asks, while the others wait.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pkb.candidates.build_records import BuildError, Built, Prebuilt, RefusedOption, Skipped
from pkb.judge.crew.family import descendants
from pkb.judge.crew.leftovers import remove_tree
from pkb.judge.crew.limits import Limits, broken_limit
from pkb.judge.stages import artifacts
from pkb.kit import kittens, slim
from pkb.types.processes import inherited

OUTPUT_LIMIT = 4 << 20
TICK_S = 0.2
MEMORY_BYTES = 16 << 30
"""Of all processes of a build together; half of what is free where that is less."""
FOLDER_BYTES = 2 << 30
"""Where a build's folder cannot be a file system of its own, it is measured."""
INHERITED = (
    "PATH", "HOME", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "LANG", "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV",
    "NVSHMEM_HOME", "NCCL_HOME", "CUDNN_HOME", slim.SWITCH, kittens.VARIABLE,
)  # fmt: skip
"""Nothing that steers a compiler beyond finding it: no CXX, no CPATH, no NVCC_APPEND_FLAGS, no LD_PRELOAD."""


@dataclass(frozen=True)
class BuildReport:
    folder: Path
    """Holds copies of what this candidate needs and nothing else, readable for its ranks; `discard` removes it."""
    built: list[Built] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    error: BuildError | None = None
    rejected: RefusedOption | None = None
    unavailable: str = ""
    timed_out: bool = False
    stopped: str = ""
    """The limit that the build has exceeded."""
    walls: dict[str, str] = field(default_factory=dict)

    def discard(self) -> None:
        remove_tree(self.folder.parent)

    def facts(self) -> dict[str, str]:
        """For the verdict: which copies of headers that come with no wheel were used."""
        used = {item.headers.rpartition("kittens ")[2] for item in self.built if "kittens " in item.headers}
        return {"ParallelKittens headers": ", ".join(sorted(used))} if used else {}

    def isolation(self) -> dict[str, str]:
        """For the verdict: whether the build's isolation layers were active, and each one that was not."""
        if not self.walls:
            return {"build": "on: no compiler ran"}
        missing = {f"build: {name}": words for name, words in self.walls.items() if words.startswith("off")}
        return {"build": f"off for {len(missing)} of {len(self.walls)} layers" if missing else "on"} | missing


def prebuild(path: Path, *, limit_s: float, environment: dict[str, str]) -> BuildReport:
    """Builds every source that can be found in the candidate's text. The caller must discard the report's folder."""
    cache = artifacts.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"pkb-build-{os.getpid()}-"))
    try:
        folder, work = place / "artifacts", place / "work"
        folder.mkdir()
        work.mkdir()
        own = {"PKB_BUILD_DIR": str(folder), "PKB_BUILD_CACHE": str(cache), "TMPDIR": str(work)}
        report = _run(path, folder, work, limit_s=limit_s, environment=inherited(INHERITED) | environment | own)
        remove_tree(work)
        fresh: list[str] = []
        found: list[str] = []
        for item in report.built:
            (found if item.cached else fresh).append(item.file)
        artifacts.store(folder, fresh, found)
    except BaseException:  # Ctrl-C above all
        remove_tree(place)
        raise
    return report


def _run(path: Path, folder: Path, work: Path, *, limit_s: float, environment: dict[str, str]) -> BuildReport:
    process = subprocess.Popen(
        [sys.executable, "-m", "pkb.candidates.prebuild", str(path.resolve()), "--parent", str(os.getpid())],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=work,  # `-m` makes it importable, and a user's folder must not shadow a library
    )
    limits = Limits(memory_bytes=min(MEMORY_BYTES, psutil.virtual_memory().available // 2))
    give_up = time.monotonic() + limit_s
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=max(0.0, min(TICK_S, give_up - time.monotonic())))
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() >= give_up:
                    _kill_family(process)
                    return BuildReport(folder, timed_out=True)
            if words := _broken(process, work, limits):
                _kill_family(process)
                return BuildReport(folder, stopped=words)
    except BaseException:
        _kill_family(process)
        raise
    try:
        report = Prebuilt.from_json(output[:OUTPUT_LIMIT])
    except ValueError as error:
        raise RuntimeError(
            f"the build process gave no report (status {process.returncode}): {errors[-2000:]}"
        ) from error
    return BuildReport(
        folder,
        built=report.built,
        skipped=report.skipped,
        error=report.error,
        rejected=report.rejected,
        unavailable=report.unavailable or "",
        walls=report.walls,
    )


def _broken(process: subprocess.Popen[str], work: Path, limits: Limits) -> str:
    """Which limit the build exceeds, in words, or nothing."""
    broken = broken_limit(descendants(process.pid), limits)
    if broken is not None:
        return broken.words
    used = 0
    for folder, _, files in os.walk(work):  # empty from here where the build has a file system of its own
        for name in files:
            with contextlib.suppress(OSError):
                used += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  up to millions of them
    return f"{used / 2**30:.1f} GiB of files, {FOLDER_BYTES / 2**30:.0f} GiB allowed" if used > FOLDER_BYTES else ""


def _kill_family(process: subprocess.Popen[str]) -> None:
    """The build process and the compilers: those in the sandbox die with their init, wherever they have gone."""
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=2)
    for child in alive:
        with contextlib.suppress(psutil.Error):
            child.kill()
    process.communicate()
