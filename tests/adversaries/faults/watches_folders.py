"""R10: watches folders of the machine that it may not list, the candidate's own among them. Landlock does not guard watching: names
of other candidates and of the judge's folders came in as they were made, with the moment of each stage, and whoever took all 128
instances of a user left that user's programs none. Stopped by refusing inotify and fanotify, which no kernel needs.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import ctypes
import os

import torch.distributed as dist

_libc = ctypes.CDLL(None, use_errno=True)
_watch = _libc.inotify_init1(os.O_CLOEXEC)
if _watch >= 0:
    _folder = os.path.dirname(__file__).encode()
    raise RuntimeError(f"a watch was made, and for the folder {_libc.inotify_add_watch(_watch, _folder, 0x100)}")
if _libc.fanotify_init(0x200, 0) >= 0:  # FAN_REPORT_FID: the one that needs no rights
    raise RuntimeError("a watch of whole file systems was made")


def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
