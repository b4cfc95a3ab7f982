"""Symmetric buffers that a candidate makes once and keeps: the rendezvous is collective and slow."""

from typing import Any, NamedTuple

_STAGES: dict[tuple[Any, ...], tuple[Any, "StagingBuffer"]] = {}
"""Each with its group: names of groups come back when a process makes them anew, the objects do not."""


class StagingBuffer(NamedTuple):
    buffer: Any
    """This rank's part, a flat tensor of bytes."""
    handle: Any
    """Of `torch.distributed._symmetric_memory`: peers' pointers and signal pads."""
    sms: int
    """The number of SMs of the rank that has fewest: grids that must be alike on all ranks are cut by it."""


def staging(nbytes: int, device: Any, *, name: str = "", group: Any = None) -> StagingBuffer:
    """A zeroed symmetric buffer of at least so many bytes, the same one for the same name, group and size.

    Sizes are rounded up to powers of two and kept, since a CUDA graph may hold their addresses: however many shapes a
    candidate meets, the buffers of one name take at most four times the largest of them. All ranks of the group must
    ask for the same sizes in the same order. What is in a buffer stays from call to call.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    group = group or dist.group.WORLD
    check_group(group)
    size = 1 << (max(nbytes, 16) - 1).bit_length()
    key = (name, size, str(device), group.group_name)
    made_for, stage = _STAGES.get(key, (None, None))
    if stage is None or made_for is not group:
        _forget(group)
        # Ranks come and leave with idle devices. Without that, ranks that share a GPU hung at production sizes: as it seems,
        # one that is ahead makes the driver wait for its barrier (it loads a kernel, say), and that keeps the others away.
        finish(device)
        buffer = symmetric.empty(size, dtype=torch.uint8, device=device)
        handle = symmetric.rendezvous(buffer, group)
        stage = StagingBuffer(buffer, handle, _fewest_sms(buffer, handle, device))
        _STAGES[key] = group, stage
        finish(device)
    return stage


def check_group(group: Any) -> None:
    """Raises where a process group is missing or was destroyed: its symmetric memory leads to peers that are gone."""
    import torch.distributed as dist

    if group is None or group not in dist.distributed_c10d._world.pg_map:
        raise RuntimeError("this process group was destroyed or never made; make what depends on it anew")


def sm_count(device: Any) -> int:
    """SMs that kernels of this rank may use. 1 where there is no GPU."""
    import torch

    if torch.device(device).type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _fewest_sms(buffer: Any, handle: Any, device: Any) -> int:
    """Asks all ranks through their new buffers, and leaves these zeroed: nobody may signal into one that is not yet."""
    import torch

    buffer.zero_()
    buffer[:4].view(torch.int32).fill_(sm_count(device))
    handle.barrier(channel=0)
    counts = [int(handle.get_buffer(peer, (1,), torch.int32).item()) for peer in range(handle.world_size)]
    handle.barrier(channel=0)
    buffer[:4].zero_()
    handle.barrier(channel=0)
    return min(counts)


def _forget(group: Any) -> None:
    """Drop what belonged to an earlier group of the same name."""
    for key, (made_for, _) in list(_STAGES.items()):
        if key[-1] == group.group_name and made_for is not group:
            del _STAGES[key]


def finish(device: Any) -> None:
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
