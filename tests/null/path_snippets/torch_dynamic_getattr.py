"""The method is chosen by a name put together at run time."""
# expect: copy_engine
# known gap: "co" + "py_" through getattr on an object: text put together at run time is not followed

import torch
import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    peer = handle.get_buffer(1, x.shape, x.dtype)
    out = torch.empty_like(x)
    getattr(out, "_".join(["copy", ""]))(peer)
    return out
