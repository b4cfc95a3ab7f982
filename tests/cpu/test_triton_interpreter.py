"""A bfloat16 kernel under the interpreter gives what a GPU would: torch's own bfloat16 arithmetic, rounded once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
import torch, triton, triton.language as tl
{mend}
@triton.jit
def kernel(x, y, total, product, exponential, compared, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(total + i, a + b)
    tl.store(exponential + i, tl.maximum(a * b - a, b))
    tl.store(compared + i, (a < b).to(tl.int32))
    square = i[:, None] * N + i[None, :]
    m = tl.load(x + square)
    tl.store(product + square, tl.dot(m, tl.trans(m)))
torch.manual_seed(0)
N = 16
x, y = torch.randn(N, N).bfloat16(), torch.randn(N).bfloat16()
total, compared = torch.empty(N).bfloat16(), torch.empty(N, dtype=torch.int32)
exponential, product = torch.empty(N).bfloat16(), torch.empty(N, N)
kernel[(1,)](x, y, total, product, exponential, compared, N)
a = x[0]
assert torch.equal(total, a + y), "addition"
assert torch.equal(exponential, torch.maximum(a * y - a, y)), "product, difference, maximum"
assert torch.equal(compared, (a < y).int()), "comparison"
assert torch.allclose(product, x.float() @ x.float().t(), atol=1e-5), "matrix product"
"""


LOOP = """
import torch, triton, triton.language as tl, triton.runtime.interpreter as interpreter
patch = interpreter._patch_lang_tensor
def older(tensor, *scope):
    patch(tensor, *scope)
    tensor.__index__ = lambda self: [][0]
interpreter._patch_lang_tensor = older
{mend}
@triton.jit
def kernel(x, count):
    for i in range(tl.load(count)):
        tl.store(x, tl.load(x) + 1)
x = torch.zeros(1)
kernel[(1,)](x, torch.tensor([3]))
assert x.item() == 3
"""
"""With what Triton 3.6 and numpy 2.5 do together, by another error."""
MEND = "from pkb.rank.emulate.triton_interpreter import mend_bfloat16; mend_bfloat16(); mend_bfloat16()"


def run(folder: Path, mend: str, text: str = KERNEL) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("triton")
    file = folder / "kernel.py"  # Triton reads a kernel's source from its file
    file.write_text(text.format(mend=mend))
    return subprocess.run(
        [sys.executable, str(file)], text=True, capture_output=True, timeout=120, check=False,
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_bfloat16_is_computed_as_on_a_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, MEND)
    assert done.returncode == 0, done.stderr


def test_a_loop_over_a_loaded_bound_runs_whatever_numpy_makes_of_arrays_of_one(tmp_path: Path) -> None:
    assert "IndexError" in run(tmp_path, "", LOOP).stderr
    done = run(tmp_path, MEND, LOOP)
    assert done.returncode == 0, done.stderr


def test_the_mending_is_still_needed(tmp_path: Path) -> None:
    """When this fails, Triton does it itself, and `rank/emulate/triton_interpreter.py` can go."""
    assert "AssertionError" in run(tmp_path, "").stderr
