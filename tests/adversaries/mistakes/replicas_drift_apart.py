"""A data-parallel step whose ranks add up the gradients in an order of their own, each beginning with its own: every rank is within
the tolerance, and the replicas are no longer the same model.
"""
# problem: 40
# ranks: 4
# plan: quick
# expect: wrong
# stage: correctness
# says: not the same bits as on rank 0
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def summed(gradient):
    if gradient.numel() not in _buffers:
        buffer = symm_mem.empty(gradient.numel(), dtype=gradient.dtype, device=gradient.device)
        _buffers[gradient.numel()] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[gradient.numel()]
    buffer.copy_(gradient)
    handle.barrier(channel=0)
    total = gradient.clone()
    for step in range(1, handle.world_size):
        total += handle.get_buffer((handle.rank + step) % handle.world_size, gradient.shape, gradient.dtype)
    handle.barrier(channel=1)
    return total


def solution(X_local, y_local, *rest):
    state, (lr, beta1, beta2, eps, step) = rest[:12], rest[12:]
    shapes = [tensor.shape for tensor in state[:4]]
    p, m, v = (torch.cat([tensor.reshape(-1) for tensor in state[i : i + 4]]) for i in (0, 4, 8))
    for part in (p, m, v):
        dist.broadcast(part, src=0)

    def cut(flat):
        return [one.view(shape) for one, shape in zip(flat.split([shape.numel() for shape in shapes]), shapes)]

    W1, b1, W2, b2 = cut(p)
    before = torch.nn.functional.linear(X_local, W1, b1)
    h = torch.relu(before)
    out = torch.nn.functional.linear(h, W2, b2)
    d_out = (out - y_local) * (2.0 / out.numel())
    d_before = (d_out @ W2).masked_fill(before <= 0, 0.0)
    parts = ((d_before.t() @ X_local), d_before.sum(0), d_out.t() @ h, d_out.sum(0))
    g = summed(torch.cat([part.reshape(-1) for part in parts])) / dist.get_world_size()
    m = m.mul(beta1).add(g, alpha=1 - beta1)
    v = v.mul(beta2).addcmul(g, g, value=1 - beta2)
    root = (v / (1 - beta2**step)).sqrt().add(eps)
    p = p - lr * ((m / (1 - beta1**step)) / root)
    return (*cut(p), *cut(m), *cut(v))
