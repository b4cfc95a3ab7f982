"""A compiler's log in terms of the candidate's file: errors before warnings, each with its line of the Python file.

A compiler sees a text that stands in a string of the candidate and counts lines of that. Where the string begins is not
always to be read off (it may be joined, formatted, or begin with a header of ours), so lines are found by their text.
"""

import re

_PLACE = re.compile(r"^(?P<file>[^\s:()][^:()]*)(?:\((?P<nvcc>\d+)\)|:(?P<gcc>\d+)(?::\d+)?): (?P<what>.*)")
_NEIGHBOURS = 4
"""Lines above and below that tell apart two lines of the same text (`}`, `__syncthreads();`)."""


def in_candidate(log: str, *, compiled: str, candidate: str) -> str:
    """The log with its errors first; `line 154 of the candidate: ` stands before each that is about its text."""
    blocks = _blocks(log)
    order = sorted(range(len(blocks)), key=lambda index: (_rank(blocks[index]), index))
    return "\n".join(_placed(line, compiled, candidate) for index in order for line in blocks[index])


def candidate_line(line: int, *, compiled: str, candidate: str) -> int | None:
    """The line of the candidate that line `line` of the compiled text is; None where it cannot be said."""
    ours, theirs = _bare(candidate), _bare(compiled)
    if not 1 <= line <= len(theirs):
        return None
    # The line itself counts more than its neighbours, but an escape in it (`\\n`) may make it look different.
    offsets = [0, *(sign * step for step in range(1, _NEIGHBOURS + 1) for sign in (-1, 1))]
    wanted = {offset: theirs[line - 1 + offset] for offset in offsets if 0 <= line - 1 + offset < len(theirs)}
    found: dict[int, int] = {}
    for position in range(len(ours)):
        same = [
            offset for offset, text in wanted.items()
            if text and 0 <= position + offset < len(ours) and ours[position + offset] == text
        ]  # fmt: skip
        score = sum(_NEIGHBOURS if offset == 0 else 1 for offset in same)
        if score >= 2:
            found[position] = score
    best = max(found.values(), default=0)
    places = [position for position, score in found.items() if score == best]
    return places[0] + 1 if len(places) == 1 else None


def _bare(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _blocks(log: str) -> list[list[str]]:
    """A message with the lines that quote its place."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        if _PLACE.match(line) or not blocks:
            blocks.append([line])
        else:
            blocks[-1].append(line)
    return blocks


def _rank(block: list[str]) -> int:
    place = _PLACE.match(block[0])
    if place is None:
        return 1
    what = place["what"].lower()
    return 0 if re.match(r"(catastrophic |fatal )?error\b", what) else 2 if re.match(r"warning\b", what) else 1


def _placed(line: str, compiled: str, candidate: str) -> str:
    place = _PLACE.match(line)
    if place is None or "/" in place["file"]:  # a header's line is not the candidate's
        return line
    found = candidate_line(int(place["nvcc"] or place["gcc"]), compiled=compiled, candidate=candidate)
    return line if found is None else f"line {found} of the candidate: {line}"
