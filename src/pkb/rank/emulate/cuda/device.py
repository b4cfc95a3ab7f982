"""The emulated GPU of this rank: the runtime's library, its streams, and who waits for what."""

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_uint, c_uint64, c_void_p
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist

from pkb.kit.emulated.recipe import runtime_recipe
from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.symmetric.region import Region, owned
from pkb.types.failure import Cause, NotOnThisPlatform
from pkb.types.protocol.limits import MAX_INSTRUCTIONS, MAX_NAME, clean
from pkb.types.protocol.replies import Fidelity

SMS = 16
"""SMs that the device says it has: what sizes its grid by them gets a small one. As many blocks run at once as on
the 132 of an H200, so that a fixed grid which fits there fits here."""
_REPORT = ctypes.CFUNCTYPE(None, c_char_p, c_uint, c_uint, c_uint, c_uint64, c_uint64, c_char_p, c_int)
_TEXT_BYTES = 1 << 16
SETTLED_S = 2.0
_again: threading.Timer | None = None
_FIDELITY: dict[str, Fidelity] = {"0": "exact", "1": "approximate", "2": "order not modelled"}

PROPERTIES = SimpleNamespace(
    name="emulated GPU", major=9, minor=0, multi_processor_count=SMS, total_memory=16 << 30, warp_size=32,
    max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10, shared_memory_per_multiprocessor=228 << 10, L2_cache_size=50 << 20,
    is_integrated=0, is_multi_gpu_board=0, gcnArchName="", uuid="",
)  # fmt: skip


class NotEmulatedHere(NotOnThisPlatform):
    """A kernel asked for an instruction or a function that has no model."""

    def __init__(self, what: str) -> None:
        super().__init__(Cause.NOT_EMULATED, f"not emulated on a CPU: {what}")


class EmulatedGpu:
    def __init__(self, library: ctypes.CDLL, *, seed: int) -> None:
        self.library = library
        library.emu_stream_create.restype = c_uint64
        library.emu_event_create.restype = c_uint64
        for name, count in (
            ("emu_stream_synchronize", 1), ("emu_stream_drain", 1), ("emu_stream_idle", 1), ("emu_stream_empty", 1),
            ("emu_event_synchronize", 1), ("emu_event_done", 1),
            ("emu_set_current_stream", 1), ("emu_event_record", 2), ("emu_event_wait", 2),
        ):  # fmt: skip
            getattr(library, name).argtypes = [c_uint64] * count
        library.emu_set_multicast.argtypes = [c_uint, c_uint64, c_uint]
        self._report = _REPORT(_tell)  # kept: C++ calls it
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self.library.emu_configure(c_uint(seed % 2**31), self._report)

    def expect_late(self, late_s: float, *, stops: int) -> None:
        self.library.emu_late(c_uint64(int(1e9 * late_s)), c_uint(stops))

    def hold_threads(self, *, wanted: bool) -> None:
        self.library.emu_hold(c_int(wanted))

    def synchronize(self) -> None:
        self.library.emu_synchronize()
        self.check()

    def check(self) -> None:
        """Raises if a kernel has asked for what is not emulated."""
        text = ctypes.create_string_buffer(1000)
        if self.library.emu_take_failure(text, len(text)):
            raise NotEmulatedHere(text.value.decode(errors="replace"))

    def used(self) -> dict[str, Fidelity]:
        """Instructions executed so far, and how well each is modelled."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self.library.emu_used_names(text, len(text))
        lines = [line for line in text.value.decode(errors="replace").splitlines() if line]
        return {clean(line[1:], MAX_NAME): _FIDELITY[line[0]] for line in lines[:MAX_INSTRUCTIONS]}


@lru_cache
def gpu() -> EmulatedGpu:
    path = runtime_recipe().obtain().path
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # kernels find its functions there
    chosen = os.environ.get("PKB_EMULATOR_SEED")
    rank = dist.get_rank() if dist.is_initialized() else 0  # ranks that run in step hide what ranks out of step show
    return EmulatedGpu(library, seed=64 * int(chosen) + rank if chosen else int.from_bytes(os.urandom(3), "little"))


def executed() -> dict[str, Fidelity]:
    return gpu().used() if gpu.cache_info().currsize else {}


def resident_blocks(threads: int, shared: int, *, sms: int = SMS) -> int:
    by_shared = (228 << 10) // (shared + 1024) if shared else 32
    return sms * max(0, min(2048 // max(32, -(-threads // 32) * 32), by_shared, 32))


def _tell(
    kernel: bytes | None, block: int, thread: int, waiting: int, address: int, value: int, what: bytes | None, line: int
) -> None:
    """Called by the runtime when nothing has moved for a while, and (no kernel) when it moves again."""
    global _again
    if _again is not None:
        _again.cancel()
        _again = None
    if kernel is None:
        ACTIVITY.done()
        return
    where = f"kernel {kernel.decode(errors='replace')}, block {block}, thread {thread}"
    if not address:
        at_barrier = "waits at a barrier that others do not reach"
        ACTIVITY.waiting(f"{where} {at_barrier if what == b'barrier' else 'runs and does not end'}")
        return
    others = f" ({waiting} threads wait)" if waiting > 1 else ""
    instruction = f"{(what or b'a load').decode(errors='replace')}{f' in line {line}' if line else ''}"

    def say() -> None:
        ACTIVITY.waiting(f"{where} waits for {_place(address, block, f'which is {value}: {instruction}{others}')}")

    say()
    _again = threading.Timer(SETTLED_S, say)  # by then peers have come as far as they come
    _again.daemon = True
    _again.start()


def _place(address: int, block: int, state: str) -> str:
    """An address in words of symmetric memory, with its state, and who should have set it."""
    seen: set[int] = set()
    for region in owned():
        for handle in region.handles.values():
            for rank, part in enumerate(handle._regions):
                if part.address in seen:
                    continue
                seen.add(part.address)
                if part.pad_address <= address < part.pad_address + part.pad_bytes:
                    word = (address - part.pad_address) // 4
                    channel, source = divmod(word, handle.world_size)
                    setter = f"rank {source} sets it on channel {channel} by torch's layout"
                    blamed = _setter(part, address, block, source)
                    return f"word {word} of the signal pad of rank {rank} ({setter}), {state}{blamed}"
                if part.address <= address < part.address + part.data_bytes:
                    offset = address - part.address
                    blamed = _setter(part, address, block, None)
                    return f"byte {offset} of the symmetric buffer of rank {rank} ({part.data_bytes} bytes), {state}{blamed}"
    return f"memory of its own rank (0x{address:x}), {state}"


def _setter(part: Region, address: int, block: int, likely: int | None) -> str:
    from pkb.rank.emulate.cuda.setters import should_have_set

    try:
        return should_have_set(part, address, block=block, likely=likely)
    except (OSError, ValueError):  # a board is gone, or is none: what is known is said without it
        return ""


def dimensions(dim: Any) -> Any:
    return (c_uint * 3)(*((dim, 1, 1) if isinstance(dim, int) else (*dim, 1, 1)[:3]))


def pointer_arguments(library: ctypes.CDLL, name: str) -> Any:
    run = getattr(library, f"emu_run_{name}")
    run.argtypes = [POINTER(c_uint), POINTER(c_uint), c_uint, c_void_p, c_int, c_void_p]
    return run
