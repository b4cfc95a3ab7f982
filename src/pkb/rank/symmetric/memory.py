"""Symmetric memory for ranks on a CPU, behind the interface of `torch.distributed._symmetric_memory`.

A candidate written for GPUs allocates with `symm_mem.empty`, exchanges with `symm_mem.rendezvous`, and then reads and
writes the memory of its peers through the handle: tensors over it, raw pointers for kernels, signals and barriers.
`install` makes the same calls work on a machine without a GPU, where ranks are processes and their memory is shared.

The module object of torch stays; only its functions and its class are replaced, so that every way to import it sees
ours.
"""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed._symmetric_memory as torch_symmetric

from pkb.rank.symmetric import ops as symmetric_ops
from pkb.rank.symmetric.activity import ACTIVITY, SymmetricActivity
from pkb.rank.symmetric.handle import Handle
from pkb.rank.symmetric.poisoning import poison_data
from pkb.rank.symmetric.region import allocate, is_a_peers, owned, region_of
from pkb.rank.symmetric.rendezvous import meet, resolve_group

__all__ = ["ACTIVITY", "SymmetricActivity", "install", "is_a_peers", "poison"]

NOT_SYMMETRIC = "Pointer not within any SymmetricMemory allocation, is the tensor allocated from SymmetricMemory?"

_workspaces: dict[str, torch.Tensor] = {}
_persistent: dict[int, torch.Tensor] = {}


def install(directory: Path, *, timeout_s: float = 300.0) -> None:
    """Replaces torch's symmetric memory by ours over files in `directory`, which all ranks see and the caller removes.

    `timeout_s` bounds a rendezvous; barriers and signals have the limits their callers give them, as in torch.
    """
    torch_class = _class_over(directory, timeout_s)
    module: Any = torch_symmetric
    module._SymmetricMemory = torch_class
    torch._C._distributed_c10d._SymmetricMemory = torch_class  # type: ignore[attr-defined,misc]

    def empty(*size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], Sequence) else tuple(size)
        return torch_class.empty_strided_p2p(sizes, _contiguous(sizes), dtype or torch.get_default_dtype(), device)

    def rendezvous(tensor: torch.Tensor, group: Any = None) -> Handle | None:
        return torch_class.rendezvous(tensor, resolve_group(group).group_name)

    def get_symm_mem_workspace(group_name: str, min_size: int) -> Handle | None:
        tensor = _workspaces.get(group_name)
        if tensor is None or tensor.numel() < min_size:
            tensor = torch_class.empty_strided_p2p((min_size,), (1,), torch.uint8, None, group_name)
            _workspaces[group_name] = tensor
        return torch_class.rendezvous(tensor)

    def put_signal(src: torch.Tensor, hdl: Handle, peer: int) -> None:
        hdl.get_buffer(peer, src.shape, src.dtype).copy_(src)
        hdl.put_signal(peer)

    def wait_signal(hdl: Handle, peer: int) -> None:
        hdl.wait_signal(peer)

    def enabled(group_name: str) -> bool:
        return True

    module.empty, module.rendezvous, module.get_symm_mem_workspace = empty, rendezvous, get_symm_mem_workspace
    module.put_signal, module.wait_signal = put_signal, wait_signal
    module.is_symm_mem_tensor = torch_class.is_symm_mem_tensor
    module.is_symm_mem_enabled_for_group, module.enable_symm_mem_for_group = enabled, lambda group_name: None
    module.set_backend, module.get_backend = torch_class.set_backend, torch_class.get_backend
    module.get_signal_pad_size = lambda: torch_class.signal_pad_size
    module.set_signal_pad_size = torch_class.set_signal_pad_size
    module.is_nvshmem_available = lambda: False
    symmetric_ops.register(rendezvous)


def _class_over(directory: Path, timeout_s: float) -> Any:
    """The replacement of torch's class: handles are its instances, and its static members allocate and meet."""

    class _SymmetricMemory(Handle):
        @staticmethod
        def empty_strided_p2p(
            size: Sequence[int],
            stride: Sequence[int],
            dtype: torch.dtype,
            device: Any = None,
            group_name: str | None = None,
            alloc_id: int | None = None,
        ) -> torch.Tensor:
            """Whatever device was asked for, the memory is the host's: this platform has no other."""
            if alloc_id is not None and alloc_id in _persistent:
                return _persistent[alloc_id].as_strided(tuple(size), tuple(stride))
            span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if math.prod(size) else 0
            region = allocate(
                directory,
                span * dtype.itemsize,
                pad_bytes=_SymmetricMemory.signal_pad_size,
                dtype=dtype,
                group_name=group_name,
            )
            # Over all pages of the data, so that an empty tensor still has a storage by which it can be recognised.
            tensor = torch.frombuffer(region, dtype=torch.uint8, count=max(region.data_bytes, 1))
            tensor = torch.empty(0, dtype=dtype).set_(tensor.untyped_storage(), 0, tuple(size), tuple(stride))
            if alloc_id is not None:
                _persistent[alloc_id] = tensor
            return tensor

        @staticmethod
        def rendezvous(tensor: torch.Tensor, group_name: str | None = None) -> Handle | None:
            region = region_of(tensor)
            if region is None:
                warnings.warn(NOT_SYMMETRIC, stacklevel=2)  # torch warns and returns None; candidates test for it
                return None
            group = resolve_group(group_name or region.group_name)
            return meet(region, group, timeout_s=timeout_s, handle_class=_SymmetricMemory)

        @staticmethod
        def is_symm_mem_tensor(tensor: torch.Tensor) -> bool:
            return region_of(tensor) is not None

        @staticmethod
        def set_group_info(group_name: str, rank: int, world_size: int, store: Any) -> None:
            """Nothing to do: groups bring their ranks and their store along."""

        @staticmethod
        def set_backend(name: str) -> None:
            """Any of torch's names is taken and none matters."""
            if name not in ("CUDA", "NVSHMEM", "NCCL"):
                raise RuntimeError(f"Backend {name} is not supported; only CUDA, NVSHMEM and NCCL are")

        @staticmethod
        def get_backend(device: Any = None) -> str | None:
            return "CUDA"

        @staticmethod
        def set_signal_pad_size(size: int) -> None:
            if size <= 0 or size % 4:
                raise ValueError(f"a signal pad of {size} bytes: it must hold whole 32-bit words")
            _SymmetricMemory.signal_pad_size = size

    return _SymmetricMemory


def poison() -> int:
    """NaN for the data in this rank's floating-point allocations; returns their bytes. For the race stage, between rounds.

    A candidate that reads a peer's buffer before the peer has written it this round then shows it. Integers are left
    alone, since they may be flags, and so are signal pads.
    """
    filled = 0
    for region in owned():
        if region.data_bytes and (region.dtype.is_floating_point or region.dtype.is_complex):
            filled += poison_data(region.tensor([region.data_bytes // region.dtype.itemsize], region.dtype, 0))
    return filled


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in sizes[dim + 1 :]) for dim in range(len(sizes)))
