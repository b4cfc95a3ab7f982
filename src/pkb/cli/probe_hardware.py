"""From what was measured to a hardware file: `reachable` is the probe's, `ideal` stays the datasheet's where there is one."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pkb.platforms.registry import traits
from pkb.types.errors import UserError
from pkb.types.hardware import Ceilings, Hardware

if TYPE_CHECKING:
    from pkb.judge.oracle_only.probe import Measurement, Probe
    from pkb.platforms.base import PlatformFacts

DTYPES = ("bf16", "fp16", "fp32", "fp64", "fp8")


def is_shared(probe: "Probe") -> bool:
    """Do the ranks share one device? Then its rates are those of all ranks together."""
    return traits(probe.platform).shares_device


def device_rate(probe: "Probe", kind: str, *names: str, who: str | None = None) -> float | None:
    """The best rate of one device: of a rank, or of all ranks that share it."""
    return max(
        (r.rate * (r.ranks if is_shared(probe) else 1) for r in _rows(probe, kind, names, who) if r.rate), default=None
    )


def _rows(probe: "Probe", kind: str, names: tuple[str, ...], who: str | None) -> Iterator["Measurement"]:
    return (r for r in probe.rows if r.kind == kind and (not names or r.name in names) and who in (None, r.who))


def reachable(probe: "Probe") -> Ceilings:
    """The best that was seen of each kind. `fp32` takes the tensor cores if they are faster, as everywhere in the roofline."""
    flops = {dtype: device_rate(probe, "matrix", dtype, *(["tf32"] if dtype == "fp32" else [])) for dtype in DTYPES}
    for dtype in DTYPES[:4]:
        if flops[dtype] is None:
            why = probe.left_out.get(f"matrix {dtype}", "not measured")
            raise UserError(f"no hardware file without a rate for {dtype}: {why}", "--json keeps what was measured")
    hbm = device_rate(probe, "memory", "copy", "copy_kernel", "read")
    launch, trip = probe.best("latency", "launch"), probe.best("latency", "round_trip")
    unicast = {row.name for row in probe.rows if row.kind == "link" and not row.name.startswith("multimem")}
    link = device_rate(probe, "link", *unicast, who="ring")
    switch = device_rate(probe, "link", "multimem_load", "multimem_store", who="ring")
    if hbm is None or link is None or launch is None or trip is None:
        raise UserError("the probe has no rate of memory or link, or no latency", "--json keeps what was measured")
    return Ceilings(
        flops={dtype: _rounded(rate) for dtype, rate in flops.items() if rate is not None},
        hbm_bytes_per_s=_rounded(hbm),
        # On a shared device its memory plays the link. A copy there reads and writes it, so its rate is no bound for a
        # kernel that adds up what it reads from a peer: the memory's own rate is.
        link_bytes_per_s=_rounded(hbm if is_shared(probe) else link),
        switch_bytes_per_s=_rounded(switch) if switch is not None else None,
        launch_us=_rounded(launch.time_us),
        barrier_us=_rounded(trip.time_us / 2),
    )


def _rounded(figure: float) -> float:
    """Four digits: more would look as if they meant something."""
    return float(f"{figure:.4g}")


def to_hardware(probe: "Probe", facts: "PlatformFacts") -> Hardware:
    from pkb.roofline.hardware import built_in_for, shared

    measured = reachable(probe)
    known = built_in_for(probe.device) if traits(probe.platform).device == "cuda" else None
    if known is not None and is_shared(probe):
        known = shared(known)
    ideal = known.ideal if known is not None else measured
    multicast = measured.switch_bytes_per_s is not None
    if not multicast:
        ideal = replace(ideal, switch_bytes_per_s=None)
    elif ideal.switch_bytes_per_s is None:
        ideal = replace(ideal, switch_bytes_per_s=measured.switch_bytes_per_s)
    gpu = known.gpu if known is not None else probe.device
    share = int(probe.facts.get("sms") or 1)
    where = f"{facts.max_ranks}x {probe.device}" if not is_shared(probe) else f"{probe.device} shared by all ranks"
    return Hardware(
        name=re.sub(r"[^a-z0-9]+", "-", f"{gpu} {probe.platform} measured".lower()).strip("-"),
        title=f"{where}, measured {probe.date[:10]} with {probe.ranks} ranks",
        gpu=gpu,
        domain=facts.max_ranks,
        shared_gpu=is_shared(probe),
        multicast=multicast,
        tma=int(probe.facts.get("capability") or 0) >= 90,
        sms=known.sms if known is not None else share * (probe.ranks if is_shared(probe) else 1),
        l2_bytes=int(probe.facts.get("l2_bytes") or 1),
        memory_bytes=int(probe.facts.get("memory_bytes") or facts.memory_bytes),
        ideal=ideal,
        reachable=measured,
        origin="measured",
    )


def write(path: Path, hardware: Hardware, probe: "Probe") -> None:
    """The file that `pkb roofline --hardware` reads, with where its figures are from at the top."""
    from pkb.roofline.hardware import write_hardware

    write_hardware(path, hardware)
    same = hardware.ideal.flops == hardware.reachable.flops
    ideal = "measured as well: no datasheet of this device is known" if same else "the datasheet"
    quick = ", quick" if probe.quick else ""
    lines = [
        f"# Measured by `pkb probe` on {probe.date}: platform {probe.platform}, {probe.ranks} ranks{quick}.",
        f"# {probe.device}; driver {probe.driver or 'none'}; torch {probe.facts.get('torch')}.",
        f"# reachable: measured. ideal: {ideal}.",
        *([f"# {probe.note}."] if probe.note else []),
    ]
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(lines) + "\n\n" + text, encoding="utf-8")


def above_ideal(hardware: Hardware) -> list[str]:
    """Figures that beat the datasheet: the device is not what its name says, or the probe is wrong."""
    ideal, best = hardware.ideal, hardware.reachable
    rates = {f"{dtype} products": (rate, ideal.flops.get(dtype, rate)) for dtype, rate in best.flops.items()}
    rates["memory"] = (best.hbm_bytes_per_s, ideal.hbm_bytes_per_s)
    rates["link"] = (best.link_bytes_per_s, ideal.link_bytes_per_s)
    return [
        f"{name}: {100 * got / peak:.0f} % of the datasheet" for name, (got, peak) in rates.items() if got > 1.02 * peak
    ]
