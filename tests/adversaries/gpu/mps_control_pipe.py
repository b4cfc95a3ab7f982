"""Talks to the MPS daemon, which lists its servers to anybody and ends them, the oracle's among them: through its sockets, by
NVIDIA's own program, from a child, and by the daemon's folder under another name. The folder is covered before a candidate is
loaded. Honest work otherwise, and it raises on a breach, so `correct` means that every attempt has failed.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import glob
import os
import socket
import subprocess

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

PIPES = os.environ["CUDA_MPS_PIPE_DIRECTORY"]


def connects(path):
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(path)
        except OSError:
            return False
    return True


def breaches():
    roots = ["", "/proc/self/root", "/proc/1/root", "/proc/1/cwd/../../"]
    found = [f"{root}{PIPES}/{name}" for root in roots for name in ("control", "control_privileged", "log")]
    found = [path for path in found if connects(path)]
    found += os.listdir(PIPES) if os.path.isdir(PIPES) else []
    found += [path for path in glob.glob("/tmp/*/pipe/*") if connects(path)]
    said = subprocess.run(["nvidia-cuda-mps-control"], input=b"get_server_list\nps\n", capture_output=True, timeout=20)
    if any(line.split()[:1] and line.split()[0].isdigit() for line in said.stdout.splitlines()):
        found.append(f"servers: {said.stdout[:200]!r}")
    return found


if found := breaches():
    raise RuntimeError(f"reached the MPS daemon: {found}")
child = os.fork()
if child == 0:
    os._exit(1 if any(connects(f"{PIPES}/{name}") for name in ("control", "control_privileged")) else 0)
if os.waitpid(child, 0)[1] != 0:
    raise RuntimeError("a child reached the MPS daemon")

_buffers = {}


def solution(tensor):
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
