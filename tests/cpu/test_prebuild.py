"""`python -m pkb.candidates.prebuild` as the judge runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kit_compilers
import pytest
from kit_compilers import BROKEN, needs_cuda_compiler, needs_cxx, needs_nvcc

from pkb import kit
from pkb.candidates.prebuild import prebuild as prebuilt
from pkb.judge.stages import artifacts
from pkb.kit import nvrtc
from pkb.kit.cache import find

build_dir = kit_compilers.build_dir

GOOD = '''
import torch
from pkb import kit
from pkb.candidates.prebuild import prebuild as prebuilt
from pkb.kit import build_cpp as make
BLOCK = 128
BODY = "x[threadIdx.x] *= 2.f;"
SOURCE = f"""
#include "pkb.cuh"
#define BLOCK {BLOCK * 2}
extern "C" __global__ void twice(float* x) {{ {BODY} }}
""" + "// end"
raise SystemExit("the candidate must not be run")
module = kit.compile(SOURCE, name="twice", options=("-lineinfo",), arch="sm_90a")
def solution(x):
    text = 'extern "C" int NAME() { return 3; }'.replace("NAME", "three")
    make(text)
    return compile("1", "f", "eval")
'''


def prebuild(source: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "candidate.py"
    file.write_text(source)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pkb.candidates.prebuild", str(file)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@needs_cxx
@needs_cuda_compiler
def test_prebuild_fills_the_cache_of_the_ranks(tmp_path: Path) -> None:
    status, report = prebuild(GOOD, tmp_path)
    assert (status, report["error"], report["skipped"], report["unavailable"]) == (0, None, [], None)
    assert [(b["name"], b["kind"], b["cached"]) for b in report["built"]] == [
        ("twice", "cubin", False),
        ("library", "cpp", False),
    ]
    body = "x[threadIdx.x] *= 2.f;"
    text = f'\n#include "pkb.cuh"\n#define BLOCK 256\nextern "C" __global__ void twice(float* x) {{ {body} }}\n// end'
    assert kit.compile(text, name="twice", options=["-lineinfo"], arch="sm_90a").artifact.cached
    assert prebuild(GOOD, tmp_path)[1]["built"][1]["cached"]


@needs_cuda_compiler
def test_prebuild_reports_a_compile_error(tmp_path: Path) -> None:
    status, report = prebuild(f"import pkb.kit\nS = {BROKEN!r}\nM = pkb.kit.compile(S, name='bad')\n", tmp_path)
    assert status == 1
    assert report["error"]["name"] == "bad"
    assert (report["error"]["kind"], report["error"]["line"]) == ("cubin", 3)
    assert report["error"]["first_error"].startswith("bad.cu(3): error")


@needs_cuda_compiler
def test_a_compile_error_inside_a_try_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    source = f"from pkb import kit\ntry:\n    kit.compile({BROKEN!r})\nexcept kit.CompileError:\n    pass\n"
    status, report = prebuild(source, tmp_path)
    assert (status, report["error"]) == (0, None)
    assert "inside a try" in report["skipped"][0]["why"]


@needs_cuda_compiler
def test_the_kernels_in_the_manual_compile(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "kit.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", manual, re.S)
    kernels = [text for language, text in blocks if language == "cuda"]
    assert len(kernels) == 1
    for text in kernels:
        assert kit.compile(text, name="manual", arch="sm_90a").artifact.path.exists()
    built = []
    for text in [text for language, text in blocks if language == "python" and "kit.compile" in text]:
        status, report = prebuild(text, tmp_path)
        assert (status, report["skipped"]) == (0, [])
        built += [item["name"] for item in report["built"]]
    assert built == ["one_shot", "all_gather"]


@needs_cxx
def test_debug_builds_are_asked_for_by_a_variable_and_built_behind_walls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a build is made outside of the walls, so whoever builds inside must know of the variable too."""
    said = '#include "pkb.cuh"\nextern "C" __global__ void k() { if (pkb::DEBUG) printf("only in debug builds"); }'
    monkeypatch.setenv("PKB_EMULATE_CUDA", "1")
    monkeypatch.setenv("PKB_BUILD_CACHE", str(artifacts.cache_folder()))  # the runtime is built once a machine
    found = {}
    for value in ("0", "1"):
        monkeypatch.setenv("PKB_KIT_DEBUG", value)
        status, report = prebuild(f"from pkb import kit\nkit.compile({said!r}, name='k')\n", tmp_path)
        assert (status, report["error"]) == (0, None)
        (built,) = [item for item in report["built"] if item["name"] == "k"]
        found[value] = find(built["file"])
    assert [b"only in debug builds" in path.read_bytes() for path in found.values() if path] == [False, True]


