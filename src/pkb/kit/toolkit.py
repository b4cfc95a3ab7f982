"""Where the CUDA compilers and headers are, found without importing torch and without starting a process.

Both matter. `pkb.candidates.prebuild` compiles kit kernels without the seconds that importing torch costs, and a rank
must arrive at the same cache key as the prebuild did, in a sandbox that may allow no child process.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

DEFAULT_ARCH = "sm_90a"
"""Hopper, the benchmark's main target: what is built where no GPU is to be asked."""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def usual_homes() -> list[Path]:
    """Where a CUDA toolkit may lie: `CUDA_HOME`, `CUDA_PATH`, /usr/local/cuda."""
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return [Path(place) for place in named if place]


@lru_cache
def cuda_home() -> Path | None:
    """The CUDA toolkit: one of the usual places, or where `nvcc` on the path lies."""
    on_path = shutil.which("nvcc")
    places = [*usual_homes(), *([Path(on_path).resolve().parent.parent] if on_path else [])]
    return next((place for place in places if (place / "include" / "cuda.h").is_file()), None)


def nvcc_path() -> Path | None:
    home = cuda_home()
    if home is not None and (home / "bin" / "nvcc").is_file():
        return home / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    return Path(on_path) if on_path else None


@lru_cache
def torch_cuda_major() -> str | None:
    """The CUDA major version torch was built for, read from its version file: its own NVRTC fits the driver best."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version_file = Path(spec.origin).parent / "version.py"
    match = re.search(r"^cuda\b[^=]*= '(\d+)", version_file.read_text(), re.M) if version_file.is_file() else None
    return match.group(1) if match else None


@lru_cache
def wheel_roots() -> tuple[Path, ...]:
    """Folders of NVIDIA's wheels that hold `lib/` and `include/`: nvidia/cu13, or nvidia/cuda_nvrtc and friends of
    CUDA 12, which has one for each library. What torch's headers include (cuBLAS, cuSPARSE, cuSOLVER) is among them.
    """
    spec = importlib.util.find_spec("nvidia")
    if spec is None or spec.submodule_search_locations is None:
        return ()
    major = torch_cuda_major()
    first = [f"cu{major}"] if major else []
    names = [*first, "cu13", "cuda_nvrtc", "cuda_runtime", "cuda_cccl"]
    if major == "12":
        names = [*names[2:], "cublas", "cusparse", "cusolver", "curand", "cufft", "nvjitlink", "cu13"]
    found = [Path(base) / name for base in spec.submodule_search_locations for name in names]
    return tuple(dict.fromkeys(path for path in found if path.is_dir()))


@lru_cache
def include_dirs() -> tuple[Path, ...]:
    """Folders with cuda_bf16.h, cooperative_groups.h and libcu++, best first. CUDA 13 keeps libcu++ in include/cccl."""
    roots = [*wheel_roots()]
    home = cuda_home()
    if home is not None:
        roots += [home / "targets" / "x86_64-linux", home / "targets" / "sbsa-linux", home]
    folders = [folder for root in roots for folder in (root / "include", root / "include" / "cccl")]
    unique = {folder.resolve(): folder for folder in reversed(folders) if folder.is_dir()}
    return tuple(reversed(unique.values()))


class ImportFolders(NamedTuple):
    """What Python imports from: `readable` for candidates, and `refused` since it holds far more than libraries."""

    readable: list[Path]
    refused: list[Path]


def import_folders() -> ImportFolders:
    """Every entry of sys.path (site-packages, the user's, PYTHONPATH, conda) and the trees of editable installs.

    A home, the folder of temporary files or anything above them is refused: a path entry like that would open other
    candidates, keys and the judge's own folders to every candidate.
    """
    entries = [entry for entry in sys.path if entry and Path(entry).is_absolute()]
    for finder in sys.meta_path:
        # setuptools installs a finder for an editable package, with its folders in a table of the finder's module.
        module = sys.modules.get(getattr(finder, "__module__", None) or "")
        mapping = getattr(module, "MAPPING", None) if "__editable__" in getattr(module, "__name__", "") else None
        if isinstance(mapping, dict):
            entries += [str(folder) for folder in mapping.values() if Path(str(folder)).is_absolute()]
    readable: list[Path] = []
    refused: list[Path] = []
    for path in dict.fromkeys(Path(entry).resolve() for entry in entries):
        if path.exists():
            (refused if holds_private_places(path) else readable).append(path)
    return ImportFolders(readable, refused)


def holds_private_places(path: Path) -> bool:
    """Whether a home or the folder of temporary files is this folder or lies below it."""
    return any(place.is_relative_to(path) for place in _private_places())


def _private_places() -> list[Path]:
    homes = [Path("/root"), Path("/home"), Path("/etc"), Path("/var"), Path("/tmp"), Path(tempfile.gettempdir())]
    with contextlib.suppress(KeyError):  # a container's user may have no entry
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    if os.environ.get("HOME"):
        homes.append(Path(os.environ["HOME"]))
    return [home.resolve() for home in homes]


def toolkit_version(include: Path) -> str:
    """`CUDART_VERSION` of an include folder, such as 13000: part of the key of whatever nvcc builds."""
    header = include / "cuda_runtime_api.h"
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text()) if header.is_file() else None
    return match.group(1) if match else "unknown"


def file_identity(path: Path) -> str:
    """Names a compiler in a cache key. Size stands in for version: asking for the version would start a process."""
    real = path.resolve()
    return f"{real.name}:{real.stat().st_size}"


def normal_arch(text: str) -> str:
    """`9.0a`, `90a` and `sm_90a` are all `sm_90a`."""
    digits = text.strip().removeprefix("sm_").removeprefix("compute_").replace(".", "")
    if not re.fullmatch(r"\d{2,3}[af]?", digits):
        raise ValueError(f"{text!r} is no CUDA architecture; write sm_90a, 90a or 9.0a")
    return f"sm_{digits}"


@lru_cache
def _device_arch() -> str | None:
    """The first GPU's architecture, asked of the driver. `cuInit` makes no context, so no GPU memory is taken."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if driver.cuInit(0) != 0:
        return None
    capability = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) != 0:
            return None
        capability.append(value.value)
    major, minor = capability
    # The "a" turns on wgmma, setmaxnreg and other instructions that exist on that one architecture only.
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def resolve_arch(arch: str | None = None) -> str:
    """The architecture to build for: the argument, else `PKB_CUDA_ARCH`, else this machine's GPU, else Hopper."""
    chosen = arch or os.environ.get("PKB_CUDA_ARCH")
    return normal_arch(chosen) if chosen else _device_arch() or DEFAULT_ARCH
