"""M16: takes all memory of the GPU, so that the oracle beside it cannot go on. Stopped by a limit on what a candidate's ranks may
take of a shared GPU: the failure is its own.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# stage: correctness
# platform: gpu

import torch

_hoard = []


def solution(tensor):
    while True:
        _hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device=tensor.device))
