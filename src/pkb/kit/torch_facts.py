"""What building against torch needs to know of it, read from its files: importing it would cost more than a build."""

import ast
import importlib.util
import re
from functools import lru_cache
from pathlib import Path


@lru_cache
def folder() -> Path:
    """Where the `torch` package lies. Raises ImportError where there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError("torch is not installed")
    return Path(spec.origin).parent


@lru_cache
def version() -> str:
    """As `torch.__version__` says it."""
    return _said("__version__") or ""


@lru_cache
def cuda_version() -> str | None:
    """As `torch.version.cuda` says it: None for a build without CUDA."""
    return _said("cuda")


def _said(name: str) -> str | None:
    text = (folder() / "version.py").read_text()
    match = re.search(rf"^{name}\b[^=\n]*= ['\"]([^'\"]*)['\"]", text, re.M)
    return match.group(1) if match else None


@lru_cache
def cxx11_abi() -> bool:
    config = folder() / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    text = config.read_text() if config.is_file() else ""
    match = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", text)
    return match is None or match.group(1) == "1"


def include_folders() -> list[str]:
    root = folder() / "include"
    return [str(root), str(root / "torch" / "csrc" / "api" / "include")]


@lru_cache
def _loader_text() -> str:
    return (folder() / "utils" / "cpp_extension.py").read_text()


@lru_cache
def nvcc_flags() -> tuple[str, ...]:
    """What torch's own loader gives to nvcc in every build."""
    match = re.search(r"^COMMON_NVCC_FLAGS\s*=\s*(\[.*?\])", _loader_text(), re.M | re.S)
    return tuple(ast.literal_eval(match.group(1))) if match else ("--expt-relaxed-constexpr",)


@lru_cache
def standard() -> str:
    """torch raises the C++ standard that its headers need from time to time; its own loader knows which."""
    return "-std=c++20" if "'-std=c++20'" in _loader_text() else "-std=c++17"
