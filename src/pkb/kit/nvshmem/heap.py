"""How large NVSHMEM's symmetric heap is: by the case, within what is free."""

CASE_BYTES = "PKB_CASE_BYTES"
"""Set by the judge: bytes of a rank's arguments at the largest size that its processes will see."""
PER_RANK = 8
"""Times the arguments, for each rank and once more: outputs and staging may hold what all ranks have, the least likely split of
an all-to-all, twice, rounded up to powers of two."""
USUAL, UNKNOWN, LEAST = 512 << 20, 4 << 30, 16 << 20
HEAPS_SHARE = 0.5
"""Heaps are allocated at the start and opened by CUDA IPC. Under MPS a rank's memory limit counts those of its peers that it
has opened as well, and NVSHMEM dies of a segmentation fault where that goes wrong: so all of them together get this share of
what is free."""


def size_for(*, free: int, world: int, case_bytes: int) -> int:
    """Bytes of each PE's heap; `case_bytes` is 0 outside the judge."""
    wanted = max(USUAL, PER_RANK * (world + 1) * case_bytes) if case_bytes else UNKNOWN
    return min(int(free * HEAPS_SHARE / world), wanted) >> 20 << 20
