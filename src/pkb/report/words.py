"""Numbers and verdicts as people read them, and the colour of each verdict: one place, for pages and figures alike."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from pkb.analysis.modes import BY_VERDICT, WORDS, FailureMode
from pkb.types import units
from pkb.types.words import MEANINGS


class Tone(NamedTuple):
    light: str
    dark: str
    hatch: str = ""
    """As matplotlib writes it. Thirteen colours cannot be told apart, least of all by a colour-blind reader: seven can."""


# The colours of Okabe and Ito; a hatched one is a relative of the plain one of its colour.
MODE_TONES: dict[str, Tone] = {
    "correct": Tone("#009e73", "#2cc495"),
    "reused_output": Tone("#e69f00", "#f2b632", "///"),
    "mismatch": Tone("#d55e00", "#f0803c"),
    "race": Tone("#e69f00", "#f2b632"),
    "deadlock": Tone("#cc79a7", "#e39cc6"),
    "compile": Tone("#0072b2", "#4fa8e0"),
    "shape": Tone("#56b4e9", "#8ccbf2"),
    "name": Tone("#56b4e9", "#8ccbf2", "///"),
    "runtime": Tone("#0072b2", "#4fa8e0", "\\\\\\"),
    "rejected": Tone("#1b1e22", "#f2f3f4"),
    "torch_version": Tone("#868d97", "#868d97", "---"),
    "no_answer": Tone("#868d97", "#868d97"),
    "unsupported": Tone("#b7bdc6", "#565d67", "///"),
    "harness_error": Tone("#b7bdc6", "#565d67", "xxx"),
}
VERDICT_MODE = {str(verdict): mode.value for verdict, mode in BY_VERDICT.items()} | {
    "wrong": "mismatch",
    "load_error": "name",
    "runtime_error": "runtime",
    "no_answer": "no_answer",
}
"""Which colour a verdict has: that of the mode it mostly is."""
COMMUNICATION_WORDS = {"custom": "own kernels", "library": "library", "none": "none", "unknown": "unknown"}
VERDICT_MEANING: dict[str, str] = {
    **{str(verdict): text for verdict, text in MEANINGS.items()},
    "no_answer": "No candidate came back.",
}
PATH_WORDS = {
    "copy_engine": "copy engine",
    "sm_load_store": "SM load/store",
    "tma": "TMA",
    "nvls": "NVLS",
    "library": "library",
    "none": "none",
    "unknown": "not read",
}

# Characters that make text read otherwise than it runs, or that no font shows: drawn as their code point.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def visible(text: str) -> str:
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


JOINT = re.compile(r"(?<=[_/])(?=\w)|(?<=[.,:-])(?=[A-Za-z])")


def breaks(text: str) -> Markup:
    """A name with places where a line may end: behind the signs that join its words, not in the middle of one."""
    return Markup("<wbr>").join(escape(part) for part in JOINT.split(visible(text)))


def mode_words(mode: str) -> str:
    return WORDS[FailureMode(mode)]


def plain(word: str) -> str:
    return word.replace("_", " ")


def time_words(us: float | None) -> str:
    return "–" if us is None else units.time_words(us, micro="µs")


def times_words(ratio: float | None) -> str:
    """A speedup: `2.31×`."""
    if ratio is None:
        return "–"
    return f"{ratio:.2f}×" if ratio < 100 else f"{ratio:.0f}×"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def is_whole(value: float) -> bool:
    return math.isclose(value, round(value), abs_tol=0.005)


def count_words(value: float) -> str:
    """Problems: whole where it is whole, else one digit, since estimators average over tries."""
    return f"{value:.0f}" if is_whole(value) else f"{value:.1f}"


def dollars(amount: float | None) -> str:
    if amount is None:
        return "–"
    return f"${amount:,.2f}" if amount >= 0.995 else f"${amount:.3f}"


def short_number(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5 or unit == "P":
            return f"{value:.3g}{unit}" if unit else f"{value:.4g}"
        value /= 1000
    raise AssertionError("unreachable")


def bytes_words(count: float | None) -> str:
    return "–" if count is None else units.bytes_words(count)


def spark(points: Sequence[tuple[float, float]], *, width: int = 88, height: int = 26, top: float = 1.0) -> str:
    """Points of a polyline for a small curve: x to the largest p, y to `top`."""
    if not points:
        return ""
    right = max(x for x, _ in points) or 1.0
    return " ".join(
        f"{1 + x / right * (width - 2):.1f},{height - 1 - min(y / top, 1.0) * (height - 2):.1f}" for x, y in points
    )
