"""How near measured times are to the limit of the machine they were taken on."""

from pkb.problems.base import Problem
from pkb.roofline.bounds import bounds_of, cost_of
from pkb.types.hardware import Hardware
from pkb.types.verdict import Roofline


def utilisation(
    problem: Problem,
    *,
    reference_us: float,
    candidate_us: float,
    hardware: Hardware | None,
    size: str,
    ranks: int,
    dtype: str,
) -> Roofline | None:
    """What a verdict says of the limit, or None where it is not known: no hardware file, more ranks than it joins, or a problem
    that declares no cost."""
    if hardware is None or ranks > hardware.domain or dtype not in hardware.ideal.flops:
        return None
    cost = cost_of(problem, size=size, world_size=ranks, dtype=dtype)
    if not cost.is_known:
        return None
    ideal, reachable = (
        bounds_of(cost, hardware=hardware, ceilings=which, world_size=ranks, dtype=dtype)
        for which in ("ideal", "reachable")
    )
    return Roofline(
        hardware=hardware.name,
        origin=hardware.origin,
        binds=ideal.binds,
        ideal_us=ideal.bound_us,
        reachable_us=reachable.bound_us,
        unoverlapped_us=ideal.unoverlapped_us,
        latency_us=ideal.floor_us,
        reference_utilisation=_share(ideal.bound_us, reference_us),
        candidate_utilisation=_share(ideal.bound_us, candidate_us),
    )


def _share(bound_us: float, time_us: float) -> float | None:
    return bound_us / time_us if time_us > 0 else None
