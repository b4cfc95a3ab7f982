"""The emulated GPU by itself: warps, blocks, grids, atomics, rounding, inline assembly, streams."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit_compilers import needs_nvcc

from pkb.kit.emulated.gxx import find_gxx


@pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
def test_the_emulated_gpu(tmp_path: Path) -> None:
    """In a process of its own: it replaces parts of torch."""
    program = Path(__file__).with_name("cuda_on_cpu_device.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"PKB_BUILD_DIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
def test_what_candidates_take_from_libraries() -> None:
    """cub, thrust, cuBLAS, graphs, bulk copies, what tensors say of their device. Builds are kept: the adaptor takes long."""
    program = Path(__file__).with_name("cuda_on_cpu_libraries.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
def test_what_kernels_of_today_are_written_with() -> None:
    """Pipelines, barriers and copies of libcu++, clusters, launches with attributes; a race where a wait is forgotten."""
    program = Path(__file__).with_name("cuda_on_cpu_modern.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@needs_nvcc
def test_nvcc_takes_the_same_text(tmp_path: Path) -> None:
    """Else the emulator would be taught what no GPU accepts."""
    source = Path(__file__).with_name("cuda_on_cpu_modern.cu")
    command = ["nvcc", "-arch=sm_90a", "-std=c++17", "-cubin", str(source), "-o", str(tmp_path / "made")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
