"""Which compiler options a candidate may give: an allow-list, the same for the build before the ranks and inside them.

A compiler's options are a programming language: `-wrapper` and `-fplugin=` run programs, `@file` and `-include` read
files, `-o` and `-fdump-...` write them. So an option passes only if it is known to change nothing but the code that
comes out, or to name a folder or a library that any candidate may read. Anything else is refused by name.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit.errors import OptionRefused
from pkb.kit.toolkit import cuda_home, import_folders, wheel_roots
from pkb.types.processes import inherited

DEBUG_BUILDS = "PKB_KIT_DEBUG"
_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV",
    "PYTHONPATH", "PYTHONUSERBASE", "NVSHMEM_HOME", "NCCL_HOME", "CUDNN_HOME",
)  # fmt: skip
_LIBRARIES = frozenset((
    "cuda", "cudart", "cudart_static", "cudadevrt", "nvrtc", "nvJitLink", "nvToolsExt", "nvidia-ml",
    "cublas", "cublasLt", "cusparse", "cusolver", "cufft", "curand", "cudnn", "cupti",
    "nccl", "nccl_device", "nvshmem", "nvshmem_host", "nvshmem_device",
    "c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python",
    "m", "dl", "rt", "pthread", "stdc++", "gcc", "gcc_s", "gomp", "atomic", "numa",
))  # fmt: skip
_HOST_FLAGS = (
    "PIC", "pic", "PIE", "pie", "fast-math", "finite-math-only", "unsafe-math-optimizations", "associative-math",
    "reciprocal-math", "math-errno", "trapping-math", "signed-zeros", "rounding-math", "openmp", "openmp-simd",
    "unroll-loops", "unroll-all-loops", "peel-loops", "inline-functions", "inline", "tree-vectorize", "vectorize",
    "tree-slp-vectorize", "slp-vectorize", "strict-aliasing", "strict-overflow", "wrapv", "exceptions", "rtti",
    "omit-frame-pointer", "permissive", "prefetch-loop-arrays", "split-loops", "gcse-after-reload", "ipa-pta",
    "function-sections", "data-sections", "threadsafe-statics", "signed-char", "unsigned-char", "concepts",
    "coroutines", "char8_t", "sized-deallocation", "aligned-new", "stack-protector", "common", "plt", "ident",
    "delete-null-pointer-checks", "non-call-exceptions", "asynchronous-unwind-tables", "merge-all-constants",
    "graphite-identity", "loop-nest-optimize", "loop-interchange", "modulo-sched", "diagnostics-show-caret",
)  # fmt: skip
# What the shell that nvcc hands its steps to could take for more than text is in no value.
_TEXT = r"[^`$;&|<>\\\x00-\x1f]*"
_MACRO = rf"-D[A-Za-z_]\w*(\([\w, ]*\))?(={_TEXT})?"

_HOST = [
    r"-O([0-3sgz]|fast)?", r"-(std|-std)=(c|gnu)(\+\+)?\d[0-9a-z]", _MACRO, r"-U[A-Za-z_]\w*",
    r"-W[A-Za-z0-9+=-]*", r"-w", r"-pedantic(-errors)?", r"-ansi", r"-g[0-3]?", r"-ggdb[0-3]?", r"-pthread", r"-pipe",
    r"-m(?!llvm)[a-z0-9][a-z0-9.=+_-]*", rf"-f({'|'.join(map(re.escape, _HOST_FLAGS))})", r"-fno-[a-z0-9+-]+",
    r"-f(constexpr-[a-z-]+|template-depth|max-errors|template-backtrace-limit|inline-limit|abi-version)=\d+",
    r"-f(visibility|fp-contract|excess-precision|vect-cost-model|simd-cost-model|tls-model|stack-reuse)=[a-z-]+",
    r"-f(visibility-inlines-hidden|diagnostics-color=(never|auto|always))",
    r"--param=[a-z0-9-]+=\d+",
]  # fmt: skip
_ARCH = r"(sm|compute|lto)_\d{2,3}[af]?"
_TRUTH = r"(=(true|false))?"
_CUDART = r"--?cudart=(none|shared|static)"
_DEVICE = [
    r"-(std|-std)=c\+\+\d[0-9a-z]", r"-O[0-4]", r"--optimize=[0-4]", _MACRO, r"-U[A-Za-z_]\w*",
    rf"--define-macro=[A-Za-z_]\w*(={_TEXT})?", r"--undefine-macro=[A-Za-z_]\w*",
    rf"--?(arch|gpu-architecture)=({_ARCH}|native|all|all-major)", rf"--?(code|gpu-code)=\[?{_ARCH}(,{_ARCH})*\]?",
    rf"--?(gencode|generate-code)=arch={_ARCH},code=\[?{_ARCH}(,{_ARCH})*\]?",
    r"--?(use_fast_math|extra-device-vectorization|restrict|lineinfo|generate-line-info|G|device-debug|g|debug|dopt(=on)?)",
    rf"--?(ftz|prec-div|prec-sqrt|fmad){_TRUTH}", r"--?maxrregcount=\d+", r"--?m(achine=)?64", r"-dlto", r"-dc", r"--device-c",
    r"--?(expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)", rf"--?(rdc|relocatable-device-code){_TRUTH}",
    r"--?default-stream=(legacy|null|per-thread)", _CUDART, r"--?(threads|split-compile)=\d+", r"-t=?\d+",
    r"--?(diag-suppress|diag-error|diag-warn)=\d+(,\d+)*",
    r"--?(display-error-number|no-display-error-number|disable-warnings|w)",
    r"--?(Wno-deprecated-gpu-targets|Wreorder|Wdefault-stream-launch|Wext-lambda-captures-this|res-usage|resource-usage)",
    r"--?Werror(=[a-z,-]+)?", r"--?(source-in-ptx|src-in-ptx|brief-diagnostics(=(true|false))?|allow-unsupported-compiler)",
    r"--?(default-device|device-as-default-execution-space|builtin-(move-forward|initializer-list)=(true|false)|minimal)",
    r"--?(static-global-template-stub)=(true|false)", r"--?(extensible-whole-program|ewp|no-cache|no-source-include)",
]  # fmt: skip
_PTXAS = [
    r"--?(v|verbose|O[0-4]|opt-level=[0-4]|w|disable-warnings|warn-spills|warn-on-spills|warn-lmem-usage)",
    r"--?(warn-on-local-memory-usage|warn-on-double-precision-use|warn-double-usage|lineinfo|generate-line-info)",
    r"--?(dlcm|dscm|def-load-cache|def-store-cache|flcm|fscm)=[a-z]{2}",
    r"--?maxrregcount=\d+",
    rf"--?(fmad|allow-expensive-optimizations|position-independent-code|pic|uumn){_TRUTH}",
    r"--?(suppress-[a-z-]+|preserve-relocs|Werror|disable-optimizer-constants|register-usage-level=\d+)",
]
_CUDAFE = [r"--(diag_(suppress|warning|error)=\d+(,\d+)*|display_error_number|no_warnings|promote_warnings)"]
_LINK = [
    r"-(shared|pthread|fopenmp|fPIC|s|static-libgcc|static-libstdc\+\+|rdynamic)", r"-O[0-3]", _CUDART,
    rf"--?(arch|gpu-architecture)=({_ARCH}|native)", rf"--?(gencode|generate-code)=arch={_ARCH},code=\[?{_ARCH}(,{_ARCH})*\]?",
    r"-Wl,(--(no-)?as-needed|-z,(now|relro|defs)|--gc-sections|--no-undefined|-O[0-3]|--(start|end)-group)",
    r"-Wl,-B(symbolic|static|dynamic)",
    rf"--?(rdc|relocatable-device-code){_TRUTH}", r"-dlto",
]  # fmt: skip

Check = Callable[[str], bool]


def _matches(patterns: Sequence[str]) -> Check:
    known = re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.ASCII)
    return lambda option: known.fullmatch(option) is not None


_host, _device, _ptxas, _cudafe, _link = map(_matches, (_HOST, _DEVICE, _PTXAS, _CUDAFE, _LINK))


def _all(check: Check) -> Check:
    """For values that are lists of options, separated by commas."""
    return lambda value: bool(value) and all(check(part) for part in value.strip("\"'").split(","))


def inside_reach(folder: str) -> bool:
    """A folder of the toolchain or of an installed library, or one below the build's own."""
    if not folder or "\0" in folder:
        return False
    path = Path(folder)
    if not path.is_absolute():
        return ".." not in path.parts and not folder.startswith(("@", "~", "-", "=", "$"))
    real = path.resolve()
    return any(real.is_relative_to(root) for root in reach_roots())


