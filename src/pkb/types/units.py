"""Numbers as people read them."""

import statistics
from collections.abc import Sequence


def time_words(time_us: float, *, micro: str = "us", like: float | None = None) -> str:
    """`like` is a time beside it, whose unit it takes."""
    size = time_us if like is None else like
    if size < 9_999.5:
        return f"{time_us:.4g} {micro}"
    if size < 9_999_500:
        return f"{time_us / 1e3:.4g} ms"
    return f"{time_us / 1e6:.4g} s"


def binds_words(binds: str, latency_us: float) -> str:
    """`link-bound; latency 1.7 us`. A limit is of compute, memory and link; a short call waits longer than they take."""
    latency = f"latency {time_words(latency_us)}"
    return f"latency-bound: below its {latency}" if binds == "latency" else f"{binds}-bound; {latency}"


def bandwidth_words(alg_gbps: float | None, bus_gbps: float | None) -> str:
    """`algBW 12 GB/s, busBW 21 GB/s`, as nccl-tests defines them; empty where no data moves between ranks."""
    return "" if alg_gbps is None or bus_gbps is None else f"algBW {alg_gbps:.3g} GB/s, busBW {bus_gbps:.3g} GB/s"


def window_words(value: float | None, low: float | None, high: float | None, empty_us: Sequence[float]) -> str:
    """`1.40x on the host wall clock, interval 1.30 to 1.50, without the 61 us a call that the window itself takes`: what it
    shows, and what an empty batch costs. Empty where nothing was measured through it."""
    if low is None:
        return ""
    ratio, most = ("no bound" if x is None else f"{x:.2f}" for x in (value, high))
    cost = (
        f", without the {time_words(statistics.median(empty_us))} a call that the window itself takes"
        if empty_us
        else ""
    )
    return f"{ratio}x on the host wall clock, interval {low:.2f} to {most}{cost}"


def bytes_words(count: float) -> str:
    """Binary units, three digits: `1.50 MiB`."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        count /= 1024
        if abs(count) < 1023.5 or unit == "PiB":
            break
    return f"{count:.{2 if abs(count) < 9.995 else 1 if abs(count) < 99.95 else 0}f} {unit}"


def flops_words(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if abs(count) < 999.5 or unit == "T":
            break
        count /= 1000
    return f"{count:.3g} {unit}FLOP"
