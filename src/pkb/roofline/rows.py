"""Bounds as rows of plain data: one a problem, for tables, JSON and plots."""

from dataclasses import dataclass

from pkb.problems.base import Problem
from pkb.roofline.bounds import bounds_of, cost_of
from pkb.types.hardware import Hardware


@dataclass(frozen=True)
class BoundsRow:
    """Everything the roofline says of one case; times in microseconds, work and bytes of one rank."""

    id: int
    name: str
    size: str
    ranks: int
    dtype: str
    hardware: str
    ceilings: str
    link_efficiency: float
    flops: float
    hbm_bytes: float
    link_sent_bytes: float
    link_received_bytes: float
    switch_sent_bytes: float | None
    switch_received_bytes: float | None
    phases: int
    compute_us: float
    hbm_us: float
    link_us: float
    switch_us: float | None
    link_best_us: float
    floor_us: float
    bound_us: float
    bound_with_floor_us: float
    unoverlapped_us: float
    overlap_gain: float
    binds: str
    note: str


def bounds_row(
    problem: Problem,
    *,
    size: str,
    ranks: int,
    dtype: str,
    hardware: Hardware,
    ceilings: str,
    link_efficiency: float = 1.0,
) -> BoundsRow:
    """The case must be one that `problem.why_not` allows."""
    cost = cost_of(problem, size=size, world_size=ranks, dtype=dtype)
    bounds = bounds_of(
        cost, hardware=hardware, ceilings=ceilings, world_size=ranks, dtype=dtype, link_efficiency=link_efficiency
    )
    return BoundsRow(
        id=problem.id,
        name=problem.name,
        size=size,
        ranks=ranks,
        dtype=dtype,
        hardware=hardware.name,
        ceilings=ceilings,
        link_efficiency=link_efficiency,
        flops=cost.flops,
        hbm_bytes=cost.hbm_bytes,
        link_sent_bytes=cost.link_sent_bytes,
        link_received_bytes=cost.link_received_bytes,
        switch_sent_bytes=cost.switch_sent_bytes,
        switch_received_bytes=cost.switch_received_bytes,
        phases=cost.phases,
        compute_us=bounds.compute_us,
        hbm_us=bounds.hbm_us,
        link_us=bounds.link_us,
        switch_us=bounds.switch_us,
        link_best_us=bounds.link_best_us,
        floor_us=bounds.floor_us,
        bound_us=bounds.bound_us,
        bound_with_floor_us=bounds.bound_with_floor_us,
        unoverlapped_us=bounds.unoverlapped_us,
        overlap_gain=bounds.overlap_gain,
        binds=bounds.binds,
        note=cost.note,
    )
