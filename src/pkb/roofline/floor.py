"""The physical floor of one call: a time below it cannot have done the work.

Datasheet ceilings, nothing derated and no latency: the floor rejects impossible claims, it does not grade possible ones. It
takes built-in machines only. A file of measured ceilings, or one that a user points to, must not be able to reject a candidate.
"""

from pkb.problems.base import Problem
from pkb.problems.compare import Exact
from pkb.roofline.hardware import built_in_for
from pkb.types.cost import Cost
from pkb.types.hardware import Hardware

STRASSEN = (7 / 8) ** 2
"""Of the products that a matrix product is said to take, two levels of Strassen's algorithm do with these."""
FEWER_BITS = 0.5
"""Of the bytes that travel, where a result need not be exact: block-scaled integers of half the width stay inside the
tolerances of most problems (`pkb lint` shows by how much), and a kernel that sends them is no liar."""


def may_send_fewer_bits(problem: Problem) -> bool:
    """Not where nothing is computed, nor where sums are all there is: there fewer bits fail the comparison."""
    rules = problem.compare if isinstance(problem.compare, tuple) else (problem.compare,)
    return problem.taxonomy.layer != "collective" and not all(isinstance(rule, Exact) for rule in rules)


def floor_us(
    cost: Cost, *, hardware: str, dtype: str, world_size: int, shared_gpu: bool, fewer_bits: bool = False
) -> float | None:
    """Microseconds below which a call is impossible, or None on hardware that no built-in machine describes."""
    machine = built_in_for(hardware)
    if machine is None:
        return None
    return floor_on(machine, cost, dtype=dtype, world_size=world_size, shared_gpu=shared_gpu, fewer_bits=fewer_bits)


def floor_on(
    machine: Hardware, cost: Cost, *, dtype: str, world_size: int, shared_gpu: bool, fewer_bits: bool = False
) -> float:
    """On one shared GPU all ranks' work falls on the same units, and the link is the GPU's own memory. What fits into L2 may
    never reach HBM inside the timed window, so that much is forgiven. Float32 products may use TF32 units as far as physics
    is concerned."""
    peak = machine.ideal
    # The mean over the ranks, not the busiest one: a kernel may share out what the reference leaves uneven.
    flops, hbm_bytes, sent = STRASSEN * cost.typical_flops, cost.typical_hbm_bytes, cost.link_sent_bytes
    if cost.least_flops is not None:
        flops = min(flops, cost.least_flops)
    if cost.least_hbm_bytes is not None:
        hbm_bytes = min(hbm_bytes, cost.least_hbm_bytes)
    if machine.multicast and cost.switch_sent_bytes is not None:
        sent = min(sent, cost.switch_sent_bytes)
    if cost.least_link_bytes is not None:
        sent = min(sent, cost.least_link_bytes)
    if fewer_bits:
        sent *= FEWER_BITS
    if shared_gpu:
        flops, hbm_bytes, sent = world_size * flops, world_size * hbm_bytes, 0.0
    compute = flops / peak.flops[dtype]
    memory = max(0.0, hbm_bytes - machine.l2_bytes) / peak.hbm_bytes_per_s
    return 1e6 * max(compute, memory, sent / peak.link_bytes_per_s)
