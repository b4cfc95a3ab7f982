"""`pkb probe --plot`: bandwidth between ranks over message size and over blocks, both patterns, on logarithmic axes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.judge.oracle_only.probe import Measurement, Probe
    from pkb.types.hardware import Hardware

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers tell them apart in black and white.
STYLES = {
    "copy_engine": ("#000000", "o", "copy engine"),
    "load": ("#0072B2", "s", "load (pull)"),
    "store": ("#56B4E9", "D", "store (push)"),
    "tma_load": ("#D55E00", "^", "TMA load (pull)"),
    "tma_store": ("#E69F00", "v", "TMA store (push)"),
    "multimem_load": ("#009E73", "P", "multimem load-reduce"),
    "multimem_store": ("#CC79A7", "X", "multimem store"),
}
WHO_WORDS = {"pair": "rank 1 to rank 0, others idle", "ring": "every rank from the next, all at once (per rank)"}


def plot(probe: "Probe", hardware: "Hardware", path: Path) -> None:
    from matplotlib.figure import Figure

    rows = [row for row in probe.rows if row.kind == "link"]
    over_blocks = any(row.blocks is not None for row in rows)
    columns = 2 if over_blocks else 1
    figure = Figure(figsize=(6.6 * columns, 9.4), layout="constrained")
    axes: Any = figure.subplots(2, columns, squeeze=False)
    for line, who in enumerate(("pair", "ring")):
        chosen = [row for row in rows if row.who == who]
        _draw(axes[line][0], {name: _by_size(chosen, name) for name in _names(chosen)}, hardware)
        axes[line][0].set_xlabel("message size")
        _label_bytes(axes[line][0])
        axes[line][0].set_title(WHO_WORDS[who], fontsize=11)
        if over_blocks:
            largest = max(row.size for row in chosen) >> 20
            _draw(axes[line][1], {name: _by_blocks(chosen, name) for name in _names(chosen)}, hardware)
            axes[line][1].set_xscale("log", base=2)
            axes[line][1].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes[line][1].set_xlabel("blocks, one per SM")
            axes[line][1].set_title(f"the same with {largest} MiB messages", fontsize=11)
    title = f"{probe.device}\nplatform {probe.platform}, {probe.ranks} ranks, {probe.date[:10]}"
    figure.suptitle(title, fontsize=13)
    if probe.note:
        figure.supxlabel(probe.note, fontsize=9, color="#666666")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _names(rows: list["Measurement"]) -> list[str]:
    return list(dict.fromkeys(row.name for row in rows))


def _by_size(rows: list["Measurement"], name: str) -> list[tuple[int, "Measurement"]]:
    """The fastest at each size: the largest size was taken with several numbers of blocks."""
    best: dict[int, Measurement] = {}
    for row in (row for row in rows if row.name == name):
        if row.size not in best or row.time_us < best[row.size].time_us:
            best[row.size] = row
    return sorted(best.items())


def _by_blocks(rows: list["Measurement"], name: str) -> list[tuple[int, "Measurement"]]:
    mine = [row for row in rows if row.name == name and row.blocks is not None]
    largest = max((row.size for row in mine), default=0)
    return sorted(((row.blocks or 0, row) for row in mine if row.size == largest), key=lambda pair: pair[0])


def _draw(axes: Any, curves: dict[str, list[tuple[int, "Measurement"]]], hardware: "Hardware") -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for name, points in curves.items():
        if not points:
            continue
        colour, marker, label = STYLES[name]
        x = [at for at, _ in points]
        rates = [(row.rate or 0.0) / 1e9 for _, row in points]
        axes.plot(x, rates, color=colour, marker=marker, markersize=5, linewidth=1.6, label=label)
        # The band is the range of the repeats: bytes over the longest and over the shortest time.
        low = [rate * row.time_us / row.high_us for rate, (_, row) in zip(rates, points, strict=True)]
        high = [rate * row.time_us / row.low_us for rate, (_, row) in zip(rates, points, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if not hardware.shared_gpu and hardware.ideal.link_bytes_per_s != hardware.reachable.link_bytes_per_s:
        axes.axhline(hardware.ideal.link_bytes_per_s / 1e9, color="#999999", linestyle="--", linewidth=1)
        axes.annotate(
            "datasheet", (0.01, hardware.ideal.link_bytes_per_s / 1e9), xycoords=("axes fraction", "data"), fontsize=8,
            color="#666666", va="bottom",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("GB/s per working rank")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def _label_bytes(axes: Any) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    ticks = [1 << power for power in range(10, 40, 4 if high / low > 2**10 else 2) if low <= 1 << power <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: _bytes(value))


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:g} {unit}"
        value /= 1024
    return f"{value:g} GiB"
