"""Torch C++/CUDA extensions as upstream's candidates write them: one `.cu` text with
`PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)`.

torch's own loader builds in every process, needs ninja and picks its flags by the visible GPUs. Here nvcc is called
once per candidate and all ranks load the result. The flags are those of torch's loader plus the caller's. A source is
compiled with a small torch header of our own (`pkb.kit.slim`) first; where that fails, for whatever reason, torch's own
headers decide, and theirs is the error that is shown.
"""

import contextlib
import importlib.machinery
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pkb.kit import kittens, slim, torch_facts
from pkb.kit.cache import Recipe, content_key
from pkb.kit.cpp import find_cxx
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.kit.nvcc import find as find_nvcc
from pkb.kit.nvcc import run_compiler
from pkb.kit.options import check_folders, check_options
from pkb.kit.toolkit import cuda_home, include_dirs, resolve_arch, wheel_roots

_STUBS = Path(__file__).parent / "upstream" / "stubs"


def compile_cuda_extension(
    name: str,
    cuda_src: str,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
) -> ModuleType:
    """Build (or find) the extension and import it. Raises `CompileError` with the compiler's log."""
    if torch_facts.cuda_version() is None:
        raise RuntimeError(f"extension {name!r} needs a CUDA build of torch; this is {torch_facts.version()}")
    name = extension_name(name)
    recipe = extension_recipe(
        name, cuda_src, cflags=extra_cuda_cflags or (), includes=extra_include_paths or (), ldflags=extra_ldflags or ()
    )
    artifact = recipe.obtain()
    import torch  # noqa: F401  the extension is linked against its libraries, and they are found once it is loaded

    return load_extension(name, artifact.path)


