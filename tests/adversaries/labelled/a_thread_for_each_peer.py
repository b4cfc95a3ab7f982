"""Unusual: one thread for each peer copies its slice, and an event loop gathers them; all are done before the call returns."""
# problem: 8
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import asyncio
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

pool = ThreadPoolExecutor(max_workers=8)
windows = {}


async def exchange(handle, shape, dtype, out):
    def copy(peer):
        out[peer].copy_(handle.get_buffer(peer, shape, dtype)[handle.rank])

    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(pool, copy, peer) for peer in range(handle.world_size)))


def solution(tensor):
    if tensor.shape not in windows:
        window = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        windows[tensor.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[tensor.shape]
    window.copy_(tensor)
    handle.barrier(channel=0)
    out = torch.empty_like(tensor)
    asyncio.run(exchange(handle, tensor.shape, tensor.dtype, out))
    handle.barrier(channel=1)
    return out
