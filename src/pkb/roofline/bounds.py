"""Bounds on the time of one call, from what a problem costs at least and what a machine can do at most.

docs/roofline.md has the formulas. Each resource gives a time; if all of them are busy at once and all the time, the largest is
the time of the call, and no kernel is faster. If nothing overlaps, it is their sum. What latency adds is kept apart: it is an
estimate, not a law, and for small shapes it hides everything else.
"""

from dataclasses import dataclass

from pkb.problems.base import DTYPES, Problem
from pkb.types.cost import Cost
from pkb.types.errors import UserError
from pkb.types.hardware import Ceilings, Hardware

CEILINGS = ("ideal", "reachable")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Times in microseconds, for the busiest rank; on a shared GPU, for all ranks together."""

    compute_us: float
    hbm_us: float
    link_us: float
    """With ordinary (unicast) transfers."""
    switch_us: float | None
    """With in-switch reduction or multicast; None where the switch cannot help or there is none."""
    floor_us: float
    """Latency: one launch, and a step between GPUs for each dependent phase of communication. No part of `bound_us`."""

    @property
    def link_best_us(self) -> float:
        return self.link_us if self.switch_us is None else min(self.link_us, self.switch_us)

    @property
    def bound_us(self) -> float:
        """Perfect overlap: no kernel with the stated algorithm is faster than this."""
        return max(self.compute_us, self.hbm_us, self.link_best_us)

    @property
    def bound_with_floor_us(self) -> float:
        return self.bound_us + self.floor_us

    @property
    def unoverlapped_us(self) -> float:
        return self.compute_us + self.hbm_us + self.link_best_us

    @property
    def overlap_gain(self) -> float:
        """The best speedup that overlap alone can give: between 1 and 3."""
        return self.unoverlapped_us / self.bound_us if self.bound_us > 0 else 1.0

    @property
    def binds(self) -> str:
        """What to work on: `latency` where the floor is above the bound, else the slowest resource."""
        if self.floor_us > self.bound_us:
            return "latency"
        times = {"compute": self.compute_us, "hbm": self.hbm_us, "link": self.link_best_us}
        return max(times, key=lambda name: times[name])


FLOAT32_PRODUCTS = 3
"""Products of bf16 halves (high x high, high x low, low x high) that make one of float32 within 1e-5."""


def product_rate(limit: Ceilings, dtype: str) -> float:
    """FLOP/s of products that pass the comparison. TF32 (3e-4) does not pass that of float32 (1e-5 of the norm, 1e-4 at most
    in any problem); two bf16 numbers for each float32 (3e-6) do, and are faster than CUDA cores."""
    return limit.flops["bf16"] / FLOAT32_PRODUCTS if dtype == "fp32" else limit.flops[dtype]


def bounds_of(
    cost: Cost, *, hardware: Hardware, ceilings: str, world_size: int, dtype: str, link_efficiency: float = 1.0
) -> Bounds:
    """The bounds of one call. `link_efficiency` derates link and switch alike, where a user knows what his reach."""
    if world_size > hardware.domain:
        raise UserError(
            f"{hardware.name} joins {hardware.domain} GPUs, and {world_size} ranks are asked for",
            "give fewer ranks, or hardware with a larger domain",
        )
    limit = hardware.ceilings(ceilings)
    if dtype not in limit.flops:
        raise UserError(f"{hardware.name} has no rate for {dtype}", f"it has {', '.join(limit.flops)}")
    if hardware.shared_gpu:
        # The work of all ranks falls on the same units: of all, not W times that of the busiest. Each byte that crosses is
        # at least written to the receiver's memory or read from the sender's. Not both: the other access is part of
        # hbm_bytes already, or is one read for several stores.
        flops, hbm_bytes = world_size * cost.typical_flops, world_size * cost.typical_hbm_bytes
        link_bytes = world_size * cost.typical_link_bytes
    else:
        flops, hbm_bytes = cost.flops, cost.hbm_bytes
        link_bytes = max(cost.link_sent_bytes, cost.link_received_bytes)
    return Bounds(
        compute_us=1e6 * flops / product_rate(limit, dtype),
        hbm_us=1e6 * hbm_bytes / limit.hbm_bytes_per_s,
        link_us=1e6 * link_bytes / (limit.link_bytes_per_s * link_efficiency),
        switch_us=_switch_us(cost, limit, link_efficiency) if hardware.multicast else None,
        floor_us=limit.launch_us + cost.phases * limit.barrier_us,
    )


def _switch_us(cost: Cost, limit: Ceilings, link_efficiency: float) -> float | None:
    if cost.switch_sent_bytes is None or cost.switch_received_bytes is None or limit.switch_bytes_per_s is None:
        return None
    moved = max(cost.switch_sent_bytes, cost.switch_received_bytes)
    return 1e6 * moved / (limit.switch_bytes_per_s * link_efficiency)


def cost_of(problem: Problem, *, size: str, world_size: int, dtype: str) -> Cost:
    """What one call of a problem costs at least. The case must be one that `problem.why_not` allows."""
    return problem.cost(problem.sizes[size], world_size, DTYPES[dtype].itemsize)
