"""Honest: peers' buffers by CUDA IPC through torch's own shared storages, ranks held together by the store. No symmetric
memory and no collective: `custom` all the same.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import itertools
import pickle

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

_store = dist.distributed_c10d._get_default_store()
_rank, _world = dist.get_rank(), dist.get_world_size()
_numbers = itertools.count()
_buffers = {}


def meet(value=b"here"):
    """What every rank has brought to this meeting, in the order of ranks."""
    number = next(_numbers)
    _store.set(f"ipc-{number}-{_rank}", value)
    return [_store.get(f"ipc-{number}-{rank}") for rank in range(_world)]


def share(tensor):
    buffer = torch.empty_like(tensor)
    handles = meet(pickle.dumps(reduce_tensor(buffer)[1]))
    peers = [buffer if rank == _rank else rebuild_cuda_tensor(*pickle.loads(handles[rank])) for rank in range(_world)]
    return buffer, peers


def solution(tensor):
    key = tuple(tensor.shape), tensor.dtype
    if key not in _buffers:
        _buffers[key] = share(tensor)
    buffer, peers = _buffers[key]
    buffer.copy_(tensor)
    torch.cuda.synchronize()
    meet()
    total = sum(peer.float() for peer in peers).to(tensor.dtype)
    torch.cuda.synchronize()
    meet()
    return total
