"""Waits for the flag of each peer, but not for ever: after a tenth of a second it goes on with what is there. Stopped by a call that
one rank is told of a third of a second late.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: races
# platform: cpu

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def wait(flags, number):
    give_up = time.monotonic() + 0.1
    while int(flags.min()) < number and time.monotonic() < give_up:
        time.sleep(0.0001)


def solution(tensor):
    if tensor.shape not in shared:
        memory = symm_mem.empty(2, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        flags = symm_mem.empty(dist.get_world_size(), dtype=torch.int64, device=tensor.device)
        flags.zero_()
        handles = symm_mem.rendezvous(memory, dist.group.WORLD), symm_mem.rendezvous(flags, dist.group.WORLD)
        handles[1].barrier(channel=0)
        shared[tensor.shape] = memory, flags, *handles, [0]
    memory, flags, handle, signals, number = shared[tensor.shape]
    number[0] += 1
    half = number[0] % 2
    memory[half] = tensor
    for rank in range(handle.world_size):
        signals.get_buffer(rank, flags.shape, flags.dtype)[handle.rank] = number[0]
    wait(flags, number[0])
    parts = [handle.get_buffer(rank, memory.shape, tensor.dtype)[half].float() for rank in range(handle.world_size)]
    return sum(parts).to(tensor.dtype)
