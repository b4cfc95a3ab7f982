"""Which files a rank may reach: what Python, torch, Triton, a compiler and CUDA need, and not the judge's secrets.

Landlock can only add: once a folder is readable, so is all below it. A forbidden folder inside a readable one (the
installed `pkb` inside site-packages) is therefore left out by naming its siblings one by one, along the whole path
down to it.
"""

import contextlib
import glob
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pkb.kit import kittens
from pkb.kit.toolkit import holds_private_places, import_folders

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/run")
# A compiler needs of /etc where the linker looks and which compiler is meant, and nothing of /run.
_TOOLCHAIN = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/etc/alternatives", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip
_MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self", "/proc/sys/vm/overcommit_memory")
_HOMES = ("CUDA_HOME", "CUDA_PATH", "NVSHMEM_HOME", "NCCL_HOME", "CUDNN_HOME", "TRITON_PTXAS_PATH")
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH")
_COMPILERS = ("g++", "c++", "clang++", "gcc", "nvcc", "ld", "as")
# Never /dev as a whole: root's number, even without capabilities, opens the raw disk, and with it every file. Not the
# terminals (the user reads what is written there), not mqueue (the host's mount, whatever the IPC namespace), not
# infiniband (adapters are shared between network namespaces by default: the network would have no wall).
_DEVICES = ("null", "zero", "full", "random", "urandom", "shm", "nvidia*")


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


def default_readable() -> list[Path]:
    """What a Python, torch, Triton and CUDA process reads, and `own_package_parts`.

    No home, no /tmp, no working directory: hand those that are needed to `lock_down` beside it. Whatever Python may
    import from, it may read, except for a path entry that holds a home: `refused_imports` names those.
    """
    return _existing([*_SYSTEM, *_libraries()], own_package_parts())


def build_readable(*, own_proc: bool) -> list[Path]:
    """What a compiler reads: the toolchain and the libraries. `own_proc`: /proc shows nobody else's processes."""
    tools = [str(Path(found).resolve().parent) for name in _COMPILERS if (found := shutil.which(name))]
    beside = [
        str(Path(tool).parent / name) for tool in tools for name in ("lib", "lib64", "libexec", "include", "nvvm")
    ]
    machine = ["/proc"] if own_proc else _MACHINE
    return _existing([*_TOOLCHAIN, *machine, *tools, *beside, *_libraries()], own_package_parts())


def refused_imports() -> list[Path]:
    """Entries of Python's path that a candidate may not read, since a home or the like lies in them."""
    return import_folders().refused


def hidden_in_imports() -> list[Path]:
    """What lies beside the libraries of a path entry and is none: .git, .env, .ssh and other names with a dot."""
    own = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    found = []
    for folder in import_folders().readable:
        if folder.is_dir() and not any(folder.is_relative_to(prefix) for prefix in own):
            with contextlib.suppress(OSError):
                found += [child for child in folder.iterdir() if child.name.startswith(".") and child.name != ".libs"]
    return found


def _libraries() -> list[str]:
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    paths += sysconfig.get_paths().values()
    paths.append(str(Path(sys.executable).resolve().parent))
    paths += [os.environ[name] for name in _HOMES if os.environ.get(name)]
    paths += map(str, kittens.folders())
    for name in _SEARCH_PATHS:
        # LD_PRELOAD may be separated by blanks. An empty or relative entry means the working directory: not ours to
        # open.
        entries = os.environ.get(name, "").replace(" ", ":").split(":")
        folders = [Path(entry).resolve() for entry in entries if Path(entry).is_absolute()]
        paths += [str(folder) for folder in folders if not holds_private_places(folder)]
    return [*paths, *map(str, import_folders().readable)]


def _existing(paths: Sequence[str], parts: Sequence[Path]) -> list[Path]:
    resolved = [Path(path).resolve() for path in [*paths, *map(str, parts)]]
    return [path for path in dict.fromkeys(resolved) if path != Path("/") and path.exists()]


def device_nodes() -> list[Path]:
    """Devices that a rank reads and writes: null and its like, shared memory, NVIDIA GPUs. Nothing else of /dev."""
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
