"""ParallelKittens' headers, by a stand-in: a build finds the copy that is named, and reads nothing beside it."""

from pathlib import Path

import pytest

from pkb.judge.check import check
from pkb.judge.session import evaluate
from pkb.kit import kittens, nvcc
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Verdict

builds = pytest.mark.skipif(nvcc.find() is None, reason="nvcc is not here")
STAND_IN = """#pragma once
#if __cplusplus < 202002L || !defined(KITTENS_HOPPER)
#error "C++20 and a generation of GPUs are needed"
#endif
namespace kittens {
template <class T> concept number = requires(T a) { a + a; };
constexpr int of_the_host(int x) { return 2 * x; }  // called by kernels: --expt-relaxed-constexpr
}
"""
CANDIDATE = '''
from pkb import kit

SOURCE = r"""
#include "kittens.cuh"
%s
template <kittens::number T> __device__ T twice_of(T x) { return x * kittens::of_the_host(1); }
extern "C" __global__ void twice(int* x) { x[0] = twice_of(x[0]); }
"""
MODULE = kit.compile(SOURCE, name="twice")


def solution(x):
    return x
'''
READER = """
import os
import torch.distributed as dist

HOME = os.environ["PKB_KITTENS"]
with open(f"{HOME}/include/kittens.cuh") as header:
    assert "namespace kittens" in header.read()
try:
    open(f"{HOME}/secret/key.h")
except PermissionError:
    pass
else:
    raise RuntimeError("what lies beside the headers was opened")


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "ThunderKittens"
    for name, text in (("include/kittens.cuh", STAND_IN), ("secret/key.h", "int key = 42;\n")):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(text)
    monkeypatch.setenv(kittens.VARIABLE, str(home))
    monkeypatch.setenv("PKB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PKB_CUDA_ARCH", "sm_90a")
    return home


@builds
def test_a_source_that_includes_them_is_built_with_the_named_copy(copy: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "c.py"
    candidate.write_text(CANDIDATE % "")
    report = check(candidate, build_limit_s=120)
    assert report.ok, report.detail
    assert [kind for _, kind, _ in report.built] == [f"cubin, kittens {kittens.fingerprint()}"]


@builds
def test_what_lies_beside_the_headers_cannot_be_read(copy: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "c.py"
    candidate.write_text(CANDIDATE % f'#include "{copy}/secret/key.h"')
    report = check(candidate, build_limit_s=120)
    assert report.verdict is Verdict.COMPILE_ERROR
    assert "42" not in str(report.failure)


@builds
def test_without_a_copy_it_is_unsupported_and_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(kittens.VARIABLE, raising=False)
    candidate = tmp_path / "c.py"
    candidate.write_text(CANDIDATE % "")
    report = check(candidate, build_limit_s=120)
    assert report.verdict is Verdict.UNSUPPORTED
    assert report.detail == kittens.MISSING


def test_ranks_read_the_headers_and_nothing_beside_them(copy: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "c.py"
    candidate.write_text(READER)
    found = evaluate(Job(candidate, Case("1", "cpu", 2, "tiny", "bf16", "quick"), timing=False))
    assert found.isolation["files"].startswith("on"), found.isolation
    assert found.verdict is Verdict.CORRECT, found.detail
