"""Makes a small NCCL for a GPU machine whose own is too old to share a GPU between ranks and that has no network.

NCCL 2.30 and newer let several ranks use one GPU. Its wheel holds machine code for every architecture; this keeps that of one,
blanks the rest and compresses the result to about 33 MB. The headers come along, in `include`: kernels that use the
device API are compiled with those of the very library that is loaded.

    python tools/prepare_nccl.py OUT_DIR [--version 2.32.3] [--arch 90] [--wheel FILE]

On the GPU machine unpack it where the judge looks (docs/setup.md), or anywhere and point PKB_NCCL at it:

    mkdir -p ~/.cache/pkb/nccl && xz -dc libnccl.so.2.xz > ~/.cache/pkb/nccl/libnccl.so.2
    tar -xf nccl-include.tar.xz -C ~/.cache/pkb/nccl
"""

import argparse
import io
import lzma
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, header bytes, bytes that follow
ENTRY = struct.Struct("<HHIQ")  # kind, version, header bytes, payload bytes
ARCH_OFFSET = 28


def blank_other_architectures(library: bytearray, arch: int) -> int:
    """Zero the machine code of all other architectures inside every fat binary; how many bytes of this one remain."""
    kept, at = 0, 0
    needle = struct.pack("<I", MAGIC)
    while (at := library.find(needle, at)) >= 0:
        _, _, header, size = CONTAINER.unpack_from(library, at)
        end = at + header + size
        if header != CONTAINER.size or end > len(library):
            at += 4  # the magic number by chance
            continue
        entry = at + header
        while entry < end:
            _, _, entry_header, payload = ENTRY.unpack_from(library, entry)
            (entry_arch,) = struct.unpack_from("<I", library, entry + ARCH_OFFSET)
            body = entry + entry_header
            if entry_arch == arch:
                kept += payload
            else:
                library[body : body + payload] = bytes(payload)
            entry = body + payload
        at = end
    return kept


def pack_headers(archive: zipfile.ZipFile, target: Path) -> None:
    """The wheel's `include` folder by itself."""
    with tarfile.open(target, "w:xz") as packed:
        for name in sorted(archive.namelist()):
            _, found, inside = name.partition("nvidia/nccl/include/")
            if found and inside and not name.endswith("/"):
                data = archive.read(name)
                entry = tarfile.TarInfo(f"include/{inside}")
                entry.size, entry.mode = len(data), 0o644
                packed.addfile(entry, io.BytesIO(data))


def _downloaded(version: str, folder: Path) -> Path:
    requirement = f"nvidia-nccl-cu13=={version}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
        requirement,
    ]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--version", default="2.32.3")
    options.add_argument("--arch", type=int, default=90, help="compute capability without the point, such as 90")
    options.add_argument("--wheel", type=Path, help="of that version, where it has been downloaded already")
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = args.wheel or _downloaded(args.version, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            pack_headers(archive, args.out / "nccl-include.tar.xz")
            member = next(name for name in archive.namelist() if name.endswith("lib/libnccl.so.2"))
            library = bytearray(archive.read(member))
        if not blank_other_architectures(library, args.arch):
            sys.exit(f"NCCL {args.version} has no machine code for sm_{args.arch}")
        path = Path(scratch) / "libnccl.so.2"
        path.write_bytes(library)
        if shutil.which("strip"):
            subprocess.run(["strip", "-g", path], check=True)
        target = args.out / "libnccl.so.2.xz"
        target.write_bytes(lzma.compress(path.read_bytes(), preset=6))
    print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB (NCCL {args.version}, sm_{args.arch})")


if __name__ == "__main__":
    main()
