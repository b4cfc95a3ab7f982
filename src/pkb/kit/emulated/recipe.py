"""How CUDA is built for a CPU: the runtime once, and every source of a candidate, behind the same walls as any build."""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit import slim, torch_facts
from pkb.kit.cache import Recipe, content_key
from pkb.kit.cpp import _processor
from pkb.kit.cuda import DEVICE_HEADERS, _headers, _plain_name
from pkb.kit.emulated.blame import BY_GXX, candidates_error, not_emulated, nvcc_error
from pkb.kit.emulated.gxx import find_gxx
from pkb.kit.emulated.rewrite import KernelText, NotEmulated, hide_includes, rewrite
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.kit.nvcc import run_compiler
from pkb.kit.options import check_folders, check_options, debug_options
from pkb.kit.recipes import Given, _text, _texts
from pkb.kit.toolkit import file_identity

__all__ = [
    "BY_GXX",
    "KINDS",
    "NotEmulated",
    "emulated",
    "extension_recipe",
    "module_recipe",
    "parts",
    "recipe",
    "runtime_recipe",
]

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
STAND_INS = HERE / "nvshmem"
KINDS = ("emulated_runtime", "emulated_cubin", "emulated_extension")
_DEFINES = (
    "-D__CUDA_ARCH__=900", "-D__CUDACC__=1", "-D__NVCC__=1", "-DCUDART_VERSION=13000", "-DCUDA_VERSION=13000",
    "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0", "-DPKB_EMULATED=1",
)  # fmt: skip
# A kernel looks at bytes as it likes. Misaligned accesses trap, as they do on a GPU. Symbols are bound at load: a thread
# must not be stopped inside the loader. Lines by DWARF 4: of version 5, addr2line takes the file that comes first for the
# main one, which is not the candidate's.
_FLAGS = (
    "-std=c++20", "-O1", "-g1", "-gdwarf-4", "-march=native", "-w", "-fPIC", "-pthread", "-fno-strict-aliasing",
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error", "-fvisibility=hidden",
)  # fmt: skip
# Plain accesses are announced to the runtime (runtime/hooks.cpp), which has its own functions in place of libtsan's: so the
# linker is not told of it.
_SEEN = (
    "-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "--param", "tsan-instrument-func-entry-exit=0",
)  # fmt: skip
_LINK = ("-shared", "-pthread", "-Wl,-z,now")


def emulated(kind: str) -> str:
    """The kind of recipe that takes the place of one for GPUs."""
    return f"emulated_{kind}" if kind in ("cubin", "extension") else kind


def parts(source: str, kinds: set[str]) -> list[str]:
    """What a candidate needs beside its own sources: kinds of recipes. `kinds` are those of the builds that were foreseen."""
    inline = "load_inline" in source and "__global__" in source
    extends = "extension" in kinds or inline
    recorded = "_symmetric_memory" in source or "triton" in source  # calls of such are recorded by the same library
    runs = extends or "cubin" in kinds or recorded
    return [*(["emulated_runtime"] if runs else []), *(["adaptor"] if extends else [])]


def recipe(kind: str, given: Given) -> Recipe:
    """Raises `NotEmulated`, `CompilerMissing`, `OptionRefused` or `BadArgument`."""
    if kind == "emulated_runtime":
        return runtime_recipe()
    if kind == "emulated_cubin":
        name = _plain_name(_text(given, "name", "kernel"))
        return module_recipe(_text(given, "source"), name=name, options=_texts(given, "options"))
    from pkb.kit.extension import extension_name

    return extension_recipe(
        extension_name(_text(given, "name")),
        _text(given, "cuda_src"),
        options=_texts(given, "extra_cuda_cflags"),
        includes=_texts(given, "extra_include_paths"),
        ldflags=_texts(given, "extra_ldflags"),
    )


def _compiler() -> tuple[Path, str]:
    found = find_gxx()
    if isinstance(found, str):
        raise CompilerMissing(found)
    return found, f"{file_identity(found)} {_processor()}"


@lru_cache
def _emulator_text() -> str:
    files = [
        *sorted(INCLUDE.rglob("*")),
        *sorted(RUNTIME.glob("*")),
        *sorted(STAND_INS.glob("*")),
        *sorted(HERE.glob("*.py")),
    ]
    return "\0".join(f"{path.name}\0{path.read_text()}" for path in files if path.is_file())


def _rewritten_headers() -> dict[str, str]:
    """Headers that are read like a candidate's own text: the kit's, and those in place of NVSHMEM's."""
    return {**_headers(), **{path.name: path.read_text() for path in sorted(STAND_INS.glob("*.h"))}}


def runtime_recipe() -> Recipe:
    compiler, identity = _compiler()
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-pthread", "-Wl,-z,now"]

    def build(scratch: Path, output: Path) -> None:
        (scratch / "all.cpp").write_text(together(sorted(RUNTIME.glob("*.cpp"))))
        run_compiler([str(compiler), *flags, "all.cpp", "-o", output.name], scratch=scratch, name="cuda_runtime")

    key = content_key("emulated runtime", _emulator_text(), *flags, identity)
    return Recipe(key, ".so", "cuda_runtime", build)


def together(sources: Sequence[Path]) -> str:
    """One text of several: the headers of C++ take longer than what is between them."""
    return "".join(f'#include "{path}"\n' for path in sources)


def module_recipe(source: str, *, name: str, options: tuple[str, ...]) -> Recipe:
    """A source of `kit.compile`: kernels that are `extern "C"` can be launched by name."""
    check_options(options, "device", name=name)
    defines = [option for option in (*options, *debug_options()) if option.startswith(("-D", "-U"))]
    return _recipe(source, name=name, flags=defines, own=frozenset(_rewritten_headers()), glue=_by_name, kind="module")


