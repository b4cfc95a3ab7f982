"""Has one recipe carried out behind walls, and takes the result: the outside of `pkb.rank.isolation.build_warden`.

This side runs no compiler. It computes the key, so no build can choose under which name its result is kept; and every source
has a build of its own, so none can touch the result of another.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pkb.kit import kittens, slim
from pkb.kit.cache import Artifact, Recipe, build_dir, find
from pkb.kit.emulated.rewrite import NotEmulated
from pkb.kit.errors import CompileError
from pkb.kit.options import DEBUG_BUILDS, compiler_environment
from pkb.kit.recipes import Given
from pkb.kit.toolkit import resolve_arch

_KEPT = ("PKB_CUDA_COMPILER", "PKB_CUDA_ARCH", slim.SWITCH, kittens.VARIABLE, DEBUG_BUILDS)


@dataclass(frozen=True)
class BuildLimits:
    """What the build of one source may use; `judge.stages.build` bounds the time, and the memory of all its processes."""

    memory_bytes: int = 8 << 30
    """Data of each process. The compilers of a torch extension take 1 to 3 GiB."""
    folder_bytes: int = 2 << 30
    file_bytes: int = 1 << 30
    artifact_bytes: int = 128 << 20
    processes: int = 256


STOPPED = ("build", "build limit")


class BuildStopped(Exception):
    """The build ended without a result for a reason that is no message of a compiler: a limit, a killed process. Its kind is
    one of `STOPPED`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class WardenError(NamedTuple):
    type: str
    """`compile`, `limit`, or what else went wrong."""
    text: str


class WardenReply(NamedTuple):
    error: WardenError | None
    walls: dict[str, str]


def build_behind_walls(
    kind: str, given: Given, recipe: Recipe, *, limits: BuildLimits | None = None
) -> tuple[Artifact, dict[str, str]]:
    """The artifact, found or built, and the walls that stood: none where nothing was built.

    Raises `CompileError` or `BuildStopped`.
    """
    limits = limits or BuildLimits()
    began = time.monotonic()
    target = build_dir() / recipe.file_name
    found = find(recipe.file_name)
    if found is not None:
        if found != target:
            place(found.read_bytes(), target)
        return Artifact(target, cached=True, seconds=time.monotonic() - began), {}
    result = os.memfd_create("pkb-artifact")
    try:
        with tempfile.TemporaryDirectory(prefix=f"pkb-build-{os.getpid()}-") as work:
            adaptor = slim.adaptor_path() if kind in ("extension", "emulated_extension") else None
            readable = [adaptor.resolve()] if adaptor else []
            reply = _run(kind, given, Path(work), result, limits, readable=readable, timeout_s=None)
        error = reply.error
        if error is not None:
            if error.type == "compile":
                raise CompileError(error.text, name=recipe.name, own_files=(f"{recipe.name}.cu", f"{recipe.name}.cpp"))
            if error.type == "not emulated":
                raise NotEmulated(error.text)
            raise BuildStopped("build limit" if error.type == "limit" else "build", error.text)
        place(os.pread(result, os.fstat(result).st_size, 0), target)
    finally:
        os.close(result)
    return Artifact(target, cached=False, seconds=time.monotonic() - began), reply.walls


def disassembled(command: Sequence[str], path: Path, *, limit: int, timeout_s: float) -> bytes:
    """What the command prints about `path`, which it reads behind walls: the file may have been made to break it.

    Raises `CompileError` with what it said if it failed, `BuildStopped`, or `subprocess.TimeoutExpired`.
    """
    return _printed("sass", {"command": list(command)}, BuildLimits(artifact_bytes=limit), [path], timeout_s=timeout_s)


def analysed(
    command: Sequence[str], logs: Sequence[int], *, readable: Sequence[Path], limits: BuildLimits, timeout_s: float
) -> bytes:
    """What the command prints of logs, whose descriptors are its last arguments: a candidate's processes wrote them.

    Raises as `disassembled` does.
    """
    given = {"command": list(command), "logs": list(map(str, logs))}
    return _printed("races", given, limits, readable, timeout_s=timeout_s, inherited=logs)


def _printed(
    kind: str,
    given: Given,
    limits: BuildLimits,
    readable: Sequence[Path],
    *,
    timeout_s: float,
    inherited: Sequence[int] = (),
) -> bytes:
    result = os.memfd_create("pkb-printed")
    try:
        with tempfile.TemporaryDirectory(prefix=f"pkb-build-{os.getpid()}-") as work:
            files = [path.resolve() for path in readable]
            reply = _run(
                kind, given, Path(work), result, limits, readable=files, timeout_s=timeout_s, inherited=inherited
            )
        error = reply.error
        if error is not None and error.type == "compile":
            raise CompileError(error.text, name=kind)
        if error is not None:
            raise BuildStopped("build", error.text)
        return os.pread(result, limits.artifact_bytes, 0)
    finally:
        os.close(result)


def _run(
    kind: str,
    given: Given,
    work: Path,
    result: int,
    limits: BuildLimits,
    *,
    readable: Sequence[Path],
    timeout_s: float | None,
    inherited: Sequence[int] = (),
) -> WardenReply:
    settings = os.memfd_create("pkb-build-settings")
    order = {"kind": kind, "given": dict(given), "work": str(work), "result": result, **vars(limits)}
    order["readable"] = [str(path) for path in readable]
    os.write(settings, json.dumps(order).encode())
    environment = compiler_environment() | {name: os.environ[name] for name in _KEPT if name in os.environ}
    if kind in ("cubin", "extension"):
        environment["PKB_CUDA_ARCH"] = resolve_arch()  # asked out here: behind the walls there is no GPU
    if kind == "extension" or (kind == "emulated_extension" and readable):
        environment[slim.ADAPTOR] = str(readable[0]) if readable else ""
    process = subprocess.Popen(
        [sys.executable, "-m", "pkb.rank.isolation.build_warden", str(settings), str(os.getpid())],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(settings, result, *inherited), cwd=work,
    )  # fmt: skip
    os.close(settings)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()  # all below it die with their parents
        process.communicate()
        raise
    try:
        reply = json.loads(output)
    except ValueError:
        raise BuildStopped("build", f"the build's warden ended with status {process.returncode}") from None
    error = reply["error"]
    return WardenReply(WardenError(error["type"], error["text"]) if error else None, reply["walls"])


def place(data: bytes, target: Path) -> None:
    """Whole or not at all. Everything that we build is an ELF file; nothing else gets a name in the cache."""
    if not data.startswith(b"\x7fELF"):
        raise BuildStopped("build", "what the build left is no machine code")
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix="taking-", delete=False) as file:
        file.write(data)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(target)
