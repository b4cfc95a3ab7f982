"""The candidate's file as the user names it: can it be read, and which problem does its name speak of?"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.problems.base import Problem
    from pkb.problems.registry import Registry


def check_readable(path: Path) -> None:
    """A file that is no text at all is wrong usage; whether the text is a good candidate is for the judge to say."""
    from pkb.candidates.source import read

    if "\0" in read(path).text:
        raise UserError(f"{path} holds zero bytes: it is a binary file", "a candidate is Python source")


def infer_problem(path: Path, registry: "Registry") -> "Problem":
    """The problem that the file name begins with: `13_gemm_allreduce_cuda.py`, `1_allreduce.py`, `allgather.py`."""
    fix = "give --problem ID; `pkb problems` lists them"
    numbered = re.fullmatch(r"p?0*(\d+)(?:_(.*))?", path.stem)
    by_name = _longest_name(numbered[2] or "" if numbered else path.stem, registry)
    if numbered is None:
        if by_name is None:
            raise UserError(f"the file name {path.name} does not begin with a problem's id or name", fix)
        return by_name
    try:
        by_id = registry.get(numbered[1])
    except UserError:
        raise UserError(f"the file name {path.name} begins with {numbered[1]}, which is no problem's id", fix) from None
    # `2_gemm_allreduce.py` may be somebody's second attempt: better ask than judge it as problem 2.
    if by_name is not None and by_name.id != by_id.id and not (numbered[2] or "").startswith(by_id.name):
        raise UserError(f"the file name {path.name} could mean problem {by_id.stem} or {by_name.stem}", fix)
    return by_id


def _longest_name(text: str, registry: "Registry") -> "Problem | None":
    matches = [p for p in registry.all() if text == p.name or text.startswith(p.name + "_")]
    return max(matches, key=lambda p: len(p.name), default=None)
