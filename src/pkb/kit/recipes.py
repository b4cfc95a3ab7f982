"""How each kind of source is built, as data: what a process in the sandbox is told, and computes anew for itself."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pkb.kit.cache import Recipe
from pkb.kit.cpp import library_recipe
from pkb.kit.cuda import _plain_name, cubin_recipe
from pkb.kit.errors import CompileError
from pkb.kit.options import compiler_environment
from pkb.kit.slim import adaptor_recipe
from pkb.kit.toolkit import resolve_arch

Given: TypeAlias = Mapping[str, str | Sequence[str] | None]
"""Arguments of a builder by name: text, or lists of text."""


class BadArgument(TypeError):
    """A builder is given something that it does not take."""


def _text(given: Given, name: str, default: str | None = None) -> str:
    value = given.get(name)
    if value in (None, "") and default is not None:
        return default
    if not isinstance(value, str):
        raise BadArgument(f"`{name}` is missing or no string")
    return value


def _texts(given: Given, name: str) -> tuple[str, ...]:
    value = given.get(name) or ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise BadArgument(f"`{name}` is no list of strings")
    return tuple(value)


def _cubin(given: Given) -> Recipe:
    name, arch = _plain_name(_text(given, "name", "kernel")), resolve_arch(_text(given, "arch", "") or None)
    return cubin_recipe(_text(given, "source"), name=name, options=_texts(given, "options"), arch=arch)


def _cpp(given: Given) -> Recipe:
    name = _plain_name(_text(given, "name", "library"))
    return library_recipe(_text(given, "source"), name=name, options=_texts(given, "options"))


def _extension(given: Given) -> Recipe:
    from pkb.kit.extension import extension_name, extension_recipe

    return extension_recipe(
        extension_name(_text(given, "name")),
        _text(given, "cuda_src"),
        cflags=_texts(given, "extra_cuda_cflags"),
        includes=_texts(given, "extra_include_paths"),
        ldflags=_texts(given, "extra_ldflags"),
    )


def _sass(given: Given) -> Recipe:
    """Not a build: what a disassembler prints of a file that a build has left, and that may have been made for it."""
    return _printing(_texts(given, "command"), name="sass")


def _races(given: Given) -> Recipe:
    """Not a build: what the analyser of recorded calls prints of logs that a candidate's processes have written."""
    logs = _texts(given, "logs")
    return _printing((*_texts(given, "command"), *logs), name="races", descriptors=[int(log) for log in logs])


def _printing(command: Sequence[str], *, name: str, descriptors: Sequence[int] = ()) -> Recipe:
    def write(scratch: Path, output: Path) -> None:
        with output.open("wb") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=scratch,
                env=compiler_environment(), pass_fds=descriptors, check=False,
            )  # fmt: skip
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise CompileError(said or f"status {done.returncode}", name=name)

    return Recipe("", ".txt", name, write)


_RECIPES: dict[str, Callable[[Given], Recipe]] = {
    "cubin": _cubin,
    "cpp": _cpp,
    "extension": _extension,
    "adaptor": lambda given: adaptor_recipe(),
    "sass": _sass,
    "races": _races,
}


def recipe(kind: str, given: Given) -> Recipe:
    """The recipe for arguments of the builder of this kind (`kit.compile`, `kit.build_cpp`, `compile_cuda_extension`).

    Raises `BadArgument`, `OptionRefused`, or `CompilerMissing`.
    """
    return _RECIPES[kind](given)
