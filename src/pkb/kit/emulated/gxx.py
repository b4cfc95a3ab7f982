"""The compiler for CUDA on a CPU: g++ 12 or newer."""

import re
import shutil
from functools import lru_cache
from pathlib import Path

OLDEST = 12
WHAT_TO_INSTALL = (
    f"CUDA candidates run on a CPU through g++ {OLDEST} or newer, found on the path: `apt install g++-{OLDEST}`"
)


@lru_cache
def find_gxx() -> Path | str:
    """The compiler, or what to install. Its version is read off its folders: no process is started for it. CXX is not asked:
    builds do not see it."""
    for name in ("g++", *(f"g++-{version}" for version in range(OLDEST + 4, OLDEST - 1, -1))):
        path = shutil.which(name)
        if path and _version(Path(path)) >= OLDEST:
            return Path(path)
    return WHAT_TO_INSTALL


def _version(path: Path) -> int:
    """A link g++ leads to a file g++-12 on Debian and its like; elsewhere the newest of gcc's own folders counts."""
    name = path.resolve().name
    if "clang" in name:
        return 0
    if found := re.search(r"g\+\+-(\d+)", name):
        return int(found[1])
    roots = [path.resolve().parents[1] / lib / "gcc" for lib in ("lib", "lib64", "libexec")]
    versions = [
        int(entry.name.split(".")[0]) for root in roots for entry in root.glob("*/*") if entry.name[:1].isdigit()
    ]
    return max(versions, default=0)
