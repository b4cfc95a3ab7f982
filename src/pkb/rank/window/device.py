"""The window on a GPU: kernels of our own, compiled and loaded before a candidate is, queued on the current stream."""

import contextlib
import ctypes
import hashlib
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from pkb import kit
from pkb.kit import cache
from pkb.kit.cuda import Module
from pkb.kit.toolkit import resolve_arch
from pkb.rank.trees import as_bytes
from pkb.rank.window.host import in_place
from pkb.rank.window.kernels import CHACHA_BYTES, COMPANY, DIGEST_BYTES, HASH_THREADS, PARTS, SEGMENT_BYTES, SOURCE
from pkb.types.protocol.replies import Company

OPEN_THREADS = 256
BLOCKS_PER_SM = 2
SHORT_LOOK_STEPS, LONG_LOOK_STEPS = 2_500, 100_000
"""About 0.2 and 8 ms on an H200. Contexts without MPS are time-sliced: ours runs for some milliseconds, then leaves a gap of
2.5 ms. Looks of up to 4 ms saw none."""
SENT_BYTES = 20


class _Parts(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64 * PARTS),
        ("bytes", ctypes.c_uint64 * PARTS),
        ("first_segment", ctypes.c_uint64 * PARTS),
        ("count", ctypes.c_uint32),
        ("first", ctypes.c_uint32),
    )


class _Key(ctypes.Structure):
    _fields_ = (("word", ctypes.c_uint32 * 8),)


class _Salt(ctypes.Structure):
    _fields_ = (("word", ctypes.c_uint32 * 4),)


def compiled(source: str, *, name: str) -> Module:
    """One of the judge's own kernels. It is found by its text alone, before any compiler is looked for: loading NVRTC in every
    rank would take longer than all the rest."""
    arch = resolve_arch(None)
    file_name = f"{cache.content_key('judge', source, arch)}.cubin"
    if (found := cache.find(file_name)) is not None:
        return Module(source, name=name, artifact=cache.Artifact(found, cached=True, seconds=0.0), arch=arch)
    module = kit.compile(source, name=name, arch=arch)
    with contextlib.suppress(OSError):  # several ranks may be here at once, and the last one wins
        own = cache.build_dir() / f"{os.getpid()}.{file_name}"
        shutil.copyfile(module.artifact.path, own)
        own.replace(cache.build_dir() / file_name)
    return module


class Launch(NamedTuple):
    """As many tensors as one launch takes."""

    parts: _Parts
    blocks: int
    segments: int


class DeviceWindow:
    def __init__(self, sms: int, *, device: torch.device, build: Callable[..., Any] = compiled) -> None:
        self._device, self._sms = device, sms
        module = build(SOURCE, name="window")
        self._open, self._hash = module.kernel("open_arguments"), module.kernel("hash_segments")

    def prepare(self, tensors: Sequence[torch.Tensor]) -> list[Launch]:
        return list(_launches([in_place(tensor) for tensor in tensors]))

    def apply(self, prepared: list[Launch], key: bytes, *, rank: int, slot: int) -> None:
        words = _Key.from_buffer_copy(key)
        for launch in prepared:
            blocks = max(1, min(launch.blocks, 8 * self._sms))
            self._open[blocks, OPEN_THREADS](launch.parts, words, kit.u32(rank), kit.u32(slot & 0xFFFFFFFF))

    def commit(self, trees: Sequence[Sequence[torch.Tensor]], key: bytes) -> Callable[[], list[tuple[str, ...]]]:
        # A candidate may return a tensor on another device, or the host's.
        raw = [[as_bytes(tensor).to(self._device) for tensor in tensors] for tensors in trees]
        salt = digest_salt(key)
        words = _Salt.from_buffer_copy(salt)
        launches = list(_launches([part for parts in raw for part in parts]))
        total = sum(launch.segments for launch in launches)
        out = torch.empty(total * DIGEST_BYTES, dtype=torch.uint8, device=self._device)
        done = 0
        for launch in launches:
            if launch.segments:
                here = out[done * DIGEST_BYTES :]
                blocks = min(launch.segments, 4 * self._sms)
                self._hash[blocks, HASH_THREADS](launch.parts, words, launch.segments, here)
            done += launch.segments

        def read() -> list[tuple[str, ...]]:
            host = out.cpu()
            leaves = ctypes.string_at(host.data_ptr(), host.numel()) if host.numel() else b""
            sizes = iter([DIGEST_BYTES * segments_of(part.numel()) for parts in raw for part in parts])
            at, digests = 0, []
            for parts in raw:
                strings = []
                for _ in parts:
                    size = next(sizes)
                    strings.append(join_segments(leaves[at : at + size], salt))
                    at += size
                digests.append(tuple(strings))
            return digests

        return read


def digest_salt(key: bytes) -> bytes:
    """The batch's key as the hash takes it."""
    return hashlib.blake2s(key, digest_size=16, person=b"digest").digest()


def join_segments(digests: bytes, salt: bytes) -> str:
    """One digest of those of a tensor's segments."""
    return hashlib.blake2s(digests, digest_size=SENT_BYTES, salt=salt[:8], person=salt[8:]).hexdigest()


def segments_of(size: int) -> int:
    return -(-size // SEGMENT_BYTES)


def _launches(raw: Sequence[torch.Tensor]) -> Iterator[Launch]:
    for first in range(0, len(raw), PARTS):
        parts, blocks, segments = _Parts(first=first), 0, 0
        for number, part in enumerate(raw[first : first + PARTS]):
            size = part.numel()
            parts.address[number], parts.bytes[number] = part.data_ptr(), size
            parts.first_segment[number] = segments
            parts.count = number + 1
            blocks = max(blocks, -(-size // (CHACHA_BYTES * OPEN_THREADS)))
            segments += segments_of(size)
        yield Launch(parts, blocks, segments)


class Sentinel:
    """Shows whether another program is using this device, by filling all of it with work of known duration."""

    def __init__(self, device: torch.device) -> None:
        self._kernel = compiled(COMPANY, name="company").kernel("occupy")
        properties = torch.cuda.get_device_properties(device)
        self._blocks = BLOCKS_PER_SM * properties.multi_processor_count
        self._threads = properties.max_threads_per_multi_processor // BLOCKS_PER_SM
        self._out = torch.zeros(3 * self._blocks, dtype=torch.int64, device=device)

    def look(self, *, long: bool = True) -> Company:
        """`long`: also shows another context that is time-sliced with ours; a short look only shows programs that share SMs
        with us."""
        steps = LONG_LOOK_STEPS if long else SHORT_LOOK_STEPS
        self._kernel[self._blocks, self._threads](kit.u32(steps), self._out)
        host = self._out.cpu()
        rows = struct.iter_unpack("=3q", ctypes.string_at(host.data_ptr(), 8 * host.numel()))
        begins, ends, gaps = zip(*rows, strict=True)
        took = sorted(end - begin for begin, end in zip(begins, ends, strict=True))
        usual = max(1, took[len(took) // 2])
        return Company(waves=(max(ends) - min(begins)) / usual, gap_us=max(gaps) / 1e3)
