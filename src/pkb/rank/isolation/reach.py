"""Which files a rank may reach: what Python, torch, Triton, a compiler and CUDA need, and not the judge's secrets.

Landlock can only add: once a folder is readable, so is all below it. A forbidden folder inside a readable one (the
installed `pkb` inside site-packages) is therefore left out by naming its siblings one by one, along the whole path
down to it.
"""

import glob
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/run")
_HOMES = ("CUDA_HOME", "CUDA_PATH", "NVSHMEM_HOME", "NCCL_HOME", "CUDNN_HOME", "TRITON_PTXAS_PATH")
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH")
# Never /dev as a whole: root's number, even without capabilities, opens the raw disk, and with it every file.
_DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue",
    "nvidia*", "infiniband", "gdrdrv", "dri", "kfd",
)  # fmt: skip


class Narrowed(NamedTuple):
    """`readable` trees hold nothing forbidden; `listable` folders give names only: an import needs them of parents."""

    readable: list[Path]
    listable: list[Path]


SECRETS = tuple(
    Path(path)
    for path in (
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/gshadow-",
        "/etc/sudoers",
        "/etc/sudoers.d",
        "/etc/ssh",
        "/etc/ssl/private",
    )
    if Path(path).exists()
)
"""Readable for root, and nothing that a kernel needs: pass them as forbidden."""


def own_package() -> Path:
    """The folder of the `pkb` package, wherever it is installed: pass it as forbidden."""
    return Path(__file__).resolve().parents[2]


def own_package_parts() -> list[Path]:
    """What of `pkb` a rank runs or a candidate may use. Not the problems: they hold the references and the inputs."""
    package = own_package()
    return [package / name for name in ("__init__.py", "rank", "kit", "types")]


def default_readable(package_parts: Sequence[Path] | None = None) -> list[Path]:
    """What a Python, torch, Triton and CUDA process reads, and `package_parts` (by default `own_package_parts`).

    No home, no /tmp, no working directory: hand those that are needed to `lock_down` beside it.
    """
    paths = [*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    paths += sysconfig.get_paths().values()
    paths.append(str(Path(sys.executable).resolve().parent))
    paths += [os.environ[name] for name in _HOMES if os.environ.get(name)]
    for name in _SEARCH_PATHS:
        # LD_PRELOAD may be separated by blanks. An empty or relative entry means the working directory: not ours to
        # open.
        entries = os.environ.get(name, "").replace(" ", ":").split(":")
        paths += [entry for entry in entries if Path(entry).is_absolute()]
    parts = own_package_parts() if package_parts is None else package_parts
    resolved = [Path(path).resolve() for path in paths] + [Path(part).resolve() for part in parts]
    return [path for path in dict.fromkeys(resolved) if path != Path("/") and path.exists()]


def device_nodes() -> list[Path]:
    """Devices that a rank reads and writes: null and its like, terminals, shared memory, GPUs and network adapters."""
    return [Path(found) for name in _DEVICES for found in sorted(glob.glob(f"/dev/{name}"))]  # noqa: PTH207


def narrow(roots: Sequence[Path], forbidden: Sequence[Path]) -> Narrowed:
    """Takes `forbidden` out of `roots`. A root that lies inside a forbidden folder was named on purpose, and stays."""
    walls = [path.resolve() for path in forbidden]
    readable: dict[Path, None] = {}
    listable: dict[Path, None] = {}

    def visit(path: Path, *, named: bool) -> None:
        # Through every link: .venv/lib64 points at .venv/lib, which may hold the forbidden folder.
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return
        if real in readable or real in listable:
            return
        outside = [wall for wall in walls if real.is_relative_to(wall)]
        if outside and (not named or real in walls):
            return
        for wall in outside:
            # An import lists each folder on its way down to the part.
            ways = [parent for parent in real.parents if parent.is_relative_to(wall.parent)]
            listable.update(dict.fromkeys(ways))
        if not any(wall.is_relative_to(real) for wall in walls):
            readable[real] = None
            return
        listable[real] = None
        try:
            children = sorted(real.iterdir())
        except OSError:
            return
        for child in children:
            visit(child, named=False)

    for root in roots:
        visit(root, named=True)
    return Narrowed(list(readable), list(listable))
