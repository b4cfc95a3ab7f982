"""`pkb check` shows what the compiled kernels use, by kernel and instruction."""

from pathlib import Path

import pytest

from pkb.judge.check import check

KERNEL = """
from pkb import kit
SOURCE = r'''
extern "C" __global__ void tells(unsigned* flag) { asm volatile("st.release.sys.u32 [%0], 1;" :: "l"(flag) : "memory"); }
extern "C" __global__ void adds(float* x) { x[threadIdx.x] += 1.0f; }
'''
KERNELS = kit.compile(SOURCE, name="two", arch="90a")
def solution(x):
    return x
"""


def test_kernels_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(KERNEL)
    report = check(file, build_limit_s=120)
    if report.verdict is not None and "compiler" in report.detail.lower():
        pytest.skip(report.detail)
    assert report.ok, report.detail
    if any("neither cuobjdump nor nvdisasm" in line for line in report.machine_code):
        pytest.skip("no disassembler here")
    (line,) = report.machine_code
    assert line.startswith("tells: sm_load_store (")
    assert "SYS" in line