@needs_cxx
@pytest.mark.parametrize("compiler", [True, False])
def test_a_mistake_in_an_emulated_kernel_has_its_line_and_says_how_to_know_whose_it_is(
    compiler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g++ alone cannot tell a misspelt name from one that the emulator lacks; CUDA's own compiler can."""
    if compiler and nvrtc.load() is None:
        pytest.skip("needs NVRTC")
    if not compiler:
        for finder in ("pkb.kit.nvrtc.load", "pkb.kit.nvcc.find"):
            monkeypatch.setattr(finder, lambda: None)
    monkeypatch.setenv("PKB_EMULATE_CUDA", "1")
    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("PKB_BUILD_CACHE", str(artifacts.cache_folder()))
    kernel = 'extern "C" __global__ void k(int* a) {\n  *a = misspelt(1);\n}'
    report = prebuilt(f'from pkb import kit\n\nkit.compile("""\n{kernel}\n""", name="k")\n')
    if compiler:
        assert report.error is not None
        assert report.error.first_error.startswith("line 5 of the candidate: k.cu(")
    else:
        assert report.error is None
        assert report.unavailable is not None
        assert "line 5 of the candidate: k.cu:" in report.unavailable
        assert "pkb[cuda]" in report.unavailable


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("S = open('x').read()\nkit.compile(S)", "open"),
        ("S = 'a'\nS = 'b'\nkit.compile(S)", "`S`"),
        ("S = 'a'\ndef f():\n    global S\n    S = 'b'\nkit.compile(S)", "`S`"),
        ("def f(S):\n    return kit.compile(S)", "`S`"),
        ("kit.compile(*['a'])", "star"),
        ("kit.compile('x' * 10**9)", "Pow"),
        ("kit.compile(f'{1:>999999999}')", "wide"),
        ("kit.compile(('a' * 4000000).replace('a', 'b' * 4000000))", "too large"),
        ("kit.compile(name='k')", "`source`"),
    ],
)
def test_prebuild_skips_what_only_running_can_tell(source: str, why: str, tmp_path: Path) -> None:
    status, report = prebuild(f"from pkb import kit\n{source}\n", tmp_path)
    assert (status, report["built"], report["error"]) == (0, [], None)
    assert why in report["skipped"][0]["why"]


def test_prebuild_without_compilers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if nvrtc.load() is not None or Path("/usr/local/cuda").exists():
        source, variable = "kit.build_cpp('int x;')", "PATH"
    else:
        source, variable = "kit.compile('int x;')", "PATH"
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    status, report = prebuild(f"from pkb import kit\n{source}\n", tmp_path)
    assert status == 0
    assert "compiler" in report["unavailable"]


UPSTREAM = '''
from utils.cuda_helpers import compile_cuda_extension
CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_bf16.h>
__global__ void twice(float* x, long n) { long i = threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(x.device());
  twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();MISTAKE
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
_ext = None
def _get():
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("twice_ext", CUDA_SRC, extra_cuda_cflags=["-O3"])
    return _ext
'''


@needs_nvcc
def test_prebuild_of_an_upstream_candidate(tmp_path: Path) -> None:
    status, report = prebuild(UPSTREAM.replace("MISTAKE", ""), tmp_path)
    assert (status, report["error"], report["skipped"]) == (0, None, [])
    (built,) = report["built"]
    assert (built["name"], built["kind"], built["line"], built["headers"]) == ("twice_ext", "extension", 20, "ours")


@needs_nvcc
@pytest.mark.slow
def test_prebuild_of_an_upstream_candidate_with_a_mistake(tmp_path: Path) -> None:
    status, report = prebuild(UPSTREAM.replace("MISTAKE", " nobody();"), tmp_path)
    assert status == 1
    assert report["error"]["first_error"].startswith("twice_ext.cu(10): error")
    assert "nobody" in report["error"]["first_error"]
