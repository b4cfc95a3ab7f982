"""Process groups of a problem's layout, made on the ranks of `world.py`."""

from functools import cache

import torch.distributed as dist

from pkb.problems.layouts import groups


@cache
def own_groups(layout: str, rank: int, world_size: int) -> dict[str, dist.ProcessGroup]:
    """This rank's process group of every axis. All ranks make all groups, in the same order."""
    mine = {}
    for axis, lists in groups(layout, world_size).items():
        for members in lists:
            group = dist.new_group(members)
            if rank in members:
                mine[axis] = group
    return mine
