"""Makes the page and the picture of docs/references.md from what `benchmarks/references.py` measured.

    python benchmarks/reference_report.py references.jsonl --hardware probe.toml --out docs

How near a reference is to the limit is its bound over its time: the bound of the datasheet, and the bound of what `pkb probe`
reached on the same machine.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pkb.problems import default_registry
from pkb.roofline.hardware import load
from pkb.roofline.rows import bounds_row
from pkb.types.hardware import Hardware

COLOURS = {"compute": "#b5316a", "hbm": "#2f6db3", "link": "#2a8a57", "latency": "#b98a1d"}
MARK = "<!-- below: made by benchmarks/reference_report.py -->"
Row = dict[str, Any]


def with_bounds(row: Row, hardware: Hardware) -> Row:
    problem = default_registry().get(row["id"])
    case = {"size": row["size"], "ranks": row["ranks"], "dtype": row["dtype"], "hardware": hardware}
    ideal, reachable = (bounds_row(problem, ceilings=which, **case) for which in ("ideal", "reachable"))
    return row | {
        "bound_us": ideal.bound_us,
        "limit_us": ideal.bound_with_floor_us,
        "reachable_us": reachable.bound_us,
        "binds": ideal.binds,
        "flops_per_link_byte": ideal.flops / max(ideal.link_sent_bytes, ideal.link_received_bytes, 1),
        "of_datasheet": ideal.bound_us / row["time_us"],
        "of_limit_and_latency": ideal.bound_with_floor_us / row["time_us"],
        "of_reachable": reachable.bound_us / row["time_us"],
    }


def page(rows: dict[tuple[int, str, int], Row], cases: list[tuple[str, int]]) -> str:
    lines = []
    for size, ranks in cases:
        chosen = [row for (_, s, r), row in rows.items() if (s, r) == (size, ranks)]
        below = sum(row["of_datasheet"] < 0.5 for row in chosen)
        binds = ", ".join(f"{name} {count}" for name, count in Counter(row["binds"] for row in chosen).most_common())
        lines.append(
            f"- `{size}`, {ranks} ranks: {len(chosen)} references, {below} of them below half of the datasheet's limit "
            f"(median {median([row['of_datasheet'] for row in chosen]):.1%}); what binds: {binds}."
        )
    head = ["problem", "dtype"]
    for size, ranks in cases:
        head += [f"{size} {ranks}: us", "GiB", "limit us", "binds", "of datasheet", "of probe"]
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for problem in default_registry().all():
        cells = [problem.stem, problem.default_dtype]
        for size, ranks in cases:
            row = rows.get((problem.id, size, ranks))
            cells += cells_of(row) if row else ["not run with this many ranks", "", "", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cells_of(row: Row) -> list[str]:
    return [
        f"{row['time_us']:.0f}", f"{row['all_ranks_peak_bytes'] / 2**30:.2f}", number(row["bound_us"]), row["binds"],
        f"{row['of_datasheet']:.1%}", f"{row['of_reachable']:.1%}",
    ]  # fmt: skip


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def draw(path: Path, rows: dict[tuple[int, str, int], Row], cases: list[tuple[str, int]], hardware: Hardware) -> None:
    """Each reference under its limit, latency added: without it the small shapes would all lie at the bottom."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, len(cases), figsize=(6.2 * len(cases), 6), sharey=True, layout="constrained")
    for axes, (size, ranks) in zip(list(grid) if len(cases) > 1 else [grid], cases, strict=True):
        chosen = [row for (_, s, r), row in rows.items() if (s, r) == (size, ranks)]
        for name, colour in COLOURS.items():
            points = [row for row in chosen if row["binds"] == name]
            axes.scatter(
                [row["limit_us"] for row in points], [row["of_limit_and_latency"] for row in points],
                s=26, color=colour, alpha=0.85, label=f"{name} ({len(points)})", edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            for row in points:
                axes.annotate(
                    str(row["id"]), (row["limit_us"], row["of_limit_and_latency"]), fontsize=6.5, color="#445",
                    xytext=(3, 3), textcoords="offset points",
                )  # fmt: skip
        axes.axhline(1, color="#22262b", linewidth=1.2)
        axes.axhline(0.5, color="#889", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", yscale="log", xlabel="the limit with latency, us", title=f"{size}, {ranks} ranks")
        axes.grid(which="major", color="#c9ced6", linewidth=0.5, alpha=0.6)
        axes.legend(title="what binds", fontsize=8, title_fontsize=8, frameon=False, loc="lower right")
    first = figure.axes[0]
    first.set_ylabel("limit with latency over the reference's time")
    figure.suptitle(
        f"87 references on {hardware.title}: dots are problem ids; the line is the limit, the dashes are half of it",
        x=0.01, ha="left", fontsize=11,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def replace_tables(path: Path, text: str) -> None:
    """What people wrote above the mark stays."""
    head = path.read_text().partition(MARK)[0] if path.exists() else "# The references by themselves\n\n"
    path.write_text(f"{head}{MARK}\n\n{text}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", type=Path)
    options.add_argument("--hardware", required=True, help="a built-in machine or a file that `pkb probe` wrote")
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    hardware = load(args.hardware)
    measured = [json.loads(line) for line in args.rows.read_text().splitlines()]
    rows = {(row["id"], row["size"], row["ranks"]): with_bounds(row, hardware) for row in measured if not row["error"]}
    cases = list(dict.fromkeys((size, ranks) for _, size, ranks in rows))
    draw(args.out / "images" / "references.png", rows, cases, hardware)
    replace_tables(args.out / "references.md", page(rows, cases))


if __name__ == "__main__":
    main()
