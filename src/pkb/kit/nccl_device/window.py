"""Symmetric windows with a device communicator, made once and kept: making one is collective and takes a second."""

import ctypes
import itertools
import os
from typing import Any

from pkb.kit.arguments import ptr
from pkb.kit.foreign_memory import ForeignMemory
from pkb.kit.nccl_device.library import (
    WIN_COLL_SYMMETRIC,
    Nccl,
    NcclError,
    Properties,
    Requirements,
    ResourceRequirements,
    UniqueId,
)
from pkb.kit.staging import check_group, finish, sm_count
from pkb.kit.streams import enter_stream

BARRIERS = 512
"""LSA barriers of a device communicator: the most blocks of a grid that has one for each."""
LL_BLOCKS, LL_SLOTS = 264, 64
"""Low-latency all-to-alls of a device communicator, one for a block, and the 16-byte slots of each."""
_WINDOWS: dict[tuple[Any, ...], "NcclWindow"] = {}
_COMMUNICATORS: dict[tuple[Any, ...], Any] = {}
_numbers = itertools.count()


class LLA2AHandle(ctypes.Structure):
    """The device's `ncclLLA2AHandle`, a kernel parameter by value."""

    _fields_ = (("buffer", ctypes.c_uint32), ("slots", ctypes.c_uint32))


class NcclWindow:
    """Memory of the same size on all ranks of a group, and how kernels reach it."""

    def __init__(self, communicator: Any, nbytes: int) -> None:
        self._communicator = communicator
        self.rank: int = communicator.rank
        self.world: int = communicator.world
        self.sms: int = communicator.sms
        """The fewest SMs of a rank."""
        self.multimem: bool = communicator.multimem
        """Whether `ncclGetLsaMultimemPointer` leads anywhere: NVLS needs a switch, and a GPU for each rank."""
        self.buffer, self._handle = communicator.register(nbytes)
        """This rank's part, a flat tensor of bytes, zeroed when it was made."""

    @property
    def comm(self) -> Any:
        """The `ncclDevComm` of kernels that come next on the current stream."""
        check_group(self._communicator.group)
        enter_stream(self._communicator.device)
        return self._communicator.device_communicator

    @property
    def handle(self) -> ctypes.c_uint64:
        """The `ncclWindow_t`."""
        return ptr(self._handle)

    @property
    def ll_a2a(self) -> LLA2AHandle:
        """The `ncclLLA2AHandle`."""
        return self._communicator.ll_a2a  # type: ignore[no-any-return]

    def resident_blocks(self, kernel: Any, threads: int, *, shared: int = 0) -> int:
        """The largest grid whose blocks all run at once and have a barrier each, the same on all ranks."""
        return min(BARRIERS, int(kernel.resident_blocks(threads, shared=shared, sms=self.sms)))


def window(nbytes: int, device: Any, *, name: str = "", group: Any = None) -> NcclWindow:
    """A window of at least so many bytes, the same one for the same name, group and size.

    Sizes are rounded up to powers of two and kept, since a CUDA graph may hold their addresses. All ranks of the group
    must ask for the same sizes in the same order. What is in a window stays from call to call.
    """
    import torch
    import torch.distributed as dist

    if nbytes < 0:
        raise ValueError(f"a window of {nbytes} bytes")
    group = group or dist.group.WORLD
    check_group(group)
    size = 1 << (max(nbytes, 4096) - 1).bit_length()
    key = (name, size, str(device), group)
    if key not in _WINDOWS:
        finish(device)  # see kit.staging: ranks that share a GPU come and leave with idle devices
        if (str(device), group) not in _COMMUNICATORS:
            on_gpu = torch.device(device).type == "cuda"
            _COMMUNICATORS[str(device), group] = Communicator(device, group) if on_gpu else _stand_in(device, group)
        _WINDOWS[key] = NcclWindow(_COMMUNICATORS[str(device), group], size)
        finish(device)
    return _WINDOWS[key]


def teardown(group: Any = None) -> None:
    """Gives windows and communicators of a group back: collective, and no kernel may use them any more."""
    import torch.distributed as dist

    group = group or dist.group.WORLD
    for key in [key for key in _WINDOWS if key[-1] is group]:
        del _WINDOWS[key]
    for key in [key for key in _COMMUNICATORS if key[-1] is group]:
        _COMMUNICATORS.pop(key).close()


