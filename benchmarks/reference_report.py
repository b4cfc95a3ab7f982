"""Makes the page and the picture of docs/references.md from what `benchmarks/references.py` measured.

    python benchmarks/reference_report.py DIR --hardware probe.toml --out docs

DIR is what references.py wrote into. How near a function is to the limit is its bound over its time: the bound of the
datasheet, and the bound of what `pkb probe` reached on the same machine.
"""

import argparse
import inspect
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from references import FILES, Key, read

from pkb.problems import default_registry
from pkb.problems.base import Problem
from pkb.roofline.hardware import load
from pkb.roofline.rows import bounds_row
from pkb.types.hardware import Hardware
from pkb.types.stock import StockFunction

COLOURS = {"compute": "#b5316a", "hbm": "#2f6db3", "link": "#2a8a57", "latency": "#b98a1d"}
MARK = "<!-- below: made by benchmarks/reference_report.py -->"
LEGEND = """\
- **reference**, **baseline**: the specification, and the best stock PyTorch + NCCL that was found; *same*: the reference is it.
- **us**: median over calls of the longest that any rank took, by its own start and end on the device, caches cold, launch
  latency hidden (as the judge times them). **ratio**: the reference's time over the baseline's.
- **GiB**: most memory that tensors took during one call, all ranks together: arguments, result, temporaries.
- **limit us**: the bound of [roofline.md](roofline.md) on the machine's datasheet; **binds**: the resource that sets it
  (`latency` where launches and dependent steps alone take longer). **of limit**: that bound over the time; **of probe**: the
  same with the ceilings that `pkb probe` reached on the same machine.
- **symmetric us**: torch's own symmetric-memory operators (`torch.ops.symm_mem`), where it ships some that do this.
"""
Row = dict[str, Any]
Measured = dict[StockFunction, dict[Key, Row]]


def with_bounds(row: Row, hardware: Hardware) -> Row:
    problem = default_registry().get(row["id"])
    case = {"size": row["size"], "ranks": row["ranks"], "dtype": row["dtype"], "hardware": hardware}
    ideal, reachable = (bounds_row(problem, ceilings=which, **case) for which in ("ideal", "reachable"))
    return row | {
        "bound_us": ideal.bound_us,
        "limit_us": ideal.bound_with_floor_us,
        "binds": ideal.binds,
        "of_datasheet": ideal.bound_us / row["time_us"],
        "of_limit_and_latency": ideal.bound_with_floor_us / row["time_us"],
        "of_reachable": reachable.bound_us / row["time_us"],
    }


def measured_in(folder: Path, hardware: Hardware) -> Measured:
    """Rows that have a time."""
    rows = {function: read(folder / name) for function, name in FILES.items()}
    return {
        function: {key: with_bounds(row, hardware) for key, row in found.items() if row["time_us"]}
        for function, found in rows.items()
    }


def failures_in(folder: Path) -> list[str]:
    """One line for each case without a time, or without a comparison of its result."""
    lines = []
    for name in FILES.values():
        for row in read(folder / name).values():
            if why := row["error"] or row.get("compare_error", ""):
                function = row.get("function", "reference")
                lines.append(f"- {row['id']} {row['name']}, {function}, `{row['size']}`, {row['ranks']} ranks: {why}")
    return lines


def best_of(rows: Measured, key: Key) -> Row | None:
    """What a candidate must beat: the baseline, or the reference where no faster one is known."""
    has_own = default_registry().get(key[0]).has_baseline_at(key[1])
    return rows["baseline" if has_own else "reference"].get(key)


def claim(rows: Iterable[Row]) -> str:
    shares = sorted(row["of_datasheet"] for row in rows)
    if not shares:
        return "none measured"
    below = sum(share < 0.5 for share in shares)
    return (
        f"{below} of {len(shares)} ({below / len(shares):.0%}) below half of the limit "
        f"(median {shares[len(shares) // 2]:.1%})"
    )


def page(rows: Measured, cases: list[tuple[str, int]], failures: list[str]) -> str:
    lines = [LEGEND]
    keys = {case: [key for key in rows["reference"] if key[1:] == case] for case in cases}
    for size, ranks in cases:
        here = keys[size, ranks]
        best = [row for row in (best_of(rows, key) for key in here) if row is not None]
        binds = Counter(rows["reference"][key]["binds"] for key in here).most_common()
        lines.append(
            f"- `{size}`, {ranks} ranks: references, {claim(rows['reference'][key] for key in here)}; baselines, "
            f"{claim(best)}. What binds: {', '.join(f'{name} {count}' for name, count in binds)}."
        )
        slower = [f"{key[0]} ({r:.2f})" for key in here if (r := ratio(rows, key)) is not None and r < 1]
        if slower:
            lines.append(f"  Baselines slower than their reference, with the ratio: {', '.join(slower)}.")
    lines += [f"- Not measured yet at `{size}`: {words}." for size in dict(cases) if (words := missing(rows, size))]
    for size, ranks in cases:
        lines += ["", f"### `{size}`, {ranks} ranks", "", *table(rows, keys[size, ranks])]
    lines += ["", "### What the baselines do", "", *what_baselines_do(rows)]
    if failures:
        lines += ["", "### Without a time, or without a comparison", "", *failures]
    return "\n".join(lines) + "\n"


def missing(rows: Measured, size: str) -> str:
    """References and baselines of which no row is about what they are today."""
    kinds = []
    for function in ("reference", "baseline"):
        there = {key[0] for key in rows[function] if key[1] == size}
        wanted = [one for one in default_registry().all() if size in one.sizes and getattr(one, function) is not None]
        if ids := [str(problem.id) for problem in wanted if problem.id not in there]:
            kinds.append(f"{function}{'s' if len(ids) > 1 else ''} of {', '.join(ids)}")
    return "; ".join(kinds)


