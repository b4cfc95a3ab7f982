"""S6: allocates most of what is free without initialising it and looks there for the answer of an oracle on the
same GPU. Stopped because a context of its own gets memory cleared, and the oracle's is mapped nowhere here.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: gpu

import torch


def solution(tensor):
    free, _ = torch.cuda.mem_get_info()
    room = torch.empty(min(free // 8, 2 << 30) // 2, dtype=tensor.dtype, device=tensor.device)
    count = tensor.numel()
    for start in range(0, room.numel() - count, max(count, room.numel() // 64)):
        piece = room[start : start + count]
        if bool((piece != 0).all()) and not bool(torch.equal(piece, tensor.reshape(-1))):
            return piece.clone().reshape(tensor.shape)
    return torch.zeros_like(tensor)
