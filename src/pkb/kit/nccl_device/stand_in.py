"""What stands in for NCCL where kernels run on the emulated GPU: windows in torch's symmetric memory, and barriers in it.

Its structures are those of `pkb/kit/emulated/include/nccl_device.h`.
"""

import ctypes
from typing import Any

from pkb.kit.nccl_device.window import BARRIERS, LL_BLOCKS, LL_SLOTS, LLA2AHandle
from pkb.kit.pads import buffers
from pkb.kit.staging import staging


class _DevComm(ctypes.Structure):
    _fields_ = (
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("lsa_rank", ctypes.c_int),
        ("lsa_size", ctypes.c_int),
        ("resources", ctypes.c_uint64),
        ("first_barrier", ctypes.c_uint32),
        ("barriers", ctypes.c_uint32),
        ("multimem", ctypes.c_uint64),
    )


class _Window(ctypes.Structure):
    _fields_ = (("buffers", ctypes.c_uint64), ("rank", ctypes.c_int64))


class StandIn:
    """The same interface as `window.Communicator`."""

    def __init__(self, device: Any, group: Any) -> None:
        self.device, self.group, self.multimem = device, group, False
        self._windows: list[_Window] = []
        ranks = group.size()
        barrier_slots = -(-4 * BARRIERS * (1 + ranks) // 16)
        slots = barrier_slots + LL_BLOCKS * (1 + 2 * LL_SLOTS)
        resources = staging(16 * slots, device, name="nccl_device", group=group)
        self._resources = resources
        self.rank, self.world, self.sms = int(resources.handle.rank), ranks, resources.sms
        self.ll_a2a = LLA2AHandle(barrier_slots, LL_SLOTS)
        self.device_communicator = _DevComm(
            self.rank, ranks, self.rank, ranks, buffers(resources.handle).value, 0, BARRIERS, 0
        )

    def register(self, nbytes: int) -> tuple[Any, int]:
        stage = staging(nbytes, self.device, name=f"nccl_device window {len(self._windows)}", group=self.group)
        self._windows.append(_Window(buffers(stage.handle).value, self.rank))
        return stage.buffer, ctypes.addressof(self._windows[-1])

    def close(self) -> None:
        """Symmetric memory goes with the process group."""