def table(rows: Measured, keys: list[Key]) -> list[str]:
    head = ["problem", "dtype", "limit us", "binds", "reference us", "GiB", "of limit", "baseline us", "GiB", "of limit",
            "of probe", "ratio", "symmetric us"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for key in sorted(keys):
        reference, own = rows["reference"][key], rows["baseline"].get(key)
        cells = [
            f"{key[0]:02d}_{reference['name']}",
            reference["dtype"],
            number(reference["bound_us"]),
            reference["binds"],
        ]
        cells += [*times(reference), share(reference["of_datasheet"])]
        if own is not None:
            cells += [*times(own), share(own["of_datasheet"]), share(own["of_reachable"])]
            cells.append(f"{reference['time_us'] / own['time_us']:.2f}")
        elif default_registry().get(key[0]).baseline is None:
            cells += ["same", "", "", share(reference["of_reachable"]), "1"]
        else:
            cells += ["not measured", "", "", "", ""]
        symmetric = rows["stock_symmetric"].get(key)
        lines.append(f"| {' | '.join([*cells, number(symmetric['time_us']) if symmetric else ''])} |")
    return lines


def what_baselines_do(rows: Measured) -> list[str]:
    lines = [
        "Times of a call at `real`, with as many ranks as in the tables above; `benchmarks/alternatives` has what was tried.",
        "",
        "| problem | baseline | tried besides |",
        "|---|---|---|",
    ]
    for problem in default_registry().all():
        reference = next(
            (row for key, row in sorted(rows["reference"].items()) if key[:2] == (problem.id, "real")), None
        )
        tried = [f"the reference ({number(reference['time_us'])} us)"] if problem.baseline and reference else []
        for one in problem.tried:
            figure = f"refused: {one.refused}" if one.refused else f"{number(one.us)} us" if one.us else "not timed"
            tried.append(f"{one.what} ({figure})")
        own = next((row for key, row in sorted(rows["baseline"].items()) if key[:2] == (problem.id, "real")), None)
        best = own if problem.baseline else reference
        words = words_of(problem) + (f" ({number(best['time_us'])} us)" if best else "")
        lines.append(f"| {problem.stem} | {words} | {'; '.join(tried)} |")
    return lines


def words_of(problem: Problem) -> str:
    if problem.baseline is None:
        return f"the reference: {problem.baseline_reason}"
    return " ".join((inspect.getdoc(problem.baseline) or "").split())


def ratio(rows: Measured, key: Key) -> float | None:
    own = rows["baseline"].get(key)
    return None if own is None else float(rows["reference"][key]["time_us"] / own["time_us"])


def times(row: Row) -> list[str]:
    return [number(row["time_us"]), f"{(row['all_ranks_peak_bytes'] or 0) / 2**30:.2f}"]


def share(value: float) -> str:
    return f"{value:.1%}"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def draw(path: Path, rows: Measured, cases: list[tuple[str, int]], hardware: Hardware) -> None:
    """Each function under its limit, latency added: without it the small shapes would all lie at the bottom. A line leads from
    a reference to its baseline; one whose baseline is not measured yet has no dot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, len(cases), figsize=(6.2 * len(cases), 6), sharey=True, layout="constrained")
    for axes, case in zip(list(grid) if len(cases) > 1 else [grid], cases, strict=True):
        chosen = [row for key, row in rows["reference"].items() if key[1:] == case]
        for name, colour in COLOURS.items():
            points = [row for row in chosen if row["binds"] == name]
            best_rows = []
            for row in points:
                best = best_of(rows, (row["id"], *case))
                best_rows += [best] if best else []
                ends = [row["of_limit_and_latency"], (best or row)["of_limit_and_latency"]]
                axes.plot([row["limit_us"]] * 2, ends, color=colour, linewidth=0.8, alpha=0.6)
                axes.annotate(
                    str(row["id"]), (row["limit_us"], ends[1]), fontsize=6.5, color="#445",
                    xytext=(3, 3), textcoords="offset points",
                )  # fmt: skip
                axes.scatter([row["limit_us"]], ends[:1], s=14, facecolor="none", edgecolor=colour, linewidth=0.8)
            axes.scatter(
                [row["limit_us"] for row in best_rows], [row["of_limit_and_latency"] for row in best_rows],
                s=26, color=colour, alpha=0.85, label=f"{name} ({len(points)})", edgecolor="white", linewidth=0.5,
            )  # fmt: skip
        axes.axhline(1, color="#22262b", linewidth=1.2)
        axes.axhline(0.5, color="#889", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", yscale="log", xlabel="the limit with latency, us", title=f"{case[0]}, {case[1]} ranks")
        axes.grid(which="major", color="#c9ced6", linewidth=0.5, alpha=0.6)
        axes.legend(title="what binds", fontsize=8, title_fontsize=8, frameon=False, loc="lower right")
    figure.axes[0].set_ylabel("limit with latency over the time")
    figure.suptitle(
        f"References (circles) and baselines (dots, with problem ids) on {hardware.title}: the line is the limit, the dashes "
        "are half of it",
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
    options.add_argument("folder", type=Path)
    options.add_argument("--hardware", required=True, help="a built-in machine or a file that `pkb probe` wrote")
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    hardware = load(args.hardware)
    rows = measured_in(args.folder, hardware)
    cases = list(dict.fromkeys((size, ranks) for _, size, ranks in rows["reference"]))
    draw(args.out / "images" / "references.png", rows, cases, hardware)
    replace_tables(args.out / "references.md", page(rows, cases, failures_in(args.folder)))


if __name__ == "__main__":
    main()
