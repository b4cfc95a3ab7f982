"""`virtual` shares /dev/shm with everybody: what it removes there are leftovers of its own dead ranks, and nothing else."""

import mmap
from pathlib import Path

import pytest

from pkb.platforms import virtual


def test_only_unused_files_of_ours_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder stands for /dev/shm, and a platform whose daemon was never started for one that is over."""
    monkeypatch.setattr(virtual, "SHM", tmp_path)
    older = tmp_path / "nccl-older"
    older.write_bytes(b"x")
    platform = virtual.VirtualPlatform()
    platform._folder, platform._shm_before = tmp_path.parent / "no-such-folder", set(tmp_path.iterdir())
    names = ("nccl-dead", "cuda.shm.0.dead", "nccl-open", "cuda.shm.0.mapped", "dataset.bin", "torch_1_2", "psm_users")
    files = {name: tmp_path / name for name in names}
    for path in files.values():
        path.write_bytes(b"x" * mmap.PAGESIZE)
    (tmp_path / "nccl-folder").mkdir()
    (tmp_path / "nccl-link").symlink_to(files["dataset.bin"])
    with files["cuda.shm.0.mapped"].open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with mapping, files["nccl-open"].open("rb"):
        platform.stop()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names, "nccl-older", "nccl-folder", "nccl-link"} - {"nccl-dead", "cuda.shm.0.dead"}
