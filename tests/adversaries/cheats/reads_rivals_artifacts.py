"""B4: looks for what was built of other candidates. A rank is given copies of its own artifacts and nothing else: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

import os
import pwd
from pathlib import Path

SOURCE = 'extern "C" int artifact_of_its_own() { return 3; }'
LIBRARY = kit.build_cpp(SOURCE, name="own")
_own = Path(os.environ["PKB_BUILD_CACHE"])
# The emulated GPU's runtime, which records what calls do to memory, is the judge's own and the same for all.
_known = [Path(LIBRARY._name).name, *(path.name for path in _own.iterdir() if b"emu_record_begin" in path.read_bytes())]
if _others := [path.name for path in _own.iterdir() if path.name not in _known]:
    raise RuntimeError(f"breach: {len(_others)} artifacts of others are in sight")
for _folder in (_own.parent, Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "pkb" / "build"):
    try:
        os.listdir(_folder)
    except OSError:
        continue
    raise RuntimeError(f"breach: could list {_folder}")

_buffers = {}


def solution(tensor):
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
