"""The NCCL with which several ranks share a GPU: found where it may lie, or downloaded.

torch brings an NCCL of its own and pins it, so a newer one cannot take its place without breaking the environment. It lies
beside torch's, in a folder that nothing imports, and the judge preloads it into the processes that it starts itself.
`python -m pkb.platforms.nccl` (the set-up on a machine with a GPU) and `pkb doctor --fix` download it.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from pkb.kit.nccl_device.headers import include_beside
from pkb.types.errors import UserError

NEEDED = (2, 30)
"""From this version on NCCL accepts ranks that share a GPU."""
WHEEL_VERSION = "2.32.3"
HOW_TO_GET_NCCL = (
    "several ranks on one GPU need NCCL 2.30 or newer: `pkb doctor --fix` downloads one (about 300 MB); without a network, "
    "tools/prepare_nccl.py makes a small one elsewhere, and PKB_NCCL says where its libnccl.so.2 lies"
)
LIBRARY = Path("nvidia") / "nccl" / "lib" / "libnccl.so.2"
_UNFIT_FOR_PRELOADING = re.compile(r"[\s:]")


@cache
def torch_cuda() -> str:
    """The version of CUDA that torch was built for, empty for a CPU build. Read from its file: importing it takes a second."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    file = Path(spec.origin).parent / "version.py"
    found = re.search(r"^cuda\b[^=]*= *(None|'([\d.]+)')", file.read_text() if file.is_file() else "", re.MULTILINE)
    if found:
        return found[2] or ""
    import torch

    return torch.version.cuda or ""


def wheel() -> str:
    """For the CUDA that torch was built for."""
    return f"nvidia-nccl-cu{torch_cuda().partition('.')[0] or '13'}=={WHEEL_VERSION}"


def folders() -> list[Path]:
    """Where a download lies: beside torch in a virtual environment, or in the user's cache. The first is the first choice."""
    name = wheel().replace("==", "-")
    own = [Path(sys.prefix) / "lib" / "pkb-nccl" / name] if sys.prefix != sys.base_prefix else []
    return [*own, _cache() / name]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pkb" / "nccl"


def places() -> list[Path]:
    """Files that may be an NCCL, the user's own choice first, torch's last."""
    paths = [Path(os.environ["PKB_NCCL"])] if os.environ.get("PKB_NCCL") else []
    paths += [folder / LIBRARY for folder in folders()]
    paths.append(_cache() / "libnccl.so.2")  # unpacked by hand
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        paths.append(Path(spec.origin).parent.parent / LIBRARY)
    return [path for path in paths if path.is_file()]


def version(path: Path) -> tuple[int, int, int]:
    """Ask a library for its version, in this process: loading it has no effect on CUDA."""
    number = ctypes.c_int()
    if ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(number)):
        raise UserError(f"{path} does not answer ncclGetVersion", HOW_TO_GET_NCCL)
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def why_unfit(path: Path) -> str:
    if _UNFIT_FOR_PRELOADING.search(str(path)):
        return "a path with blanks or colons cannot be preloaded"
    try:
        found = version(path)
    except (OSError, AttributeError, UserError) as error:
        return f"cannot be loaded: {error}"
    return "" if found[:2] >= NEEDED else f"is {'.'.join(map(str, found))}, {'.'.join(map(str, NEEDED))} is needed"


@cache
def suitable_nccl() -> Path | None:
    """The first NCCL that lets several ranks share a GPU."""
    return next((path for path in places() if not why_unfit(path)), None)


def nccl_home() -> str:
    """Folder of its headers, for kernels that use the device API; empty where it has none beside it."""
    library = suitable_nccl()
    include = include_beside(library) if library else None
    return str(include.parent) if include else ""


def download() -> Path:
    """Fetch the wheel into a folder of its own; torch's NCCL stays as it is. Returns the library."""
    wanted = [folder for folder in folders() if not _UNFIT_FOR_PRELOADING.search(str(folder))]
    target = next((folder for folder in wanted if _can_make(folder)), None)
    if target is None:
        raise UserError(f"no folder for NCCL can be written: {', '.join(map(str, folders()))}", "set XDG_CACHE_HOME")
    scratch = Path(tempfile.mkdtemp(prefix=".download-", dir=target.parent))
    try:
        _install(wheel(), scratch)
        bad = why_unfit(scratch / LIBRARY)
        if bad:
            raise UserError(f"NCCL from {wheel()} {bad}", HOW_TO_GET_NCCL)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    suitable_nccl.cache_clear()
    return target / LIBRARY


def _can_make(folder: Path) -> bool:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder.parent, os.W_OK)


def _install(requirement: str, target: Path) -> None:
    installer = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    if importlib.util.find_spec("pip") is None:
        uv = shutil.which("uv")
        if uv is None:
            raise UserError("NCCL cannot be downloaded without pip", f"{sys.executable} -m ensurepip")
        installer = [uv, "pip", "install", "--python", sys.executable]
    command = [*installer, "--no-deps", "--only-binary", ":all:", "--target", str(target), requirement]
    # A user's constraints may well pin torch's own NCCL.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_CONSTRAINT")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        raise UserError(
            f"{requirement} cannot be downloaded: {said[-1] if said else 'no reason given'}", HOW_TO_GET_NCCL
        )


def main() -> int:
    try:
        if not torch_cuda():
            print("NCCL: torch is a CPU build, so there is no GPU to share")
        elif found := suitable_nccl():
            print(f"NCCL: {found} lets several ranks share a GPU")
        else:
            print(f"NCCL: downloading {wheel()}, about 300 MB: with it several ranks can share a GPU", flush=True)
            print(f"NCCL: {download()}")
    except UserError as error:
        print(f"NCCL: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
