"""A torch header of our own, for builds in seconds: `torch_slim/`, and docs/builds.md about it.

Parsing torch's headers takes two minutes of CPU a source, and nearly every candidate uses a dozen names of them. `shims/`
holds headers under torch's names over those of `include/`, which know no type of torch, Python or pybind11; they call an
adaptor, which is compiled once per torch against its real headers and linked into every extension.
"""

import contextlib
import hashlib
import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pkb.kit import torch_facts
from pkb.kit.cache import Recipe, content_key, find
from pkb.kit.cpp import find_cxx
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.kit.nvcc import run_compiler
from pkb.kit.toolkit import file_identity, include_dirs

SWITCH = "PKB_REAL_TORCH_HEADERS"
"""`1`: torch's own headers for every source. `never`: ours alone, for measurements. Else ours first."""
ADAPTOR = "PKB_TORCH_ADAPTOR"
"""Where the adaptor lies, for a build in the sandbox; empty: there is none, and nobody there is to compile it."""
FOLDER = Path(__file__).parent / "torch_slim"
INCLUDE_FLAGS = ("-isystem", str(FOLDER / "shims"), "-isystem", str(FOLDER / "include"))
_MARK = b"built with pkb's slim torch header"


Way = Literal["ours first", "ours alone", "torch's own"]


def way() -> Way:
    said = os.environ.get(SWITCH, "")
    if said == "never":
        return "ours alone"
    return "ours first" if said in ("", "0") else "torch's own"


def used_in(artifact: Path) -> bool:
    """Whether this file was built with our header."""
    return _MARK in artifact.read_bytes()


@lru_cache
def fingerprint() -> str:
    """Of everything in the folder: part of the key of whatever may be built with it."""
    digest = hashlib.sha256()
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(FOLDER)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:40]


def adaptor_path(*, build: bool = False) -> Path | None:
    """The adaptor's object file, where there is one. `build`: compile it where nobody has decided about it yet."""
    named = os.environ.get(ADAPTOR)
    if named is not None:
        return Path(named) if named else None
    recipe = adaptor_recipe()
    if build:
        with contextlib.suppress(CompileError, RuntimeError):
            return recipe.obtain().path
    return find(recipe.file_name)


def adaptor_recipe() -> Recipe:
    """The adaptor as an object file. About 20 s of CPU, once per torch, Python and compiler."""
    cxx = find_cxx()
    if cxx is None:
        raise CompilerMissing("the adaptor to torch needs a C++ compiler: install g++")
    folders = [*torch_facts.include_folders(), sysconfig.get_paths()["include"]]
    flags = [
        "-O2", torch_facts.standard(), "-fPIC", "-fvisibility=hidden", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch_facts.cxx11_abi())}",
    ]  # fmt: skip
    if torch_facts.cuda_version() is not None:
        flags.append("-DPKB_SLIM_CUDA")
        folders += map(str, include_dirs())
    flags += ["-isystem", str(FOLDER / "include"), *(part for each in folders for part in ("-isystem", each))]
    command = [str(cxx), "-c", *flags, str(FOLDER / "adaptor" / "adaptor.cpp")]

    def build(scratch: Path, output: Path) -> None:
        run_compiler([*command, "-o", output.name], scratch=scratch, name="torch_adaptor")

    key = content_key(
        "adaptor", fingerprint(), "\0".join(flags), file_identity(cxx), torch_facts.version(), sys.version
    )
    return Recipe(key, ".o", "torch_adaptor", build)
