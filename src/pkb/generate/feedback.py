"""What an agent is told about its kernel: as much as `pkb eval` shows a person, and nothing else of the verdict.

Every line is made from a field that the panel shows too. Seeds are in no verdict; of the expected values the one element
that a person is shown is named, never more, and what the judge compared with, where it ran and in which sandbox stays out.
What a candidate printed or raised is cut short, so that it cannot flood the conversation.
"""

from collections.abc import Sequence

from pkb.platforms.registry import traits
from pkb.types.difference import Mismatch
from pkb.types.failure import READ_FROM_THE_TOP, Failure
from pkb.types.profile import Profile
from pkb.types.race_words import feedback_lines
from pkb.types.timing import Timing
from pkb.types.units import bandwidth_words, binds_words
from pkb.types.verdict import Evaluation, RankState, Verdict
from pkb.types.words import TRACE_LINES, clean, decision_words, share_words, value_words


def feedback(evaluation: Evaluation) -> str:
    """A verdict in words for the model that wrote the candidate."""
    lines = [_title(evaluation)]
    if evaluation.detail:
        lines.append(_text(evaluation.detail))
    if evaluation.race_kind:
        lines.append(f"race of kind {_text(evaluation.race_kind)}")
    lines += feedback_lines(evaluation.race_proof)
    lines += _mismatch(evaluation.mismatch)
    lines += _ranks(evaluation.rank_states)
    lines += _failure(evaluation.failure, rule=evaluation.verdict is Verdict.REJECTED)
    lines += _timing(evaluation.timing, platform=evaluation.platform, believed=evaluation.verdict.is_timed)
    paths = f"; paths: {', '.join(map(_text, evaluation.paths))}" if evaluation.paths else ""
    lines.append(f"communication: {evaluation.communication}{paths}")
    lines += _profile(evaluation.profile)
    lines += [f"hint: {_text(hint)}" for hint in evaluation.hints]
    lines += [f"checked: {_text(check)}" for check in evaluation.checks]
    if printed := evaluation.output_tail.strip():
        lines += ["your candidate printed:", _text("\n".join(printed.splitlines()[-TRACE_LINES:]))]
    return "\n".join(lines)


def _title(said: Evaluation) -> str:
    case = f"{said.ranks} ranks on {said.platform}, size {said.size}, {said.dtype}"
    if said.verdict is Verdict.CORRECT:
        return f"CORRECT ({case})"
    if said.verdict is Verdict.HARNESS_ERROR:
        return (
            f"NO VERDICT ({case}): the judge failed; this says nothing about your kernel, and you may submit it again"
        )
    return f"{said.verdict.replace('_', ' ').upper()} in stage {said.stage} ({case})"


def _mismatch(mismatch: Mismatch | None) -> list[str]:
    if mismatch is None:
        return []
    ranks = ", ".join(map(str, mismatch.ranks))
    lines = [
        f"case: {_text(mismatch.case)}",
        f"ranks {ranks} differ; described for rank {mismatch.rank}",
        f"{_text(mismatch.output)}: {_text(mismatch.what)}",
    ]
    if mismatch.first_index is not None:
        index = ", ".join(map(str, mismatch.first_index))
        got, expected = value_words(mismatch.first_got), value_words(mismatch.first_expected)
        lines.append(f"first: [{index}] is {got}, expected {expected}")
    if mismatch.differing_fraction is not None:
        lines.append(f"{share_words(mismatch.differing_fraction)} of the elements differ")
    if mismatch.error_ratio is not None:
        lines.append(f"error: {mismatch.error_ratio:.3g} times the tolerance")
    if mismatch.pattern:
        lines.append(f"pattern: {_text(mismatch.pattern)}")
    if mismatch.regions:
        lines.append("where: " + ", ".join(f"{_text(name)} {share_words(share)}" for name, share in mismatch.regions))
    return lines


def _ranks(states: Sequence[RankState]) -> list[str]:
    lines = []
    for state in states:
        line = f"rank {state.rank}: {_text(state.state)}"
        line += f", {_text(state.where)}" if state.where else ""
        line += f" at {_text(state.stack[0]).strip()}" if state.stack else ""
        lines.append(line)
    return lines


def _failure(failure: Failure | None, *, rule: bool) -> list[str]:
    if failure is None:
        return []
    head = ("broke the rule: " if rule else "") + _text(failure.title)
    head += f" on rank {failure.rank}" if failure.rank is not None else ""
    lines = [f"{head}: {_text(failure.message)}"]
    if trace := failure.trace.rstrip().splitlines():
        shown = trace[:TRACE_LINES] if failure.kind in READ_FROM_THE_TOP else trace[-TRACE_LINES:]
        lines.append(_text("\n".join(shown)))
    return lines


def _timing(timing: Timing | None, *, platform: str, believed: bool) -> list[str]:
    if timing is None:
        return []
    if not believed:
        return ["its times were not validated"]
    lines = [
        f"{timing.against} {timing.reference_us:.4g} us, candidate {timing.candidate_us:.4g} us per call (medians)",
        f"speedup {timing.speedup:.2f}x, 95 % interval {timing.speedup_low:.2f} to {timing.speedup_high:.2f}: "
        + decision_words(timing.decision, platform, timing.against),
    ]
    rates = {
        timing.against: bandwidth_words(timing.reference_alg_gbps, timing.reference_bus_gbps),
        "candidate": bandwidth_words(timing.candidate_alg_gbps, timing.candidate_bus_gbps),
    }
    if all(rates.values()):
        lines.append("; ".join(f"{name} {words}" for name, words in rates.items()))
    if (other := timing.other) is not None:
        lines.append(f"against the {other.against} ({other.us:.4g} us): speedup {other.speedup:.2f}x")
    if (roofline := timing.roofline) is not None:
        both = {timing.against: roofline.reference_utilisation, "candidate": roofline.candidate_utilisation}
        shares = [f"{name} {share * 100:.3g} %" for name, share in both.items() if share is not None]
        lines.append(
            f"hardware limit {roofline.ideal_us:.4g} us ({binds_words(roofline.binds, roofline.latency_us)}): "
            f"{', '.join(shares)} of it reached; best kernels reach {roofline.reachable_us:.4g} us"
        )
    where = traits(platform)
    return lines + ([where.taken] if where.shares_device else [])


def _profile(profile: Profile | None) -> list[str]:
    side = profile.candidate if profile else None
    if side is None:
        return []
    line = f"per call: {side.kernels_per_call:.3g} kernels, {side.copies_per_call:.3g} copies"
    if side.fused:
        return [f"{line}; {side.fused_us:.4g} us in kernels that communicate and compute at once"]
    line += f"; communication {side.communication_us:.4g} us"
    if side.overlap is not None:
        line += f", {share_words(side.overlap)} of it hidden under compute"
    return [line]


def _text(value: object) -> str:
    return clean(str(value))
