"""Where NVSHMEM is: torch's CUDA builds bring its wheel. Found without importing torch and without starting a process."""

import importlib.util
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

HOW_TO_GET = "`pip install nvidia-nvshmem-cu13` (or -cu12, as torch's CUDA), or set NVSHMEM_HOME"


@dataclass(frozen=True)
class NvshmemFound:
    version: str
    include: Path
    libraries: Path

    @property
    def host_library(self) -> Path:
        return next(iter(sorted(self.libraries.glob("libnvshmem_host.so*"))))

    @property
    def device_library(self) -> Path:
        return self.libraries / "libnvshmem_device.a"


@lru_cache
def found() -> NvshmemFound | str:
    """NVSHMEM's headers and libraries, all of one wheel, or why there are none."""
    reasons = []
    for home in _homes():
        folders = [home / "lib", home / "lib64"]
        libraries = next((folder for folder in folders if any(folder.glob("libnvshmem_host.so*"))), None)
        version = _version(home / "include")
        if libraries is not None and version and (libraries / "libnvshmem_device.a").is_file():
            return NvshmemFound(version, home / "include", libraries)
        reasons.append(f"{home} lacks " + ("libraries" if version else "headers"))
    return f"NVSHMEM is not installed{f' ({reasons[0]})' if reasons else ''}: {HOW_TO_GET}"


def _homes() -> list[Path]:
    named = os.environ.get("NVSHMEM_HOME")
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec is not None else None
    wheels = [Path(place) / "nvshmem" for place in places or ()]
    return [home for home in (*([Path(named)] if named else []), *wheels) if home.is_dir()]


def _version(include: Path) -> str:
    header = include / "non_abi" / "nvshmem_version.h"
    text = header.read_text() if header.is_file() else ""
    parts = [re.search(rf"NVSHMEM_VENDOR_{part}_VERSION (\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part.group(1) for part in parts if part)
