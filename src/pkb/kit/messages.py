"""A compiler's messages, cut to the candidate's own text and that of the toolchain.

A compiler that includes or links a file it cannot understand quotes it. The sandbox keeps most files from it; this keeps
what it quotes of the others out of verdicts.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from pkb.kit.options import reach_roots

_PLACES = (
    re.compile(r"^(?P<file>[^\s:()][^:()]*):(?P<line>\d+)(:\d+)?: "),  # g++, clang, the assembler
    re.compile(r"^(?P<file>[^\s()][^()]*)\((?P<line>\d+)\): "),  # nvcc and NVRTC
    re.compile(r'^"(?P<file>[^"]+)", line (?P<line>\d+): '),
    re.compile(r"^\S*\bld(?:\.\w+)?: ?(?P<file>/[^:]*):(?P<line>\d+): "),  # the linker, reading a script
)
_EXCERPT = re.compile(r"^\s*(\d+\s*\||\||\^|\s{2,}\S|$)")
LEFT_OUT = "[text left out: not the candidate's own file]"


def own_words(log: str, own_files: Iterable[str]) -> str:
    """The log, with every message about a file that is neither the candidate's nor the toolchain's reduced to its place."""
    own = set(own_files)
    shown, quiet = [], False
    for text in log.splitlines():
        match = next((found for pattern in _PLACES if (found := pattern.search(text))), None)
        if match is not None:
            quiet = not _public(match["file"], own)
            shown.append(f"{match[0]}error: {LEFT_OUT}" if quiet else text)
        elif not quiet or not _EXCERPT.match(text):
            # Words without a place belong to what comes next ("In file included from") or to the driver.
            quiet = False
            shown.append(text)
    return "\n".join(dict.fromkeys(shown)) if LEFT_OUT in log or any(LEFT_OUT in line for line in shown) else log


def _public(file: str, own: set[str]) -> bool:
    if file in own or not file.startswith("/"):
        # A relative name is in the build's own folder, unless it climbs out of it.
        return ".." not in Path(file).parts
    return any(Path(file).resolve().is_relative_to(root) for root in reach_roots())
