"""A proven race as one picture: a lane for each rank from top to bottom, its synchronisations in the order of the trace, the
two accesses marked, and between them the order that is missing."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from pkb.report.svg import CHARACTER, NARROW, WIDE, Chart, Key, outline, path_element
from pkb.report.words import visible
from pkb.types.document_versions import read_part
from pkb.types.race import OWN_ACCOUNT, PROVEN, Moment, RaceProof
from pkb.types.race_words import access_words, moment_words, place_words, rows, shown_ranks

ROW, TOP, MARGIN = 24, 34, 14
NARROWEST_LANE = 150
KEYS = (
    Key("one of the two accesses", "race-access", shape="diamond", line=False),
    Key("a synchronisation", "race-sync", shape="circle", line=False),
    Key("nothing orders these two", "race-missing"),
)


class ShownRace(NamedTuple):
    """For the page: what it says beside the picture."""

    title: str
    rows: list[tuple[str, str, str]]
    """Of both accesses and the operations that should have ordered them: what, where, the line's text."""
    memory: str
    missing: str
    picture: Chart | None
    others: list[str]
    said: str
    note: str = OWN_ACCOUNT


def shown_race(document: Mapping[str, Any]) -> ShownRace | None:
    """None where the verdict has no finding, or is of a form that this version does not know."""
    try:
        proof: RaceProof | None = read_part(RaceProof, document.get("race_proof"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if proof is None or not proof.findings:
        return None
    finding, *others = proof.findings
    said = [
        (
            f"{mark} {'write' if side.write else 'read'}: {side.what}",
            f"{place_words(side)}; {access_words(side)}",
            side.text,
        )
        for mark, side in (("[1]", finding.first), ("[2]", finding.second))
    ]
    said += [
        (f"{words}: {site.what}", place_words(site), site.text)
        for words, site in (("after [1]", finding.missing.first), ("before [2]", finding.missing.second))
        if site is not None
    ]
    return ShownRace(
        title=f"{finding.kind.replace('_', ' ')}: {PROVEN[finding.kind]}",
        rows=said,
        memory=f"{finding.bytes} bytes at offset {finding.offset} of {finding.memory}",
        missing=finding.missing.text,
        picture=picture(proof),
        others=[
            f"{one.kind.replace('_', ' ')}: {place_words(one.first)} and {place_words(one.second)}" for one in others
        ],
        said=proof.in_words,
    )


def picture(proof: RaceProof) -> Chart | None:
    if not proof.timeline:
        return None
    return Chart(tuple(_draw(proof, width, css) for width, css in ((WIDE, "wide-only"), (NARROW, "narrow-only"))), KEYS)


def _draw(proof: RaceProof, width: int, css: str) -> Markup:
    ranks = shown_ranks(proof, width // NARROWEST_LANE)
    moments = [row for row in rows(proof) if row.moment.rank in ranks]
    lane = (width - 2 * MARGIN) / len(ranks)
    bottom = TOP + ROW * len(moments) + 8
    parts: list[Markup] = []
    ends: dict[str, tuple[float, float]] = {}
    for number, rank in enumerate(ranks):
        x = MARGIN + lane * number + 5
        parts.append(_text(x - 5, 16, f"rank {rank}", "axis"))
        parts.append(path_element("line grid", f"M{x:g} {TOP - 10}V{bottom}"))
    for row, (moment, mark, _) in enumerate(moments):
        x, y = MARGIN + lane * ranks.index(moment.rank) + 5, TOP + ROW * row + 6
        if mark:
            ends[mark] = (x, y)
        shape, colour = ("diamond", "race-access") if mark else ("circle", "race-sync")
        parts.append(path_element(f"mark {colour}", outline(shape, x, y, 5.5 if mark else 4), title=_said(moment)))
        words = f"{mark} {moment_words(moment, proof)}".strip()
        room = int((lane - 22) / CHARACTER)
        parts.append(
            _text(x + 12, y + 4, words if len(words) <= room else f"{words[: max(1, room - 1)]}…", "race-word")
        )
    if len(ends) == 2:
        (x1, y1), (x2, y2) = ends["[1]"], ends["[2]"]
        parts.append(
            path_element("line race-missing", f"M{x1:g} {y1:g}L{x2:g} {y2:g}", title="nothing orders these two")
        )
    label = f"timelines of ranks {', '.join(map(str, ranks))} around the race"
    head = Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        css, width, bottom + 6, label
    )
    return head + Markup("").join(parts) + Markup("</svg>")


def _said(moment: Moment) -> str:
    return f"{moment.order}: rank {moment.rank}, {moment.what} at {moment.file}:{moment.line} {moment.detail}".strip()


def _text(x: float, y: float, words: str, css: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(css, f"{x:g}", f"{y:g}", visible(words))
