"""M6: makes a gloo group by its constructor, unknown to torch.distributed, and touches symmetric memory once to look like a
kernel. Another group lives for one call only. Stopped by counting on every group that was made.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: cpu

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_groups = {}
_calls = 0


def solution(tensor):
    global _calls
    if not _groups:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _groups["handle"] = symm_mem.rendezvous(buffer, dist.group.WORLD)
        _groups["handle"].get_buffer(0, (1,), tensor.dtype)
        _groups["handle"].get_buffer(1, (1,), tensor.dtype)
        _groups["kept"] = make("kept")
    _calls += 1
    out = tensor.clone()
    group = _groups["kept"] if _calls % 2 else make(f"call {_calls}")
    group.allreduce([out]).wait()
    return out


def make(name):
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    return dist.ProcessGroupGloo(store, dist.get_rank(), dist.get_world_size())
