"""Headers of NCCL, NVSHMEM and CUDA without their wheels, which are hundreds of megabytes: of each wheel only the members
that are headers are fetched, by HTTP range requests from where pip looks, some 8 MB in all.

They lie in the user's cache. What is used has been compared with a digest that stands here, whoever served it.
"""

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_PAGE = 1 << 20
_SECONDS = 10.0


class Wheel(NamedTuple):
    project: str
    inside: str
    """Folder of its headers."""
    version: str
    digest: str
    """Of the headers: names and contents."""


NCCL = Wheel(
    "nvidia-nccl-cu13",
    "nvidia/nccl/include/",
    "2.32.3",
    "b952630a64f5b110d2fdfb8eeaab22bff24598cafc785a12f1e4926aa60ad47a",
)
NVSHMEM = Wheel(
    "nvidia-nvshmem-cu13",
    "nvidia/nvshmem/include/",
    "3.4.5",
    "25936438f98b41fb0cd0c551fd92bb7eb3ef511a16b7a5369a00e73e7305250d",
)
CUDA = (
    Wheel(
        "nvidia-cuda-runtime",
        "nvidia/cu13/include/",
        "13.0.96",
        "6b0917d48e5ec567162426abf6f28c90e25864afb5f24d7df57f1141b85428e8",
    ),
    Wheel(
        "nvidia-cuda-crt",
        "nvidia/cu13/include/",
        "13.0.88",
        "aef44bf5c5b5439fb4112ce0f45b3ead77e483c29dbc0a6feab3b40e90ba790a",
    ),
    Wheel(
        "nvidia-cuda-cccl",
        "nvidia/cu13/include/cccl/",
        "13.0.85",
        "1ec8e8624987f38d9d4a4ce742dcd5dbdfb38c1b969d93ad810ced19fbec3f18",
    ),
)


class _OverHttp(io.RawIOBase):
    """A file on a server, read in pages as they are needed."""

    def __init__(self, url: str) -> None:
        self._url, self._at, self._pages = url, 0, {}  # type: str, int, dict[int, bytes]
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_SECONDS) as reply:
            if reply.headers.get("Accept-Ranges") != "bytes":
                raise OSError(f"{url} is served whole only")
            self._size = int(reply.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        page, start = divmod(self._at, _PAGE)
        if page not in self._pages:
            wanted = f"bytes={page * _PAGE}-{min((page + 1) * _PAGE, self._size) - 1}"
            request = urllib.request.Request(self._url, headers={"Range": wanted})
            with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
                if reply.status != 206:
                    raise OSError(f"{self._url} is served whole only")
                self._pages[page] = reply.read()
        data = self._pages[page][start : start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def include_folders(*wheels: Wheel) -> list[Path]:
    """What goes after -I. Skips the test where no index is in reach; headers other than expected fail it."""
    try:
        return [_provided(wheel) for wheel in wheels]
    except (OSError, LookupError) as error:
        pytest.skip(f"headers cannot be fetched: {error}")


def _provided(wheel: Wheel) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pkb" / "headers"
    folder = cache / f"{wheel.project}-{wheel.version}"
    if folder.is_dir():
        if _digest(folder) == wheel.digest:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
    place = _found(wheel)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as scratch:
        fetched = Path(scratch) / "include"
        _extract(place, wheel.inside, fetched)
        assert _digest(fetched) == wheel.digest, f"{place} holds other headers than expected: {_digest(fetched)}"
        with contextlib.suppress(OSError):  # another worker was first
            fetched.rename(folder)
    assert _digest(folder) == wheel.digest
    return folder


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _extract(place: str, inside: str, target: Path) -> None:
    local = Path(urllib.request.url2pathname(place.removeprefix("file://"))) if place.startswith("file://") else None
    with (
        local.open("rb") if local else io.BufferedReader(_OverHttp(place), 1 << 16) as raw,
        zipfile.ZipFile(raw) as archive,
    ):
        for name in archive.namelist():
            if name.startswith(inside) and not name.endswith("/"):
                path = target / name.removeprefix(inside)
                assert path.resolve().is_relative_to(target.resolve()), name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))


def _found(wheel: Wheel) -> str:
    """Its address in an index of pip's."""
    name = f"{wheel.project.replace('-', '_')}-{wheel.version}-"
    for index in _indexes():
        for link in _links(index, wheel.project):
            file = link.rpartition("/")[2]
            if file.startswith(name) and file.endswith("x86_64.whl"):
                return link
    raise LookupError(f"no index of pip's in reach has {wheel.project} {wheel.version}")


@lru_cache
def _indexes() -> list[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    named = dict(re.findall(r"^\S*\.(no-index|index-url|extra-index-url)='([^']*)'$", said, re.MULTILINE))
    if named.get("no-index", "false").lower() in ("1", "true", "yes"):
        return []
    return [*named.get("extra-index-url", "").split(), named.get("index-url", "https://pypi.org/simple")]


def _links(index: str, project: str) -> list[str]:
    page = f"{index.rstrip('/')}/{project}/"
    address = f"{page}index.html" if page.startswith("file://") else page
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as reply:
            text = reply.read().decode(errors="replace")
    except OSError:  # no such project, or no way there
        return []
    return [urllib.parse.urljoin(page, link).partition("#")[0] for link in re.findall(r'href="([^"]+)"', text)]
