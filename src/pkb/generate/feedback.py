"""What an agent is told about its kernel: as much as `pkb eval` shows a person, and nothing else of the verdict.

Every line is made from a field that the panel shows too. Seeds are in no verdict; of the expected values the one element
that a person is shown is named, never more, and what the judge compared with, where it ran and behind which walls stays out.
What a candidate printed or raised is cut short, so that it cannot flood the conversation.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pkb.platforms.registry import traits

TRACE_LINES = 8
TEXT_CHARACTERS = 1500
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_DECISIONS = {
    "faster": "faster than the reference",
    "slower": "slower than the reference",
    "same": "no difference shown: the interval holds 1",
    "unproven": "unproven: faster by the ranks' clocks, by too little for the judge's own to confirm",
}


def feedback(document: Mapping[str, Any]) -> str:
    """A verdict in words for the model that wrote the candidate."""
    verdict = str(document["verdict"])
    lines = [_title(document, verdict)]
    if document.get("detail"):
        lines.append(_text(document["detail"]))
    if document.get("race_kind"):
        lines.append(f"race of kind {_text(document['race_kind'])}")
    lines += _mismatch(document.get("mismatch"))
    lines += _ranks(document.get("rank_states") or ())
    lines += _failure(document.get("failure"), rule=verdict == "rejected")
    lines += _timing(document.get("timing"), platform=str(document["platform"]), believed=verdict == "correct")
    moved = f"communication: {document.get('communication', 'unknown')}"
    paths = document.get("paths") or ()
    lines.append(moved + (f"; paths: {', '.join(map(_text, paths))}" if paths else ""))
    lines += _profile(document.get("profile"))
    lines += [f"hint: {_text(hint)}" for hint in document.get("hints") or ()]
    lines += [f"checked: {_text(check)}" for check in document.get("checks") or ()]
    printed = str(document.get("output_tail") or "").strip()
    if printed:
        lines += ["your candidate printed:", _text("\n".join(printed.splitlines()[-TRACE_LINES:]))]
    return "\n".join(lines)


def _title(document: Mapping[str, Any], verdict: str) -> str:
    case = f"{document['ranks']} ranks on {document['platform']}, size {document['size']}, {document['dtype']}"
    if verdict == "correct":
        return f"CORRECT ({case})"
    if verdict == "harness_error":
        return (
            f"NO VERDICT ({case}): the judge failed; this says nothing about your kernel, and you may submit it again"
        )
    return f"{verdict.replace('_', ' ').upper()} in stage {document['stage']} ({case})"


def _mismatch(mismatch: Mapping[str, Any] | None) -> list[str]:
    if mismatch is None:
        return []
    ranks = ", ".join(map(str, mismatch["ranks"]))
    lines = [
        f"case: {_text(mismatch['case'])}",
        f"ranks {ranks} differ; described for rank {mismatch['rank']}",
        f"{_text(mismatch['output'])}: {_text(mismatch['what'])}",
    ]
    if mismatch.get("first_index") is not None:
        index = ", ".join(map(str, mismatch["first_index"]))
        got, expected = _number(mismatch["first_got"]), _number(mismatch["first_expected"])
        lines.append(f"first: [{index}] is {got}, expected {expected}")
    if mismatch.get("differing_fraction") is not None:
        lines.append(f"{_percent(mismatch['differing_fraction'])} of the elements differ")
    if mismatch.get("error_ratio") is not None:
        lines.append(f"error: {mismatch['error_ratio']:.3g} times what is tolerated")
    if mismatch.get("pattern"):
        lines.append(f"pattern: {_text(mismatch['pattern'])}")
    if mismatch.get("regions"):
        lines.append("where: " + ", ".join(f"{_text(name)} {_percent(share)}" for name, share in mismatch["regions"]))
    return lines


def _ranks(states: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for state in states:
        line = f"rank {state['rank']}: {_text(state['state'])}"
        line += f", {_text(state['where'])}" if state.get("where") else ""
        line += f" at {_text(state['stack'][0]).strip()}" if state.get("stack") else ""
        lines.append(line)
    return lines


def _failure(failure: Mapping[str, Any] | None, *, rule: bool) -> list[str]:
    if failure is None:
        return []
    head = ("broke the rule " if rule else "") + _text(failure["kind"])
    head += f" on rank {failure['rank']}" if failure.get("rank") is not None else ""
    lines = [f"{head}: {_text(failure['message'])}"]
    trace = str(failure.get("trace") or "").rstrip().splitlines()
    if trace:
        lines.append(_text("\n".join(trace[-TRACE_LINES:])))
    return lines


def _timing(timing: Mapping[str, Any] | None, *, platform: str, believed: bool) -> list[str]:
    if timing is None:
        return []
    if not believed:
        return ["its times are not to be believed"]
    lines = [
        f"reference {timing['reference_us']:.4g} us, candidate {timing['candidate_us']:.4g} us a call (medians)",
        f"speedup {timing['speedup']:.2f}x, 95 % interval {timing['speedup_low']:.2f} to {timing['speedup_high']:.2f}: "
        + _DECISIONS.get(timing["decision"], str(timing["decision"])),
    ]
    roofline = timing.get("roofline")
    if roofline is not None:
        shares = [
            f"{name} {share * 100:.3g} %"
            for name in ("reference", "candidate")
            if (share := roofline.get(f"{name}_utilisation")) is not None
        ]
        lines.append(
            f"hardware limit {roofline['ideal_us']:.4g} us ({roofline['binds']} binds): {', '.join(shares)} of it reached; "
            f"best kernels reach {roofline['reachable_us']:.4g} us, latency {roofline['latency_us']:.4g} us"
        )
    where = traits(platform)
    return lines + ([where.taken] if where.shares_device else [])


def _profile(profile: Mapping[str, Any] | None) -> list[str]:
    side = (profile or {}).get("candidate")
    if side is None:
        return []
    line = f"per call: {side['kernels_per_call']:.3g} kernels, {side['copies_per_call']:.3g} copies"
    if side.get("fused"):
        return [f"{line}; {side['fused_us']:.4g} us in kernels that communicate and compute at once"]
    line += f"; communication {side['communication_us']:.4g} us"
    if side.get("overlap") is not None:
        line += f", {_percent(side['overlap'])} of it hidden under compute"
    return [line]


def _text(value: object) -> str:
    """Text of unknown origin: no control characters, not endless."""
    clean = _CONTROL.sub("", str(value)).expandtabs(4).rstrip()
    return clean if len(clean) <= TEXT_CHARACTERS else clean[:TEXT_CHARACTERS] + " ..."


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float | int) else _text(value)


def _percent(share: float) -> str:
    percent = 100 * share
    return "0 %" if percent == 0 else f"{percent:.3g} %" if percent >= 0.01 else "under 0.01 %"