def extension_recipe(
    name: str, source: str, *, options: Sequence[str] = (), includes: Sequence[str] = (), ldflags: Sequence[str] = ()
) -> Recipe:
    """A source with `PYBIND11_MODULE`, as an extension module of Python. Libraries are the emulator's, whatever is asked."""
    check_options(options, "device", name=name)
    check_folders(includes, name=name)
    check_options(ldflags, "link", name=name)
    flags = [option for option in (*torch_facts.nvcc_flags(), *options) if option.startswith(("-D", "-U"))]
    flags += [f"-DTORCH_EXTENSION_NAME={name}", *(f"-I{folder}" for folder in includes)]
    kind = f"extension {sys.version} {torch_facts.version()} {slim.fingerprint()}"

    def check(scratch: Path) -> CompileError | None:
        from pkb.kit.extension import checking_flags

        command = checking_flags(name, cflags=options, includes=includes)
        return nvcc_error(source, name=name, flags=command, scratch=scratch)

    return _recipe(source, name=name, flags=flags, own=frozenset(), glue=_by_address, kind=kind, check=check)


_RENAMED = (
    "device_type", "device_index", "make", "like", "full", "from_blob", "unary", "to", "cuda_check", "current_stream",
    "stream_device", "exchange_device", "restore_device", "blas_handle",
)  # fmt: skip
"""What emu_torch.h does in the adaptor's place."""


def _torch_flags() -> list[str]:
    return [*slim.INCLUDE_FLAGS, *(f"-Dpkb_slim_{name}=emu_slim_{name}" for name in _RENAMED)]


def _torch_objects() -> list[str]:
    adaptor = slim.adaptor_path() or slim.adaptor_recipe().obtain().path
    libraries = torch_facts.folder() / "lib"
    return [str(adaptor), f"-L{libraries}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]


def _recipe(
    source: str,
    *,
    name: str,
    flags: Sequence[str],
    own: frozenset[str],
    glue: Callable[[list[KernelText]], str],
    kind: str,
    check: Callable[[Path], CompileError | None] | None = None,
) -> Recipe:
    torch = check is not None
    compiler, identity = _compiler()
    common = [*_DEFINES, *flags, f"-I{INCLUDE}", f"-I{DEVICE_HEADERS}", *(_torch_flags() if torch else [])]
    expand = ["-std=c++20", "-E", "-x", "c++", *_DEFINES, *flags, "-Iown", f"{name}.cu", "-o", "expanded"]

    def build(scratch: Path, output: Path) -> None:
        hidden = scratch / "own"
        hidden.mkdir()
        for header, text in _rewritten_headers().items():
            (hidden / header).write_text(hide_includes(text, own=own))
        (scratch / f"{name}.cu").write_text(hide_includes(source, own=own))
        run_compiler([str(compiler), *expand], scratch=scratch, name=name)
        try:
            made = rewrite((scratch / "expanded").read_text())
        except (ValueError, StopIteration) as error:
            raise CompileError(f"{name}.cu: error: {error}", name=name) from error
        ending = '#include "emu_torch.h"\n' if torch else ""
        text = (
            f'#include "emu.h"\n{made.text}\n#line 1 "emulator"\n{_clusters(made.kernels)}{glue(made.kernels)}{ending}'
        )
        (scratch / f"{name}.cpp").write_text(text)
        objects = _torch_objects() if torch else []
        try:
            run_compiler(
                [str(compiler), *_FLAGS, *_SEEN, *common, "-c", f"{name}.cpp", "-o", "module.o"],
                scratch=scratch,
                name=name,
            )
            run_compiler([str(compiler), *_LINK, "module.o", "-o", output.name, *objects], scratch=scratch, name=name)
        except CompileError as error:
            held = candidates_error(error, name=name)
            if held is None and check is not None:
                held = check(scratch)
            if held is not None:
                raise held from error
            raise NotEmulated(not_emulated(error.first_error)) from error

    fixed = (*_FLAGS, *_SEEN, *_LINK)
    key = content_key("emulated", kind, name, source, *flags, *_headers().values(), _emulator_text(), *fixed, identity)
    return Recipe(key, ".so", name, build)


def _clusters(kernels: list[KernelText]) -> str:
    """What __cluster_dims__ says, in the kernel's own namespace: it may use names from there."""
    lines = []
    for n, k in enumerate(kernels):
        if k.cluster:
            space = k.qualified.rpartition("::")[0]
            line = f'static emu::ClusterDims emu_cluster_{n}("{k.name}", {k.cluster});'
            lines.append(f"namespace {space} {{ {line} }}\n" if space else f"{line}\n")
    return "".join(lines)


def _by_name(kernels: list[KernelText]) -> str:
    return "".join(
        f'extern "C" __attribute__((visibility("default"))) void emu_run_{k.name}(const unsigned* g, const unsigned* b, '
        f'unsigned s, void* t, int c, void** a) {{ emu::launch_packed("{k.name}", &{k.qualified}, dim3(g[0], g[1], g[2]), '
        f"dim3(b[0], b[1], b[2]), s, t, c, a); }}\n"
        f'extern "C" __attribute__((visibility("default"))) int emu_sizes_{k.name}(int* out) '
        f"{{ return emu::sizes(&{k.qualified}, out); }}\n"
        for k in kernels
        if k.extern_c and not k.template
    )


def _by_address(kernels: list[KernelText]) -> str:
    return "".join(
        f'static emu::Known emu_known_{n}("{k.name}", &{k.qualified});\n'
        for n, k in enumerate(kernels)
        if not k.template
    )
