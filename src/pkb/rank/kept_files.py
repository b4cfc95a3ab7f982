"""Files in which a rank that is trusted hands things over, written to again and again.

The pages of a new file must be found, cleared and mapped one by one, and given back afterwards. A gigabyte takes 1.2 s that way
on a machine with an H200, and 0.2 s where the pages are there already; at production sizes evaluations waited for little else.
Who is handed such a file can neither change nor shorten it: its one writable mapping is older than the seal. It will see there
what is written later, which are arguments of its own, sealed until their key is sent.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence

import torch

from pkb.rank.trees import copy_into, file_parts, pack_tensors
from pkb.types.channel import KEPT_SEALS

FILES = 2
"""Taken in turn: while one is read, the next is written to (`Exchange.deliver`)."""
MOST_BYTES = 1 << 31
"""Of a file that is kept, since its memory is."""
PAGE = 1 << 16


class _File:
    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("pkb-kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(self.fd, size)
            self.pages = mmap.mmap(self.fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, KEPT_SEALS)
        except OSError:
            os.close(self.fd)
            raise

    def close(self) -> None:
        self.pages.close()
        os.close(self.fd)


class KeptFiles:
    def __init__(self) -> None:
        self._files: list[_File | None] = [None] * FILES
        self._turn = 0

    def pack(self, tensors: Sequence[torch.Tensor]) -> int:
        """Returns a descriptor that is valid until the next pack but one; the caller closes it."""
        parts, size = file_parts(tensors)
        if not size:
            return pack_tensors(tensors)
        if size > MOST_BYTES:
            self.close()
            return pack_tensors(tensors)
        self._turn = (self._turn + 1) % FILES
        file = self._files[self._turn]
        if file is None or not size <= len(file.pages) <= 2 * size + PAGE:  # calls of one size differ by less
            if file is not None:
                self._files[self._turn] = None
                file.close()
            try:
                file = _File(-(-size // PAGE) * PAGE)
            except OSError:  # a kernel without that seal, or no room
                return pack_tensors(tensors)
            self._files[self._turn] = file
        copy_into(file.pages, parts)
        return os.dup(file.fd)

    def close(self) -> None:
        for file in self._files:
            if file is not None:
                file.close()
        self._files = [None] * FILES
