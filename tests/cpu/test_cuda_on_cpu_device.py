"""The emulated GPU by itself: warps, blocks, grids, atomics, rounding, inline assembly, streams."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
