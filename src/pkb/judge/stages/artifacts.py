"""What was built before: compiled files named by the hash of all that went into them, kept between evaluations.

Only the judge writes here, from results that it has checked, and its reader of candidates the one file that is nobody's (the
adaptor to torch, `pkb.candidates.torch_adaptor`); only these two read here: an evaluation gets copies of its own artifacts, so
no candidate sees another's. The least recently used go when there are too many.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from pkb.types.errors import UserError

NAME = re.compile(r"[0-9a-f]{40}\.(so|o|cubin)")
DEFAULT_GIB = 4.0
ARTIFACT_BYTES = 128 << 20
ABANDONED_S = 3600.0
MOST_OWN_KERNELS = 32
"""Two for each architecture and version of the judge, some ten kilobytes each."""


def cache_folder() -> Path:
    """Where builds are kept between evaluations: PKB_CACHE, or the user's cache directory. The path is absolute, since
    programs there are run from other folders."""
    root = os.environ.get("PKB_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root).absolute() / ("" if os.environ.get("PKB_CACHE") else "pkb") / "build"


def limit_bytes() -> int:
    """PKB_CACHE_GIB, or 4 GiB."""
    text = os.environ.get("PKB_CACHE_GIB") or str(DEFAULT_GIB)
    try:
        return max(0, int(float(text) * 2**30))
    except (ValueError, OverflowError):
        raise UserError(f"PKB_CACHE_GIB is {text!r}, not a number of GiB") from None


def store(folder: Path, built: list[str], found: list[str]) -> None:
    """Keeps the results `built` that lie in `folder`, marks `found` as used, and removes what is too much.

    A full or read-only disk costs the next evaluation its time and this one nothing.
    """
    cache = cache_folder()
    with contextlib.suppress(OSError):
        for name in found:
            with contextlib.suppress(FileNotFoundError):
                os.utime(cache / name)
        for name in built:
            if data := _checked(folder, name):
                _write(data, cache / name)
        evict(cache, limit=limit_bytes())


def own_kernels() -> Path:
    """Where the judge's own kernels lie, which every rank on a GPU needs: those of the timing window and of the sentinel."""
    return cache_folder() / "own"


def keep_own_kernels(built: Path) -> None:
    """Keeps what an oracle's ranks have compiled, which is never a candidate's; the next evaluation starts without NVRTC."""
    with contextlib.suppress(OSError):
        for path in built.glob("*.cubin"):
            if not (own_kernels() / path.name).exists() and (data := _checked(built, path.name)):
                own_kernels().mkdir(parents=True, exist_ok=True)
                _write(data, own_kernels() / path.name)
        for old in sorted(own_kernels().glob("*.cubin"), key=lambda path: path.stat().st_mtime)[:-MOST_OWN_KERNELS]:
            old.unlink(missing_ok=True)


def give_own_kernels(folder: Path) -> None:
    """Copies of them for a side that may not see the cache."""
    with contextlib.suppress(OSError):
        for path in own_kernels().glob("*.cubin"):
            _write(path.read_bytes(), folder / path.name)


def _checked(folder: Path, name: str) -> bytes | None:
    """The file's contents if it is what a build leaves: a plain ELF file of a bearable size under a hash for a name."""
    if not NAME.fullmatch(name):
        return None
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > ARTIFACT_BYTES:
            return None
        data = file.read(ARTIFACT_BYTES)
    return data if data.startswith(b"\x7fELF") else None


def _write(data: bytes, target: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f"building-{os.getpid()}-", delete=False) as file:
        file.write(data)
    Path(file.name).replace(target)


def evict(cache: Path, *, limit: int) -> list[str]:
    """Removes the least recently used artifacts until the rest is within `limit`, and what killed builds have left."""
    known: list[tuple[float, int, Path]] = []
    for path in cache.iterdir():
        with contextlib.suppress(OSError):
            facts = path.lstat()
            if NAME.fullmatch(path.name):
                known.append((facts.st_mtime, facts.st_size, path))
            elif time.time() - facts.st_mtime > ABANDONED_S:
                _remove_abandoned(path)
    removed, total = [], sum(size for _, size, _ in known)
    for _, size, path in sorted(known):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        removed.append(path.name)
        total -= size
    return removed


def _remove_abandoned(path: Path) -> None:
    """Builds take minutes; a lock, a message or a folder of one that is an hour old belongs to nobody."""
    if path.name.startswith("building-") and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.name.startswith("building-") or path.suffix in (".lock", ".failed"):
        path.unlink(missing_ok=True)
