"""Pictures as SVG text: axes, lines, marks. Colours and dashes are classes of style.css, so one picture serves light and dark.

Nothing is drawn in the browser. Names come from models: every text and attribute is escaped.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from pkb.report.words import visible

Words = Callable[[float], str]
Place = tuple[float, float]
CHARACTER = 7.2
"""Width of one at the size of the labels, rather too much than too little: what is left free for them."""
SHAPES = ("circle", "square", "diamond", "triangle", "down", "plus")


class Axis(NamedTuple):
    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(title: str, low: float, high: float, words: Words, *, parts: int = 6, whole: bool = False) -> Axis:
    """Ticks at 1, 2 or 5 times a power of ten, at most `parts` of them and the ends; `whole` for counts and steps."""
    if high <= low:
        high = low + 1
    raw = (high - low) / parts
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(title, low, high, [(n * step, words(n * step)) for n in range(first, last + 1)])


def logarithmic(title: str, values: Iterable[float], words: Words, *, most: int = 7) -> Axis:
    """From below the least to above the greatest value; ticks at 1, 2 and 5 where there is room, else at powers of ten."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / 1.4, max(known) * 1.4
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for nice in ((1, 2, 5), (1, 3), (1,)):
        ticks = [n * 10.0**power for power in powers for n in nice if low <= n * 10.0**power <= high]
        if 2 <= len(ticks) <= most:
            break
    if len(ticks) > most:
        ticks = ticks[:: math.ceil(len(ticks) / most)]
    return Axis(title, low, high, [(tick, words(tick)) for tick in ticks], log=True)


class Key(NamedTuple):
    """A line of the legend, drawn as it is in the picture."""

    words: str
    css: str
    shape: str = ""
    line: bool = True
    note: str = ""

    @property
    def swatch(self) -> Markup:
        line = Markup('<line class="line {}" x1="1" y1="7" x2="27" y2="7"/>').format(self.css) if self.line else ""
        shape = (
            Markup('<path class="mark {}" d="{}"/>').format(self.css, outline(self.shape, 14, 7)) if self.shape else ""
        )
        head = Markup('<svg class="swatch" width="28" height="14" aria-hidden="true" focusable="false">')
        return head + line + shape + Markup("</svg>")


class Chart(NamedTuple):
    """One picture for wide windows and one for phones: text keeps its size, and no axis is cut."""

    pictures: tuple[Markup, ...]
    keys: Sequence[Key] = ()


WIDE, NARROW = 860, 352


def chart(draw: Callable[[int], "Plot"], keys: Sequence[Key] = (), *, wide: int = WIDE) -> Chart:
    return Chart(tuple(draw(width).svg(css) for width, css in ((wide, "wide-only"), (NARROW, "narrow-only"))), keys)


