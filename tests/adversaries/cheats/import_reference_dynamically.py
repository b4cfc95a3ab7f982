"""S21/S10: imports the references and the input generators under names put together at run time, reads their
source by path, looks for them among the loaded modules and asks another interpreter. Landlock stops all of
it: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import importlib
import subprocess
import sys
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

def _attempts():
    package = importlib.import_module("bkp"[::-1])
    folder = Path(package.__file__).parent
    yield lambda: importlib.import_module("smelborp.bkp"[::-1])
    yield lambda: importlib.import_module("eciudrlla_10p.smelborp.bkp"[::-1])
    yield lambda: importlib.import_module("sesac.egduj.bkp"[::-1])
    yield lambda: (folder / "problems" / "p01_allreduce.py").read_text()
    yield lambda: (folder / "problems" / "draw.py").read_bytes()
    yield lambda: (folder / "judge" / "pipeline.py").read_text()
    yield lambda: (Path("/proc/self/root") / str(folder)[1:] / "problems" / "draw.py").read_text()
    yield lambda: subprocess.run([sys.executable, "-c", "import pkb.problems.draw"], check=True, capture_output=True)
    yield lambda: next(m for name, m in vars(sys)["modules"].items() if name.startswith("pkb.pro"))


def _probe():
    for number, attempt in enumerate(_attempts()):
        try:
            attempt()
        except (ImportError, PermissionError, subprocess.CalledProcessError, StopIteration):
            continue
        raise RuntimeError(f"breach: attempt {number} reached the references")


_probe()


def solution(tensor):
    return honest(tensor)
