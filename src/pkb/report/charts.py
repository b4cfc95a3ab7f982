"""The pictures of the pages, from rows of plain data to SVG. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pkb.analysis.published import Agent
from pkb.report.board import BoardRow
from pkb.report.breakdown import AgentProgress
from pkb.report.published_rows import MARK, PublishedRow
from pkb.report.roof_data import ChartCase, RoofPicture
from pkb.report.svg import NARROW, SHAPES, Axis, Chart, Key, Plot, chart, linear, logarithmic
from pkb.report.timeline import RankTimeline
from pkb.report.words import count_words, percent, short_number, time_words

MOST_BANDS = 3
"""More intervals on top of each other hide the curves; the tables have them all."""
HALF = 560
"""Width of a picture that stands beside another."""
NAME = 40
ROLE_WORDS = {"communication": "communication", "compute": "compute", "fused": "both in one kernel"}


@dataclass(frozen=True)
class Times:
    """In microseconds; the samples by round."""

    reference: Sequence[Sequence[float]] | None
    candidate: Sequence[Sequence[float]]
    floor: float | None
    ideal: float | None
    against: str
    """What the other side is called: the reference, or the baseline."""

    @property
    def sides(self) -> tuple[Key, Key]:
        return Key(self.against, "ref", "square", line=False), Key("candidate", "own", "square", line=False)


def _series(number: int) -> tuple[str, str]:
    """Colour and shape: the shape tells apart what a reader cannot by colour."""
    return f"s{number % 8}", SHAPES[number % len(SHAPES)]


def _parts(width: int) -> int:
    """How many ticks an axis has room for."""
    return 4 if width <= NARROW else 6 if width <= HALF else 9


def _cut(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _place_words(conditions: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(" / ".join(conditions[name][:2]) for name in ("platform", "hardware") if conditions[name])


def curves(measured: Sequence[BoardRow], published: Sequence[PublishedRow]) -> Chart | None:
    """fast_p. None where nothing correct was timed: published curves alone say nothing about these runs."""
    rows = [row for row in measured if row.curve]
    if not rows:
        return None
    keys, lines = [], []
    for number, row in enumerate(rows):
        css, shape = _series(number)
        tries = f", best of {row.k}" if row.k > 1 else ""
        words = f"{_cut(row.contender.name)}{tries}"
        css += " d1" if row.k > 1 else ""
        keys.append(Key(words, css, shape, note=_place_words(row.contender.conditions)))
        lines.append([(p, share.value) for p, share in row.curve])
    for number, said in enumerate(published):
        keys.append(Key(said.name, f"s{number % 8} d2 open", SHAPES[number % len(SHAPES)], note=MARK))
        lines.append(list(said.curve))
    right = max(p for line in lines for p, _ in line)
    top = max(0.05, *(y for line in lines for _, y in line))

    def draw(width: int) -> Plot:
        plot = Plot(
            linear("p, times as fast as the reference", 0, right, short_number, parts=8 if width > NARROW else 4),
            linear("share of problems", 0, min(1.0, top * 1.08), percent),
            width=width, height=360 if width > NARROW else 300, label="fast_p by collection",
        )  # fmt: skip
        plot.down(1.0, "guide", "as fast")
        for row, key in zip(rows if len(rows) <= MOST_BANDS else (), keys, strict=False):
            plot.band([(p, share.interval.low, share.interval.high) for p, share in row.curve], key.css)
        for key, line in zip(keys, lines, strict=True):
            plot.line(line, key.css, title=key.words)
            for p, share in line:
                plot.mark((p, share), key.css, key.shape, title=f"{key.words}: {percent(share)} at p = {p:g}")
        return plot

    return chart(draw, keys)


def progress(steps: Sequence[AgentProgress], agent: Agent | None, published_problems: int) -> Chart | None:
    """Shares of tries by step, and the published loop beside them: of that only its ends are known."""
    if not steps:
        return None
    length = max(one.steps for one in steps)
    keys = []
    for number, one in enumerate(steps):
        css, shape = _series(number)
        keys += [Key(f"{_cut(one.name)}, correct", css, shape, note=_place_words(one.conditions))]
        keys += [Key(f"{_cut(one.name)}, faster", f"{css} d1 open", shape)]
    said = (
        Key(
            f"{agent.scaffold}, {agent.model}, correct", "s7 d2 open", "square", note=f"{MARK}; only its ends are known"
        )
        if agent
        else None
    )
    if agent:
        length = max(length, agent.plateau_steps)

    def draw(width: int) -> Plot:
        plot = Plot(
            linear("steps of the loop; a mark is where the last rise was", 1, max(2, length), short_number, whole=True),
            linear("share of tries", 0, 1, percent, parts=5),
            width=width, height=360 if width > NARROW else 300, label="correct and faster by step of an agent's loop",
        )  # fmt: skip
        for number, one in enumerate(steps):
            for key, counts in zip(keys[2 * number : 2 * number + 2], (one.correct, one.faster), strict=True):
                line = [(step, count / one.tries) for step, count in enumerate(counts, start=1)]
                plot.line(line, key.css, title=key.words, step=True)
                last = next((step for step, share in line if share == line[-1][1]), 1)
                plot.mark((last, line[-1][1]), key.css, key.shape, title=f"{key.words}: {percent(line[-1][1])}")
        if agent and said:
            ends = [(1, agent.single_shot_correct / published_problems)]
            ends += [(agent.plateau_steps, agent.correct / published_problems)]
            plot.line(ends, said.css, title=said.words)
            for end in ends:
                plot.mark(end, said.css, said.shape, title=f"{said.words}: {percent(end[1])}")
        return plot

    return chart(draw, [*keys, *([said] if said else [])])


SIDES = (("reference", "ref"), ("candidate", "own"))


def histogram(times: Times) -> Chart:
    """How long calls took. The slowest 2 % are left out: one of them would squeeze the rest into a line."""
    samples = {"reference": list(chain(*(times.reference or ()))), "candidate": list(chain(*times.candidate))}
    every = sorted(chain(*samples.values()))
    high = every[math.floor(0.98 * (len(every) - 1))]
    known = (("ideal limit", times.ideal, "ideal"), ("floor", times.floor, "floor"))
    limits = [(words, us, css) for words, us, css in known if us and us > every[0] / 20]
    low = min(every[0], *(us for _, us, _ in limits)) if limits else every[0]
    width_us = (high - low) / 40 or 1.0
    counts: dict[str, dict[int, int]] = {side: {} for side in samples}
    for side, values in samples.items():
        for value in values:
            if value <= high:
                place = min(39, int((value - low) / width_us))
                counts[side][place] = counts[side].get(place, 0) + 1
    most = max(chain(*(found.values() for found in counts.values())))

    def draw(width: int) -> Plot:
        plot = Plot(
            linear("µs a call, without the slowest 2 %", low, low + 40 * width_us, short_number, parts=_parts(width)),
            linear("calls", 0, most * 1.1, count_words, parts=4, whole=True),
            width=width, height=270, label="distribution of times of both sides",
        )  # fmt: skip
        for side, css in SIDES:
            boxes = [(low + n * width_us, low + (n + 1) * width_us, 0, count) for n, count in counts[side].items()]
            plot.bars(boxes, css)
        for _, us, css in limits:
            plot.down(us, css)
        return plot

    return chart(
        draw, [*times.sides] + [Key(f"{words}: {time_words(us)}", css) for words, us, css in limits], wide=HALF
    )


def calls(times: Times) -> Chart:
    """Every call in the order in which it was made, with a gap between rounds."""
    points: dict[str, list[tuple[float, float]]] = {}
    for side, rounds in (("reference", times.reference or ()), ("candidate", times.candidate)):
        at = 0
        points[side] = []
        for one in rounds:
            points[side] += [(at + n, us) for n, us in enumerate(one) if us > 0]
            at += len(one) + 4
    every = [point for found in points.values() for point in found]
    last = max(x for x, _ in every)

    def draw(width: int) -> Plot:
        plot = Plot(
            linear("call; a gap is a new round", 0, last, count_words, parts=_parts(width), whole=True),
            logarithmic("µs", (us for _, us in every), short_number, most=5),
            width=width, height=270, label="times call by call",
        )  # fmt: skip
        for side, css in SIDES:
            plot.dots(points[side], css)
        return plot

    return chart(draw, times.sides, wide=HALF)


STOCK = (("reference", "ref"), ("baseline", "base"))
LIMITS = (("achievable limit", "reachable_us", "reach"), ("ideal limit", "ideal_us", "ideal"))


def cases(found: Sequence[ChartCase]) -> Chart | None:
    """Times of correct candidates, a row for each case, with the limits of the hardware."""
    if not found:
        return None
    names = list(dict.fromkeys(point.name for case in found for point in case.points))
    style = {name: _series(number) for number, name in enumerate(names)}
    keys = [Key(_cut(name), *style[name], line=False) for name in names]
    keys += [Key(name, css, "bar", line=False) for name, css in STOCK if any(name in case.stock for case in found)]
    keys += [Key(words, css) for words, name, css in LIMITS if any((case.roofline or {}).get(name) for case in found)]
    spread = 0.6 / max(1, len(names))
    every_us = [us for case in found for us in case.every_us]

    def draw(width: int) -> Plot:
        tall = 46 if width > NARROW else 56
        labels = [(float(row), case.label(narrow=width <= NARROW)) for row, case in enumerate(found)]
        plot = Plot(
            logarithmic("µs a call", every_us, short_number, most=_parts(width)),
            Axis("", len(found) - 0.5, -0.5, labels),
            width=width, height=70 + tall * len(found), label="times by case, candidates and limits",
        )  # fmt: skip
        for row, case in enumerate(found):
            for words, name, css in LIMITS:
                if us := (case.roofline or {}).get(name):
                    plot.line(
                        [(float(us), row - 0.42), (float(us), row + 0.42)],
                        css,
                        title=f"{words}: {time_words(float(us))}",
                    )
            for name, css in STOCK:
                if us := case.stock_us.get(name):
                    plot.line([(us, row - 0.36), (us, row + 0.36)], f"{css} thick", title=f"{name}: {time_words(us)}")
            for point in case.points:
                css, shape = style[point.name]
                y = row + (names.index(point.name) - (len(names) - 1) / 2) * spread
                if point.low and point.high:
                    plot.line([(point.low, y), (point.high, y)], f"{css} whisker")
                library = " open" if point.communication == "library" else ""
                said = (
                    f"{point.name}: {time_words(point.us)}, {point.speedup:.2f}×{', by the library' if library else ''}"
                )
                plot.mark((point.us, y), css + library, shape, title=said, href=f"../c/{point.slug}.html")
        return plot

    return chart(draw, keys)


ROOF_LINES = (
    ("limit, datasheet", "ideal", "ideal"),
    ("achievable limit: what the best kernels reach", "reachable", "reach"),
    ("without overlap", "unoverlapped", "apart"),
    ("latency: one launch and the steps between ranks", "latency", "latency"),
)


def roof(picture: RoofPicture) -> Chart:
    """Work over time against bytes over the link: what is possible is a line over all sizes, what was reached lies below."""
    names = list(dict.fromkeys(mark.name for mark in picture.marks if mark.kind == "candidate"))
    style = {name: _series(number) for number, name in enumerate(names)} | {
        "reference": ("ref", "cross"), "baseline": ("base", "plus"), "floor": ("floor", "dash"),
    }  # fmt: skip
    keys = [Key(words, css) for words, name, css in ROOF_LINES if picture.lines.get(name)]
    keys += [
        Key(_cut(name), *style[name], line=False)
        for name in dict.fromkeys(m.name for m in picture.marks)
        if name in style
    ]
    places = [*chain(*picture.lines.values()), *((mark.x, mark.y) for mark in picture.marks)]

    def draw(width: int) -> Plot:
        wide = width > NARROW
        plot = Plot(
            logarithmic(picture.x_title, (x for x, _ in places), short_number, most=9 if wide else 4),
            logarithmic(picture.y_title, (y for _, y in places), short_number, most=7),
            width=width, height=400 if wide else 330, label=f"roofline, {picture.label}",
        )  # fmt: skip
        for words, name, css in ROOF_LINES:
            if line := picture.lines.get(name):
                plot.line(line, css, title=words)
        for mark in picture.marks:
            css, shape = style[mark.name]
            href = f"../c/{mark.slug}.html" if mark.slug else ""
            plot.mark((mark.x, mark.y), css, shape, title=mark.words, href=href)
        return plot

    return chart(draw, keys)


def timeline(ranks: Sequence[RankTimeline], *, label: str, end_us: float, one_base: bool) -> Chart:
    """What each rank's device did, all ranks on one time base, as long as the longer of the two sides."""
    title = f"µs from {'the first' if one_base else 'each'} rank's first record"
    roles = [role for role in ROLE_WORDS if any(record[3] == role for rank in ranks for record in rank.records)]
    labels = [(float(row), f"rank {rank.rank}") for row, rank in enumerate(ranks)]

    def draw(width: int) -> Plot:
        plot = Plot(
            linear(title, 0, end_us, short_number, parts=10 if width > NARROW else 4),
            Axis("", len(ranks) - 0.5, -0.5, labels),
            width=width, height=60 + 30 * len(ranks), label=label,
        )  # fmt: skip
        narrow_us = 2 * end_us / (plot.right - plot.left)
        for row, rank in enumerate(ranks):
            plot.line([(0, row + 0.5), (end_us, row + 0.5)], "grid")
            lane = {role: 0.26 * n for n, role in enumerate(roles)}
            for role in roles:
                low = row - 0.38 + lane[role]
                small = []
                for start, us, name, said in rank.records:
                    if said != role:
                        continue
                    begin = start + (rank.begins_us or 0.0)
                    box = (begin, begin + max(us, narrow_us / 2), low + 0.24, low)
                    if us < narrow_us or width <= NARROW:
                        small.append(box)
                    else:
                        plot.box(box, f"r-{role}", title=f"{name}\n{begin:.2f} µs, for {us:.2f} µs, {ROLE_WORDS[role]}")
                if small:
                    plot.bars(small, f"r-{role}")
        return plot

    return chart(draw, [Key(ROLE_WORDS[role], f"r-{role}", "square", line=False) for role in roles], wide=1120)
