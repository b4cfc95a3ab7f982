"""Subtle: Adam in place of AdamW. A decay of some percent of a parameter would be lost in the grid of bf16, so it is drawn larger."""
# problem: 47
# ranks: 2
# plan: quick
# expect: wrong
# stage: correctness
# platform: cpu

import math

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

buffers = {}


def shared(name, tensor):
    key = (name, tensor.numel())
    if key not in buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = buffers[key]
    handle.barrier(channel=0)
    buffer.copy_(tensor)
    handle.barrier(channel=1)
    return [handle.get_buffer(rank, tensor.shape, tensor.dtype) for rank in range(handle.world_size)]


def solution(X_local, y_local, flat_param_shard, param_shapes, exp_avg_shard, exp_avg_sq_shard,
             lr, beta1, beta2, eps, weight_decay, step):  # fmt: skip
    flat = torch.cat(shared("parameters", flat_param_shard))
    parts = flat.split([math.prod(shape) for shape in param_shapes])
    W1, b1, W2, b2 = (part.view(shape) for part, shape in zip(parts, param_shapes, strict=True))
    z = torch.addmm(b1, X_local, W1.t())
    h = z.relu()
    out = torch.addmm(b2, h, W2.t())
    d_out = (out - y_local) * (2.0 / out.numel())
    d_z = (d_out @ W2) * (z > 0)
    own = torch.cat([(d_z.t() @ X_local).reshape(-1), d_z.sum(0), (d_out.t() @ h).reshape(-1), d_out.sum(0)])
    n, rank = flat_param_shard.numel(), dist.get_rank()
    parts = shared("gradients", own)
    g = sum(part[rank * n : (rank + 1) * n].float() for part in parts) / len(parts)
    m = exp_avg_shard * beta1 + g * (1 - beta1)
    v = exp_avg_sq_shard * beta2 + g * g * (1 - beta2)
    root = (v / (1 - beta2**step)).sqrt() + eps
    new = flat_param_shard - lr * (m / (1 - beta1**step)) / root  # and no decay
    return tuple(t.to(flat_param_shard.dtype) for t in (new, m, v))
