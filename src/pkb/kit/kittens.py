"""ParallelKittens: headers that no wheel brings. A copy of them is named by `PKB_KITTENS`, and sources that include one get it.

`PKB_KITTENS` is a clone of ThunderKittens, or any folder with `include/kittens.cuh` or `kittens.cuh` in it. Candidates may
read that folder of headers and nothing beside it. What is in it goes into the name of what is built from it.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit.errors import CompilerMissing
from pkb.kit.toolkit import holds_private_places

VARIABLE = "PKB_KITTENS"
MAIN_HEADER = "kittens.cuh"
_NAMES = r"(?:[\w./]*/)?(?:kittens\.cuh|prototype\.cuh|pyutils/[\w.]+)"
INCLUDES = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*[<"]{_NAMES}[>"]', re.MULTILINE)
FLAGS = ("--expt-relaxed-constexpr", "--expt-extended-lambda")
STANDARD = "-std=c++20"
MISSING = (
    f"{VARIABLE} names no copy of ParallelKittens' headers: clone HazyResearch/ThunderKittens and set it to that folder"
)
_GENERATIONS = {"8": "KITTENS_AMPERE", "9": "KITTENS_HOPPER", "10": "KITTENS_BLACKWELL"}
_MOST_FILES, _MOST_BYTES = 2000, 64 << 20


def used_in(source: str) -> bool:
    return INCLUDES.search(source) is not None


def headers() -> Path | None:
    """The folder with kittens.cuh; None where the variable names none, or one that a home lies in."""
    named = os.environ.get(VARIABLE)
    if not named or not Path(named).is_absolute():
        return None
    places = (Path(named) / "include", Path(named))
    found = next((place.resolve() for place in places if (place / MAIN_HEADER).is_file()), None)
    return None if found is None or holds_private_places(found) else found


def folders() -> list[Path]:
    """All that `PKB_KITTENS` makes readable: the headers, and the folder of prototypes beside them where there is one."""
    found = headers()
    if found is None:
        return []
    prototype = found.parent / "prototype"
    beside = found.name == "include" and (prototype / "prototype.cuh").is_file()
    return [found, *([prototype.resolve()] if beside else [])]


def fingerprint() -> str:
    """Names the copy by what is in it: the commit is not asked for, since a copy need not have one."""
    return _digest(tuple(folders()))


@lru_cache
def _digest(places: tuple[Path, ...]) -> str:
    digest, files, size = hashlib.sha256(), 0, 0
    for place in places:
        for path in sorted(place.rglob("*")):
            if path.suffix in (".cuh", ".h", ".hpp", ".cu") and path.is_file():
                data = path.read_bytes()
                files, size = files + 1, size + len(data)
                if files > _MOST_FILES or size > _MOST_BYTES:
                    raise CompilerMissing(f"{VARIABLE} names a folder with more than headers in it: {place}")
                digest.update(f"{path.relative_to(place)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:12]


def flags(source: str, given: Sequence[str], *, arch: str) -> list[str]:
    """What a source that includes a header of theirs is compiled with beside its own options: nothing for any other source.

    Raises `CompilerMissing` where there is no copy.
    """
    if not used_in(source):
        return []
    places = folders()
    if not places:
        raise CompilerMissing(MISSING)
    added = [f"-I{place}" for place in places] + [flag for flag in FLAGS if flag not in given]
    if not any(option.startswith(("-std", "--std")) for option in given):
        added.append(STANDARD)
    generation = _GENERATIONS.get(arch.removeprefix("sm_").rstrip("af")[:-1])
    if generation and not any(option.startswith("-DKITTENS_") for option in given):
        added.append(f"-D{generation}")
    return added


def identity(source: str) -> tuple[str, ...]:
    """For the key of what is built from the source."""
    return (f"kittens {fingerprint()}",) if used_in(source) else ()
