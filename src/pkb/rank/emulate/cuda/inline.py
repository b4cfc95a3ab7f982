"""`torch.utils.cpp_extension.load_inline` with CUDA sources, built for the emulated GPU."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

from torch.utils import cpp_extension

from pkb.rank.emulate.cuda.extensions import compile_cuda_extension


def install() -> None:
    real = cpp_extension.load_inline

    def load_inline(
        name: str,
        cpp_sources: str | Sequence[str] = (),
        cuda_sources: str | Sequence[str] | None = None,
        functions: Any = None,
        **options: Any,
    ) -> ModuleType:
        if not cuda_sources:
            return cast(ModuleType, real(name, cpp_sources, cuda_sources, functions, **options))
        host, device = _texts(cpp_sources), _texts(cuda_sources)
        named = functions if isinstance(functions, dict) else {f: f for f in _texts(functions or ())}
        lines = [
            "#include <torch/extension.h>",
            "#include <ATen/cuda/CUDAContext.h>",
            "#include <cuda_runtime.h>",
            *device,
        ]
        lines += [text for text in host if text.strip()]
        if named:
            defined = "".join(f'm.def("{f}", &{f}, "{text}"); ' for f, text in named.items())
            lines.append(f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {defined}}}")
        return compile_cuda_extension(name, "\n".join(lines), options.get("extra_cuda_cflags"))

    cast(Any, cpp_extension).load_inline = load_inline


def _texts(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
