"""Draws the bounds: a roofline over FLOPs per link byte, and the limit of every problem in one strip."""

from pathlib import Path
from typing import Any

from pkb.cli.plot_target import check_plot_target
from pkb.roofline.rows import BoundsRow
from pkb.types.errors import UserError
from pkb.types.hardware import Hardware

ENDINGS = (".png", ".svg", ".pdf")
COLOURS = {"compute": "#b5316a", "hbm": "#2f6db3", "link": "#2a8a57", "latency": "#b98a1d"}
INK, FAINT = "#22262b", "#c9ced6"
LEAST_US = 0.01
"""Limits below this are drawn here, as an arrow down: nobody waits for nanoseconds."""


def draw(path: Path, rows: list[BoundsRow], *, hardware: Hardware, ceilings: str, link_efficiency: float) -> None:
    """Writes the picture. Points sit at what a problem can attain; the thin line below one reaches down to what is left when
    latency is added, so that its length shows how much of a small shape is latency."""
    check_plot_target(path, endings=ENDINGS)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "font.family": "sans-serif", "font.size": 10, "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
        "svg.hashsalt": "pkb", "savefig.facecolor": "white",
    }  # fmt: skip
    with pyplot.rc_context(style):
        figure, (roof, strip) = pyplot.subplots(
            2, 1, figsize=(13, 11), height_ratios=(3, 2), layout="constrained", dpi=150
        )
        first = rows[0]
        derated = f", link at {link_efficiency:.0%}" if link_efficiency != 1 else ""
        figure.suptitle(
            f"Limits on {hardware.title}: size {first.size}, {first.ranks} ranks, {ceilings} ceilings{derated}",
            x=0.01, ha="left", fontsize=14, fontweight="bold",
        )  # fmt: skip
        _draw_roof(roof, rows, hardware=hardware, ceilings=ceilings, link_efficiency=link_efficiency)
        _draw_strip(strip, rows)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        finally:
            pyplot.close(figure)


def _link_bytes(row: BoundsRow) -> float:
    return float(max(row.link_sent_bytes, row.link_received_bytes))


def _draw_roof(axes: Any, rows: list[BoundsRow], *, hardware: Hardware, ceilings: str, link_efficiency: float) -> None:
    limit = hardware.ceilings(ceilings)
    drawn = [row for row in rows if row.flops > 0 and _link_bytes(row) > 0]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(which="major", color=FAINT, linewidth=0.5, alpha=0.6)
    axes.set_xlabel("FLOPs per byte over the link")
    axes.set_ylabel("attainable FLOP/s per GPU")
    axes.set_title(_above(rows, drawn, hardware), loc="left", fontsize=9, color="#667")
    if not drawn:
        return
    intensity = [row.flops / _link_bytes(row) for row in drawn]
    low, high = min(intensity) / 3, max(intensity) * 3
    rate = limit.link_bytes_per_s * link_efficiency
    right = high
    for number, dtype in enumerate(sorted({row.dtype for row in drawn}, key=lambda name: -limit.flops[name])):
        peak, ridge = limit.flops[dtype], limit.flops[dtype] / rate
        left, right = min(low, ridge), max(right, ridge * 10)
        style = ("-", "--", ":", "-.")[number % 4]
        axes.plot([left, ridge, right], [left * rate, peak, peak], color=INK, linewidth=1.3, linestyle=style, zorder=1)
        axes.annotate(f"{dtype}\n{peak / 1e12:.4g} TFLOP/s", (right, peak), ha="left", va="center", fontsize=8,
                      textcoords="offset points", xytext=(5, 0))  # fmt: skip
    axes.annotate(f"link {rate / 1e9:.4g} GB/s each way", (low, low * rate), ha="left", va="top", fontsize=9,
                  textcoords="offset points", xytext=(12, -2))  # fmt: skip
    points = []
    for row, x in zip(drawn, intensity, strict=True):
        y, slow = row.flops / row.bound_us * 1e6, row.flops / row.bound_with_floor_us * 1e6
        colour = COLOURS[row.binds]
        axes.plot([x, x], [slow, y], color=colour, linewidth=0.9, alpha=0.45, zorder=2)
        axes.scatter([x], [y], s=26, color=colour, edgecolor="white", linewidth=0.6, zorder=3)
        points.append((x, y, str(row.id), colour))
    axes.set_xlim(low, right)
    # A scalar that must cross takes microseconds of latency for nanoseconds of work: its line would flatten all others.
    axes.set_ylim(bottom=min(y for _, y, _, _ in points) / 30, top=5 * max(limit.flops.values()))
    _label(axes, points)
    for name, colour in COLOURS.items():
        count = sum(row.binds == name for row in rows)
        axes.scatter([], [], s=26, color=colour, label=f"{name}-bound ({count})")
    axes.legend(frameon=False, loc="lower right", title="line below a point: with latency", title_fontsize=8)


