"""Trap: the NCCL version is never called; `if False` and the __main__ block do not run either."""
# expect: copy_engine

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def reference(x):
    dist.all_reduce(x)
    return x


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    if False:
        torch.ops.symm_mem.multimem_all_reduce_(x, "sum", "g")
    out = torch.empty_like(x)
    out.copy_(handle.get_buffer(0, x.shape, x.dtype))  # <- copy_engine
    return out
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    print(reference(torch.ones(1)))
