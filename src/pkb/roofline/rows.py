"""Bounds as rows of plain data: one a problem, for tables, JSON and plots."""

from typing import Any

from pkb.problems.base import Problem
from pkb.roofline.bounds import bounds_of, cost_of
from pkb.types.hardware import Hardware


def bounds_row(
    problem: Problem,
    *,
    size: str,
    ranks: int,
    dtype: str,
    hardware: Hardware,
    ceilings: str,
    link_efficiency: float = 1.0,
) -> dict[str, Any]:
    """Everything the roofline says of one case. The case must be one that `problem.why_not` allows."""
    cost = cost_of(problem, size=size, world_size=ranks, dtype=dtype)
    bounds = bounds_of(
        cost,
        hardware=hardware,
        ceilings=ceilings,
        world_size=ranks,
        dtype=dtype,
        link_efficiency=link_efficiency,
    )
    return {
        "id": problem.id,
        "name": problem.name,
        "size": size,
        "ranks": ranks,
        "dtype": dtype,
        "hardware": hardware.name,
        "ceilings": ceilings,
        "link_efficiency": link_efficiency,
        "flops": cost.flops,
        "hbm_bytes": cost.hbm_bytes,
        "link_sent_bytes": cost.link_sent_bytes,
        "link_received_bytes": cost.link_received_bytes,
        "switch_sent_bytes": cost.switch_sent_bytes,
        "switch_received_bytes": cost.switch_received_bytes,
        "phases": cost.phases,
        "compute_us": bounds.compute_us,
        "hbm_us": bounds.hbm_us,
        "link_us": bounds.link_us,
        "switch_us": bounds.switch_us,
        "link_best_us": bounds.link_best_us,
        "floor_us": bounds.floor_us,
        "bound_us": bounds.bound_us,
        "bound_with_floor_us": bounds.bound_with_floor_us,
        "unoverlapped_us": bounds.unoverlapped_us,
        "overlap_gain": bounds.overlap_gain,
        "binds": bounds.binds,
        "note": cost.note,
    }