class Plot:
    """An area between two axes. The title of y stands above its axis, where it has room and needs no turned head."""

    def __init__(self, x: Axis, y: Axis, *, width: int, height: int, label: str) -> None:
        self.x, self.y, self.width, self.height, self.label = x, y, width, height, label
        widest = max((max(map(len, words.split("\n"))) for _, words in y.ticks), default=1)
        lines = max((1 + words.count("\n") for _, words in x.ticks), default=1)
        self.left, self.right = 14 + min(width * 0.4, CHARACTER * widest), width - 14
        self.top, self.bottom = 26 if y.title else 10, height - 24 - 14 * lines
        self.parts: list[Markup] = []
        self.role = "img"

    def at(self, x: float, y: float) -> Place:
        return self._x(x), self._y(y)

    def _x(self, value: float) -> float:
        return round(self.left + self.x.share(value) * (self.right - self.left), 1)

    def _y(self, value: float) -> float:
        return round(self.bottom - self.y.share(value) * (self.bottom - self.top), 1)

    def line(self, points: Sequence[Place], css: str, *, title: str = "", step: bool = False) -> None:
        places = [self.at(*point) for point in points]
        path = f"M{_pair(places[0])}"
        for before, place in pairwise(places):
            path += (f"H{place[0]:g}V{place[1]:g}") if step and place[1] != before[1] else f"L{_pair(place)}"
        self._path("line " + css, path, title)

    def band(self, points: Sequence[tuple[float, float, float]], css: str) -> None:
        """Between the second and the third of each."""
        around = [self.at(x, low) for x, low, _ in points] + [self.at(x, high) for x, _, high in reversed(points)]
        self._path("band " + css, "M" + "L".join(map(_pair, around)) + "Z")

    def dots(self, points: Iterable[Place], css: str) -> None:
        """Very many, in one path: a length of nothing with round ends."""
        self._path("dots " + css, "".join(f"M{_pair(self.at(*point))}h0" for point in points))

    def mark(self, point: Place, css: str, shape: str, *, title: str = "", href: str = "") -> None:
        made = path_element("mark " + css, outline(shape, *self.at(*point)), title)
        if href:
            made = Markup('<a href="{}" aria-label="{}">{}</a>').format(href, visible(title), made)
            self.role = "group"  # an image would hide its links from those who cannot see it
        self.parts.append(made)

    def bars(self, boxes: Iterable[tuple[float, float, float, float]], css: str) -> None:
        """x, its end, y, its end."""
        path = ""
        for x0, x1, y0, y1 in boxes:
            (left, low), (right, high) = self.at(x0, y0), self.at(x1, y1)
            path += f"M{left:g} {low:g}H{right:g}V{high:g}H{left:g}Z"
        self._path("column " + css, path)

    def box(self, box: tuple[float, float, float, float], css: str, *, title: str) -> None:
        x0, x1, y0, y1 = box
        (left, low), (right, high) = self.at(x0, y0), self.at(x1, y1)
        self._path("column " + css, f"M{left:g} {low:g}H{right:g}V{high:g}H{left:g}Z", title)

    def down(self, value: float, css: str, words: str = "") -> None:
        x = self._x(value)
        self._path("line " + css, f"M{x:g} {self.bottom:g}V{self.top:g}")
        if words:
            end = x > self.width * 0.7
            self._text(x + (-4 if end else 4), self.top + 10, words, "end" if end else "start")

    def _path(self, css: str, path: str, title: str = "") -> None:
        self.parts.append(path_element(css, path, title))

    def _text(self, x: float, y: float, words: str, anchor: str, css: str = "") -> None:
        for number, line in enumerate(words.split("\n")):
            self.parts.append(
                Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                    css, f"{x:g}", f"{y + 14 * number:g}", anchor, visible(line)
                )
            )

    def svg(self, css: str) -> Markup:
        drawn, self.parts = self.parts, []
        for value, words in self.x.ticks:
            self._path("grid", f"M{self._x(value):g} {self.top:g}V{self.bottom:g}")
            half = CHARACTER / 2 * max(map(len, words.split("\n")))
            place = min(max(self._x(value), half), self.width - half)
            self._text(place, self.bottom + 16, words, "middle")
        for value, words in self.y.ticks:
            self._path("grid", f"M{self.left:g} {self._y(value):g}H{self.right:g}")
            self._text(self.left - 6, self._y(value) + 4 - 7 * words.count("\n"), words, "end")
        self._path("frame", f"M{self.left:g} {self.top:g}V{self.bottom:g}H{self.right:g}")
        self._text(0, 12, self.y.title, "start", "axis")
        self._text(self.right, self.height - 5, self.x.title, "end", "axis")
        axes, self.parts = self.parts, drawn
        return Markup('<svg class="{}" viewBox="0 0 {} {}" role="{}" aria-label="{}">{}{}</svg>').format(
            css, self.width, self.height, self.role, visible(self.label), Markup("").join(axes), Markup("").join(drawn)
        )


def path_element(css: str, path: str, title: str = "") -> Markup:
    if title:
        return Markup('<path class="{}" d="{}"><title>{}</title></path>').format(css, path, visible(title))
    return Markup('<path class="{}" d="{}"/>').format(css, path)


def outline(shape: str, x: float, y: float, r: float = 4.5) -> str:
    """The path of a mark around a point."""
    match shape:
        case "square":
            return f"M{x - r:g} {y - r:g}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z"
        case "diamond":
            return f"M{x:g} {y - 1.4 * r:g}l{1.3 * r:g} {1.4 * r:g}l{-1.3 * r:g} {1.4 * r:g}l{-1.3 * r:g} {-1.4 * r:g}z"
        case "triangle":
            return f"M{x:g} {y - 1.2 * r:g}l{1.2 * r:g} {2.2 * r:g}h{-2.4 * r:g}z"
        case "down":
            return f"M{x:g} {y + 1.2 * r:g}l{1.2 * r:g} {-2.2 * r:g}h{-2.4 * r:g}z"
        case "plus":
            return f"M{x - r:g} {y:g}h{2 * r:g}M{x:g} {y - r:g}v{2 * r:g}"
        case "cross":
            return f"M{x - r:g} {y - r:g}l{2 * r:g} {2 * r:g}M{x - r:g} {y + r:g}l{2 * r:g} {-2 * r:g}"
        case "bar":
            return f"M{x:g} {y - 1.4 * r:g}v{2.8 * r:g}"
        case "dash":
            return f"M{x - 3 * r:g} {y:g}h{6 * r:g}"
    return f"M{x - r:g} {y:g}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"


def _pair(place: Place) -> str:
    return f"{place[0]:g} {place[1]:g}"
