"""Reads the stack dump of a stuck rank: the frames that a person can act on, innermost first."""

import re

FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')


def candidate_frames(dump: str, limit: int = 8) -> list[str]:
    """Frames of the main thread of the last dump, without the harness's own."""
    blocks = re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", dump)
    main = next(
        (block for block in reversed(blocks) if block.startswith("Current thread")), blocks[-1] if blocks else ""
    )
    frames = []
    for line in main.splitlines():
        if found := FRAME.match(line):
            path = found["file"]
            if "/pkb/rank/" in path or path.startswith("<frozen"):
                continue
            name = path.rsplit("/", 1)[-1]
            frames.append(f"{name}:{found['line']} in {found['function']}")
    return frames[:limit]
