"""The physical floor of one call: a time below it cannot have done the work.

Datasheet peaks, nothing derated: the floor rejects impossible claims, it does not grade possible ones.
"""

from dataclasses import dataclass

from pkb.types.cost import Cost


@dataclass(frozen=True)
class Peaks:
    """Datasheet figures of one GPU, dense, in FLOP/s and bytes/s; the link counts one direction."""

    flops: dict[str, float]
    hbm: float
    link: float
    l2_bytes: float


_HOPPER = {"bf16": 989e12, "fp16": 989e12, "fp32": 494.5e12, "fp64": 67e12}
GPUS: dict[str, Peaks] = {
    "A100": Peaks({"bf16": 312e12, "fp16": 312e12, "fp32": 156e12, "fp64": 19.5e12}, 2.04e12, 300e9, 40 * 2**20),
    "H100": Peaks(_HOPPER, 3.35e12, 450e9, 50 * 2**20),
    "H200": Peaks(_HOPPER, 4.8e12, 450e9, 60 * 2**20),
    "B200": Peaks({"bf16": 2250e12, "fp16": 2250e12, "fp32": 1125e12, "fp64": 40e12}, 8.0e12, 900e9, 127 * 2**20),
}


def peaks_of(hardware: str) -> Peaks | None:
    return next((peaks for name, peaks in GPUS.items() if name in hardware), None)


def floor_us(cost: Cost, *, hardware: str, dtype: str, world_size: int, shared_gpu: bool) -> float | None:
    """Microseconds below which a call is impossible, or None on hardware without known peaks.

    On one shared GPU all ranks' work falls on the same units, and the link is the GPU's own memory. What fits into L2 may
    never reach HBM inside the timed window, so that much is forgiven. Float32 products may use TF32 units as far as physics
    is concerned.
    """
    peaks = peaks_of(hardware)
    if peaks is None:
        return None
    shares = world_size if shared_gpu else 1
    compute = cost.flops * shares / peaks.flops[dtype]
    memory = max(0.0, cost.hbm_bytes * shares - peaks.l2_bytes) / peaks.hbm
    sent = min(
        cost.link_sent_bytes, cost.switch_sent_bytes if cost.switch_sent_bytes is not None else cost.link_sent_bytes
    )
    link = 0.0 if shared_gpu else sent / peaks.link
    return 1e6 * max(compute, memory, link)
