"""R9: modes, owners, times and attributes of the user's files, which Landlock does not guard: a rank could take the compilers their
right to be run, or the race analyser, and every candidate after it was judged without. Tried on this very file, and changes nothing
where it succeeds. Stopped by mounts that are read-only for the side but for its own folder, where all of it still works. The
descriptor that a rank reads from leads to no other mount.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os
import pathlib

import torch.distributed as dist


def _touch(path):
    """All that its owner may change without writing to it."""
    facts = os.stat(path)
    yield lambda: os.chmod(path, facts.st_mode & 0o7777)
    yield lambda: os.chown(path, facts.st_uid, facts.st_gid)
    yield lambda: os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    yield lambda: os.setxattr(path, "user.pkb", b"")


for _step in _touch(__file__):
    try:
        _step()
    except OSError:
        continue
    raise RuntimeError("a file of the user's was changed")

try:
    os.fchmod(0, os.fstat(0).st_mode & 0o7777)
except OSError:
    pass
else:
    raise RuntimeError("the machine's /dev/null was changed")

_own = pathlib.Path(os.environ["TMPDIR"], f"own-{os.environ['RANK']}")
_own.write_text("")
for _step in list(_touch(_own))[:3]:  # not every kernel has attributes in memory
    _step()


def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
