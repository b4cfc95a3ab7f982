"""Addresses of peers go to an extension whose source is not here."""
# expect: sm_load_store

import my_kernels
import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    my_kernels.reduce(handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, x)  # <- sm_load_store
    return x