def _stand_in(device: Any, group: Any) -> Any:
    from pkb.kit.nccl_device.stand_in import StandIn

    return StandIn(device, group)


class Communicator:
    """An NCCL communicator of our own with the ranks of a process group. torch's may be busy, or not there yet."""

    def __init__(self, device: Any, group: Any) -> None:
        import torch
        import torch.distributed as dist

        self.device, self.group = device, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self._nccl = Nccl(self.rank)
        self._memory: list[tuple[int, int]] = []
        self._comm = ctypes.c_void_p()
        with torch.cuda.device(device):
            unique, self.sms = self._meet(sm_count(device))
            self._nccl.call("ncclCommInitRank", ctypes.byref(self._comm), self.world, unique, self.rank)
            self._check()
            self._create()

    def _meet(self, sms: int) -> tuple[UniqueId, int]:
        """Rank 0's id and the fewest SMs, through the group's store: it is no collective of a library."""
        from torch.distributed.distributed_c10d import _get_process_group_store

        store, prefix = _get_process_group_store(self.group), f"pkb-nccl-device-{next(_numbers)}"
        unique = UniqueId()
        if self.rank == 0:
            self._nccl.call("ncclGetUniqueId", ctypes.byref(unique))
            store.set(f"{prefix}-id", bytes(unique).hex())
        store.set(f"{prefix}-sms-{self.rank}", str(sms))
        fewest = min(int(store.get(f"{prefix}-sms-{peer}")) for peer in range(self.world))
        return UniqueId.from_buffer_copy(bytes.fromhex(store.get(f"{prefix}-id").decode())), fewest

    def _check(self) -> None:
        facts = Properties()
        self._nccl.call("ncclCommQueryProperties", self._comm, ctypes.byref(facts))
        if not facts.device_api:
            raise NcclError(
                f"rank {self.rank}: NCCL says that this machine has no device API (ncclCommQueryProperties)"
            )
        if facts.lsa_teams != 1:
            raise NcclError(
                f"rank {self.rank}: the {self.world} ranks are {facts.lsa_teams} teams that load from and store to each other; "
                "between teams kernels need GIN and a network, which the kit does not set up"
            )
        self._dev_comm_bytes = int(facts.dev_comm_bytes)
        # What the hardware has may be switched off, as it is where ranks share a GPU.
        self.multimem = bool(facts.multimem) and os.environ.get("NCCL_NVLS_ENABLE") != "0"

    def _create(self) -> None:
        resources, self.ll_a2a = ResourceRequirements(), LLA2AHandle()
        self._nccl.call(
            "ncclLLA2ACreateRequirement", LL_BLOCKS, LL_SLOTS, ctypes.byref(self.ll_a2a), ctypes.byref(resources)
        )
        needed = Requirements(
            lsa_barrier_count=BARRIERS, lsa_multimem=self.multimem, resources=ctypes.addressof(resources)
        )
        self.device_communicator = (ctypes.c_uint64 * (self._dev_comm_bytes // 8))()
        self._nccl.call("ncclDevCommCreate", self._comm, ctypes.byref(needed), ctypes.byref(self.device_communicator))

    def register(self, nbytes: int) -> tuple[Any, int]:
        import torch

        address, handle = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(self.device):
            self._nccl.call("ncclMemAlloc", ctypes.byref(address), nbytes)
            buffer = torch.as_tensor(ForeignMemory(address.value or 0, nbytes), device=self.device)
            if buffer.data_ptr() != address.value:
                raise NcclError(f"rank {self.rank}: torch made a copy of NCCL's memory")
            buffer.zero_()
            finish(self.device)  # all are zeroed before any can be reached
            self._nccl.call(
                "ncclCommWindowRegister", self._comm, address, nbytes, ctypes.byref(handle), WIN_COLL_SYMMETRIC
            )
        if not handle.value:
            raise NcclError(
                f"rank {self.rank}: NCCL has no symmetric windows here (NCCL_CUMEM_ENABLE=0, or no peer access)"
            )
        self._memory.append((address.value or 0, handle.value))
        return buffer, handle.value

    def close(self) -> None:
        finish(self.device)
        for address, handle in self._memory:
            self._nccl.call("ncclCommWindowDeregister", self._comm, handle)
            self._nccl.call("ncclMemFree", address)
        self._nccl.call("ncclDevCommDestroy", self._comm, ctypes.byref(self.device_communicator))
        self._nccl.call("ncclCommDestroy", self._comm)
