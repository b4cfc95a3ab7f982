"""What a machine can do at most: the other input of every roofline bound. Read from TOML files, see roofline/hardware.py."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Rates and latencies of one GPU. One direction of its link counts, since both can be busy at once."""

    flops: Mapping[str, float]
    """FLOP/s by dtype, dense, on the fastest units that take it: `bf16`, `fp16`, `fp32`, `fp64`, and `fp8` where there is
    any. `fp32` is the TF32 rate of the tensor cores: a bound may not forbid a kernel to use them."""
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    """Ordinary loads, stores and copies between GPUs, per direction. On a shared GPU the memory plays the link."""
    switch_bytes_per_s: float | None
    """Loads and stores that the switch reduces or multiplies (NVLS multimem), per direction; None without multicast."""
    launch_us: float
    """From the start of a call to the first instruction of its kernel that does work."""
    barrier_us: float
    """One dependent step between GPUs: a flag written by one and seen by another."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A machine: a kind of GPU, how many of them one link domain joins, and two sets of ceilings."""

    name: str
    """Short and file-like: `h100x8`."""
    title: str
    gpu: str
    """What the driver's device name contains: `H100` in `NVIDIA H100 80GB HBM3`."""
    domain: int
    """GPUs that reach each other over the link; with `shared_gpu`, ranks that may share the GPU."""
    shared_gpu: bool
    """All ranks run on one GPU: their work falls on the same units, and its memory is the link."""
    multicast: bool
    """The switch can multiply stores and reduce loads (NVLS)."""
    tma: bool
    sms: int
    l2_bytes: int
    memory_bytes: int
    ideal: Ceilings
    """The datasheet: no kernel is faster."""
    reachable: Ceilings
    """What the best published kernels, or a probe of this machine, have reached."""
    origin: str = "datasheet"
    """Where the figures are from, in a word or two: `datasheet`, or `measured` for what `pkb probe` writes."""

    def ceilings(self, which: str) -> Ceilings:
        return {"ideal": self.ideal, "reachable": self.reachable}[which]
