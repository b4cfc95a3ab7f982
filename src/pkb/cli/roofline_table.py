"""The bounds of problems as a table for people."""

from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pkb.roofline.rows import BoundsRow
from pkb.types.units import bytes_words, flops_words, time_words

COLOURS = {"compute": "magenta", "hbm": "blue", "link": "green", "latency": "yellow"}


FULL_WIDTH = 165
"""Below this many columns the table keeps what decides and leaves out what led there."""


def bounds_table(rows: list[BoundsRow], width: int = FULL_WIDTH) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [_cells(row, full=width >= FULL_WIDTH) for row in rows]
    for title in cells[0]:
        table.add_column(title, justify="left" if title in ("problem", "dtype", "binds") else "right", no_wrap=True)
    for cell in cells:
        table.add_row(*cell.values())
    first = rows[0]
    counts = Counter(row.binds for row in rows)
    derated = f", link at {first.link_efficiency:.0%}" if first.link_efficiency != 1 else ""
    return Group(
        table,
        Text(
            f"{len(rows)} problems, size {first.size}, {first.ranks} ranks, {first.hardware}, "
            f"{first.ceilings} ceilings{derated}. Binding: "
            + ", ".join(f"{name} {counts[name]}" for name in COLOURS if counts[name])
        ),
        Text(
            "limit: compute, memory and link perfectly overlapped. * the switch (NVLS) is the faster way. latency: a launch "
            "and the dependent steps, apart from the limit; it binds where it is longer. gain: most that overlap can give.",
            style="dim",
        ),
    )


def _cells(row: BoundsRow, *, full: bool) -> dict[str, str | Text]:
    work = {
        "dtype": row.dtype,
        "FLOPs": flops_words(row.flops),
        "memory": bytes_words(row.hbm_bytes),
        "link": bytes_words(max(row.link_sent_bytes, row.link_received_bytes)),
        "compute": time_words(row.compute_us),
        "hbm": time_words(row.hbm_us),
        "link time": _link_words(row),
    }
    return {
        "id": str(row.id),
        "problem": row.name,
        **(work if full else {}),
        "latency": time_words(row.floor_us),
        "limit": Text(time_words(row.bound_us), style="bold"),
        "binds": Text(row.binds, style=COLOURS[row.binds]),
        "no overlap": time_words(row.unoverlapped_us),
        "gain": f"{row.overlap_gain:.2f}x",
    }


def _link_words(row: BoundsRow) -> str:
    by_switch = row.switch_us is not None and row.switch_us < row.link_us
    return time_words(row.link_best_us) + ("*" if by_switch else " ")
