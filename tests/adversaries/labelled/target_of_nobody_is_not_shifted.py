"""Subtle: log-sum-exp less the target's own logit, which is right, except that for a target that nobody owns 0 stands for a shifted logit.
The arguments are shifted by the call, so that the same call made once more would be right: no hint may come from that.
"""
# problem: 73
# ranks: 2
# plan: quick
# expect: wrong
# stage: correctness
# unlike: right_when_repeated
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

buffers = {}


def solution(vocab_parallel_logits, target, group=None):
    logits, group = vocab_parallel_logits, group or dist.group.WORLD
    width = logits.shape[-1]
    column = target - dist.get_rank(group) * width
    mine = (column >= 0) & (column < width)
    peak = logits.amax(-1).float()
    total = (logits.float() - peak[..., None]).exp().sum(-1)
    own = logits.gather(-1, column.clamp(0, width - 1)[..., None])[..., 0].float() * mine
    three = torch.stack([peak, total, own])
    if three.shape not in buffers:
        buffer = symm_mem.empty(three.numel(), dtype=torch.float32, device=logits.device)
        buffers[three.shape] = buffer, symm_mem.rendezvous(buffer, group)
    buffer, handle = buffers[three.shape]
    handle.barrier(channel=0)
    buffer.copy_(three.view(-1))
    handle.barrier(channel=1)
    peaks, totals, targets = torch.stack(
        [handle.get_buffer(peer, three.shape, torch.float32) for peer in range(handle.world_size)], dim=1
    )
    highest = peaks.amax(0)
    logits.sub_(highest.to(logits.dtype)[..., None])
    return (highest + (totals * (peaks - highest).exp()).sum(0).log() - targets.sum(0)).to(logits.dtype)
