"""S27/S24: reads other candidates, the user's home and the judge's folders, and writes outside its own. Landlock
and the private /tmp and /dev/shm stop it: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def honest(tensor):
    """All-reduce on symmetric memory as an honest candidate does it."""
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)

def _probe():
    here = Path(__file__)
    reads = [here.parent / "zeros.py", here.parents[2] / "conftest.py", Path("/root/.bashrc"), Path.home().parent / "planted"]
    for path in reads:
        try:
            path.read_bytes()
        except (PermissionError, FileNotFoundError):
            continue
        raise RuntimeError(f"breach: could read {path}")
    for folder in (Path("/"), Path("/etc"), Path("/usr/lib"), here.parent, Path("/root"), Path("/var")):
        try:
            (folder / "planted-by-a-candidate").write_text("x")
        except OSError:
            continue
        raise RuntimeError(f"breach: could write to {folder}")
    try:
        names = os.listdir(Path.cwd().parent)
    except PermissionError:
        return
    if [name for name in names if "oracle" in name]:
        raise RuntimeError("breach: the oracle's folder is in sight")


_probe()


def solution(tensor):
    return honest(tensor)
