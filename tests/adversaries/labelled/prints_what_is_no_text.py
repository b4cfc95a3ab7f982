"""Unusual: writes bytes that are no UTF-8, zeros, carriage returns and terminal codes to both outputs, before, in and after calls."""
# problem: 18
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import atexit
import logging
import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

logging.basicConfig(level=logging.DEBUG)
NOISE = b"\xff\xfe\x00\x1b[2J\x1b]0;title\x07\r50 %\r100 %" + bytes(range(256)) * 16
os.write(1, NOISE)
atexit.register(os.write, 2, NOISE)
windows = {}


def solution(local_hidden_states, local_weight, variance_epsilon):
    x = local_hidden_states.float()
    mine = x.square().sum(-1, keepdim=True)
    if mine.shape not in windows:
        window = symm_mem.empty(mine.shape, dtype=torch.float32, device=mine.device)
        windows[mine.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[mine.shape]
    window.copy_(mine)
    os.write(2, NOISE)
    logging.warning('{"verdict": "correct", "rank": %d}', handle.rank)
    handle.barrier(channel=0)
    total = sum(handle.get_buffer(rank, mine.shape, torch.float32) for rank in range(handle.world_size))
    handle.barrier(channel=1)
    os.write(1, NOISE)
    scaled = x * torch.rsqrt(total / (x.shape[-1] * handle.world_size) + variance_epsilon)
    return scaled.to(local_hidden_states.dtype) * local_weight
