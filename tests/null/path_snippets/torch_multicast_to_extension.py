"""The multicast address goes to an extension whose source is not here: NVLS is the only sense in that."""
# expect: nvls

import my_kernels
import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    my_kernels.reduce(handle.multicast_ptr, x)  # <- nvls
    return x