def load_extension(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def extension_name(name: str) -> str:
    """It becomes part of a C symbol (PyInit_<name>), so it must be an identifier."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)[:80]
    return plain if plain[:1].isalpha() or plain.startswith("_") else f"ext_{plain}"


def extension_recipe(
    name: str, source: str, *, cflags: Sequence[str] = (), includes: Sequence[str] = (), ldflags: Sequence[str] = ()
) -> Recipe:
    """With a CPU build of torch it makes the object file only: that checks the source, and no more."""
    check_options(cflags, "device", name=name)
    check_folders(includes, name=name)
    check_options(ldflags, "link", name=name)
    found = find_nvcc()
    if found is None:
        raise CompilerMissing("a torch CUDA extension needs nvcc: install the CUDA toolkit or set CUDA_HOME")
    cxx = find_cxx()
    if cxx is None:
        raise CompilerMissing("a torch CUDA extension needs a C++ compiler: install g++ or set CXX")
    nvcc, identity = found
    cflags = [*cflags, *kittens.flags(source, cflags, arch=resolve_arch())]
    if kittens.used_in(source) and "-lcuda" not in ldflags:  # their TMA descriptors are the driver's
        ldflags = [*ldflags, "-lcuda"]
    links = torch_facts.cuda_version() is not None
    own_flags = [*(f"-I{folder}" for folder in includes)]
    compile_flags = _compile_flags(name, cflags=cflags)
    linker = [str(nvcc), "-cudart=shared"] if _relocatable(cflags) else [str(cxx)]
    link_flags = _link_flags(ldflags)
    way = slim.way()

    def build_with(header_flags: Sequence[str], objects: Sequence[str], scratch: Path, output: Path) -> None:
        target = f"{name}.o" if links else output.name
        command = [str(nvcc), "-c", f"{name}.cu", "-o", target, *own_flags, *header_flags, *compile_flags]
        run_compiler(command, scratch=scratch, name=name)
        if links:
            run_compiler(
                [*linker, "-shared", target, *objects, "-o", output.name, *link_flags], scratch=scratch, name=name
            )

    def build(scratch: Path, output: Path) -> None:
        (scratch / f"{name}.cu").write_text(source)
        adaptor = slim.adaptor_path(build=True) if links and way != "torch's own" else None
        if way == "ours alone" or (way == "ours first" and (adaptor is not None or not links)):
            # RuntimeError: the compiler was killed. What our header makes of a source is never held against it.
            ignored = () if way == "ours alone" else (CompileError, RuntimeError)
            with contextlib.suppress(*ignored):
                objects = [str(adaptor)] if adaptor else []
                build_with([*slim.INCLUDE_FLAGS, *_system_folders(real=False)], objects, scratch, output)
                return
        build_with(_system_folders(real=True), [], scratch, output)

    flags = "\0".join((*own_flags, *_system_folders(real=True), *compile_flags, *linker, *link_flags))
    headers = way if way == "torch's own" else f"{way} {slim.fingerprint()}"
    facts = (identity, torch_facts.version(), sys.version, headers, *kittens.identity(source))
    key = content_key("extension", name, source, flags, *facts)
    return Recipe(key, ".so" if links else ".o", name, build)


def checking_flags(name: str, *, cflags: Sequence[str], includes: Sequence[str]) -> list[str]:
    """For nvcc, to look at a source with our header alone, which takes about a second."""
    own = [f"-I{folder}" for folder in includes]
    return [*own, *slim.INCLUDE_FLAGS, *_system_folders(real=False), *_compile_flags(name, cflags=cflags)]


def _system_folders(*, real: bool) -> list[str]:
    """Where headers lie that are no candidate's: torch's own only where `real`."""
    folders = [*torch_facts.include_folders(), sysconfig.get_paths()["include"]] if real else []
    if torch_facts.cuda_version() is not None:
        # Wheels bring cublas, cusparse and cusolver headers, which a small toolkit lacks; the toolkit's own come from
        # nvcc.
        folders += [str(folder) for folder in include_dirs()]
    else:
        folders.append(str(_STUBS))
    return [part for folder in dict.fromkeys(folders) for part in ("-isystem", folder)]


def _compile_flags(name: str, *, cflags: Sequence[str]) -> list[str]:
    arch = resolve_arch().removeprefix("sm_")
    flags = [
        f"-DTORCH_EXTENSION_NAME={name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch_facts.cxx11_abi())}",
        *torch_facts.nvcc_flags(),
        "-Xcompiler",
        "-fPIC",
    ]
    given = list(cflags)
    if torch_facts.cuda_version() is None:
        # Only a check, never run: the host compiler's optimiser would take most of the time.
        given = [*(flag for flag in given if not re.fullmatch(r"-O\d", flag)), "-O0"]
    if not any(flag.startswith(("-std", "--std")) for flag in given):
        flags.append(torch_facts.standard())
    if not any(re.match(r"--?(gencode|arch|gpu-architecture|generate-code)", flag) for flag in given):
        flags.append(f"-gencode=arch=compute_{arch},code=sm_{arch}")
    if not any(re.fullmatch(r"-O\d", flag) for flag in given):
        flags.append("-O3")
    return flags + given


def _link_flags(ldflags: Sequence[str]) -> list[str]:
    torch_lib = torch_facts.folder() / "lib"
    wanted = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")
    flags = [f"-L{torch_lib}", *(f"-l{library}" for library in wanted if (torch_lib / f"lib{library}.so").is_file())]
    home = cuda_home()
    if home is not None:
        # The stub stands in for the driver's libcuda.so when a candidate links -lcuda.
        flags += [f"-L{home / 'lib64'}", f"-L{home / 'lib64' / 'stubs'}"]
    cudart = _library("-lcudart")
    return [*flags, *([cudart] if cudart else []), *(_library(flag) or flag for flag in ldflags)]


def _library(flag: str) -> str | None:
    """What links `-lNAME`, if the toolkit or a wheel has it: wheels' libcublas.so.13 lacks the name that -l looks for."""
    home, name = cuda_home(), f"lib{flag.removeprefix('-l')}.so"
    if home is not None and (home / "lib64" / name).exists():
        return flag
    found = [path for root in wheel_roots() for path in sorted((root / "lib").glob(f"{name}.*"))]
    return str(found[0]) if found else None


def _relocatable(cflags: Sequence[str]) -> bool:
    """Device code in several parts (-rdc=true, NVSHMEM) has to be linked by nvcc."""
    return any(flag in ("-rdc=true", "-dc", "--relocatable-device-code=true") for flag in cflags)
