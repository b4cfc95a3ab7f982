"""torch.ops.symm_mem.* for CPU tensors: torch's own reductions on symmetric memory, which candidates call by name.

Half precision is summed in float32, in rank order on every rank, so that all ranks get the same bits.
"""

from collections.abc import Callable
from typing import Any

import torch

from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.symmetric.handle import Handle
from pkb.types.failure import Cause, NotOnThisPlatform

Rendezvous = Callable[[torch.Tensor, str], Handle | None]

NO_MULTICAST = (
    "multimem_all_reduce_", "multimem_one_shot_all_reduce", "multimem_one_shot_all_reduce_out",
    "multimem_one_shot_reduce_out", "multimem_all_gather_out",
)  # fmt: skip

_library: torch.library.Library | None = None
KERNELS: dict[str, Callable[..., Any]] = {}
"""What is registered, by name."""


def register(rendezvous: Rendezvous) -> None:
    """Registers the kernels that this torch declares; once a process, since a library cannot be registered twice."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("symm_mem", "IMPL", "CPU")
    kernels = _kernels(rendezvous)
    for name in NO_MULTICAST:
        kernels[name] = _refuse(name)
    for name, kernel in kernels.items():
        if hasattr(torch.ops.symm_mem, name):  # the set grew from torch to torch
            _library.impl(name, kernel)
            KERNELS[name] = kernel


def _refuse(name: str) -> Callable[..., Any]:
    def kernel(*_arguments: Any) -> Any:
        raise NotOnThisPlatform(Cause.LACKS_MULTICAST, f"symm_mem::{name}: no multicast on this platform")

    return kernel


def _kernels(rendezvous: Rendezvous) -> dict[str, Callable[..., Any]]:
    def handle_of(tensor: torch.Tensor, group_name: str, name: str) -> Handle:
        handle = rendezvous(tensor, group_name)
        if handle is None:
            raise RuntimeError(f"{name}: input must be allocated with empty_strided_p2p().")
        ACTIVITY.library_reductions += 1
        return handle

    def peers(handle: Handle, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The same elements of every rank's buffer, flat."""
        return [
            handle._view(rank, [tensor.numel()], tensor.dtype, int(tensor.storage_offset()))
            for rank in range(handle.world_size)
        ]

    def one_shot(tensor: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor) -> torch.Tensor:
        _check("one_shot_all_reduce", tensor, reduce_op)
        handle = handle_of(tensor, group_name, "one_shot_all_reduce")
        handle._meet()
        out.copy_(_sum(peers(handle, tensor)).view(tensor.shape))
        handle._meet()
        return out

    def one_shot_all_reduce(tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
        return one_shot(tensor, reduce_op, group_name, torch.empty(tensor.shape, dtype=tensor.dtype))

    def one_shot_copy_out(
        buffer: torch.Tensor, local: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor
    ) -> torch.Tensor:
        if local.numel() > buffer.numel() or local.dtype != buffer.dtype:
            raise RuntimeError("one_shot_all_reduce_copy: local input must fit into the symmetric buffer, in its dtype")
        part = torch.as_strided(buffer, [local.numel()], [1], buffer.storage_offset())
        part.copy_(local.reshape(-1))
        return out.copy_(one_shot_all_reduce(part, reduce_op, group_name).view(local.shape))

    def one_shot_copy(buffer: torch.Tensor, local: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
        return one_shot_copy_out(buffer, local, reduce_op, group_name, torch.empty_like(local))

    def two_shot(tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
        """Each rank sums one share of the elements and writes it to all: only it reads that share, so nothing is
        torn."""
        _check("two_shot_all_reduce_", tensor, reduce_op)
        handle = handle_of(tensor, group_name, "two_shot_all_reduce_")
        share = -(-tensor.numel() // handle.world_size)
        start, end = min(handle.rank * share, tensor.numel()), min((handle.rank + 1) * share, tensor.numel())
        handle._meet()
        parts = [flat[start:end] for flat in peers(handle, tensor)]
        total = _sum(parts)
        for part in parts:
            part.copy_(total)
        handle._meet()
        return tensor

    def two_shot_out(tensor: torch.Tensor, reduce_op: str, group_name: str, output: torch.Tensor) -> torch.Tensor:
        return output.copy_(two_shot(tensor, reduce_op, group_name))

    def reduce_scatter_out(
        tensor: torch.Tensor, group_name: str, split_last_dim: bool, out: torch.Tensor
    ) -> torch.Tensor:
        _check("reduce_scatter_out", tensor, "sum")
        handle = handle_of(tensor, group_name, "reduce_scatter_out")
        handle._meet()
        total = _sum(peers(handle, tensor)).view(tensor.shape)
        out.copy_(total.chunk(handle.world_size, dim=-1 if split_last_dim else 0)[handle.rank].reshape(out.shape))
        handle._meet()
        return out

    def get_remote_tensors(tensor: torch.Tensor, group_name: str) -> list[torch.Tensor]:
        handle = rendezvous(tensor, group_name)
        if handle is None:
            raise ValueError("Tensor is not allocated from Symmetric Memory")
        return [handle.get_remote_tensor(peer, tensor.shape, tensor.dtype) for peer in range(handle.world_size)]

    return {
        "one_shot_all_reduce": one_shot_all_reduce,
        "one_shot_all_reduce_out": one_shot,
        "one_shot_all_reduce_copy": one_shot_copy,
        "one_shot_all_reduce_copy_out": one_shot_copy_out,
        "two_shot_all_reduce_": two_shot,
        "two_shot_all_reduce_out": two_shot_out,
        "reduce_scatter_out": reduce_scatter_out,
        "get_remote_tensors": get_remote_tensors,
        "memset32_": Handle.memset32,
        "stream_write_value32_": Handle.stream_write_value32,
    }


def _check(name: str, tensor: torch.Tensor, reduce_op: str) -> None:
    if reduce_op != "sum":
        raise RuntimeError(f"{name}: only sum is supported for now.")
    if not tensor.is_contiguous():
        raise RuntimeError(f"{name}: input must be contiguous.")


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    wide = torch.float32 if parts[0].dtype in (torch.float16, torch.bfloat16) else parts[0].dtype
    total = torch.zeros(parts[0].shape, dtype=wide)
    for part in parts:
        total += part
    return total.to(parts[0].dtype)
