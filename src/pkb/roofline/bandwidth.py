"""algBW and busBW of a measured time, as nccl-tests defines them (doc/PERFORMANCE.md there), in GB/s (1e9 bytes).

algBW = S / t, where S is the size of the operation: the tensor of one rank for all-reduce, broadcast and reduce, all ranks'
parts together for all-gather, reduce-scatter, gather and scatter, and what a rank has for all ranks for all-to-all.

busBW = algBW x factor = what must cross the busiest direction of a link / t, to be compared with the rate of the link
whatever the number of ranks: the factor is 2 (n-1)/n for all-reduce, 1 for broadcast and reduce, (n-1)/n for the others.
Several collectives in a row count the sums of their S and of their link bytes. Traffic that is no collective (rings, halos,
hand-overs, sums within a pair) counts as nccl-tests' send and receive does: S is what crosses the link, and the factor is 1.

Bytes are those that the problem needs (`Cost`), not those that a kernel happens to send: who sends more has no higher busBW.
"""

from typing import TypedDict

from pkb.types.cost import Cost


class Bandwidths(TypedDict):
    """The fields of `Timing`."""

    reference_alg_gbps: float | None
    candidate_alg_gbps: float | None
    reference_bus_gbps: float | None
    candidate_bus_gbps: float | None


def alg_bandwidth(cost: Cost, time_us: float) -> float | None:
    """GB/s, or None where no data moves between ranks."""
    return _rate(cost, cost.bus_bytes if cost.payload_bytes is None else cost.payload_bytes, time_us)


def bus_bandwidth(cost: Cost, time_us: float) -> float | None:
    """GB/s, or None where no data moves between ranks."""
    return _rate(cost, cost.bus_bytes, time_us)


def bandwidths(cost: Cost, *, reference_us: float, candidate_us: float) -> Bandwidths:
    return {
        "reference_alg_gbps": alg_bandwidth(cost, reference_us),
        "candidate_alg_gbps": alg_bandwidth(cost, candidate_us),
        "reference_bus_gbps": bus_bandwidth(cost, reference_us),
        "candidate_bus_gbps": bus_bandwidth(cost, candidate_us),
    }


def _rate(cost: Cost, moved_bytes: float, time_us: float) -> float | None:
    return moved_bytes / time_us / 1e3 if cost.bus_bytes > 0 and time_us > 0 else None
