"""Symmetric buffers that a candidate makes once and keeps: the rendezvous is collective and slow."""

from typing import Any, NamedTuple

_STAGES: dict[tuple[Any, ...], "StagingBuffer"] = {}


class StagingBuffer(NamedTuple):
    buffer: Any
    """This rank's part, a flat tensor of bytes."""
    handle: Any
    """Of `torch.distributed._symmetric_memory`: peers' pointers and signal pads."""


def staging(nbytes: int, device: Any, *, name: str = "", group: Any = None) -> StagingBuffer:
    """A zeroed symmetric buffer of at least so many bytes, the same one for the same size, name and group.

    All ranks of the group must ask for the same sizes in the same order. What is in it stays from call to call.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    group = group or dist.group.WORLD
    size = max(16, -(-nbytes // 16) * 16)
    key = (name, size, str(device), group.group_name)
    if key not in _STAGES:
        # Ranks come and leave with idle devices. Without that, ranks that share a GPU hung at production sizes: as it seems,
        # one that is ahead makes the driver wait for its barrier (it loads a kernel, say), and that keeps the others away.
        _finish(device)
        buffer = symmetric.empty(size, dtype=torch.uint8, device=device)
        buffer.zero_()
        _STAGES[key] = StagingBuffer(buffer, symmetric.rendezvous(buffer, group))
        _STAGES[key].handle.barrier(channel=0)  # nobody may signal into a buffer that is still to be zeroed
        _finish(device)
    return _STAGES[key]


def _finish(device: Any) -> None:
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
