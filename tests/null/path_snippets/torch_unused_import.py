"""Trap: collectives are imported and not used; names that look like them are the candidate's own."""
# expect: none

import torch
import torch.distributed as dist
from torch.distributed import all_reduce, all_gather_into_tensor

nccl = {"version": 2}


class Tree:
    def all_reduce(self, x):
        return x.sum()

    def allreduce(self, x):
        return x


def solution(x):
    """Uses no dist.all_reduce(x) and no torch.ops.symm_mem.multimem_all_reduce_."""
    nccl["version"] += 1
    tree = Tree()
    return tree.all_reduce(x) + tree.allreduce(x) * dist.get_world_size()
