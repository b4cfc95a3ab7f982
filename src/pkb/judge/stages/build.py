"""Stage 2: compiles what a candidate compiles, once, in a process of its own, before any rank starts.

The prebuild process reads the candidate's text and runs none of it. What it cannot see (sources put together at run time) is
built by the first rank that asks, while the others wait.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTPUT_LIMIT = 4 << 20


@dataclass(frozen=True)
class BuildReport:
    folder: Path
    """Holds what was built, readable for the ranks and writable for nobody but a build."""
    built: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    unavailable: str = ""
    timed_out: bool = False


def cache_folder() -> Path:
    """Where builds are kept between evaluations: PKB_CACHE, or the user's cache directory."""
    root = os.environ.get("PKB_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / ("" if os.environ.get("PKB_CACHE") else "pkb") / "build"


def prebuild(path: Path, *, limit_s: float, environment: dict[str, str]) -> BuildReport:
    """Build everything that can be seen in the candidate's text."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    inherited = ("PATH", "HOME", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    clean = {name: os.environ[name] for name in inherited if name in os.environ}
    with tempfile.TemporaryDirectory(prefix=f"pkb-build-{os.getpid()}-") as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pkb.candidates.prebuild", str(path), "--parent", str(os.getpid())],
            env=clean | environment | {"PKB_BUILD_DIR": str(folder), "TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _kill_family(process)
            return BuildReport(folder, timed_out=True)
        except BaseException:  # Ctrl-C above all
            _kill_family(process)
            raise
    try:
        report = json.loads(output[:OUTPUT_LIMIT])
    except ValueError as error:
        raise RuntimeError(
            f"the build process gave no report (status {process.returncode}): {errors[-2000:]}"
        ) from error
    return BuildReport(
        folder,
        built=report.get("built", []),
        skipped=report.get("skipped", []),
        error=report.get("error"),
        unavailable=report.get("unavailable") or "",
    )


def _kill_family(process: subprocess.Popen[str]) -> None:
    """The build process and the compilers it has started, which are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
