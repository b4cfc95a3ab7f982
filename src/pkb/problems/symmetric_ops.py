"""Torch's own symmetric-memory operators, for the `stock_symmetric` form of a problem. On GPUs only."""

import torch
import torch.distributed as dist

ONE_SHOT_BYTES = 256 << 10
"""Up to this size every rank reads everything; above it, ranks share the sum out and hand out the parts."""
_buffers: dict[tuple[tuple[int, ...], torch.dtype, str], torch.Tensor] = {}


def world_name() -> str:
    import torch.distributed._symmetric_memory  # noqa: F401  (it defines the operators)

    assert dist.group.WORLD is not None
    return dist.group.WORLD.group_name


def buffer_for(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, name: str) -> torch.Tensor:
    """The same buffer in every call with this shape: it is made once, by all ranks together."""
    import torch.distributed._symmetric_memory as symm_mem

    key = (tuple(shape), dtype, name)
    if key not in _buffers:
        buffer = symm_mem.empty(*shape, dtype=dtype, device=device)
        assert dist.group.WORLD is not None
        symm_mem.rendezvous(buffer, dist.group.WORLD)
        _buffers[key] = buffer
    return _buffers[key]


def sum_in_place(buffer: torch.Tensor, name: str) -> torch.Tensor:
    """The sum over the ranks of a symmetric buffer, in a tensor of its own."""
    if buffer.nbytes <= ONE_SHOT_BYTES:
        return torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
    return torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", name).clone()


def finished(result: torch.Tensor) -> torch.Tensor:
    """Waits, on the stream, for an operator that runs on another one."""
    return torch.ops._c10d_functional.wait_tensor(result)
