"""The main pictures as PNG and SVG files, for papers and slides: what the site draws, drawn by matplotlib."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pkb.report.board import BoardRow, HeatMap, View
from pkb.report.breakdown import AgentProgress, FailureModes
from pkb.report.words import MODE_TONES, count_words

ENDINGS = ("png", "svg")
INK, DIM, FAINT = "#22262b", "#646a73", "#d8dbd8"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1b1e22", "#8c6bb1")
MARKERS = "osD^v+"
NAME = 44


def draw_all(
    folder: Path,
    *,
    rows: Mapping[View, Sequence[BoardRow]],
    modes: FailureModes,
    heat: Mapping[str, HeatMap],
    steps: Sequence[AgentProgress],
) -> None:
    """Writes every picture there is data for; one without data says so, so that no link of the site leads nowhere."""
    folder.mkdir(exist_ok=True)
    with _figure(folder, "fast_p", size=(8, 4.6)) as axes:
        _curves(axes, [row for found in rows.values() for row in found if row.curve])
    with _figure(folder, "failure_modes", size=(9, 1.4 + 0.42 * len(modes.rows))) as axes:
        _modes(axes, modes)
    names = {row.contender.id: row.contender.name for found in rows.values() for row in found}
    for axis, found in heat.items():
        size = (2.6 + 0.75 * max(1, len(found.words)), 1.8 + 0.45 * max(1, len(found.rows)))
        with _figure(folder, f"heat_{axis}", size=size) as axes:
            _heat(axes, axis, found, names)
    with _figure(folder, "agent_progress", size=(8, 4.6)) as axes:
        _progress(axes, steps)


@contextmanager
def _figure(folder: Path, name: str, *, size: tuple[float, float]) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "font.family": "sans-serif", "font.size": 9.5, "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": DIM,
        "xtick.color": DIM, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
        "svg.hashsalt": "pkb", "savefig.facecolor": "white",
        # A model's name may hold `$`, which would be mathematics.
        "text.parse_math": False,
    }  # fmt: skip
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=size, layout="constrained", dpi=150)
        try:
            yield axes
            for ending in ENDINGS:
                figure.savefig(folder / f"{name}.{ending}", metadata={"Date": None} if ending == "svg" else None)
        finally:
            pyplot.close(figure)


def _empty(axes: Any, text: str) -> None:
    axes.axis("off")
    axes.text(0.5, 0.5, text, ha="center", va="center", color=DIM, transform=axes.transAxes)


def _curves(axes: Any, rows: Sequence[BoardRow]) -> None:
    if not rows:
        _empty(axes, "nothing correct was timed")
        return
    for number, row in enumerate(rows):
        ps = [p for p, _ in row.curve]
        colour = SERIES[number % len(SERIES)]
        place = row.contender.conditions
        tries = f", best of {row.k}" if row.k > 1 else ""
        label = f"{row.contender.name[:NAME]}{tries}\n{_joined(place['platform'])}, {_joined(place['hardware'])}"
        axes.fill_between(
            ps, [s.interval.low for _, s in row.curve], [s.interval.high for _, s in row.curve], color=colour, alpha=0.1
        )
        axes.plot(
            ps,
            [s.value for _, s in row.curve],
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=1.6,
            label=label,
        )
    axes.axvline(1, color=FAINT, linewidth=1, linestyle=":")
    axes.set_xlabel("p")
    axes.set_ylabel("share of problems, correct and more than p times as fast")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=7.5)


def _joined(words: Sequence[str]) -> str:
    return " / ".join(words[:2])[:NAME]


def _modes(axes: Any, modes: FailureModes) -> None:
    rows = modes.rows
    if not rows:
        _empty(axes, "nothing was judged")
        return
    left = [0.0] * len(rows)
    for mode, words in modes.modes:
        shares = [row.counts.get(mode, 0) / max(1, row.samples) for row in rows]
        if not any(shares):
            continue
        tone = MODE_TONES[mode]
        axes.barh(
            range(len(rows)), shares, left=left, label=words, height=0.66, color=tone.light, hatch=tone.hatch,
            edgecolor="white",
        )  # fmt: skip
        left = [total + share for total, share in zip(left, shares, strict=True)]
    names = [f"{row.name[:NAME]}{' (published)' if row.published else ''}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.legend(frameon=False, fontsize=7.5, loc="upper left", bbox_to_anchor=(1, 1))


def _heat(axes: Any, axis: str, found: HeatMap, names: Mapping[str, str]) -> None:
    words, rows = found.words, found.rows
    if not words:
        _empty(axes, "nothing was judged")
        return
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("right", ["#f3f3f1", MODE_TONES["correct"].light])
    for y, cells in enumerate(rows.values()):
        for x, word in enumerate(words):
            if (cell := cells.get(word)) and (share := cell.passed):
                axes.add_patch(_square(x, y, shades(0.85 * share.value)))
                dark = share.value > 0.6
                axes.text(
                    x, y, f"{share.value:.0%}\n{count_words(share.count)}/{share.problems}",
                    ha="center", va="center", fontsize=7, color="white" if dark else INK,
                )  # fmt: skip
    axes.set_xlim(-0.5, len(words) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(words)), words, rotation=40, ha="right")
    axes.set_yticks(range(len(rows)), [names[key][:NAME] for key in rows])
    axes.set_title(f"correct at one try, by {axis}", loc="left", fontsize=9.5, color=DIM)


def _square(x: float, y: float, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, facecolor=colour, edgecolor="none")


def _progress(axes: Any, steps: Sequence[AgentProgress]) -> None:
    if not steps:
        _empty(axes, "no agent has run")
        return
    for number, one in enumerate(steps):
        colour, xs = SERIES[number % len(SERIES)], range(1, one.steps + 1)
        for key, counts, line in (("correct", one.correct, "-"), ("faster", one.faster, ":")):
            shares = [count / one.tries for count in counts]
            axes.step(xs, shares, where="post", color=colour, linestyle=line, label=f"{one.name[:NAME]}, {key}")
        if one.plateau:
            axes.plot([one.plateau], [one.correct[one.plateau - 1] / one.tries], "D", color=colour, markersize=5)
    axes.set_xlabel("steps; a diamond marks the plateau")
    axes.set_ylabel("share of tries")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=7.5)
