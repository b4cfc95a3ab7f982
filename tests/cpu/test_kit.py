"""The kit without a GPU: real compilers, a real cache on disk, real processes that race for it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import kit_compilers
import pytest
from kit_compilers import BROKEN, needs_cuda_compiler, needs_cxx, needs_nvcc

from pkb import kit
from pkb.kit import cpp
from pkb.kit.arguments import Frame
from pkb.kit.toolkit import cuda_home, normal_arch

build_dir = kit_compilers.build_dir

SUM_CPP = """
extern "C" double sum(const float* x, long n) { double s = 0; for (long i = 0; i < n; ++i) s += x[i]; return s; }
"""


def counting(real: Path, folder: Path, *, delay: float = 0.0) -> tuple[Path, Path]:
    """A compiler that writes a line to a file each time it is started, and then is the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    script, runs = folder / real.name, folder / "runs"
    script.write_text(f'#!/bin/sh\necho run >> "{runs}"\nsleep {delay}\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return script, runs


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=variables, stdout=pipe, stderr=pipe, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@needs_cuda_compiler
def test_a_compile_error_names_its_line_and_leaves_nothing(build_dir: Path) -> None:
    with pytest.raises(kit.CompileError) as caught:
        kit.compile(BROKEN, name="bad kernel!", arch="sm_90a")
    assert caught.value.line == 3
    assert caught.value.first_error.startswith("bad_kernel_.cu(3): error")
    assert "nobody" in caught.value.first_error
    assert "nobody" in caught.value.log
    assert not [path for path in build_dir.iterdir() if path.suffix not in (".lock", ".failed")]


@needs_cuda_compiler
def test_an_error_inside_ptx_is_a_compile_error_too() -> None:
    source = 'extern "C" __global__ void k(int* x) { asm volatile("no.such.instruction %0;" :: "l"(x)); }'
    with pytest.raises(kit.CompileError) as caught:
        kit.compile(source, arch="sm_90a")
    assert "ptxas" in caught.value.first_error or "no.such" in caught.value.log


@needs_nvcc
def test_the_second_compile_runs_no_compiler_and_any_change_does(tmp_path: Path) -> None:
    home, real_home = tmp_path / "cuda", cuda_home()
    assert real_home is not None
    _, runs = counting(real_home / "bin" / "nvcc", home / "bin")
    (home / "include").symlink_to(real_home / "include")
    code = """
from pkb import kit
source = 'extern "C" __global__ void k(int* x) { x[0] = N; }'
for n, arch in ((1, "sm_90a"), (1, "sm_90a"), (2, "sm_90a"), (1, "sm_80")):
    print(kit.compile(source, name="k", options=[f"-DN={n}"], arch=arch).artifact.cached)
"""
    environment = {"CUDA_HOME": str(home), "PKB_CUDA_COMPILER": "nvcc"}
    assert finish(start(code, **environment)).split() == ["False", "True", "False", "False"]
    assert len((home / "bin" / "runs").read_text().split()) == 3
    assert finish(start(code, **environment)).split() == ["True"] * 4
    assert len(runs.read_text().split()) == 3


@needs_cxx
def test_processes_at_once_build_once(tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=0.5)
    code = "from pkb import kit; print(kit.build_cpp('extern \"C\" int f() { return 41; }').f())"
    ranks = [start(code, CXX=str(script)) for _ in range(3)]
    assert [finish(rank).strip() for rank in ranks] == ["41"] * 3
    assert len(runs.read_text().split()) == 1


@needs_cxx
def test_processes_that_wait_for_a_failing_build_fail_with_it(tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=1.5)
    code = """
from pkb import kit
try: kit.build_cpp('int f() {\\n return nobody; }')
except kit.CompileError as error: print(error.line)
"""
    ranks = [start(code, CXX=str(script)) for _ in range(3)]
    assert [finish(rank).strip() for rank in ranks] == ["2"] * 3
    assert len(runs.read_text().split()) == 1
    # Not remembered: the next one tries again.
    assert finish(start(code, CXX=str(script))).strip() == "2"
    assert len(runs.read_text().split()) == 2


@needs_cxx
def test_waiting_for_another_build_is_bounded(build_dir: Path, tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=4)
    code = "from pkb import kit; kit.build_cpp('extern \"C\" int f() { return 41; }')"
    first = start(code, CXX=str(script))
    while not runs.exists():
        assert first.poll() is None
    second = start(code, CXX=str(script), PKB_BUILD_WAIT="0.3")
    _, err = second.communicate(timeout=60)
    assert "BuildTimeout" in err
    finish(first)


@needs_cxx
def test_cpp_end_to_end_and_from_a_read_only_cache(
    build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = kit.build_cpp(SUM_CPP, name="sum")
    library.sum.restype = ctypes.c_double
    library.sum.argtypes = [ctypes.c_void_p, ctypes.c_long]
    values = (ctypes.c_float * 4)(1.0, 2.0, 3.0, 4.5)
    assert library.sum(ctypes.addressof(values), 4) == 10.5

    prebuilt = tmp_path / "prebuilt"
    build_dir.rename(prebuilt)
    monkeypatch.setenv("PKB_BUILD_CACHE", str(prebuilt))
    artifact = cpp.library_recipe(SUM_CPP, name="sum", options=()).obtain()
    assert artifact.cached
    assert artifact.path.parent == prebuilt
    assert not build_dir.exists()


@needs_cxx
def test_a_cpp_error_names_its_line() -> None:
    with pytest.raises(kit.CompileError, match="nobody") as caught:
        kit.build_cpp("int f() {\n\n  return nobody;\n}", name="bad")
    assert caught.value.line == 3
    assert caught.value.first_error.startswith("bad.cpp:3:")


@needs_cuda_compiler
def test_a_launch_without_a_gpu_says_so() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    kernel = kit.compile('extern "C" __global__ void k() {}', arch="sm_90a").kernel("k")
    with pytest.raises(RuntimeError, match="GPU"):
        kernel[1, 32]()


def test_importing_the_kit_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, pkb.kit, pkb.candidates.prebuild; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert finish(start(code)).strip() == "[]"


def test_integers_do_not_wrap_around() -> None:
    assert kit.i32(-(2**31)).value == -(2**31)
    assert kit.u32(2**32 - 1).value == 2**32 - 1
    for convert, value in ((kit.i32, 2**31), (kit.u32, -1), (kit.u64, 2**64)):
        with pytest.raises(OverflowError):
            convert(value)


def test_parameters_are_marshalled_by_value() -> None:
    class Triple(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int * 3),)

    no_tensor = type("Tensor", (), {})
    triple, small = Triple((7, 8, 9)), kit.i32(-3)
    frame = Frame(6)
    for first in (-5, 6):  # the second fill reuses the storage of the first
        frame.fill((first, 2.5, True, None, small, triple), (8, 8, 1, 8, 4, 12), no_tensor, "k", (1, 1, 1))
    address = [pointer or 0 for pointer in frame.pointers]
    assert ctypes.c_int64.from_address(address[0]).value == 6
    assert ctypes.c_double.from_address(address[1]).value == 2.5
    assert ctypes.c_bool.from_address(address[2]).value is True
    assert ctypes.c_uint64.from_address(address[3]).value == 0
    assert ctypes.c_int32.from_address(address[4]).value == -3
    assert list(Triple.from_address(address[5]).a) == [7, 8, 9]
    with pytest.raises(TypeError, match=r"kit\.i32"):
        frame.fill((1,), (4,), no_tensor, "k", (1, 1, 1))
    with pytest.raises(TypeError, match="is a str"):
        frame.fill(("x",), (8,), no_tensor, "k", (1, 1, 1))
    pipe = kit.Pipe(blocks=8)
    frame.fill((pipe,), None, no_tensor, "k", (4, 2, 1))
    with pytest.raises(ValueError, match="pipeline for 8 blocks"):
        frame.fill((pipe,), None, no_tensor, "k", (3, 3, 1))


def test_only_what_is_not_aligned_is_copied() -> None:
    import torch

    whole = torch.arange(64, dtype=torch.float32)
    assert kit.aligned(whole) is whole
    for view in (whole[1:], whole.view(8, 8)[:, 1]):
        copy = kit.aligned(view)
        assert (copy.data_ptr() % 16, copy.is_contiguous()) == (0, True)
        assert torch.equal(copy, view)


def test_architectures_are_written_in_many_ways() -> None:
    assert {normal_arch(text) for text in ("9.0a", "90a", "sm_90a", "compute_90a")} == {"sm_90a"}
    with pytest.raises(ValueError, match="hopper"):
        normal_arch("hopper")
