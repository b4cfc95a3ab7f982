"""A machine as a prompt tells it: figures with units, from the hardware table, and what one call needs at least."""

from typing import Any

from pkb.problems.base import DTYPES, Problem
from pkb.types.cost import Cost
from pkb.types.hardware import Ceilings, Hardware


def hardware_facts(hardware: Hardware, *, dtype: str) -> dict[str, Any]:
    """What the templates know as `hardware`."""
    return {
        "name": hardware.name,
        "title": hardware.title,
        "gpu": hardware.gpu,
        "domain": hardware.domain,
        "shared_gpu": hardware.shared_gpu,
        "multicast": hardware.multicast,
        "tma": hardware.tma,
        "sms": hardware.sms,
        "l2": _scaled(hardware.l2_bytes, "B", binary=True),
        "memory": _scaled(hardware.memory_bytes, "B"),
        "ideal": _rates(hardware.ideal, dtype),
        "reachable": _rates(hardware.reachable, dtype),
    }


def work_facts(problem: Problem, hardware: Hardware, *, ranks: int, size: str, dtype: str) -> dict[str, Any] | None:
    """What one call needs at least on the busiest rank, each with its time; None where the problem declares no cost."""
    cost: Cost = problem.cost(problem.sizes[size], ranks, DTYPES[dtype].itemsize)
    if not (cost.flops or cost.hbm_bytes or cost.link_sent_bytes or cost.link_received_bytes):
        return None
    rates = hardware.reachable
    link = max(cost.link_sent_bytes, cost.link_received_bytes)
    switch = None
    if cost.switch_sent_bytes is not None and rates.switch_bytes_per_s is not None:
        received = cost.switch_received_bytes or 0
        busier = max(cost.switch_sent_bytes, received)
        switch = (
            f"{_scaled(cost.switch_sent_bytes, 'B', binary=True)} sent, {_scaled(received, 'B', binary=True)} received"
            f" ({_time(busier, rates.switch_bytes_per_s)})"
        )
    return {
        "flops": f"{_scaled(cost.flops, 'FLOP')} ({_time(cost.flops, rates.flops[dtype])})",
        "hbm": f"{_scaled(cost.hbm_bytes, 'B', binary=True)} ({_time(cost.hbm_bytes, rates.hbm_bytes_per_s)})",
        "link": f"{_scaled(cost.link_sent_bytes, 'B', binary=True)} sent, "
        f"{_scaled(cost.link_received_bytes, 'B', binary=True)} received ({_time(link, rates.link_bytes_per_s)})",
        "switch": switch,
        "phases": cost.phases,
        "note": cost.note,
    }


def _rates(ceilings: Ceilings, dtype: str) -> dict[str, str]:
    switch = ceilings.switch_bytes_per_s
    return {
        "flops": _scaled(ceilings.flops[dtype], "FLOP/s"),
        "hbm": _scaled(ceilings.hbm_bytes_per_s, "B/s"),
        "link": _scaled(ceilings.link_bytes_per_s, "B/s"),
        "switch": _scaled(switch, "B/s") if switch is not None else "-",
        "launch": f"{ceilings.launch_us:g} us",
        "barrier": f"{ceilings.barrier_us:g} us",
    }


def _time(amount: float, rate: float) -> str:
    time_us = amount / rate * 1e6
    return f"{time_us:.3g} us" if time_us < 1e4 else f"{time_us / 1e3:.3g} ms"


def _scaled(amount: float, unit: str, *, binary: bool = False) -> str:
    """Three digits: `1.5 MiB`, `450 GB/s`."""
    step, prefixes = (1024, ("", "Ki", "Mi", "Gi", "Ti")) if binary else (1000, ("", "k", "M", "G", "T", "P"))
    for prefix in prefixes:
        if abs(amount) < step - 0.5 or prefix == prefixes[-1]:
            break
        amount /= step
    return f"{amount:.4g} {prefix}{unit}" if amount >= 1000 else f"{amount:.3g} {prefix}{unit}"
