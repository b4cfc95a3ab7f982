"""Verdicts, decisions and numbers as people read them: one wording for the panel, the report and the feedback to models."""

import re
from collections.abc import Mapping, Sequence

from pkb.types.timing import Decision, tells_speed
from pkb.types.verdict import Verdict

DECISIONS: Mapping[Decision, str] = {
    Decision.FASTER: "faster than the {against}",
    Decision.SLOWER: "slower than the {against}",
    Decision.SAME: "no difference shown: the 95 % interval includes 1",
    Decision.UNPROVEN: "unproven: faster by the ranks' clocks, and neither the host wall clock nor further starts confirm it",
}
MEANINGS: Mapping[Verdict, str] = {
    Verdict.CORRECT: "Correct on every rank in every call that was checked, and no race was provoked.",
    Verdict.WRONG: "An output differs from the ground truth.",
    Verdict.RACE: "Correct when calls come one by one; wrong when races are provoked, or proven to contain one.",
    Verdict.REUSED_OUTPUT: "Correct and free of races if each result is used before the next call, which overwrites it.",
    Verdict.DEADLOCK: "The ranks did not finish in time.",
    Verdict.COMPILE_ERROR: "It does not compile.",
    Verdict.LOAD_ERROR: "It does not import, or defines no solution.",
    Verdict.RUNTIME_ERROR: "A rank raised an exception.",
    Verdict.CRASH: "A rank or its device died.",
    Verdict.REJECTED: "A rule was broken.",
    Verdict.UNSUPPORTED: "Needs something that this platform does not have. Does not count as a failure.",
    Verdict.HARNESS_ERROR: "The judge could not reach a verdict. Does not count as a failure.",
}
TEXT_CHARACTERS = 1500
TRACE_LINES = 8
"""The end of a trace names the candidate's own line."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_controls(text: str) -> str:
    """Text of unknown origin, of any length: no escape sequences, nothing that turns its direction."""
    return _CONTROL.sub("", text).expandtabs(4).rstrip()


def clean(text: str) -> str:
    """Text of unknown origin: no escape sequences, nothing that turns its direction, not endless."""
    plain = without_controls(text)
    return plain if len(plain) <= TEXT_CHARACTERS else plain[:TEXT_CHARACTERS] + " ..."


def decision_words(decision: str, platform: str, against: str = "reference") -> str:
    if not tells_speed(platform):
        return "on a CPU, which says nothing about the speed of a kernel"
    return DECISIONS[Decision(decision)].format(against=against) if decision in set(Decision) else decision


def number_words(ranks: Sequence[int]) -> str:
    """`0-3, 6`: eight ranks in a few characters."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def value_words(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float | int) else clean(str(value))


def share_words(share: float) -> str:
    percent = 100 * share
    return "0 %" if percent == 0 else f"{percent:.3g} %" if percent >= 0.01 else "under 0.01 %"
