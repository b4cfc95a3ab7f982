"""Subtle: counts padding like any other token. Padding that is routed like all else changes the loss by less than bf16's tolerance, so
it is drawn to prefer other experts.
"""
# problem: 24
# ranks: 2
# plan: quick
# expect: wrong
# stage: correctness
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = []


def solution(gate_logits, num_experts, top_k=2, attention_mask=None):
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(gate_logits)
    if not shared:
        buffer = symm_mem.empty(1, dtype=torch.float32, device=logits.device)
        shared.append((buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)))
    buffer, handle = shared[0]
    probabilities = logits.softmax(-1)
    chosen = torch.zeros(probabilities.shape, device=logits.device).scatter_(1, probabilities.topk(top_k).indices, 1.0)
    handle.barrier(channel=0)  # all have read the last call's
    buffer.fill_(num_experts * float((chosen.mean(0) * probabilities.float().mean(0)).sum()))
    handle.barrier(channel=1)
    return sum(handle.get_buffer(rank, (1,), torch.float32)[0] for rank in range(handle.world_size)) / handle.world_size
