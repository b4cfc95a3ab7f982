"""Numbers and verdicts as people read them, and the colour of each verdict: one place, for pages and figures alike."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from pkb.analysis.modes import BY_VERDICT, WORDS, FailureMode
from pkb.types import units
from pkb.types.words import MEANINGS


class Tone(NamedTuple):
    light: str
    dark: str


# Green is right, red is wrong, warm colours are failures of the candidate, violet is waiting, grey is nobody's failure.
MODE_TONES: dict[str, Tone] = {
    "correct": Tone("#1a7f4b", "#3fb970"),
    "mismatch": Tone("#c62f3b", "#f0636b"),
    "race": Tone("#d9730d", "#f59e42"),
    "reused_output": Tone("#a87b00", "#e0b020"),
    "deadlock": Tone("#7a4fc0", "#a98bf0"),
    "compile": Tone("#8a5a2b", "#c08a55"),
    "shape": Tone("#b5893b", "#d9b35f"),
    "name": Tone("#9a7b1a", "#cfae3d"),
    "runtime": Tone("#b5316a", "#e772a4"),
    "rejected": Tone("#5b1f33", "#b65b77"),
    "no_answer": Tone("#6b7280", "#8b93a1"),
    "unsupported": Tone("#9aa3b0", "#6d7683"),
    "harness_error": Tone("#bcc3cd", "#525a66"),
}
VERDICT_MODE = {str(verdict): mode.value for verdict, mode in BY_VERDICT.items()} | {
    "wrong": "mismatch",
    "load_error": "name",
    "runtime_error": "runtime",
    "no_answer": "no_answer",
}
"""Which colour a verdict has: that of the mode it mostly is."""
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


def count_words(value: float) -> str:
    """Problems: whole where it is whole, else one digit, since estimators average over tries."""
    return f"{value:.0f}" if math.isclose(value, round(value), abs_tol=0.005) else f"{value:.1f}"


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
