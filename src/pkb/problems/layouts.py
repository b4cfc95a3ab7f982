"""How the ranks of a world are arranged into process groups, in one place for all problems.

A layout names axes; each axis partitions the world into groups. The lists are plain data, so that a candidate's rank, which has
no access to the problems, can be told them and make the same groups in the same order.
"""

Groups = dict[str, list[list[int]]]


def _grid(world_size: int, inner: int, inner_name: str, outer_name: str) -> Groups:
    """Rank = outer_index * inner + inner_index: inner groups are consecutive ranks, outer groups strided."""
    if world_size % inner:
        raise ValueError(f"{world_size} ranks cannot be split into {inner_name} groups of {inner}")
    outer = world_size // inner
    return {
        inner_name: [[o * inner + i for i in range(inner)] for o in range(outer)],
        outer_name: [[o * inner + i for o in range(outer)] for i in range(inner)],
    }


def groups(layout: str, world_size: int) -> Groups:
    """The groups of each axis of a layout. Every layout has the axis `world`."""
    world: Groups = {"world": [list(range(world_size))]}
    if layout == "world":
        return world
    if layout == "tp_cp":  # tensor-parallel pairs inside, context-parallel rings strided across them
        return world | _grid(world_size, min(2, world_size), "tp", "cp")
    if layout == "ep_fsdp":  # experts over consecutive ranks, their shards over strided ones; an odd world has no EP
        ep_size = 1 if world_size % 2 else max(2, world_size // 2)
        return world | _grid(world_size, ep_size, "ep", "ep_fsdp")
    if layout == "cp_tp":  # as tp_cp, but two ranks, or an odd number of them, are all context-parallel
        return world | _grid(world_size, 2 if world_size >= 4 and world_size % 2 == 0 else 1, "tp", "cp")
    if layout in ("cp_pp", "cp_dp"):  # rings of consecutive ranks; two pipeline stages, or two replicas, across them
        return world | _grid(world_size, max(1, world_size // 2), "cp", layout.removeprefix("cp_"))
    if layout == "polar_azimuth":  # the sphere: longitudes over consecutive pairs, latitudes over strided ranks
        return world | _grid(world_size, 1 if world_size % 2 else 2, "azimuth", "polar")
    raise ValueError(f"no layout is called {layout!r}")


def coordinate(layout: str, axis: str, world_size: int, rank: int) -> tuple[int, int]:
    """This rank's index inside its group of the axis, and that group's size."""
    for members in groups(layout, world_size)[axis]:
        if rank in members:
            return members.index(rank), len(members)
    raise ValueError(f"rank {rank} is in no {axis} group of {layout} with {world_size} ranks")
