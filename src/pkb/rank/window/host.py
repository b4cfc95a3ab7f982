"""The window on a CPU: SHAKE-128 as keystream, BLAKE2b as digest, both from the standard library."""

import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence

import torch

from pkb.rank.trees import as_bytes

DIGEST_BYTES = 20
_CHUNK = 1 << 20
"""Of the keystream that is there at a time."""
_NONCE = struct.Struct("<QIII")


class HostWindow:
    def prepare(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [in_place(tensor) for tensor in tensors]

    def apply(self, prepared: list[torch.Tensor], key: bytes, *, rank: int, slot: int) -> None:
        for number, raw in enumerate(prepared):
            for chunk in range(-(-raw.numel() // _CHUNK)):
                part = raw[chunk * _CHUNK : (chunk + 1) * _CHUNK]
                stream = hashlib.shake_128(key + _NONCE.pack(slot, rank, number, chunk)).digest(part.numel())
                part.bitwise_xor_(torch.frombuffer(bytearray(stream), dtype=torch.uint8))

    def commit(self, trees: Sequence[Sequence[torch.Tensor]], key: bytes) -> Callable[[], list[tuple[str, ...]]]:
        digests = [tuple(_digest(tensor, key) for tensor in tensors) for tensors in trees]
        return lambda: digests


def in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor where they lie."""
    raw = as_bytes(tensor)
    if raw.data_ptr() != tensor.data_ptr():
        raise ValueError("only a contiguous tensor can be sealed in place")
    return raw


def _digest(tensor: torch.Tensor, key: bytes) -> str:
    raw = as_bytes(tensor).cpu()
    data = (ctypes.c_char * raw.numel()).from_address(raw.data_ptr()) if raw.numel() else b""
    return hashlib.blake2b(data, key=key, digest_size=DIGEST_BYTES).hexdigest()
