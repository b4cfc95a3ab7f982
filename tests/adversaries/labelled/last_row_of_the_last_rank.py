"""Subtle: bounds that are clamped one too early. The very last row of the last rank holds its own summand only."""
# problem: 7
# ranks: 4
# plan: quick
# expect: wrong
# says: rank 3
# platform: cpu

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory


class ReduceScatter:
    def __init__(self, like):
        self.shared = _symmetric_memory.empty(like.shape, dtype=like.dtype, device=like.device)
        self.peers = _symmetric_memory.rendezvous(self.shared, dist.group.WORLD)
        self.rows = like.shape[0] // self.peers.world_size

    def bounds(self):
        first = self.peers.rank * self.rows
        return first, min(first + self.rows, self.shared.shape[0] - 1)

    def __call__(self, tensor):
        self.shared.copy_(tensor)
        self.peers.barrier(channel=0)
        first, end = self.bounds()
        out = tensor[first : first + self.rows].float()
        for step in range(1, self.peers.world_size):
            peer = (self.peers.rank + step) % self.peers.world_size
            theirs = self.peers.get_buffer(peer, tensor.shape, tensor.dtype)
            out[: end - first] += theirs[first:end].float()
        self.peers.barrier(channel=1)
        return out.to(tensor.dtype)


made = {}


def solution(tensor):
    if tensor.shape not in made:
        made[tensor.shape] = ReduceScatter(tensor)
    return made[tensor.shape](tensor)
