"""Sees to the adaptor of `pkb.kit.slim`: compiled in the sandbox once per torch, for all evaluations that share a cache."""

import contextlib
import os
from pathlib import Path

from pkb.candidates.walled_build import BuildStopped, build_behind_walls, place
from pkb.kit import slim, torch_facts
from pkb.kit.cache import WAIT_SECONDS, build_dir
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.types.file_lock import lock


def provide() -> None:
    """Puts the adaptor where builds of extensions, here and in ranks, look for it.

    It may stay away, and then torch's own headers serve: where it does not compile, which is remembered beside the cache until
    that is next cleaned, and where it is of no use (a CPU build of torch links nothing).
    """
    if slim.way() == "torch's own" or torch_facts.cuda_version() is None:
        return
    try:
        recipe = slim.adaptor_recipe()
    except CompilerMissing:
        return
    shared = Path(os.environ.get("PKB_BUILD_CACHE") or build_dir())
    # OSError: a cache that cannot be written is worth no error; TimeoutError, which is one: somebody else is at it too long.
    with contextlib.suppress(OSError), (shared / f"{recipe.key}.lock").open("a") as file:
        lock(file.fileno(), wait_s=WAIT_SECONDS)  # many builds start together, and one of them compiles it
        failed = shared / f"{recipe.key}.failed"
        if failed.is_file():
            return
        try:
            artifact, _ = build_behind_walls("adaptor", {}, recipe)
        except BuildStopped:  # a limit, or a killed compiler: says nothing of the next try
            return
        except CompileError as error:
            failed.write_text(str(error))
            return
        kept = shared / recipe.file_name
        if not kept.is_file():
            place(artifact.path.read_bytes(), kept)
        os.utime(kept)  # the least recently used go first
