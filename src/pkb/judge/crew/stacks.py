"""Reads the stack dump of a stuck rank: the frames that a person can act on, innermost first."""

import re

FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
MOST_FRAMES = 8


def candidate_frames(dump: str) -> list[str]:
    """Frames of the main thread of the last dump, without the harness's own."""
    blocks = re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", dump)
    main = next(
        (block for block in reversed(blocks) if block.startswith("Current thread")), blocks[-1] if blocks else ""
    )
    frames = [found for line in main.splitlines() if (found := FRAME.match(line))]
    theirs = [
        frame for frame in frames if "/pkb/rank/" not in frame["file"] and not frame["file"].startswith("<frozen")
    ]
    return [
        f"{frame['file'].rsplit('/', 1)[-1]}:{frame['line']} in {frame['function']}" for frame in theirs[:MOST_FRAMES]
    ]
