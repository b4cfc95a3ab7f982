"""A proven race as people read it: one wording for the panel, the report, the site and the feedback to models.

Names, files and kernels come from logs that a candidate's processes wrote, so every line is cleaned here.
"""

from collections.abc import Sequence

from pkb.types.race import OWN_ACCOUNT, PROVEN, Access, Moment, RaceFinding, RaceProof, Site
from pkb.types.words import clean

NARROWEST = 24
"""Columns of a rank below which others are left out of the picture."""


def place_words(part: Access | Site | Moment) -> str:
    """`line 31 (all_reduce.cu:14)`: where a person finds it, and what the compiler called it."""
    compiled = clean(f"{part.file}:{part.line}")
    in_candidate = 0 if isinstance(part, Moment) else part.candidate_line
    if not in_candidate:
        return compiled
    return f"line {in_candidate} ({compiled})" if in_candidate != part.line else compiled


def access_words(access: Access) -> str:
    who = f"rank {access.rank}"
    if access.kernel:
        who += f", kernel {clean(access.kernel)}, block {access.block}, thread {access.thread}"
    return f"{who}, call {access.call}"


def finding_title(finding: RaceFinding) -> str:
    first, second = finding.first, finding.second
    one, other = (
        f"the {'write' if side.write else 'read'} at {place_words(side)} by rank {side.rank}"
        for side in (first, second)
    )
    return f"{one} races with {other}: {PROVEN[finding.kind]}"


def finding_lines(finding: RaceFinding) -> list[str]:
    """All that is known of one."""
    lines = []
    for mark, side in (("[1]", finding.first), ("[2]", finding.second)):
        lines.append(f"{mark} {'write' if side.write else 'read'} at {place_words(side)}: {clean(side.what)}")
        lines += [f"      {clean(side.text)}"] if side.text else []
        lines.append(f"    {access_words(side)}")
    pairs = f"; {finding.count} such pairs" if finding.count > 1 else ""
    lines.append(f"both touch {finding.bytes} bytes at offset {finding.offset} of {clean(finding.memory)}{pairs}")
    lines.append(f"missing: {clean(finding.missing.text) or PROVEN[finding.kind]}")
    for words, site in (("after [1]", finding.missing.first), ("before [2]", finding.missing.second)):
        if site is not None:
            lines.append(f"    {words}: {clean(site.what)} at {place_words(site)}")
            lines += [f"      {clean(site.text)}"] if site.text else []
    return lines


def marks(moment: Moment, finding: RaceFinding) -> str:
    """`[1]` or `[2]` where the moment is one of the two accesses."""
    place = (moment.rank, moment.file, moment.line)
    kinds = {True: "write", False: "read"}
    for mark, side in (("[1]", finding.first), ("[2]", finding.second)):
        if place == (side.rank, side.file, side.line) and moment.what in (kinds[side.write], side.what):
            return mark
    return ""


def shown_ranks(proof: RaceProof, most: int) -> list[int]:
    """Those of the first finding, then others of the timeline, at most so many; in order."""
    first = proof.findings[0]
    wanted = [first.first.rank, first.second.rank, *(moment.rank for moment in proof.timeline)]
    return sorted(list(dict.fromkeys(wanted))[: max(most, 1)])


def timeline_lines(proof: RaceProof, *, width: int = 76) -> list[str]:
    """A lane for each rank, from top to bottom in the order of the trace."""
    if not proof.findings or not proof.timeline:
        return []
    finding = proof.findings[0]
    ranks = shown_ranks(proof, (width - 8) // NARROWEST)
    lane = (width - 8) // len(ranks)
    lines = [" order  " + "".join(f"rank {rank}".ljust(lane) for rank in ranks).rstrip()]
    left_out = 0
    for moment in sorted(proof.timeline, key=lambda moment: moment.order):
        if moment.rank not in ranks:
            left_out += 1
            continue
        mark = marks(moment, finding)
        words = clean(f"{moment.what} {moment.file}:{moment.line}")
        cells = [
            _cell(words if rank == moment.rank else "", mark if rank == moment.rank else "", lane) for rank in ranks
        ]
        lines.append(f"{moment.order:6d}  {''.join(cells)}".rstrip())
    if left_out:
        lines.append(f"        ({left_out} of other ranks left out)")
    lines.append("        nothing orders [1] and [2]")
    return lines


def _cell(words: str, mark: str, lane: int) -> str:
    room = lane - 3 - len(mark)
    cut = words if len(words) <= room else f"{words[: room - 2]}.."
    return f"| {cut}{mark and f' {mark}'}".ljust(lane)


def report_lines(proof: RaceProof, *, width: int = 76) -> list[str]:
    """`pkb eval --race-report`: everything."""
    lines = [proof.in_words]
    if proof.seeds:
        first, last = proof.seeds[0], proof.seeds[-1]
        lines.append(f"seeds {first} to {last}, ranks started {_schedule(proof)}; --seed {first} begins with the same")
    for number, finding in enumerate(proof.findings):
        lines += [
            "",
            f"{number + 1}. {finding.kind}: {PROVEN[finding.kind]}",
            *(f"   {line}" for line in finding_lines(finding)),
        ]
    if picture := timeline_lines(proof, width=width):
        lines += ["", "around the first of them:", *picture]
    return [*lines, "", OWN_ACCOUNT]


def _schedule(proof: RaceProof) -> str:
    words = {"both": "together and one late in turn", "together": "together", "late": "one late"}
    return words[proof.schedule]


def feedback_lines(proof: RaceProof | None) -> Sequence[str]:
    """For a model: the first finding, as the panel shows it."""
    return () if proof is None or not proof.findings else (*finding_lines(proof.findings[0]), *timeline_lines(proof))
