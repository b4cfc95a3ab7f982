"""Which line of the candidate something comes from."""

import functools
import sys
from functools import lru_cache
from pathlib import Path

import torch

from pkb.rank.emulate import recorder

_LIBRARIES = (
    str(Path(torch.__file__).parents[1]), str(Path(sys.modules["pkb"].__file__ or "").parent),
    str(Path(functools.__file__).parent), "<",
)  # fmt: skip
"""Nothing in them is the candidate's: torch and Triton, the kit, Python's own, code that was made."""


def of_caller(what: str) -> int:
    """The site of the innermost frame that is the candidate's; one of no file where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            return _site(frame.f_code.co_filename, frame.f_lineno, what)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return _site("?", 0, what)


@lru_cache(maxsize=4096)
def _site(file: str, line: int, what: str) -> int:
    return recorder.site(Path(file).name, line, what)


def forget() -> None:
    """Numbers are a log's own."""
    _site.cache_clear()
