"""What of a machine's GPUs bears on a measurement: links, modes, clocks, power, and who else is there.

Read through NVML before ranks start, kept in the verdict's `environment`, and shown by `pkb doctor --node`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pkb.platforms.nvml import Gpu, handle_of, library, read
from pkb.types.units import bytes_words

MAX_LINKS = 36
_READ, _SM_CLOCK, _MEMORY_CLOCK, _TO_SWITCH = 0, 1, 2, 2
THROTTLING = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost", 0x20: "heat (software)", 0x40: "heat (hardware)",
    0x80: "power brake",
}  # fmt: skip
"""Bits of NVML's reasons for clocks below the highest. Idle, and clocks that somebody has set, are not among them."""
MULTICAST_FROM = (9, 0)


@dataclass(frozen=True)
class NvLinks:
    active: int = 0
    to_switch: bool = False


def links(nvml: Any, handle: Any) -> NvLinks:
    """A GPU's NVLinks that are up."""
    active, to_switch = 0, False
    for number in range(MAX_LINKS):
        if read(nvml, "nvmlDeviceGetNvLinkState", handle, number, default=0) == 1:
            active += 1
            kind = read(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, number, default=-1)
            to_switch = to_switch or kind == _TO_SWITCH
    return NvLinks(active, to_switch)


def has_multicast(gpus: Sequence[Gpu]) -> bool:
    """Whether a switch joins them that can multiply stores and reduce loads: from Hopper on, NVSwitches can."""
    if len(gpus) < 2 or any(gpu.capability < MULTICAST_FROM for gpu in gpus):
        return False
    with library() as nvml:
        return nvml is not None and all(links(nvml, handle_of(nvml, gpu)).to_switch for gpu in gpus)


def unreachable_pairs(gpus: Sequence[Gpu]) -> list[tuple[Gpu, Gpu, str]]:
    """Pairs of GPUs that cannot read each other's memory, with NVML's word for why."""
    with library() as nvml:
        if nvml is None:
            return []
        found = []
        for one, other in combinations(gpus, 2):
            pair = (handle_of(nvml, one), handle_of(nvml, other))
            status = int(read(nvml, "nvmlDeviceGetP2PStatus", *pair, _READ, default=-1))
            if status:
                found.append((one, other, PEER_STATUS.get(status, f"status {status}")))
        return found


PEER_STATUS = {
    -1: "unknown", 1: "chipset not supported", 2: "GPU not supported", 3: "IOH topology not supported", 4: "disabled by a key",
    5: "not supported", 6: "unknown",
}  # fmt: skip


def conditions(gpus: Sequence[Gpu]) -> dict[str, str]:
    """By name, in words; the same for all GPUs is said once."""
    with library() as nvml:
        if nvml is None or not gpus:
            return {}
        readings: dict[str, Callable[[Any, Gpu], str]] = {
            "compute mode": lambda handle, gpu: gpu.compute_mode,
            "power limit": lambda handle, gpu: _power(nvml, handle),
            "clocks": lambda handle, gpu: _clocks(nvml, handle),
            "throttling": lambda handle, gpu: _throttling(nvml, handle),
            "other processes on the GPU": lambda handle, gpu: _others(nvml, handle),
        }
        if len(gpus) > 1:
            readings["NVLink"] = lambda handle, gpu: _link_words(links(nvml, handle))
        handles = {gpu: handle_of(nvml, gpu) for gpu in gpus}
        found = {"driver": gpus[0].driver} | {
            name: _said({gpu: reading(handles[gpu], gpu) for gpu in gpus}) for name, reading in readings.items()
        }
    if len(gpus) > 1:
        cut = unreachable_pairs(gpus)
        pairs = (f"GPU {a.index} and GPU {b.index} ({why})" for a, b, why in cut)
        found["peer access"] = f"not between {', '.join(pairs)}" if cut else "all pairs"
    return found


def link_words(gpu: Gpu) -> tuple[str, bool]:
    """A GPU's NVLinks in words, and whether it has any."""
    with library() as nvml:
        found = NvLinks() if nvml is None else links(nvml, handle_of(nvml, gpu))
    return _link_words(found), found.active > 0


def _said(words: dict[Gpu, str]) -> str:
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"GPU {gpu.index}: {text}" for gpu, text in words.items())


def _link_words(found: NvLinks) -> str:
    if not found.active:
        return "none"
    return f"{found.active} links{' to a switch' if found.to_switch else ''}"


def _power(nvml: Any, handle: Any) -> str:
    limit = read(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle, default=0)
    default = read(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle, default=0)
    if not limit:
        return "unknown"
    return f"{limit / 1000:.0f} W" + (f", by default {default / 1000:.0f} W" if default and default != limit else "")


def _clocks(nvml: Any, handle: Any) -> str:
    words = []
    for name, kind in (("SM", _SM_CLOCK), ("memory", _MEMORY_CLOCK)):
        now = read(nvml, "nvmlDeviceGetClockInfo", handle, kind, default=0)
        most = read(nvml, "nvmlDeviceGetMaxClockInfo", handle, kind, default=0)
        if most:
            words.append(f"{name} {now} of {most} MHz")
    return ", ".join(words) or "unknown"


def _throttling(nvml: Any, handle: Any) -> str:
    reasons = int(read(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, default=-1))
    if reasons < 0:
        return "unknown"
    return ", ".join(words for bit, words in THROTTLING.items() if reasons & bit) or "none"


def _others(nvml: Any, handle: Any) -> str:
    """Asked before ranks start, so that whoever is there is not ours."""
    running = read(nvml, "nvmlDeviceGetComputeRunningProcesses", handle, default=None)
    if running is None:
        return "unknown"
    held = sum(int(process.usedGpuMemory or 0) for process in running)
    return f"{len(running)} with {bytes_words(held)}" if running else "none"
