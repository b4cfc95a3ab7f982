"""The probe's figures for people."""

from typing import TYPE_CHECKING

from pkb.cli.probe_hardware import is_shared
from pkb.types.units import bytes_words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from pkb.judge.oracle_only.probe import Measurement, Probe
    from pkb.types.hardware import Hardware

MEMORY_WORDS = {
    "copy": "memory copy (read + write)",
    "copy_kernel": "memory copy by a kernel (read + write)",
    "read": "memory read",
    "l2_read": "L2 read",
}
LATENCY_WORDS = {
    "launch": "kernel after kernel on the device (on a CPU: an operator)",
    "launch_host": "queueing a kernel, host",
    "barrier": "barrier of all ranks, from the host",
    "barrier_in_kernel": "barrier of all ranks, inside a kernel",
    "round_trip": "signal to a peer and back",
}


def render(probe: "Probe", hardware: "Hardware") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    head = Text(f"{probe.device}, platform {probe.platform}, {probe.ranks} ranks", style="bold")
    head.append(f"   driver {probe.driver or '-'}, {probe.date}, {probe.seconds:.0f} s", style="dim")
    parts: list[RenderableType] = [head]
    if probe.note:
        parts.append(Text(probe.note, style="yellow"))
    parts += [_rates(probe, hardware), _links(probe)]
    parts += [curve for who in ("pair", "ring") if (curve := _curve(probe, who)) is not None]
    parts.append(_latencies(probe))
    if probe.left_out:
        parts.append(Text("left out:", style="bold"))
        parts += [Text(f"  {what}: {why}", style="dim") for what, why in probe.left_out.items()]
    return Group(*parts)


def _table(*columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _rates(probe: "Probe", hardware: "Hardware") -> "Table":
    """One rank alone, and all at once: per rank and together. `of ideal` compares what a device gives in all."""
    table = _table("", "alone", "together, each", "in all", "of ideal", "spread")
    names = list(dict.fromkeys((row.kind, row.name) for row in probe.rows if row.kind in ("matrix", "memory")))
    for kind, name in names:
        alone, crowd = probe.best(kind, name, who="alone"), probe.best(kind, name, who="together")
        if alone is None or crowd is None or alone.rate is None or crowd.rate is None:
            continue
        unit = "FLOP/s" if kind == "matrix" else "B/s"
        total = max(alone.rate, crowd.rate * (crowd.ranks if is_shared(probe) else 1))
        # The table's fp32 means plain fp32, whose peak no hardware file has; there `fp32` is what tensor cores make of it.
        peaks = {**hardware.ideal.flops, "tf32": hardware.ideal.flops["fp32"], "fp32": None, "l2_read": None}
        peak = peaks.get(name, None if kind == "matrix" else hardware.ideal.hbm_bytes_per_s)
        known = hardware.ideal.flops != hardware.reachable.flops
        table.add_row(
            f"{name} product" if kind == "matrix" else MEMORY_WORDS[name],
            rate_words(alone.rate, unit), rate_words(crowd.rate, unit), rate_words(crowd.rate * crowd.ranks, unit),
            f"{100 * total / peak:.0f} %" if known and peak else "-", _spread(crowd),
        )  # fmt: skip
    return table


def _links(probe: "Probe") -> "Table":
    """The best of each way, and the smallest message that gives half of it."""
    table = _table(
        "between ranks", "1 to 0", "at", "blocks", "half at", "ring, each", "in all", "blocks", "half at", "spread"
    )
    for name in dict.fromkeys(row.name for row in probe.rows if row.kind == "link"):
        cells: list[str] = []
        for who in ("pair", "ring"):
            best = probe.best("link", name, who=who)
            if best is None or best.rate is None:
                cells += ["-"] * 4
                continue
            half = min(
                r.size
                for r in probe.rows
                if (r.kind, r.name, r.who) == ("link", name, who) and (r.rate or 0) > best.rate / 2
            )
            blocks = "-" if best.blocks is None else str(best.blocks)
            shown = [rate_words(best.rate, "B/s")]
            shown.append(bytes_words(best.size) if who == "pair" else rate_words(best.rate * best.ranks, "B/s"))
            cells += [*shown, blocks, bytes_words(half)]
        crowd = probe.best("link", name, who="ring")
        table.add_row(name, *cells, _spread(crowd) if crowd is not None else "-")
    return table


def _curve(probe: "Probe", who: str) -> "Table | None":
    """GB/s over message size: the rows of the plot, for a terminal."""
    rows = [row for row in probe.rows if row.kind == "link" and row.who == who]
    sizes = sorted({row.size for row in rows})
    words = "1 to 0" if who == "pair" else "ring, each"
    table = _table(f"GB/s, {words}", *(bytes_words(size).replace(".00", "").replace(".0", "") for size in sizes))
    for name in dict.fromkeys(row.name for row in rows):
        best = {
            size: max((r.rate or 0.0 for r in rows if r.name == name and r.size == size), default=0.0) for size in sizes
        }
        table.add_row(name, *(f"{rate / 1e9:.3g}" if rate else "-" for rate in best.values()))
    return table if rows else None


def _latencies(probe: "Probe") -> "Table":
    table = _table("latency", "median", "lowest", "highest")
    for row in (row for row in probe.rows if row.kind == "latency"):
        table.add_row(LATENCY_WORDS[row.name], *(f"{us:.2f} us" for us in (row.time_us, row.low_us, row.high_us)))
    return table


def rate_words(rate: float, unit: str) -> str:
    """Decimal units, three digits: `4.12 TB/s`."""
    for prefix in ("", "k", "M", "G", "T"):
        if rate < 999.5 or prefix == "T":
            break
        rate /= 1000
    return f"{rate:.{2 if rate < 9.995 else 1 if rate < 99.95 else 0}f} {prefix}{unit}"


def _spread(row: "Measurement") -> str:
    """How far the slowest and the fastest repeat lie apart."""
    return f"{100 * (row.high_us - row.low_us) / row.time_us:.0f} %"
