"""Torch extensions as candidates write them, built for the emulated GPU and imported."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

import pkb.kit.extension
from pkb.kit.emulated.recipe import extension_recipe
from pkb.kit.emulated.rewrite import NotEmulated
from pkb.kit.extension import extension_name, load_extension
from pkb.rank.emulate.cuda.device import NotEmulatedHere, gpu


def compile_cuda_extension(
    name: str,
    cuda_src: str,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
) -> ModuleType:
    """In place of the kit's function of this name."""
    gpu()
    name = extension_name(name)
    recipe = extension_recipe(
        name,
        cuda_src,
        options=extra_cuda_cflags or (),
        includes=extra_include_paths or (),
        ldflags=extra_ldflags or (),
    )
    try:
        artifact = recipe.obtain()
    except NotEmulated as what:
        raise NotEmulatedHere(str(what)) from what
    module = load_extension(name, artifact.path)
    for attribute, value in list(vars(module).items()):
        if callable(value) and not attribute.startswith("__"):
            setattr(module, attribute, _checked(value))
    return module


def _checked(function: Any) -> Any:
    """A function of the extension, after which it is asked whether a kernel wanted what is not emulated."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        finally:
            gpu().check()

    call.__name__ = getattr(function, "__name__", "call")
    call.__doc__ = getattr(function, "__doc__", None)
    return call


def install(source: str) -> None:
    """`load_inline` only for a candidate that names it: its module takes a second to import."""
    if "load_inline" in source:
        from pkb.rank.emulate.cuda import inline

        inline.install()
    cast(Any, pkb.kit.extension).compile_cuda_extension = compile_cuda_extension
