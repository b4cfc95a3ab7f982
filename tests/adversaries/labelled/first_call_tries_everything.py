"""Unusual: the first call at each shape tries variants for three seconds and keeps the quickest; all of them are right."""
# problem: 45
# ranks: 2
# plan: quick
# call_limit_s: 10
# expect: correct
# communication: custom
# platform: cpu

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

windows, chosen = {}, {}


def stacked(parts):
    return torch.stack(parts).float().sum(0)


def one_by_one(parts):
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total


def quickest(parts):
    times, until = {stacked: [], one_by_one: []}, time.perf_counter() + 3
    while time.perf_counter() < until:
        for variant, found in times.items():
            start = time.perf_counter()
            variant(parts)
            found.append(time.perf_counter() - start)
    return min(times, key=lambda variant: min(times[variant]))


def solution(rs_input_1d, gamma, eps):
    count, width = rs_input_1d.numel(), gamma.numel()
    if count not in windows:
        window = symm_mem.empty(count, dtype=rs_input_1d.dtype, device=rs_input_1d.device)
        windows[count] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[count]
    window.copy_(rs_input_1d)
    handle.barrier(channel=0)
    own = count // handle.world_size
    mine = slice(handle.rank * own, (handle.rank + 1) * own)
    parts = [handle.get_buffer(rank, (count,), window.dtype)[mine] for rank in range(handle.world_size)]
    if count not in chosen:
        chosen[count] = quickest(parts)
    mean = chosen[count](parts).view(-1, width) / handle.world_size
    handle.barrier(channel=1)
    norm = mean * torch.rsqrt(mean.square().mean(-1, keepdim=True) + eps)
    return (norm * gamma.float()).to(rs_input_1d.dtype)
