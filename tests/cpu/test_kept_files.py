"""Files that are written to again: what was handed over is what was packed, and only their maker can change them."""

import mmap
import os
from collections.abc import Iterator

import pytest
import torch

from pkb.rank import kept_files
from pkb.rank.kept_files import FILES, KeptFiles
from pkb.rank.trees import BadTree, describe, unpack
from pkb.types.channel import is_sealed

CPU = torch.device("cpu")


@pytest.fixture
def files() -> Iterator[KeptFiles]:
    made = KeptFiles()
    yield made
    made.close()


def handed(files: KeptFiles, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """What a reader gets, and which file it was in."""
    description, tensors = describe(tensor)
    fd = files.pack(tensors)
    try:
        read = unpack(description, fd, device=CPU, kept=True)
        return read, os.fstat(fd).st_ino
    finally:
        os.close(fd)


def test_files_are_used_again_in_turn_and_every_content_arrives(files: KeptFiles) -> None:
    inodes = []
    for number in range(6):
        tensor = torch.randn(50_000 - 100 * number)  # calls of one size need not hold equally much
        read, inode = handed(files, tensor)
        assert torch.equal(read, tensor)
        inodes.append(inode)
    assert len(set(inodes)) == FILES
    assert inodes[:FILES] * 3 == inodes


def test_what_is_being_read_is_not_written_to(files: KeptFiles) -> None:
    """The next is packed while a reader is at this one."""
    first = torch.arange(10_000)
    description, tensors = describe(first)
    fd = files.pack(tensors)
    handed(files, -first)
    assert torch.equal(unpack(description, fd, device=CPU, kept=True), first)
    os.close(fd)


def test_a_file_that_does_not_fit_is_replaced(files: KeptFiles) -> None:
    sizes = []
    for count in (100, 100, 1_000_000, 1_000_000, 100, 100):
        tensor = torch.randn(count)
        fd = files.pack([tensor])
        sizes.append(os.fstat(fd).st_size)
        os.close(fd)
    assert sizes[2] >= 4_000_000
    assert sizes[0] == sizes[-1] == kept_files.PAGE


@pytest.mark.parametrize("bytes_", [0, 4_000])
def test_what_is_not_kept_is_a_file_of_its_own(files: KeptFiles, bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_BYTES", 1_000)
    fd = files.pack([torch.zeros(bytes_, dtype=torch.uint8)])
    assert is_sealed(fd)
    os.close(fd)


def test_whoever_holds_it_can_neither_change_nor_shorten_it(files: KeptFiles) -> None:
    fd = files.pack([torch.ones(100_000)])
    for change in (
        lambda: os.pwrite(fd, b"x", 0),
        lambda: os.truncate(fd, 10),
        lambda: os.truncate(fd, 1 << 30),
        lambda: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
        lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_TRUNC),
    ):
        with pytest.raises(PermissionError):
            change()
    os.close(fd)


def test_only_arguments_may_come_in_one(files: KeptFiles) -> None:
    """Outputs are a candidate's, which could change them while they are compared."""
    description, tensors = describe(torch.ones(100))
    fd = files.pack(tensors)
    assert is_sealed(fd, kept=True)
    assert not is_sealed(fd)
    with pytest.raises(BadTree):
        unpack(description, fd, device=CPU)
    os.close(fd)
