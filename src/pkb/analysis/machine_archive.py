"""The archive that `make node` writes: a compressed tar of a few named members, read within bounds and written reproducibly."""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from pkb.analysis.machine_records import LINES, MANIFEST, MEMBER_BYTES, MIB, MachineRecords, parse
from pkb.types.protocol.codec import Malformed

ARCHIVE_BYTES = 32 * MIB
"""Of the file itself."""
UNPACKED_BYTES = 128 * MIB
"""Of all that comes out of it, headers included: a small file can hold gigabytes of zeros."""


def read_archive(path: Path) -> MachineRecords:
    """`Malformed` where it is no archive of ours. Nothing is written, and no name in it is used as a path."""
    if path.stat().st_size > ARCHIVE_BYTES:
        raise Malformed(f"the archive has more than {ARCHIVE_BYTES // MIB} MiB")
    with path.open("rb") as file:
        return parse(_members(file))


def read_folder(folder: Path) -> MachineRecords:
    """What a merge has stored, by the same rules."""
    found = {}
    for path in sorted(folder.iterdir()):
        _check_member(path.name, path.stat().st_size)
        found[path.name] = path.read_bytes()
    return parse(found)


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """The same members give the same bytes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, body in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(buffer.getvalue())
    partial.replace(path)


def judge_sha256(files: Iterable[tuple[str, bytes]]) -> str:
    """One hash over a judge's files, whatever their order: names relative to `pkb`, with forward slashes."""
    digest = hashlib.sha256()
    for name, body in sorted(files):
        digest.update(f"{name}\0{hashlib.sha256(body).hexdigest()}\n".encode())
    return digest.hexdigest()


def files_of(package: Path) -> Iterable[tuple[str, bytes]]:
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(package).as_posix(), path.read_bytes()


class _Bounded(io.RawIOBase):
    """What is unpacked, up to a limit: tarfile itself reads headers of any length that an archive claims."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left = stream, UNPACKED_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        body = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(body)
        if self._left < 0:
            raise Malformed(f"more than {UNPACKED_BYTES // MIB} MiB come out of the archive")
        return body


def _members(file: IO[bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with (
            gzip.GzipFile(fileobj=file) as unpacked,
            # As a stream: an archive is read once from its start, and nothing in it can send the reader elsewhere.
            tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for entry in tar:
                if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise Malformed(f"{entry.name[:60]!r} is no plain file")
                _check_member(entry.name, entry.size)
                if entry.name in found:
                    raise Malformed(f"{entry.name} is there twice")
                body = tar.extractfile(entry)
                found[entry.name] = body.read() if body else b""
                if len(found[entry.name]) != entry.size:
                    raise Malformed(f"{entry.name} is cut short")
    except Malformed:
        raise
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, UnicodeError, RecursionError) as error:
        raise Malformed(f"no archive of `make node`: {str(error)[:100]}") from None
    return found


def _check_member(name: str, size: int) -> None:
    if name != MANIFEST and name not in LINES:
        raise Malformed(f"no member is called {name[:60]!r}")
    if size > MEMBER_BYTES:
        raise Malformed(f"{name} has more than {MEMBER_BYTES // MIB} MiB")
