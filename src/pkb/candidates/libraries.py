"""Libraries beyond torch and Triton that kernels may rest on: how a text shows that it needs one, whether this machine has
it, and what to install. `pkb doctor` lists them; a candidate that needs a missing one is `unsupported`, with that sentence.

CUDA text that includes NCCL's or NVSHMEM's headers is no need in this sense: the build says what it misses, and the platform
cpu has stand-ins for some of it.
"""

import ast
import contextlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pkb.candidates.names import under
from pkb.candidates.source import Source
from pkb.kit import kittens
from pkb.kit.errors import CompilerMissing
from pkb.kit.toolkit import torch_cuda_major


class Library(NamedTuple):
    name: str
    """As in prompts and in what a candidate needs."""
    title: str
    packages: tuple[str, ...]
    """Importing one of these needs it, and a GPU."""
    includes: re.Pattern[str] | None
    """So does CUDA text with such a line."""
    found: Callable[[], str]
    """What is there, in words; empty where it is missing."""
    install: Callable[[], str]


def _wheel(folder: str, header: str, home: str) -> str:
    """Where a header of one of NVIDIA's wheels lies, or of the installation that a variable names."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(base) / folder for base in (spec.submodule_search_locations or ())] if spec else []
    named = os.environ.get(home)
    found = [*([Path(named)] if named else []), *places]
    return next((str(place) for place in found if (place / "include" / header).is_file()), "")


def _package(module: str, *distributions: str) -> str:
    """A Python package, by what it is called where it is installed from."""
    if importlib.util.find_spec(module) is None:
        return ""
    for distribution in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{distribution} {importlib.metadata.version(distribution)}"
    return f"a package called {module}"


def _kittens() -> str:
    try:
        return f"headers {kittens.fingerprint()} in {kittens.headers()}" if kittens.headers() else ""
    except CompilerMissing:  # more than headers
        return ""


LIBRARIES = (
    Library(
        "nccl-device", "NCCL's device API", (), None,
        lambda: _wheel("nccl", "nccl_device.h", "NCCL_HOME"), lambda: "`pkb doctor --fix` gets a wheel with its headers",
    ),
    Library(
        "nvshmem", "NVSHMEM", ("torch.distributed._symmetric_memory._nvshmem_triton",), None,
        lambda: _wheel("nvshmem", "nvshmem.h", "NVSHMEM_HOME"),
        lambda: f"pip install nvidia-nvshmem-cu{torch_cuda_major() or '13'}, or set NVSHMEM_HOME",
    ),
    Library(
        "nccl4py", "NCCL in Python (nccl4py)", ("nccl",), None,
        lambda: _package("nccl", "nccl4py"), lambda: "pip install 'pkb[nccl]'",
    ),
    Library(
        "nvshmem4py", "NVSHMEM in Python (nvshmem4py)", ("nvshmem",), None,
        lambda: _package("nvshmem", "nvshmem4py-cu13", "nvshmem4py-cu12"),
        lambda: f"pip install nvshmem4py-cu{torch_cuda_major() or '13'}",
    ),
    Library(
        "cute", "CuTe DSL", ("cutlass",), None,
        lambda: _package("cutlass", "nvidia-cutlass-dsl"), lambda: "pip install 'pkb[cute]'",
    ),
    Library("parallelkittens", "ParallelKittens", (), kittens.INCLUDES, _kittens, lambda: kittens.MISSING),
)  # fmt: skip


def used_by(source: Source) -> list[Library]:
    """Those without which it cannot run: an import inside `try` has another way."""
    modules = certain_imports(source)
    texts = [literal.code for literal in source.names.literals if "#" in literal.text]
    return [
        library
        for library in LIBRARIES
        if any(under(module, *library.packages) for module in modules)
        or (library.includes is not None and any(library.includes.search(text) for text in texts))
    ]


def certain_imports(source: Source) -> list[str]:
    """What import statements name, but for those inside a `try`."""
    optional: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Try):
            optional |= {id(part) for statement in node.body for part in ast.walk(statement)}
    modules: list[str] = []
    for node in source.nodes:
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return modules


def missing_words(name: str) -> str:
    """What to do about a library that a candidate needs and this machine lacks; empty if it has it, or it is none."""
    library = next((each for each in LIBRARIES if each.name == name), None)
    return "" if library is None or library.found() else f"{library.title} is not installed: {library.install()}"
