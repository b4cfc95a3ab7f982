"""The compilers that tests of the kit need, and a build folder of their own."""

from pathlib import Path

import pytest

from pkb.kit import cpp, nvcc, nvrtc
from pkb.kit.toolkit import cuda_home

HAS_CUDA_COMPILER = nvrtc.load() is not None or nvcc.find() is not None
needs_cuda_compiler = pytest.mark.skipif(not HAS_CUDA_COMPILER, reason="neither NVRTC nor nvcc is on this machine")
needs_nvcc = pytest.mark.skipif(nvcc.find() is None or cuda_home() is None, reason="no nvcc on this machine")
needs_cxx = pytest.mark.skipif(cpp.find_cxx() is None, reason="no C++ compiler on this machine")

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""GPUs that people have: A100; A10, RTX 3090; L4, L40S, RTX 4090; H100, H200, H20; B200; RTX 5090, RTX PRO 6000."""

BROKEN = 'extern "C" __global__ void broken(float* x) {\n  x[0] = 1.0f;\n  x[1] = nobody;\n}\n'


@pytest.fixture(autouse=True)
def build_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "build"
    monkeypatch.setenv("PKB_BUILD_DIR", str(folder))
    monkeypatch.delenv("PKB_BUILD_CACHE", raising=False)
    return folder
