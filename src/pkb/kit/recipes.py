"""How each kind of source is built, as data: what a process behind walls is told, and computes anew for itself."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pkb.kit.cache import Recipe
from pkb.kit.cpp import library_recipe
from pkb.kit.cuda import _plain_name, cubin_recipe
from pkb.kit.errors import CompileError
from pkb.kit.options import compiler_environment
from pkb.kit.toolkit import resolve_arch


def _cubin(given: Mapping[str, Any]) -> Recipe:
    name, options = _plain_name(given.get("name") or "kernel"), tuple(given.get("options") or ())
    return cubin_recipe(given["source"], name=name, options=options, arch=resolve_arch(given.get("arch")))


def _cpp(given: Mapping[str, Any]) -> Recipe:
    name = _plain_name(given.get("name") or "library")
    return library_recipe(given["source"], name=name, options=tuple(given.get("options") or ()))


def _extension(given: Mapping[str, Any]) -> Recipe:
    from pkb.kit.extension import extension_name, extension_recipe

    return extension_recipe(
        extension_name(given["name"]),
        given["cuda_src"],
        cflags=given.get("extra_cuda_cflags") or (),
        includes=given.get("extra_include_paths") or (),
        ldflags=given.get("extra_ldflags") or (),
    )


def _sass(given: Mapping[str, Any]) -> Recipe:
    """Not a build: what a disassembler prints of a file that a build has left, and that may have been made for it."""

    def write(scratch: Path, output: Path) -> None:
        with output.open("wb") as file:
            done = subprocess.run(
                given["command"], stdout=file, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=scratch,
                env=compiler_environment(), check=False,
            )  # fmt: skip
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise CompileError(said or f"status {done.returncode}", name="sass")

    return Recipe("", ".txt", "sass", write)


_RECIPES: dict[str, Callable[[Mapping[str, Any]], Recipe]] = {
    "cubin": _cubin,
    "cpp": _cpp,
    "extension": _extension,
    "sass": _sass,
}


def recipe(kind: str, given: Mapping[str, Any]) -> Recipe:
    """The recipe for arguments of the builder of this kind (`kit.compile`, `kit.build_cpp`, `compile_cuda_extension`).

    Raises `OptionRefused`, or `CompilerMissing`.
    """
    return _RECIPES[kind](given)