def _label(axes: Any, points: list[tuple[float, float, str, str]]) -> None:
    """Numbers beside their points where there is room, else further up and to the left, where a roofline is empty."""
    axes.figure.draw_without_rendering()  # settles the layout, so that distances on the page are known
    scale = axes.figure.dpi / 72
    spots = [axes.transData.transform((x, y)) / scale for x, y, _, _ in points]
    taken = [(float(x), float(y), 3.5, 3.5) for x, y in spots]  # centre and half size, in points of the page
    places = [(0.0, 8.0), (9.0, 0.0), (-9.0, 0.0), (7.0, 7.0), (-8.0, 7.0), (9.0, -7.0)]
    places += [(-0.8 * reach + side, reach) for reach in range(14, 150, 7) for side in (0.0, -11.0, 11.0)]
    for (x, y, text, colour), (left, bottom) in sorted(zip(points, spots, strict=True), key=lambda pair: pair[0][0]):
        half = 2.2 * len(text) + 0.8
        free = (p for p in places if not _meets(left + p[0], bottom + p[1], half, taken))
        shift = next(free, places[0])
        taken.append((left + shift[0], bottom + shift[1], half, 3.5))
        far = abs(shift[0]) + abs(shift[1]) > 16
        axes.annotate(
            text, (x, y), textcoords="offset points", xytext=shift, fontsize=7, color=colour, ha="center", va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4, "alpha": 0.5} if far else None,
        )  # fmt: skip


def _meets(x: float, y: float, half: float, taken: list[tuple[float, float, float, float]]) -> bool:
    return any(abs(x - cx) < half + w and abs(y - cy) < 3.5 + h for cx, cy, w, h in taken)


def _above(rows: list[BoundsRow], drawn: list[BoundsRow], hardware: Hardware) -> str:
    shown = {row.id for row in drawn}
    missing = [str(row.id) for row in rows if row.id not in shown]
    words = ["a point above the link's line uses the switch"] if hardware.multicast else []
    words += [f"no arithmetic or no link traffic, only below: {', '.join(missing)}"] if missing else []
    return "; ".join(words)


def _draw_strip(axes: Any, rows: list[BoundsRow]) -> None:
    """Every problem, slowest limit last: a bar from the limit to what nothing overlapped would take, a tick for latency."""
    ordered = sorted(rows, key=lambda row: (row.bound_us, row.id))
    axes.set_yscale("log")
    axes.grid(axis="y", color=FAINT, linewidth=0.5, alpha=0.6)
    for x, row in enumerate(ordered):
        colour, y = COLOURS[row.binds], max(row.bound_us, LEAST_US)
        axes.plot([x, x], [y, max(y, row.unoverlapped_us)], color=colour, linewidth=3, alpha=0.3, zorder=1)
        marker = "o" if row.bound_us >= LEAST_US else "v"
        axes.scatter([x], [y], s=22, color=colour, edgecolor="white", linewidth=0.5, zorder=3, marker=marker)
        axes.plot([x - 0.4, x + 0.4], [row.floor_us] * 2, color=INK, linewidth=0.9, alpha=0.6, zorder=2)
    axes.set_xlim(-1, len(ordered))
    axes.set_xticks(range(len(ordered)), [str(row.id) for row in ordered], rotation=90, fontsize=7)
    axes.set_xlabel("problem, by its limit")
    axes.set_ylabel("time of a call (us)")
    words = "point: limit with perfect overlap; bar: up to nothing overlapped; black tick: latency alone; arrow: below 0.01 us"
    axes.set_title(words, loc="left", fontsize=9, color="#667")
