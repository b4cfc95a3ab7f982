"""Stages for kernels that end with `pkb::finish_grid`, made once and kept from call to call."""

import ctypes
from typing import Any

from pkb.kit.pads import MAX_RANKS, addresses
from pkb.kit.staging import check_group, staging
from pkb.kit.streams import enter_stream

_EXCHANGES: dict[tuple[Any, ...], "PeerExchange"] = {}


class Peers(ctypes.Structure):
    """The device's struct of this name, a kernel parameter by value."""

    _fields_ = (
        ("stages", ctypes.c_uint64 * MAX_RANKS),
        ("stage", ctypes.c_uint64),
        ("head", ctypes.c_uint64),
        ("region_bytes", ctypes.c_uint64),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("regions", ctypes.c_uint32),
        ("exchanges", ctypes.c_uint32),
    )


class PeerExchange:
    """`kernel[blocks, threads](now.peers, ...)` calls `kernel(const __grid_constant__ pkb::Peers p, ...)`."""

    def __init__(
        self, name: str, *, size: int, head: int, regions: int, exchanges: int, device: Any, group: Any
    ) -> None:
        stage = staging(size, device, name=f"{name} {regions} {exchanges}", group=group)
        handle = stage.handle
        self.buffer = stage.buffer
        """This rank's stage, a flat tensor of bytes."""
        self.sms = stage.sms
        """The fewest SMs of a rank."""
        self.handle = handle
        self._device, self._group, self._regions = device, group, regions
        self._peers = Peers(
            stages=addresses(handle),
            stage=stage.buffer.data_ptr(),
            head=head,
            region_bytes=(size - head) // regions // 16 * 16,
            rank=int(handle.rank),
            world=int(handle.world_size),
            regions=regions,
            exchanges=exchanges,
        )

    @property
    def peers(self) -> Peers:
        """The parameter of kernels that come next on the current stream."""
        check_group(self._group)
        enter_stream(self._device)
        return self._peers

    @property
    def region(self) -> int:
        """Where the one region begins in every rank's stage, in bytes. With two, only kernels know which is in use."""
        if self._regions != 1:
            raise RuntimeError("which region a call uses is known on the device: p.next_region(), p.this_region()")
        return int(self._peers.head)


def exchange(
    name: str, *, region_bytes: int = 16, regions: int = 2, exchanges: int = 2, device: Any, group: Any = None
) -> PeerExchange:
    """The stage of this name and size: the same one in every call. All ranks must ask for the same, in the same order.

    `exchanges` are the kernels of a call that end with `finish_grid`. Regions are used in turn. With two, one exchange
    in a call is enough: a rank that writes a region again has met its peers in the call between, and they had then
    finished the call before. With one, a call's own exchanges must see to it that nobody overwrites what others still
    read. Stages have powers of two of bytes, so that few of them serve many shapes; regions are as large as fits.
    """
    import torch.distributed as dist

    group = group or dist.group.WORLD
    check_group(group)
    head = -(-4 * exchanges * (dist.get_world_size(group) + 1) // 128) * 128  # signals and counters
    size = 1 << (head + regions * (-(-region_bytes // 16) * 16) - 1).bit_length()
    key = (name, size, regions, exchanges, str(device), group)
    if key not in _EXCHANGES:
        _EXCHANGES[key] = PeerExchange(
            name, size=size, head=head, regions=regions, exchanges=exchanges, device=device, group=group
        )
    return _EXCHANGES[key]
