"""A proven race as people read it: one wording for the panel, the report, the site and the feedback to models.

Names, files and kernels come from logs that a candidate's processes wrote, so every line is cleaned here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pkb.types.race import OWN_ACCOUNT, PROVEN, Access, Moment, RaceFinding, RaceProof, Site
from pkb.types.words import clean

NARROWEST = 24
"""Columns of a rank below which others are left out of the picture."""


def place_words(part: Access | Site) -> str:
    """`at line 31 (all_reduce.cu:14)`: where a person finds it, and what the compiler called it."""
    if part.file in ("", "?"):
        return "outside of the candidate"
    compiled = clean(f"{part.file}:{part.line}")
    if part.candidate_line in (0, part.line):
        return f"at {compiled}"
    return f"at line {part.candidate_line} ({compiled})"


def access_words(access: Access) -> str:
    who = f"rank {access.rank}"
    if access.kernel:
        who += f", kernel {clean(access.kernel)}, block {access.block}, thread {access.thread}"
    return f"{who}, call {access.call}"


def finding_title(finding: RaceFinding) -> str:
    first, second = finding.first, finding.second
    one, other = (
        f"the {'write' if side.write else 'read'} {place_words(side)} by rank {side.rank}" for side in (first, second)
    )
    return f"{one} races with {other}: {PROVEN[finding.kind]}"


def finding_lines(finding: RaceFinding) -> list[str]:
    """All that is known of one."""
    lines = []
    for mark, side in (("[1]", finding.first), ("[2]", finding.second)):
        lines.append(f"{mark} {'write' if side.write else 'read'} {place_words(side)}: {clean(side.what)}")
        lines += [f"      {clean(side.text)}"] if side.text else []
        lines.append(f"    {access_words(side)}")
    pairs = f"; {finding.count} such pairs" if finding.count > 1 else ""
    lines.append(f"both touch {finding.bytes} bytes at offset {finding.offset} of {clean(finding.memory)}{pairs}")
    lines.append(f"missing: {clean(finding.missing.text) or PROVEN[finding.kind]}")
    for words, site in (("after [1]", finding.missing.first), ("before [2]", finding.missing.second)):
        if site is not None:
            lines.append(f"    {words}: {clean(site.what)} {place_words(site)}")
            lines += [f"      {clean(site.text)}"] if site.text else []
    return lines


def weak_lines(proof: RaceProof) -> list[str]:
    """What came of it, where it came to anything."""
    return [clean(proof.weak.in_words)] if proof.weak is not None and proof.weak.wrong else []


def marks(moment: Moment, finding: RaceFinding) -> str:
    """`[1]` or `[2]` where the moment is one of the two accesses."""
    place = (moment.rank, moment.file, moment.line)
    kinds = {True: "write", False: "read"}
    for mark, side in (("[1]", finding.first), ("[2]", finding.second)):
        if place == (side.rank, side.file, side.line) and moment.what in (kinds[side.write], side.what):
            return mark
    return ""


def moment_words(moment: Moment, proof: RaceProof) -> str:
    """`st.release.sys.u32 :14`: without the file where it is that of the first access."""
    file = "" if moment.file == proof.findings[0].first.file else moment.file
    return clean(f"{moment.what.replace('.global', '')} {file}:{moment.line}" if moment.line else moment.what)


class TimelineRow(NamedTuple):
    """Of the picture."""

    moment: Moment
    mark: str
    """Of the two accesses."""
    placed: bool = True
    """False for a first access of which the trace says no more than that it came before the second."""


def rows(proof: RaceProof) -> list[TimelineRow]:
    """The moments of a timeline in their order, once where several threads do the same.

    Plain accesses have no number of their own: the second has that of the moment at which the race was seen, and the first
    may have the same. It is then put before the operation that comes behind it in the source, if that is known.
    """
    finding, missing = proof.findings[0], proof.findings[0].missing.first
    found: list[TimelineRow] = []
    for moment in sorted(proof.timeline, key=lambda moment: moment.order):
        row, last = TimelineRow(moment, marks(moment, finding)), found[-1].moment if found else None
        same = last and (last.rank, last.what, last.file, last.line) == (
            moment.rank,
            moment.what,
            moment.file,
            moment.line,
        )
        if not same or row.mark:  # threads of one warp come one after another
            found.append(row)
    at = {row.mark: number for number, row in enumerate(found)}
    if "[1]" not in at or "[2]" not in at or found[at["[1]"]].moment.order != found[at["[2]"]].moment.order:
        return found
    first = found.pop(at["[1]"])
    behind = [
        number for number, row in enumerate(found)
        if missing is not None and (row.moment.rank, row.moment.file, row.moment.line)
        == (first.moment.rank, missing.file, missing.line)
    ]  # fmt: skip
    number = behind[-1] if behind else next(number for number, row in enumerate(found) if row.mark == "[2]")
    return [*found[:number], first._replace(placed=False), *found[number:]]


def shown_ranks(proof: RaceProof, most: int) -> list[int]:
    """Those of the first finding, then others of the timeline, at most so many; in order."""
    first = proof.findings[0]
    wanted = [first.first.rank, first.second.rank, *(moment.rank for moment in proof.timeline)]
    return sorted(list(dict.fromkeys(wanted))[: max(most, 1)])


def timeline_lines(proof: RaceProof, *, width: int = 76) -> list[str]:
    """A lane for each rank, from top to bottom in the order of the trace."""
    if not proof.findings or not proof.timeline:
        return []
    ranks = shown_ranks(proof, (width - 8) // NARROWEST)
    lane = (width - 8) // len(ranks)
    lines = [" order  " + "".join(f"rank {rank}".ljust(lane) for rank in ranks).rstrip()]
    left_out = 0
    for moment, mark, placed in rows(proof):
        if moment.rank not in ranks:
            left_out += 1
            continue
        words = moment_words(moment, proof)
        cells = [_cell(*((words, mark) if rank == moment.rank else ("", "")), lane) for rank in ranks]
        lines.append(f"{moment.order if placed else '':>6}  {''.join(cells)}".rstrip())
    if left_out:
        lines.append(f"        ({left_out} of other ranks left out)")
    lines.append(f"        nothing orders [1] and [2]; lines of {clean(proof.findings[0].first.file)}")
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
    lines += [clean(proof.weak_in_words)] if proof.weak else []
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
    if proof is None or not proof.findings:
        return ()
    return (*finding_lines(proof.findings[0]), *weak_lines(proof), *timeline_lines(proof))