@lru_cache
def reach_roots() -> tuple[Path, ...]:
    """Where compilers, headers and libraries lie that every candidate may read."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "NVSHMEM_HOME", "NCCL_HOME", "CUDNN_HOME")]
    roots = ["/usr", "/opt", "/lib", "/lib64", sys.prefix, sys.base_prefix, *filter(None, homes)]
    found = [*map(Path, roots), *wheel_roots(), *import_folders().readable, *filter(None, [cuda_home()])]
    return tuple(dict.fromkeys(path.resolve() for path in found if path.resolve() != Path("/")))


def _library(value: str) -> bool:
    return value in _LIBRARIES


def _library_file(value: str) -> bool:
    return re.fullmatch(r"lib[\w.+-]+\.(a|so[\d.]*)", Path(value).name) is not None and inside_reach(value)


# Options whose value may stand in the next word or behind the name: the check of the value.
_FOLDERS: dict[str, Check] = dict.fromkeys(("-I", "-isystem", "--include-path", "-iquote"), inside_reach)
_VALUES: dict[str, dict[str, Check]] = {
    "host": {**_FOLDERS, "-D": lambda v: _host(f"-D{v}"), "-U": lambda v: _host(f"-U{v}"), "-l": _library, "-L": inside_reach},
    "device": {
        **_FOLDERS,
        "-D": lambda v: _device(f"-D{v}"),
        "-U": lambda v: _device(f"-U{v}"),
        **{name: (lambda v, n=name: _device(f"{n}={v}")) for name in (  # type: ignore[misc]
            "-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code", "-maxrregcount",
            "--maxrregcount", "-std", "--std", "--threads", "-t", "-diag-suppress", "--diag-suppress", "-cudart",
            "--cudart", "--default-stream", "-default-stream", "-rdc", "--relocatable-device-code",
        )},
        **dict.fromkeys(("-Xcompiler", "--compiler-options"), _all(_host)),
        **dict.fromkeys(("-Xptxas", "--ptxas-options"), _all(_ptxas)),
        **dict.fromkeys(("-Xcudafe",), _all(_cudafe)),
        "-l": _library,
        "-L": inside_reach,
    },
    "link": {
        "-l": _library,
        "-L": inside_reach,
        "-Wl,-rpath,": inside_reach,
        "-Wl,-rpath=": inside_reach,
        **{name: (lambda v, n=name: _link(f"{n}={v}")) for name in ("-arch", "-gencode", "--generate-code")},  # type: ignore[misc]
    },
}  # fmt: skip
_FLAGS: dict[str, Check] = {"host": _host, "device": _device, "link": lambda o: _link(o) or _library_file(o)}
_SEPARATE_ONLY = frozenset(("-std", "--std", "-t"))
"""With a value behind the name they are in the lists above."""


def debug_options() -> tuple[str, ...]:
    """Where a person asks for debug builds: pkb.cuh says what they do."""
    return ("-DPKB_DEBUG=1",) if os.environ.get(DEBUG_BUILDS) == "1" else ()


def check_options(options: Sequence[str], dialect: str, *, name: str) -> None:
    """Raises `OptionRefused` for the first option that is not on the list of `dialect` (host, device or link)."""
    words = list(options)
    while words:
        option = words.pop(0)
        if not isinstance(option, str) or len(option) > 4000:
            raise OptionRefused(str(option)[:80], name=name)
        if _FLAGS[dialect](option):
            continue
        if (check := _VALUES[dialect].get(option)) is not None and words:
            value = words.pop(0)
            if not isinstance(value, str) or not check(value):
                raise OptionRefused(f"{option} {value}", name=name)
        elif not _joined(option, _VALUES[dialect]):
            raise OptionRefused(option, name=name)


def check_folders(folders: Sequence[str], *, name: str) -> None:
    """Raises `OptionRefused` for the first folder of headers that a candidate may not read."""
    for folder in folders:
        if not inside_reach(folder):
            raise OptionRefused(f"-I{folder}", name=name)


def _joined(option: str, values: dict[str, Check]) -> bool:
    """`-Ifolder`, `--include-path=folder`, `-Xcompiler=-fPIC`: name and value in one word."""
    for name, check in values.items():
        if name in _SEPARATE_ONLY or not option.startswith(name):
            continue
        value = option[len(name) :]
        if len(name) > 2 and not name.endswith(("=", ",")):
            if not value.startswith("="):
                continue
            value = value[1:]
        if value and check(value):
            return True
    return False


def compiler_environment() -> dict[str, str]:
    """What a compiler inherits. Not CPATH, LIBRARY_PATH, NVCC_APPEND_FLAGS, LD_PRELOAD and whatever else steers one."""
    return inherited(_ENVIRONMENT)
